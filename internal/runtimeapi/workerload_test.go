package runtimeapi

import (
	"context"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"tier-agent/test/guarantee"
)

// mastered is an instance whose master socket is a fake's; its stats socket
// answers as worker 7.
func mastered(t testing.TB, handle func(net.Conn, string), o Options) *Instance {
	m := serve(t, "unix", handle)
	o.Master = Socket{m.network, m.address}
	return serve(t, "unix", obey(7, nil)).instance(o)
}

// master is a fake of a master of 3.0 and 3.2: it keeps a connection until it is
// told to quit, and drops the rest of the line once it has said an error itself.
type master struct {
	t       testing.TB
	mu      sync.Mutex             // protects workers and said
	workers map[int]map[string]int // sessions per backend
	said    []string               // the lines, in order
	// broken takes a worker's place in an exchange, if there.
	broken map[int]func(net.Conn)
	// before runs before each line is answered, with mu held.
	before func(m *master, line string)
}

func (m *master) handle(conn net.Conn, line string) {
	m.mu.Lock()
	m.said = append(m.said, line)
	if m.before != nil {
		m.before(m, line)
	}
	broken := func(net.Conn) {}
	var b strings.Builder
	keep := true
commands:
	for command := range strings.SplitSeq(strings.TrimSuffix(line, "\n"), ";") {
		var pid int
		if _, err := fmt.Sscanf(command, "@!%d ", &pid); err == nil {
			if f, ok := m.broken[pid]; ok {
				broken = f
				break
			}
			worker, ok := m.workers[pid]
			if !ok {
				fmt.Fprintf(&b, "Can't find the target PID matching the prefix '@!%d'\n", pid)
				break commands
			}
			_, command, _ = strings.Cut(command, " ")
			b.WriteString(script(command, pid, loadTexts(worker)))
			continue
		}
		switch command {
		case "show proc":
			b.WriteString(m.proc())
		case "quit":
			keep = false
		default:
			m.t.Errorf("the master itself was asked %q", command)
		}
	}
	m.mu.Unlock()
	_, _ = io.WriteString(conn, b.String())
	broken(conn)
	if keep && b.Len() > 0 {
		hang(conn, line)
	}
}

// proc lists worker 7 as the current one and the others as old.
func (m *master) proc() string {
	row := func(pid int) string { return fmt.Sprintf("%d worker 0 0d00h00m01s 3.2.26-1\n", pid) }
	current, old := "", ""
	for pid := range 20 {
		if _, ok := m.workers[pid]; ok && pid == 7 {
			current = row(pid)
		} else if ok {
			old += row(pid)
		}
	}
	if old != "" {
		old = "# old workers\n" + old
	}
	return procText(current, old)
}

func loadTexts(worker map[string]int) map[string]string {
	texts := map[string]string{}
	for _, backend := range []string{"llm", "new"} {
		texts["show stat "+backend+" 6 -1"] = "No such proxy.\n\n"
	}
	for backend, sessions := range worker {
		texts["show stat "+backend+" 6 -1"] = fmt.Sprintf(statHeader+"\n%s,gpu1,,,,0,%d,,UP,1,2,,,,,\n%[1]s,BACKEND,,,,0,%[2]d,,UP,1,1,,,,leastconn,\n\n", backend, sessions)
	}
	return texts
}

func newMaster(t testing.TB) *master {
	return &master{t: t, workers: map[int]map[string]int{7: {"llm": 4}, 6: {"llm": 3}, 5: {"llm": 2}}}
}

func TestRecordedOldWorker(t *testing.T) {
	for _, version := range recorded {
		whole := golden(t, version, "oldload")
		var pid int
		_, err := fmt.Sscanf(whole[strings.Index(whole, "\nPid: "):], "\nPid: %d", &pid)
		require.NoError(t, err)
		i := mastered(t, say(whole), Options{})
		load, err := i.WorkerLoad(t.Context(), pid, "llm")
		require.NoError(t, err)
		assert.True(t, load.Info.Stopping)
		assert.Equal(t, pid, load.Info.PID)
		assert.Equal(t, 3, load.Sessions)
		assert.Equal(t, "source", load.Algo)
		require.Len(t, load.Servers, 2)
		assert.Equal(t, 3, load.Servers[0].Sessions+load.Servers[1].Sessions)
		assert.Equal(t, 50, load.Servers[0].MaxConn)

		gone := mastered(t, func(c net.Conn, line string) {
			name := map[bool]string{true: "proc", false: "nosuchworker"}[strings.HasPrefix(line, "show proc")]
			say(golden(t, version, name))(c, line)
		}, Options{})
		_, err = gone.WorkerLoad(t.Context(), 999999, "llm")
		require.ErrorIs(t, err, ErrWorkerGone)

		// Negative control: without the comparison in framed this is a load.
		_, err = i.WorkerLoad(t.Context(), pid+1, "llm")
		require.ErrorIs(t, err, ErrOtherProcess)
		assert.ErrorContains(t, err, fmt.Sprintf("expected process %d, %d answered", pid+1, pid))
	}
}

