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

// A probe that began before the quiesce is held in the engine and let go after
// it: its answer is the old, good one. Control: with `t.gen != s.generation()`
// taken out of the fence's complete, and the evidence stamped with the
// generation at its end, heavy's evidence was ready again after the release.
func TestAProbeHeldAcrossAQuiesceNeverReadmits(t *testing.T) {
	onEach(t, func(t *testing.T, haproxy string) {
		w := newWorld(t, haproxy, patient)
		release, reached := w.heavy.Hold(engine.Models)
		defer release()
		<-reached // the probe is out, and its answer is fixed
		discarded := w.metric(`tier_agent_probes_total{outcome="discarded_invalidated",tier="heavy"}`)

		w.verb(0, "quiesce", "heavy", "--reason", "swap")
		r := w.verb(1, "readmit", "heavy")
		assert.Equal(t, "probe_pending", r.Code, "while it is held, readmit is refused")
		assert.True(guarantee.T(t), r.Quiesced)
		heavy := w.status().Tiers[0].Servers[0]
		assert.Equal(guarantee.T(t), "probe_pending", heavy.Evidence)
		assert.Equal(t, 1, heavy.Probing)

		w.heavy.SetModel(lab.FastModel) // the swap: later probes see another engine
		release()
		require.NoError(t, lab.Within(15*time.Second, func() error {
			if w.metric(`tier_agent_probes_total{outcome="discarded_invalidated",tier="heavy"}`) == discarded {
				return assert.AnError
			}
			return nil
		}), "its caller is told probe_invalidated")
		require.NoError(t, lab.Within(15*time.Second, func() error {
			if w.status().Tiers[0].Servers[0].Evidence != "identity_mismatch" {
				return assert.AnError
			}
			return nil
		}), "the next probe speaks for the new engine")
		assert.Equal(guarantee.T(t), http.StatusServiceUnavailable, w.ask("heavy").Status)
		r = w.verb(1, "readmit", "heavy", "--wait", "5s")
		require.Len(t, r.Evidence, 1, r.Message)
		assert.Equal(t, "identity_mismatch", r.Evidence[0].Reason)

		w.heavy.SetModel(lab.HeavyModel)
		w.verb(0, "readmit", "heavy", "--wait", "5s")
		assert.Equal(t, http.StatusOK, w.ask("heavy").Status)
	})
}

// An engine that comes to serve another model leaves rotation by its evidence,
// and no request reaches it from then on.
func TestNoTrafficReachesANotReadyServer(t *testing.T) {
	onEach(t, func(t *testing.T, haproxy string) {
		w := newWorld(t, haproxy, "")
		others := w.load("fast")
		w.heavy.SetModel("another-model")
		w.waitStat("heavy", "h1", isDown, "HAProxy follows the agent")
		before := w.heavy.Requests(engine.Chat)
		for range 50 {
			assert.Equal(guarantee.T(t), http.StatusServiceUnavailable, w.ask("heavy").Status)
		}
		assert.Equal(guarantee.T(t), before, w.heavy.Requests(engine.Chat))
		row := w.stat("heavy", "h1")
		assert.Contains(t, row["last_agt"], "identity_mismatch")

		w.heavy.SetModel(lab.HeavyModel)
		w.waitStatus("heavy", http.StatusOK)
		seen := others.stop()
		assert.Equal(guarantee.T(t), map[int]int{http.StatusOK: seen[http.StatusOK]}, seen, "fast never noticed")
	})
}
