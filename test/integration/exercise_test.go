package integration

import (
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"tier-agent/test/engine"
	"tier-agent/test/guarantee"
	"tier-agent/test/lab"
)

// exercisedHeavy exercises heavy, at a path that no client of these tests asks for,
// so that the engine counts the two apart. fast has no exercise.
const exercisedHeavy = lab.Head + `probe: {interval: 200ms, timeout: 2s, max_age: 5s}
start_budget: 1s
tiers:
  - name: heavy
    servers: [{server: heavy/h1, url: 'http://127.0.0.1:{{.Ports.Heavy}}'}]
    identity: {id: big-70b}
    exercise:
      path: /v1/completions
      body: {model: big-70b, prompt: hi, max_tokens: 1}
      interval: 5s
      timeout: 5s
  - name: fast
    servers: [{server: fast/f1, url: 'http://127.0.0.1:{{.Ports.Fast}}'}]
    identity: {id: small-8b}
`

// Both engines say that they are healthy, and name their model, long before they
// have loaded it. Only the one that is not exercised gets requests.
//
// Negative control: with Exercise left out of specs, heavy's evidence was
// identity_passed; with the exercises taken out of the readmit's probe, HAProxy was
// opened and closed again.
func TestAnEngineThatIsHealthyBeforeItIsLoaded(t *testing.T) {
	mostlyWaits(t)
	onEach(t, func(t *testing.T, haproxy string) {
		w := bareWorld(t, haproxy, exercisedHeavy)
		heavy := w.startEngine("heavy-engine", lab.HeavyModel, w.Ports.Heavy, "--load-time", "1h", "--early", "healthy")
		fast := w.startEngine("fast-engine", lab.FastModel, w.Ports.Fast, "--load-time", "1h", "--early", "healthy")
		require.NoError(t, w.StartAgent(t.Context()))
		require.NoError(t, w.StartHAProxy(t.Context()))
		w.checked()

		// Without an exercise: admitted, and the engine itself refuses.
		require.NoError(t, lab.Within(15*time.Second, func() error {
			if fast.requests(engine.Chat) == 0 {
				w.ask("fast")
				return assert.AnError
			}
			return nil
		}))
		assert.Equal(t, lab.FastModel, w.ask("fast").Model)
		// With one: whatever else of it passes.
		w.waitEvidence(0, "exercise_http_503")
		for range 3 {
			heavy.arrives(engine.Models)
			a := w.ask("heavy")
			assert.Equal(t, http.StatusServiceUnavailable, a.Status)
			assert.Empty(guarantee.T(t), a.Model, "HAProxy refuses it")
		}
		heavy.tell(`{"early":"empty"}`)
		w.waitEvidence(0, "exercise_empty")
		assert.Empty(guarantee.T(t), w.ask("heavy").Model)
		assert.Zero(guarantee.T(t), heavy.requests(engine.Chat), "no request has reached it")

		heavy.tell(`{"loaded":true}`)
		w.waitStatus("heavy", http.StatusOK)

		// A readmit sends one of its own, and is held to it.
		w.verb(0, "quiesce", "heavy", "--reason", "swap")
		served := heavy.requests(engine.Chat)
		heavy.tell(`{"loaded":false,"early":"healthy"}`)
		exercised := heavy.requests(engine.Completions)
		r := w.verb(1, "readmit", "heavy")
		assert.Equal(t, "not_ready", r.Code)
		assert.Equal(t, "heavy stays quiesced: 0 of 1 servers are ready (heavy/h1: exercise_http_503)", r.Message)
		assert.Greater(t, heavy.requests(engine.Completions), exercised)
		assert.Equal(t, http.StatusServiceUnavailable, w.ask("heavy").Status)
		assert.Equal(guarantee.T(t), served, heavy.requests(engine.Chat))

		heavy.tell(`{"loaded":true}`)
		w.verb(0, "readmit", "heavy")
		assert.Equal(t, http.StatusOK, w.ask("heavy").Status)
		assert.Equal(t, "identity_passed", w.status().Tiers[0].Servers[0].Evidence)
	})
}
