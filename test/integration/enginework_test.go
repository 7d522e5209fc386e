package integration

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"tier-agent/test/engine"
	"tier-agent/test/lab"
)

// engineProcess is an engine in a process of its own, told what to do over HTTP.
type engineProcess struct {
	*lab.Process
	t   *testing.T
	url string
}

// startEngine starts one on the port, with flags beyond those that it always has.
func (w *world) startEngine(name, model string, port int, flags ...string) *engineProcess {
	w.t.Helper()
	address := fmt.Sprintf("127.0.0.1:%d", port)
	p, err := lab.Run(w.Dir, name, nil, w.Engine, append([]string{"--listen", address, "--model", model, "--control"}, flags...)...)
	require.NoError(w.t, err)
	w.t.Cleanup(func() { assert.NoError(w.t, p.Kill()) })
	e := &engineProcess{Process: p, t: w.t, url: "http://" + address + "/control"}
	require.NoError(w.t, lab.Within(10*time.Second, func() error {
		_, err := e.ask(http.MethodGet, "")
		return err
	}), "%s does not answer: %s", name, p.Output())
	return e
}

func (e *engineProcess) ask(method, command string) (engine.Stats, error) {
	var stats engine.Stats
	req, err := http.NewRequestWithContext(e.t.Context(), method, e.url, strings.NewReader(command))
	if err != nil {
		return stats, err
	}
	req.Close = true
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return stats, err
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	if err != nil || res.StatusCode != http.StatusOK {
		return stats, fmt.Errorf("%d %s %w", res.StatusCode, body, err)
	}
	return stats, json.Unmarshal(body, &stats)
}

// tell changes the engine; see test/engine/control.go.
func (e *engineProcess) tell(command string) {
	e.t.Helper()
	_, err := e.ask(http.MethodPost, command)
	require.NoError(e.t, err, command)
}

func (e *engineProcess) requests(at engine.Endpoint) int64 {
	e.t.Helper()
	stats, err := e.ask(http.MethodGet, "")
	require.NoError(e.t, err)
	return stats.Requests[at]
}

// arrives waits until one more request has come to an endpoint.
func (e *engineProcess) arrives(at engine.Endpoint) {
	e.t.Helper()
	before := e.requests(at)
	require.NoError(e.t, lab.Within(15*time.Second, func() error {
		if e.requests(at) == before {
			return fmt.Errorf("nothing comes to %s", at)
		}
		return nil
	}))
}

// bareWorld is a world without engines, in which nothing runs yet.
func bareWorld(t *testing.T, haproxy, agentYAML string) *world {
	t.Helper()
	o := labOptions(t, haproxy)
	o.AgentYAML = agentYAML
	l, err := lab.New(o)
	require.NoError(t, err)
	w := &world{Lab: l, t: t}
	t.Cleanup(func() {
		assert.NoError(t, l.Close())
		if t.Failed() {
			t.Logf("tier-agent:\n%s\nHAProxy:\n%s", l.AgentProc.Output(), l.HAProxies[0].Proc.Output())
		}
	})
	return w
}

// waitEvidence polls what tier-agent says of the first server of a tier.
func (w *world) waitEvidence(tier int, reason string) {
	w.t.Helper()
	require.NoError(w.t, lab.Within(15*time.Second, func() error {
		if got := w.status().Tiers[tier].Servers[0].Evidence; got != reason {
			return fmt.Errorf("evidence %s, not %s", got, reason)
		}
		return nil
	}))
}
