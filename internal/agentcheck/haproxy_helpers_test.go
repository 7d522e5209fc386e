package agentcheck

import (
	"encoding/csv"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tier-agent/test/socketdir"
)

// script is a Source that can be changed, and that knows how often it was asked.
type script struct {
	mu     sync.Mutex // protects states and asked
	change *sync.Cond
	states map[string]State
	asked  map[string]int
}

func newScript() *script {
	s := &script{states: map[string]State{}, asked: map[string]int{}}
	s.change = sync.NewCond(&s.mu)
	return s
}

func (s *script) AgentState(name []byte) (State, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.asked[string(name)]++
	s.change.Broadcast()
	st, ok := s.states[string(name)]
	return st, ok
}

func (s *script) Continues(begun []byte) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	for name := range s.states {
		if len(name) > len(begun) && strings.HasPrefix(name, string(begun)) {
			return true
		}
	}
	return false
}

func (s *script) set(name string, st State) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.states[name] = st
}

// polls waits for n more. HAProxy has one out per server, so the beginning of
// the second proves that the answer to the first has been applied.
func (s *script) polls(tb testing.TB, name string, n int) {
	tb.Helper()
	const limit = 10 * time.Second
	end := time.Now().Add(limit)
	defer time.AfterFunc(limit, s.change.Broadcast).Stop()
	s.mu.Lock()
	defer s.mu.Unlock()
	for until := s.asked[name] + n; s.asked[name] < until; {
		require.True(tb, time.Now().Before(end), "HAProxy does not ask for %s", name)
		s.change.Wait()
	}
}

// server is what HAProxy makes of a server: its srv_op_state and srv_admin_state,
// the weight in force, and last_agt.
type server struct{ op, admin, weight, why string }

const (
	stopped = "0"
	running = "2"
)

type haproxy struct {
	tb            testing.TB
	front, socket string
}

func startHAProxy(tb testing.TB, bin, agent, servers string) *haproxy {
	tb.Helper()
	folder := socketdir.New(tb)
	h := &haproxy{tb: tb, front: filepath.Join(folder, "f"), socket: filepath.Join(folder, "s")}
	_, port, err := net.SplitHostPort(agent)
	require.NoError(tb, err)
	conf := filepath.Join(tb.TempDir(), "haproxy.cfg")
	require.NoError(tb, os.WriteFile(conf, fmt.Appendf(nil, `
global
  stats socket %s level admin
defaults
  mode http
  timeout connect 5s
  timeout client 60s
  timeout server 60s
  timeout check 2s
listen be
  bind unix@%s
  default-server agent-check agent-addr 127.0.0.1 agent-port %s agent-inter 50ms%s
`, h.socket, h.front, port, servers), 0o600))

	var log strings.Builder
	cmd := exec.Command(bin, "-db", "-f", conf)
	cmd.Stdout, cmd.Stderr = &log, &log
	require.NoError(tb, cmd.Start())
	tb.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		stopped := make(chan struct{})
		go func() { _ = cmd.Wait(); close(stopped) }()
		select {
		case <-stopped:
		case <-time.After(5 * time.Second):
			_ = cmd.Process.Kill()
			<-stopped
		}
		if tb.Failed() {
			tb.Log(log.String())
		}
	})
	require.Eventually(tb, func() bool {
		c, err := net.Dial("unix", h.socket)
		if err == nil {
			_ = c.Close()
		}
		return err == nil
	}, 10*time.Second, 20*time.Millisecond)
	return h
}

// command runs one command and returns its output.
func (h *haproxy) command(line string) string {
	h.tb.Helper()
	c, err := net.DialTimeout("unix", h.socket, 5*time.Second)
	require.NoError(h.tb, err)
	defer c.Close()
	require.NoError(h.tb, c.SetDeadline(time.Now().Add(5*time.Second)))
	_, err = io.WriteString(c, line+"\n")
	require.NoError(h.tb, err)
	out, err := io.ReadAll(c)
	require.NoError(h.tb, err)
	return string(out)
}

// after is the server's row once the source's present state has been applied.
func (h *haproxy) after(src *script, name string) server {
	h.tb.Helper()
	src.polls(h.tb, "be/"+name, 2)
	return h.server(name)
}

// told is after for whatever asks, and waits for the agent's description: HAProxy
// blanks it while a poll is out, and on a busy machine it may give a poll up, which
// changes nothing but that.
func (h *haproxy) told(src *script, asks, name string) server {
	h.tb.Helper()
	src.polls(h.tb, asks, 2)
	return h.explained(name)
}

func (h *haproxy) explained(name string) (got server) {
	h.tb.Helper()
	require.Eventually(h.tb, func() bool {
		got = h.server(name)
		return strings.HasPrefix(got.why, "via agent : ")
	}, 10*time.Second, 5*time.Millisecond)
	return got
}

func (h *haproxy) server(name string) server {
	h.tb.Helper()
	rows, err := csv.NewReader(strings.NewReader(strings.TrimPrefix(h.command("show stat"), "# "))).ReadAll()
	require.NoError(h.tb, err)
	var got server
	for _, row := range rows {
		if row[1] == name {
			got = server{weight: column(rows[0], row, "weight"), why: column(rows[0], row, "last_agt")}
		}
	}
	for _, line := range strings.Split(h.command("show servers state be"), "\n") {
		if f := strings.Fields(line); len(f) > 6 && f[3] == name {
			got.op, got.admin = f[5], f[6]
		}
	}
	return got
}

func column(header, row []string, name string) string {
	for i, h := range header {
		if h == name {
			return row[i]
		}
	}
	return ""
}
