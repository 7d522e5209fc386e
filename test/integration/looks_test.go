package integration

import (
	"context"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"tier-agent/test/engine"
	"tier-agent/test/guarantee"
	"tier-agent/test/lab"
)

// drainShown is a configuration whose quiesced tier shows its health in HAProxy. Between
// two probes lie several rounds of HAProxy's checks.
const drainShown = lab.Head + `probe: {interval: 2s, timeout: 1s, max_age: 8s}
tiers:
  - {name: heavy, quiesced_answer: health, servers: [{server: heavy/h1, url: 'http://127.0.0.1:{{.Ports.Heavy}}'}], identity: {id: big-70b}}
  - {name: fast, servers: [{server: fast/f1, url: 'http://127.0.0.1:{{.Ports.Fast}}'}], identity: {id: small-8b}}
`

func isDrain(row map[string]string) bool { return strings.HasPrefix(row["status"], "DRAIN") }

// boundByHeader is the shipped file with a header that names a server, which HAProxy
// follows also where that is drained.
func boundByHeader(_ lab.Options, text string) string {
	const line = `    server h1 "${TIER_HEAVY_H1}"`
	return strings.Replace(text, line, "    use-server h1 if { req.hdr(x-server) h1 }\n"+line, 1)
}

// askBound sends a request with that header.
func askBound(ctx context.Context, h *lab.HAProxy) (lab.Answer, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, h.URL("/heavy/v1/models"), nil)
	if err != nil {
		return lab.Answer{}, err
	}
	req.Close = true
	req.Header.Set("X-Server", "h1")
	res, err := (&http.Client{Timeout: 10 * time.Second}).Do(req)
	if err != nil {
		return lab.Answer{}, err
	}
	return lab.Answer{Status: res.StatusCode}, res.Body.Close()
}

// Without the gate HAProxy has a quiesced server down, for which it counts a failed check, and
// says why: that is the second lock. Where the gate asks about the tier, or with
// quiesced_answer: health, it shows the drain from the quiesce to the readmit, and DOWN only
// where the engine fails. With the gate that lets nothing in, also not what HAProxy would
// send to a drained server.
//
// Controls: with showsHealth always true, and the gate off, requests that were bound to the
// server reached it in every state; without Ungated they did after the last restart; with Ready alone in the model's server, DOWN was shown from the quiesce to the
// next probe.
func TestAQuiescedServerInHAProxysStatistics(t *testing.T) {
	t.Run("down", func(t *testing.T) {
		onEach(t, func(t *testing.T, haproxy string) {
			w := newWorld(t, haproxy, "")
			w.verb(0, "quiesce", "heavy", "--reason", "swap")
			w.waitStat("heavy", "h1", func(row map[string]string) bool {
				return row["status"] == "DOWN (agent)" && strings.Contains(row["last_agt"], "down (quiesced)")
			}, "why it is down")
			assert.Equal(guarantee.T(t), " 8 ", w.admin(w.HAProxies[0], "heavy", "h1"), "the drain stands as well")
		})
	})
	t.Run("gate", func(t *testing.T) {
		onEach(t, func(t *testing.T, haproxy string) {
			w := newWorldWith(t, haproxy, worldOptions{gate: true, config: boundByHeader})
			f := &fault{world: w, began: time.Now(), heavyTraffic: w.trafficBy(askBound)}
			f.heavyTraffic.rule.Store(mustServe)
			f.settle(f.heavyTraffic, 50)
			f.heavyTraffic.rule.Store(either)
			f.quiesceHeavy()
			f.waitStat("heavy", "h1", isDrain, "the gate has asked about it")
			f.settle(f.heavyTraffic, 50)
			require.NoError(t, f.Reload())
			f.waitStat("heavy", "h1", isDrain, "after a reload, once the gate has asked again")
			f.settle(f.heavyTraffic, 50)
			require.NoError(t, f.AgentProc.Kill())
			f.settle(f.heavyTraffic, 50)
			require.NoError(t, f.HAProxies[0].Kill())
			require.NoError(t, f.HAProxies[0].Start(t.Context()))
			f.settle(f.heavyTraffic, 10) // half a second each, with nobody to ask
			require.NoError(t, f.StartAgent(t.Context()))
			f.waitStat("heavy", "h1", isDrain, "after a restart of both")
			f.settle(f.heavyTraffic, 50)
			f.heavyTraffic.rule.Store(either) // until tier-agent has looked at the next process
			f.Gate = false
			require.NoError(t, f.HAProxies[0].Kill())
			require.NoError(t, f.HAProxies[0].Start(t.Context()))
			f.waitStat("heavy", "h1", isDown, "that one has no gate")
			f.heavyTraffic.rule.Store(mustRefuse)
			f.settle(f.heavyTraffic, 50)
			f.readmitHeavy()
			f.heavyTraffic.stop()
			assert.Zero(guarantee.T(t), f.heavyTraffic.reached.Load(), "of %d requests", f.heavyTraffic.sent.Load())
			assert.Zero(guarantee.T(t), f.heavyTraffic.lost.Load())
		})
	})
	t.Run("health", func(t *testing.T) {
		onEach(t, func(t *testing.T, haproxy string) {
			w := newWorldWith(t, haproxy, worldOptions{agentYAML: drainShown})
			w.waitStat("heavy", "h1", func(row map[string]string) bool { return row["check_status"] == "L7OK" && row["status"] == "UP" }, "checked")
			w.verb(0, "quiesce", "heavy", "--reason", "swap")
			until := time.Now().Add(4 * time.Second) // some rounds of every check and probe
			for time.Now().Before(until) {
				row := w.stat("heavy", "h1")
				require.True(t, isDrain(row), "status %s, agent %s", row["status"], row["last_agt"])
				assert.Equal(guarantee.T(t), http.StatusServiceUnavailable, w.ask("heavy").Status)
			}
			require.NoError(t, w.heavy.Set(engine.Health, engine.Behaviour{Status: http.StatusServiceUnavailable}))
			w.waitStat("heavy", "h1", isDown, "the engine has failed")
			w.heavy.Reset()
			w.waitStat("heavy", "h1", isDrain, "it is back")
			require.NoError(t, w.Reload())
			w.waitStat("heavy", "h1", isDrain, "after a reload")
			assert.Equal(guarantee.T(t), http.StatusServiceUnavailable, w.ask("heavy").Status)
			w.verb(0, "readmit", "heavy")
			assert.Equal(t, http.StatusOK, w.ask("heavy").Status)
		})
	})
}