// Negative control: a sentinel that need not come in unframe lets some through.
func TestNoCutOfAWorkersAnswerIsALoad(t *testing.T) {
	whole := infoText(6) + loadTexts(map[string]int{"llm": 3})["show stat llm 6 -1"] + infoText(6)
	for cut := range len(whole) + 1 {
		i := New("hap1", "unix", "x", Options{Master: Socket{"unix", "m"}, Dial: func(context.Context, string, string) (net.Conn, error) {
			return &spoken{answer: strings.NewReader(whole[:cut])}, nil
		}})
		load, err := i.WorkerLoad(t.Context(), 6, "llm")
		if cut == len(whole) {
			require.NoError(t, err)
			assert.Equal(t, 3, load.Sessions)
			continue
		}
		if err == nil || load.Servers != nil {
			guarantee.T(t).Errorf("cut at %d of %d: %v", cut, len(whole), load)
			guarantee.T(t).FailNow()
		}
	}
}

// Negative control: a masterFrame that has the prefix once asks the master itself;
// one without quit ends in a timeout.
func TestWorkerLoadIsOneLineThatEndsTheConnection(t *testing.T) {
	m := newMaster(t)
	i := mastered(t, m.handle, Options{})
	load, err := i.WorkerLoad(ExpectPID(t.Context(), 7), 6, "llm")
	require.NoError(t, err)
	assert.Equal(t, 3, load.Sessions)
	assert.Equal(t, 6, load.Info.PID)
	assert.Equal(t, []string{"@!6 show info;@!6 show stat llm 6 -1;@!6 show info;quit\n"}, m.said)

	_, err = i.WorkerLoad(t.Context(), 6, "new")
	require.ErrorIs(t, err, ErrNoSuchServer)
	assert.NotErrorIs(t, err, ErrWorkerGone)
}

// Negative controls: without the question to show proc in workerLoad "ended" is
// incomplete; with ErrWorkerGone for any failure the others are gone. Without the
// opening in roundTrip "ended" takes until the timeout and its text is another.
func TestGoneAndUnreadableWorkersAreToldApart(t *testing.T) {
	for _, tc := range []struct {
		name   string
		pid    int
		broken func(net.Conn)
		proc   bool // whether show proc can be read
		want   error
		text   string
	}{
		{"ended", 4, nil, true, ErrWorkerGone, "/s: incomplete answer: 0 of 2 sentinels, then \"Can't find the target PID"},
		{"ended while it was asked", 4, func(c net.Conn) { _, _ = io.WriteString(c, "Can't connect to the target CLI!\n") }, true, ErrWorkerGone, "Can't connect"},
		{"ended, show proc cannot be read", 4, nil, false, ErrIncomplete, "worker 4: master at "},
		{"hangs", 6, func(c net.Conn) { hang(c, "") }, true, ErrTimeout, "/s: haproxy did not answer in time"},
		{"closes", 6, func(net.Conn) {}, true, ErrIncomplete, "closed without a word"},
		{"says an error and hangs", 6, func(c net.Conn) { _, _ = io.WriteString(c, "Can't connect to the target CLI!\n"); hang(c, "") }, true, ErrIncomplete, "Can't connect"},
		{"cut off", 6, func(c net.Conn) { _, _ = io.WriteString(c, infoText(6)) }, true, ErrIncomplete, "1 of 2 sentinels"},
		{"another answers", 6, func(c net.Conn) {
			_, _ = io.WriteString(c, script("show info;show stat llm 6 -1;show info", 5, loadTexts(map[string]int{"llm": 0})))
		}, true, ErrOtherProcess, "expected process 6, 5 answered"},
		{"another answers in between", 6, func(c net.Conn) {
			_, _ = io.WriteString(c, infoText(6)+loadTexts(map[string]int{"llm": 0})["show stat llm 6 -1"]+infoText(5))
		}, true, ErrOtherProcess, "process 6 before, 5 after"},
		{"floods", 6, func(c net.Conn) { _, _ = io.WriteString(c, "Name: "); flood(c, "") }, true, ErrTooLarge, "more than 65536"},
		{"floods from the first byte", 6, func(c net.Conn) { flood(c, "") }, true, ErrTooLarge, "more than 65536"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			m := newMaster(t)
			if tc.broken != nil {
				m.broken = map[int]func(net.Conn){tc.pid: tc.broken}
			}
			o := Options{Timeout: time.Minute, MaxAnswer: 64 << 10}
			if tc.want == ErrTimeout {
				o.Timeout = time.Second // enough for the command to be sent in it
			}
			i := mastered(t, func(c net.Conn, line string) {
				if tc.proc || !strings.HasPrefix(line, "show proc") {
					m.handle(c, line)
				}
			}, o)
			load, err := i.WorkerLoad(t.Context(), tc.pid, "llm")
			require.ErrorIs(t, err, tc.want)
			assert.ErrorContains(t, err, tc.text)
			assert.Zero(t, load)
			if tc.want != ErrWorkerGone {
				assert.NotErrorIs(t, err, ErrWorkerGone)
				_, err = i.AllWorkersLoad(t.Context(), "llm")
				assert.Error(guarantee.T(t), err, "one that cannot be read is not left out")
			}
		})
	}
}

