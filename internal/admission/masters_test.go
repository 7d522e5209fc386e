package admission

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"tier-agent/internal/intent"
	"tier-agent/internal/runtimeapi"
	"tier-agent/test/guarantee"
	"tier-agent/test/socketdir"
)

// overseer is the master of hap1: it lists hap1's process, and hands on what is for it.
type overseer struct {
	mu    sync.Mutex // protects the rest
	pid   int
	since time.Time
	fate  func(intent.Master) (lives, known bool)
}

// overseen is a lab whose hap1 has a master. The others have none.
func overseen(t *testing.T) (*lab, *overseer) {
	t.Helper()
	m := &overseer{pid: 50, since: time.Now().Add(-time.Hour), fate: func(intent.Master) (bool, bool) { return false, true }}
	path := filepath.Join(socketdir.New(t), "m")
	l := newLab(t, func(o *Options, ro *runtimeapi.Options) {
		o.Lives = func(was, _ intent.Master) (bool, bool) {
			m.mu.Lock()
			defer m.mu.Unlock()
			return m.fate(was)
		}
		o.HardStopAfter = map[string]time.Duration{"hap1": 30 * time.Minute, "hap2": time.Nanosecond}
		ro.Master = runtimeapi.Socket{Network: "unix", Address: path}
	})
	set := l.o.HAProxy.Instances()
	l.o.HAProxy = runtimeapi.NewSet(set[0], runtimeapi.New("hap2", "unix", l.hap2.path, runtimeapi.Options{}))
	ln, err := net.Listen("unix", path)
	require.NoError(t, err)
	var all sync.WaitGroup
	t.Cleanup(func() { _ = ln.Close(); all.Wait() })
	all.Go(func() {
		for {
			conn, err := ln.Accept()
			if err != nil {
				return
			}
			all.Go(func() {
				defer conn.Close()
				line, _ := bufio.NewReader(conn).ReadString('\n')
				line = strings.TrimSuffix(strings.TrimSuffix(line, "\n"), ";quit")
				if strings.HasPrefix(line, "@!") {
					prefix, _, _ := strings.Cut(line, " ")
					l.hap1.serve(conn, strings.ReplaceAll(line, prefix+" ", ""))
					return
				}
				m.mu.Lock()
				defer m.mu.Unlock()
				var worker int
				l.hap1.with(func() { worker = l.hap1.pid })
				up := time.Since(m.since)
				uptime := fmt.Sprintf("0d%02dh%02dm%02ds", int(up.Hours()), int(up.Minutes())%60, int(up.Seconds())%60)
				fmt.Fprintf(conn, "#<PID> <type> <reloads> <uptime> <version>\n%d master 0 [failed: 0] %s 3.2\n# workers\n%d worker 0 %s 3.2\n\n", m.pid, uptime, worker, uptime)
			})
		}
	})
	l.watching(t)
	l.turn(t)
	return l, m
}

// taken makes another master take hap1 over. Its worker shows no stream of the one before.
func (m *overseer) taken(l *lab, fate func(intent.Master) (lives, known bool)) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.pid, m.since, m.fate = m.pid+1, time.Now(), fate
	l.hap1.with(func() { l.hap1.pid++ })
}

func (m *overseer) become(fate func(intent.Master) (lives, known bool)) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.fate = fate
}

func ended(intent.Master) (bool, bool)   { return false, true }
func living(intent.Master) (bool, bool)  { return true, true }
func unknown(intent.Master) (bool, bool) { return false, false }

