package main

import (
	"fmt"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	lab "tier-agent/test/engine"
	"tier-agent/test/guarantee"
)

// exercisedTier is a daemon with one tier, exercised at the interval. The file
// allows none that a test could wait for.
func exercisedTier(t testing.TB, e *lab.Engine, interval time.Duration) *running {
	t.Helper()
	s := httptest.NewServer(e)
	t.Cleanup(s.Close)
	t.Cleanup(e.Close) // the first: nothing is held when the server is closed
	cfg := configure(t, fmt.Sprintf(`
tiers:
  - name: heavy
    servers: [{server: heavy/h1, url: "%s"}]
    identity: {path: /v1/models, id: m1}
    exercise:
      body: {model: m1, messages: [{role: user, content: hi}], max_tokens: 1}
      timeout: 5s
    admission: agent-check
    probe: {interval: 50ms, timeout: 5s, max_age: 30s}
`, s.URL))
	cfg.Tiers[0].Exercise.Interval = interval
	return start(t, cfg)
}

// An engine that says it is healthy, and names its model, before it has loaded
// anything.
//
// Control: with Exercise left out of specs, it took requests at once.
func TestAnEngineThatIsHealthyBeforeItIsLoaded(t *testing.T) {
	for early, answer := range map[lab.Early]string{
		lab.EarlyHealthy: "down # exercise_http_503\n", lab.EarlyEmpty: "down # exercise_empty\n",
	} {
		t.Run(string(early), func(t *testing.T) {
			e := lab.New(lab.Options{Model: "m1", LoadTime: time.Hour, Early: early})
			d := exercisedTier(t, e, 50*time.Millisecond)
			require.Eventually(t, func() bool { return d.poll("heavy/h1") == answer }, deadline, tick)
			before := e.Requests(lab.Models)
			require.Eventually(t, func() bool { return e.Requests(lab.Models) > before+3 }, deadline, tick)
			assert.Equal(t, answer, d.poll("heavy/h1"), "whatever else passes")
			assert.Equal(guarantee.T(t), unavailable, d.check("/readyz/heavy"))

			e.SetLoaded(true)
			d.awaitReady(t, "heavy")
			assert.Equal(t, "ready up 100%\n", d.poll("heavy/h1"))
			assert.Contains(t, d.page(t, "/metrics"), `tier_agent_probes_total{outcome="failed",tier="heavy"}`)
			d.end(t)
		})
	}
}

// Control: as in internal/admission.
func TestAReadmitRunsTheExercise(t *testing.T) {
	e := lab.New(lab.Options{Model: "m1"})
	d := exercisedTier(t, e, time.Hour)
	d.awaitReady(t, "heavy")
	require.EqualValues(t, 1, e.Requests(lab.Chat))
	require.Zero(t, cli("--socket", d.socket, "quiesce", "heavy", "--reason", "swap").code)

	require.NoError(t, e.Set(lab.Chat, lab.Behaviour{Status: 500}))
	r := cli("--socket", d.socket, "readmit", "heavy")
	assert.NotZero(t, r.code)
	assert.Contains(t, r.out+r.err, "heavy/h1: exercise_http_500")
	assert.Equal(guarantee.T(t), unavailable, d.check("/readyz/heavy"))
	e.Reset()
	asked := e.Requests(lab.Chat)
	r = cli("--socket", d.socket, "readmit", "heavy")
	assert.Zero(t, r.code, r.out+r.err)
	assert.Greater(t, e.Requests(lab.Chat), asked)
	assert.Equal(t, ok, d.check("/readyz/heavy"))
	d.end(t)
}

// An engine that answers each exercise, with blanks, with a completion that it gave up,
// or with another model's, is closed by it and kept out by a readmit.
//
// Control: without the rules for each in internal/probe, it took requests.
func TestAnExerciseThatIsAnsweredWrongly(t *testing.T) {
	for fault, reason := range map[lab.Fault]string{
		lab.Blank: "exercise_empty", lab.GaveUp: "exercise_malformed", lab.OtherModel: "exercise_mismatch",
	} {
		t.Run(string(fault), func(t *testing.T) {
			e := lab.New(lab.Options{Model: "m1"})
			d := exercisedTier(t, e, 50*time.Millisecond)
			d.awaitReady(t, "heavy")
			require.NoError(t, e.Set(lab.Chat, lab.Behaviour{Fault: fault}))
			require.Eventually(t, func() bool { return d.poll("heavy/h1") == "down # "+reason+"\n" }, deadline, tick)
			require.Zero(t, cli("--socket", d.socket, "quiesce", "heavy", "--reason", "swap").code)
			r := cli("--socket", d.socket, "readmit", "heavy")
			assert.NotZero(t, r.code)
			assert.Contains(t, r.out+r.err, "heavy/h1: "+reason)
			e.Reset()
			r = cli("--socket", d.socket, "readmit", "heavy")
			assert.Zero(t, r.code, r.out+r.err)
			d.end(t)
		})
	}
}