// Negative control: without checkName, or the check of the process id, each call
// reaches the listener.
func TestWorkersAreNamedByNumberAndBackendsByName(t *testing.T) {
	f := serve(t, "unix", hang)
	i := f.instance(Options{Master: Socket{f.network, f.address}})
	for _, name := range []string{"", "a;b", "a b", "a\n", "-1 "} {
		_, err := i.WorkerLoad(t.Context(), 7, name)
		assert.ErrorIs(t, err, ErrInvalidName, "%q", name)
		_, err = i.AllWorkersLoad(t.Context(), name)
		assert.ErrorIs(t, err, ErrInvalidName, "%q", name)
	}
	for _, pid := range []int{0, -7} {
		_, err := i.WorkerLoad(t.Context(), pid, "llm")
		assert.ErrorIs(t, err, ErrInvalidName, pid)
	}
	assert.Zero(t, f.accepted.Load())
}

func TestAllWorkersLoad(t *testing.T) {
	asked := func(line, what string) bool { return strings.HasPrefix(line, what) }
	for _, tc := range []struct {
		name   string
		before func(m *master, line string)
		want   []int // sessions, current worker first
		err    error
		text   string
	}{
		{"all", nil, []int{4, 2, 3}, nil, ""},
		{"one ends before it is read", func(m *master, line string) {
			if asked(line, "@!5 ") {
				delete(m.workers, 5)
			}
		}, []int{4, 3}, nil, ""},
		// It is in nobody's list any more, but its streams were counted: a floor that is too high is safe.
		{"one ends after it was read", func(m *master, line string) {
			if asked(line, "@!6 ") {
				delete(m.workers, 5)
			}
		}, []int{4, 2, 3}, nil, ""},
		// Negative control: without the last loop in allWorkersLoad this is a success without the new worker's streams.
		{"a reload adds one", func(m *master, line string) {
			if asked(line, "@!6 ") {
				m.workers[8] = map[string]int{"llm": 1}
			}
		}, nil, ErrOtherProcess, "worker 8 was added"},
		{"one cannot be read and is still there", func(m *master, line string) {
			m.broken = map[int]func(net.Conn){5: func(net.Conn) {}}
		}, nil, ErrIncomplete, "worker 5"},
		// Negative control: without the check of the direct answer in allWorkersLoad the other HAProxy's streams count.
		{"another HAProxy's master", func(m *master, line string) {
			m.workers[8] = m.workers[7]
			delete(m.workers, 7)
		}, nil, ErrOtherProcess, "process 7 on the stats socket is no worker"},
		{"an old one does not know the backend", func(m *master, line string) {
			m.workers[5] = map[string]int{"old": 1}
		}, []int{4, 0, 3}, nil, ""},
		{"none knows the backend", func(m *master, line string) {
			m.workers = map[int]map[string]int{7: {}, 5: {}}
		}, nil, ErrNoSuchServer, "No such proxy"},
		// Negative control: without the case of no loads this is "nothing runs".
		{"all end", func(m *master, line string) {
			if asked(line, "@!") {
				m.workers = nil
			}
		}, nil, ErrWorkerGone, "each of the 3"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			m := newMaster(t)
			m.before = tc.before
			loads, err := mastered(t, m.handle, Options{Timeout: 10 * time.Second}).AllWorkersLoad(t.Context(), "llm")
			if tc.err != nil {
				require.ErrorIs(guarantee.T(t), err, tc.err)
				assert.ErrorContains(t, err, "haproxy hap1: ")
				assert.ErrorContains(t, err, tc.text)
				assert.Nil(guarantee.T(t), loads)
				return
			}
			require.NoError(t, err)
			var sessions []int
			for _, l := range loads {
				sessions = append(sessions, l.Sessions)
				assert.Equal(t, "llm", l.Backend)
				assert.Positive(t, l.Info.PID)
				_, has := l.Find("gpu1")
				assert.Equal(t, l.Sessions > 0, has)
			}
			assert.Equal(guarantee.T(t), tc.want, sessions)
		})
	}
	// The pid that is expected is the one on the stats socket.
	i := mastered(t, newMaster(t).handle, Options{})
	_, err := i.AllWorkersLoad(ExpectPID(t.Context(), 7), "llm")
	require.NoError(t, err)
	_, err = i.AllWorkersLoad(ExpectPID(t.Context(), 6), "llm")
	require.ErrorIs(t, err, ErrOtherProcess)
}
