package integration

import (
	"fmt"
	"io"
	"net/http"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"tier-agent/test/engine"
	"tier-agent/test/guarantee"
	"tier-agent/test/lab"
)

// instances is a configuration in which a probe that is held does not time out, in
// which one that finds nobody listening closes nothing, and in which an engine that
// starts anew is known by its instance alone.
const instances = lab.Head + `probe: {interval: 200ms, timeout: 60s, max_age: 120s}
start_budget: 1s
tiers:
  - name: heavy
    servers: [{server: heavy/h1, url: 'http://127.0.0.1:{{.Ports.Heavy}}'}]
    metadata: {path: /info, changes_are_restarts: instance}
    fall: 100
    exercise:
      path: /v1/completions
      body: {model: big-70b, prompt: hi, max_tokens: 1}
      interval: 5s
      timeout: 60s
  - {name: fast, servers: [{server: fast/f1, url: 'http://127.0.0.1:{{.Ports.Fast}}'}], identity: {id: small-8b}}
`

const voided = `tier_agent_probes_total{outcome="discarded_invalidated",tier="heavy"}`

// One process leaves its port to another while it still owes a probe its answer,
// which comes when the other has been heard of. Nobody has told tier-agent.
//
// Negative control: with s.advance() taken out of restarted in the fence, the
// generation stayed; with the look at the generation taken out of complete and
// s.turn() out of restarted, nothing was discarded.
func TestAnInstanceThatRestartsWhileAProbeIsInFlight(t *testing.T) {
	mostlyWaits(t)
	onEach(t, func(t *testing.T, haproxy string) {
		w := bareWorld(t, haproxy, instances)
		one := w.startEngine("one", lab.HeavyModel, w.Ports.Heavy, "--drain-time", "1m")
		w.fast = serveEngine(t, w.Ports.Fast, lab.FastModel)
		require.NoError(t, w.StartAgent(t.Context()))
		require.NoError(t, w.StartHAProxy(t.Context()))
		w.waitStatus("heavy", http.StatusOK)
		before := w.heavyGeneration()

		one.tell(`{"endpoint":"completions","fault":"hang"}`)
		one.arrives(engine.Completions) // the probe is out, and its answer is fixed
		letGo := one.holdCommand(`{"reset":true}`)
		require.NoError(t, one.Signal(syscall.SIGTERM)) // takes nobody new, and ends what it has
		require.NoError(t, lab.Within(10*time.Second, func() error { return free(w.Ports.Heavy) }))
		two := w.startEngine("two", lab.HeavyModel, w.Ports.Heavy)
		two.tell(`{"endpoint":"completions","status":500}`)

		require.NoError(t, lab.Within(15*time.Second, func() error {
			if w.heavyGeneration() == before {
				return fmt.Errorf("the generation is still %s", before)
			}
			return nil
		}), "it advances by itself")
		w.waitEvidence(0, "probe_pending")
		w.waitStatus("heavy", http.StatusServiceUnavailable)
		asked, discarded := two.requests(engine.Chat), w.metric(voided)

		letGo()
		require.NoError(t, lab.Within(15*time.Second, func() error {
			if w.metric(voided) == discarded {
				return assert.AnError
			}
			return nil
		}), "its good answer is discarded")
		w.waitEvidence(0, "exercise_http_500") // what comes next is of the new one
		for range 20 {
			assert.Equal(guarantee.T(t), http.StatusServiceUnavailable, w.ask("heavy").Status)
		}
		assert.Equal(guarantee.T(t), asked, two.requests(engine.Chat))
		after := w.heavyGeneration()
		assert.NotEqual(t, before, after)

		two.tell(`{"reset":true}`)
		w.waitStatus("heavy", http.StatusOK)
		assert.Equal(t, after, w.heavyGeneration(), "one restart, one generation")
	})
}

func (w *world) heavyGeneration() string {
	w.t.Helper()
	return w.status().Tiers[0].Servers[0].Generation
}

// free is an error while somebody listens on a port.
func free(port int) error {
	res, err := asChecks.Get(fmt.Sprintf("http://127.0.0.1:%d/health", port))
	if err != nil {
		return nil
	}
	_ = res.Body.Close()
	return fmt.Errorf("port %d answers %d", port, res.StatusCode)
}

// holdCommand begins a command and keeps back its end, until letGo: an engine that
// stops takes no new connection, but finishes what has begun.
func (e *engineProcess) holdCommand(command string) (letGo func()) {
	e.t.Helper()
	body, end := io.Pipe()
	req, err := http.NewRequestWithContext(e.t.Context(), http.MethodPost, e.url, body)
	require.NoError(e.t, err)
	// The body goes out only once the engine reads it. Until then the connection may
	// be nobody's yet, and go with the listener.
	req.Header.Set("Expect", "100-continue")
	patient := &http.Transport{DisableKeepAlives: true, ExpectContinueTimeout: time.Minute}
	answered := make(chan error, 1)
	go func() {
		res, err := (&http.Client{Transport: patient}).Do(req)
		if err == nil {
			err = res.Body.Close()
		}
		answered <- err
	}()
	_, err = io.WriteString(end, command[:1])
	require.NoError(e.t, err)
	return func() {
		e.t.Helper()
		_, err := io.WriteString(end, command[1:])
		require.NoError(e.t, err)
		require.NoError(e.t, end.Close())
		require.NoError(e.t, <-answered)
	}
}
