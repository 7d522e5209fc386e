package integration

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"tier-agent/internal/agentcheck"
	"tier-agent/test/guarantee"
	"tier-agent/test/lab"
)

// told is a source whose answer about heavy/h1 the test sets.
type told struct {
	mu    sync.Mutex // protects the rest
	state agentcheck.State
	known bool
}

func (s *told) set(state agentcheck.State, known bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.state, s.known = state, known
}

func (s *told) AgentState(name []byte) (agentcheck.State, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !bytes.Equal(name, []byte("heavy/h1")) {
		return agentcheck.State{Ready: true, Weight: 100}, true
	}
	return s.state, s.known
}

func (s *told) Continues([]byte) bool { return false }

// HAProxy applies every kind of answer that the agent-check server can give.
// The companion check passes throughout, so that what is seen is the agent's.
func TestHAProxyAppliesEveryKindOfAnswer(t *testing.T) {
	onEach(t, func(t *testing.T, haproxy string) {
		w, source := agentOnly(t, haproxy)
		for _, step := range []struct {
			name   string
			state  agentcheck.State
			known  bool
			status string // of show stat
			said   string // in last_agt
			weight string
		}{
			{"up", agentcheck.State{Ready: true, Weight: 100}, true, "UP", "", "100"},
			{"half weight", agentcheck.State{Ready: true, Weight: 50}, true, "UP", "", "50"},
			{"not ready", agentcheck.State{Reason: "identity_mismatch", Weight: 100}, true, "DOWN (agent)", "identity_mismatch", ""},
			{"up again", agentcheck.State{Ready: true, Weight: 100}, true, "UP", "", "100"},
			{"quiesced", agentcheck.State{Quiesced: true, Ready: true, Weight: 100}, true, "DOWN (agent)", "quiesced", ""},
			{"unknown name", agentcheck.State{}, false, "DOWN (agent)", "unknown_tier", ""},
			{"back", agentcheck.State{Ready: true, Weight: 100}, true, "UP", "", "100"},
			{"quiesced by admin words", agentcheck.State{Quiesced: true, AdminWords: true}, true, "DRAIN (agent)", "", ""},
			{"a plain up does not end a drain", agentcheck.State{Ready: true, Weight: 100}, true, "DRAIN (agent)", "", ""},
			{"opened by admin words", agentcheck.State{Ready: true, Weight: 100, AdminWords: true}, true, "UP", "", "100"},
		} {
			source.set(step.state, step.known)
			row := w.waitStat("heavy", "h1", func(row map[string]string) bool {
				return row["status"] == step.status && (step.weight == "" || row["weight"] == step.weight)
			}, step.name)
			if step.said != "" {
				w.waitStat("heavy", "h1", func(row map[string]string) bool {
					return bytes.Contains([]byte(row["last_agt"]), []byte(step.said))
				}, step.name)
			}
			assert.NotContains(t, row["last_agt"], "Unknown", step.name)
		}
	})
}

// agentOnly runs HAProxy beside an agent-check server of the test's own and a
// companion check that always passes.
func agentOnly(t *testing.T, haproxy string) (*world, *told) {
	t.Helper()
	l, err := lab.New(labOptions(t, haproxy))
	require.NoError(t, err)
	w := &world{Lab: l, t: t, heavy: serveEngine(t, l.Ports.Heavy, lab.HeavyModel), fast: serveEngine(t, l.Ports.Fast, lab.FastModel)}
	source := &told{}
	source.set(agentcheck.State{Ready: true, Weight: 100}, true)

	agent, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", l.Ports.AgentCheck))
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	companion := &http.Server{
		Addr: fmt.Sprintf("127.0.0.1:%d", l.Ports.HTTP), ReadHeaderTimeout: time.Second,
		Handler: http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}),
	}
	var wg sync.WaitGroup
	wg.Go(func() { assert.NoError(t, agentcheck.NewServer(source, agentcheck.Options{}).Serve(ctx, agent)) })
	wg.Go(func() { _ = companion.ListenAndServe() }) // ends with http.ErrServerClosed
	t.Cleanup(func() {
		assert.NoError(t, l.Close())
		cancel()
		_ = companion.Close()
		wg.Wait()
	})
	require.NoError(t, l.StartHAProxy(t.Context()))
	return w, source
}

// withoutAgentSend is the shipped file with a server line that does not name its server.
func withoutAgentSend(_ lab.Options, text string) string {
	return strings.Replace(text, ` agent-send "heavy/h1\n"`, "", 1)
}

// HAProxy hears of a server line that sends no name, before it gives the poll up.
//
// Negative control: with the whole ReadTimeout for the first byte, and that at a second
// as it was, HAProxy never heard it.
func TestAServerLineWithoutAgentSendIsNamed(t *testing.T) {
	onEach(t, func(t *testing.T, haproxy string) {
		o := labOptions(t, haproxy)
		configure(t, &o, withoutAgentSend)
		l, err := lab.New(o)
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, l.Close()) })
		w := &world{Lab: l, t: t, heavy: serveEngine(t, l.Ports.Heavy, lab.HeavyModel), fast: serveEngine(t, l.Ports.Fast, lab.FastModel)}
		require.NoError(t, l.StartAgent(t.Context()))
		require.NoError(t, l.StartHAProxy(t.Context()))
		w.waitStat("heavy", "h1", func(row map[string]string) bool {
			return strings.Contains(row["last_agt"], agentcheck.ReasonNoAgentSend)
		}, "no agent-send")
		w.waitStat("fast", "f1", func(row map[string]string) bool { return row["status"] == "UP" }, "a line with its name")
	})
}

// The beginning of a name is never answered with the verdict on the server that has it
// for a name, however long the rest takes.
//
// Negative control: without Continues in readName, both were answered "up".
func TestACutNameIsNotAnotherServers(t *testing.T) {
	o := labOptions(t, "")
	o.AgentYAML = strings.Replace(patient, "servers: [{server: heavy/h1, ", "servers: [{server: heavy/h10, url: 'http://127.0.0.1:1'}, {server: heavy/h1, ", 1)
	l, err := lab.New(o)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, l.Close()) })
	serveEngine(t, l.Ports.Heavy, lab.HeavyModel)
	require.NoError(t, l.StartAgent(t.Context()))
	poll := func(pause time.Duration, pieces ...string) string {
		c, err := net.Dial("tcp", fmt.Sprintf("127.0.0.1:%d", l.Ports.AgentCheck))
		require.NoError(t, err)
		defer c.Close()
		for n, piece := range pieces {
			if n > 0 {
				time.Sleep(pause) // the cut is what is tried
			}
			_, _ = io.WriteString(c, piece)
		}
		answer, err := io.ReadAll(c)
		require.NoError(t, err)
		return string(answer)
	}
	require.NoError(t, lab.Within(10*time.Second, func() error {
		if got := poll(0, "heavy/h1\n"); got != "up\n" {
			return fmt.Errorf("heavy/h1 is %q", got)
		}
		return nil
	}))
	for _, pause := range []time.Duration{70 * time.Millisecond, 200 * time.Millisecond} {
		assert.Equal(guarantee.T(t), "down # health_transport_refused\n", poll(pause, "heavy/h1", "0\n"), pause.String())
	}
	assert.Equal(guarantee.T(t), "down # read_timeout\n", poll(0, "heavy/h1"), "nothing says that its name has ended")
	assert.Equal(t, "up\n", poll(0, "heavy/h1 "))
}