// A new master has taken HAProxy over: before the quiesce, after it, or while the drain
// waits; tier-agent may have been restarted since the quiesce. The drain waits while the
// one before lives, and is refused where that cannot be seen.
//
// Controls: with hidden returning nil, each drain was done; without Masters in the record,
// that after the restart was.
func TestG8_DrainDoesNotTrustAnotherMaster(t *testing.T) {
	for _, when := range []string{"before the quiesce", "after the quiesce", "during the drain", "before a restart"} {
		t.Run(when, func(t *testing.T) {
			for name, fate := range map[string]func(intent.Master) (bool, bool){"lives": living, "unknown": unknown} {
				l, m := overseen(t)
				at := func(now string) {
					if now == when {
						m.taken(l, fate)
						l.turn(t)
					}
				}
				at("before the quiesce")
				l.quiesced(t, llm)
				at("after the quiesce")
				if when == "before a restart" {
					m.taken(l, fate)
					l.masters = map[string]succession{} // all that the memory had
					l.turn(t)
				}
				hidden := 0
				r := l.drain(t, llm, each(func(read int, p Progress) {
					if read == 2 {
						at("during the drain")
					}
					if p.HAProxy[0].Hidden == "" {
						return
					}
					if hidden++; hidden == 3 {
						m.become(ended)
					}
				}))
				if name == "lives" {
					assert.Equal(t, Done, r.Outcome, r.Message)
					assert.Equal(guarantee.T(t), 3, hidden, "it waited for the master's end")
					continue
				}
				assert.Equal(guarantee.T(t), Refused, r.Outcome, r.Message)
				assert.Equal(t, CodeReloaded, r.Code)
				assert.Contains(t, r.Message, "haproxy hap1 has another master than before, 50")
				assert.Contains(t, r.Message, "--ignore-old-workers")
				r = l.Drain(t.Context(), DrainRequest{Target: llm, Timeout: time.Minute, IgnoreOldWorkers: true})
				assert.Equal(t, Done, r.Outcome, r.Message)
			}
		})
	}
	t.Run("at its timeout", func(t *testing.T) {
		l, m := overseen(t)
		m.taken(l, living)
		l.turn(t)
		l.quiesced(t, llm)
		r := l.Drain(t.Context(), DrainRequest{Target: llm, Timeout: 3 * time.Second})
		assert.Equal(t, TimedOut, r.Outcome, r.Message)
		assert.Contains(t, r.Message, "after 3s master 50 of haproxy hap1, which another one has replaced, still lives")
	})
	t.Run("that has ended", func(t *testing.T) {
		l, m := overseen(t)
		m.taken(l, ended)
		l.turn(t)
		l.quiesced(t, llm)
		assert.Equal(t, Done, l.drain(t, llm, nil).Outcome)
	})
	t.Run("that hard-stop-after has ended", func(t *testing.T) {
		l, m := overseen(t)
		m.taken(l, unknown)
		m.mu.Lock()
		m.since = time.Now().Add(-31 * time.Minute)
		m.mu.Unlock()
		l.turn(t)
		l.quiesced(t, llm)
		assert.Equal(t, Done, l.drain(t, llm, nil).Outcome)
	})
	t.Run("a reload of the same", func(t *testing.T) {
		l, m := overseen(t)
		m.become(unknown)
		l.hap1.with(func() { l.hap1.pid++ })
		l.turn(t)
		l.quiesced(t, llm)
		assert.Equal(t, Done, l.drain(t, llm, nil).Outcome)
	})
}

// A process of this machine is told by its name and its start from another one of its id.
func TestAMastersLifeIsReadFromProc(t *testing.T) {
	name := filepath.Join(t.TempDir(), "haproxy-of-a-test")
	sleep, err := exec.LookPath("sleep")
	require.NoError(t, err)
	binary, err := os.ReadFile(sleep)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(name, binary, 0o755))
	start := func() (intent.Master, func()) {
		ctx, end := context.WithCancel(t.Context())
		cmd := exec.CommandContext(ctx, name, "60")
		require.NoError(t, cmd.Start())
		return intent.Master{PID: cmd.Process.Pid, Started: time.Now().Unix()}, func() { end(); _ = cmd.Wait() }
	}
	is := func(wantLives, wantKnown bool, m, now intent.Master) {
		t.Helper()
		lives, known := lives(m, now)
		assert.Equal(t, [2]bool{wantLives, wantKnown}, [2]bool{lives, known})
	}
	was, endWas := start()
	now, endNow := start()
	defer endNow()
	require.Eventually(t, func() bool { return isHAProxy(was) && isHAProxy(now) }, 10*time.Second, time.Millisecond, "they have begun")
	is(true, true, was, now)
	is(false, true, intent.Master{PID: was.PID, Started: was.Started - 100}, now) // another one had its id
	is(false, true, intent.Master{PID: os.Getpid(), Started: was.Started}, now)   // no HAProxy
	is(false, false, was, intent.Master{PID: now.PID, Started: now.Started + 3600})
	is(false, false, was, intent.Master{PID: os.Getpid(), Started: now.Started}) // another container's 1 is not ours
	endWas()
	is(false, true, was, now)
}
