package integration

import (
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

// By default HAProxy has a quiesced server down, for which it counts a failed check, and
// says why: that is the second lock. With quiesced_answer: health it shows the drain from
// the quiesce to the readmit, and DOWN only where the engine fails.
//
// Control: with Ready alone in the model's server, DOWN was shown from the quiesce to the
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
