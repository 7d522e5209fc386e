package integration

import (
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"tier-agent/internal/httpapi"
	"tier-agent/test/engine"
	"tier-agent/test/guarantee"
	"tier-agent/test/lab"
)

// lateProbes has the default of fall, and an interval that leaves the test the time to see
// one late probe and end it before the next.
const lateProbes = lab.Head + `probe: {interval: 3s, max_age: 20s}
tiers:
  - {name: heavy, servers: [{server: heavy/h1, url: 'http://127.0.0.1:{{.Ports.Heavy}}'}], identity: {id: big-70b}}
  - {name: fast, servers: [{server: fast/f1, url: 'http://127.0.0.1:{{.Ports.Fast}}'}], identity: {id: small-8b}}
`

// A probe that is answered too late, now and then, closes nothing by default.
//
// Negative control: with fall 1 for a default, requests were refused at each late one.
func TestALateProbeNowAndThenClosesNothing(t *testing.T) {
	mostlyWaits(t)
	onEach(t, func(t *testing.T, haproxy string) {
		w := newWorldWith(t, haproxy, worldOptions{agentYAML: lateProbes, gate: true})
		tr := w.traffic("heavy")
		tr.rule.Store(mustServe)
		for range times(8) {
			release, reached := w.heavy.Hold(engine.Health)
			<-reached
			w.waitServer("heavy/h1", func(s httpapi.ServerStatus) bool { return s.Against == 1 })
			release()
			w.waitServer("heavy/h1", func(s httpapi.ServerStatus) bool { return s.Against == 0 })
		}
		tr.stop()
		assert.Zero(guarantee.T(t), tr.lost.Load(), "of %d requests", tr.sent.Load())
	})
}

// Whatever fall is, an engine that answers with another model, with another status or
// with no JSON is closed by the first probe that sees it: it counts probes without an
// answer.
//
// Negative control: without Judged in the observation it stayed open, and HAProxy sent
// the requests of nine intervals to the wrong model.
func TestAnUnannouncedSwapIsRefusedAtTheNextProbe(t *testing.T) {
	const yaml = lab.Head + `probe: {interval: 500ms, timeout: 400ms, max_age: 60s}
tiers:
  - {name: heavy, fall: 9, servers: [{server: heavy/h1, url: 'http://127.0.0.1:{{.Ports.Heavy}}'}], identity: {id: big-70b}}
  - {name: fast, servers: [{server: fast/f1, url: 'http://127.0.0.1:{{.Ports.Fast}}'}], identity: {id: small-8b}}
`
	onEach(t, func(t *testing.T, haproxy string) {
		w := newWorldWith(t, haproxy, worldOptions{agentYAML: yaml, gate: true})
		for reason, happens := range map[string]func(){
			"identity_mismatch": func() { w.heavy.SetModel(lab.FastModel) },
			"health_http_503": func() {
				require.NoError(t, w.heavy.Set(engine.Health, engine.Behaviour{Status: http.StatusServiceUnavailable}))
			},
			"identity_http_500": func() {
				require.NoError(t, w.heavy.Set(engine.Models, engine.Behaviour{Status: http.StatusInternalServerError}))
			},
		} {
			release, reached := w.heavy.Hold(engine.Health) // so that the swap falls between two probes
			<-reached
			happens()
			before := w.heavy.Requests(engine.Health)
			release()
			w.waitServer("heavy/h1", func(s httpapi.ServerStatus) bool { return s.Evidence == reason })
			assert.LessOrEqual(guarantee.T(t), w.heavy.Requests(engine.Health)-before, int64(1), "%s: probes until it was closed", reason)
			assert.Equal(guarantee.T(t), http.StatusServiceUnavailable, w.ask("heavy").Status, reason)
			w.heavy.Reset()
			w.heavy.SetModel(lab.HeavyModel)
			w.waitStatus("heavy", http.StatusOK)
		}
	})
}

// waitServer polls the status until a server of the configuration is as it has to be.
func (w *world) waitServer(name string, ok func(httpapi.ServerStatus) bool) {
	w.t.Helper()
	require.NoError(w.t, lab.Within(15*time.Second, func() error {
		for _, t := range w.page().Tiers {
			for _, s := range t.Servers {
				if s.Name != name {
					continue
				}
				if !ok(s) {
					return fmt.Errorf("%s: %+v", name, s)
				}
				return nil
			}
		}
		return fmt.Errorf("status has no %s", name)
	}))
}
