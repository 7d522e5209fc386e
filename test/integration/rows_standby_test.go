package integration

import (
	"net/http"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"tier-agent/test/engine"
	"tier-agent/test/guarantee"
	"tier-agent/test/lab"
)

// A standby that its line disables, opened by a readmit: it stays open over reloads,
// takes nothing while it is not ready, and is open again when it is.
//
// Controls: without the row of what was opened, 116 to 165 requests were lost; with one
// for what is not ready too, 32 to 79 reached the wrong model; without standbys it stayed
// closed after that.
func TestRows_AStandbyThatWasOpened(t *testing.T) {
	mostlyWaits(t)
	twice(t, "rows: a standby", `server h2 %s disabled agent-send "heavy/h2\n"`, func(f *fault, h2 *engine.Engine, _ string) {
		f.verb(0, "quiesce", "heavy", "--server", "heavy/h2", "--reason", "standby")
		assert.Equal(f.t, "held", f.verb(1, "readmit", "heavy", "--server", "heavy/h2", "--wait", "5s").Code)
		f.verb(0, "readmit", "heavy", "--server", "heavy/h2", "--take-hold", "--wait", "5s")
		f.verb(0, "quiesce", "heavy", "--server", "heavy/h1", "--reason", "swap")
		f.waitRow(" heavy 0 h2 - 2 4 ")
		before := f.heavy.Requests(engine.Chat)
		f.heavyTraffic.rule.Store(mustServe)
		for range times(10) {
			require.NoError(f.t, f.Reload())
			f.settle(f.heavyTraffic, 50)
		}
		assert.Empty(f.t, f.status().HAProxy[0].Holds)
		assert.Zero(guarantee.T(f.t), f.heavyTraffic.lost.Load(), "requests lost")
		assert.Equal(guarantee.T(f.t), before, f.heavy.Requests(engine.Chat), "requests at the server that is quiesced")

		f.heavyTraffic.rule.Store(either)
		h2.SetModel("another-model")
		f.waitStat("heavy", "h2", isDown, "it is not ready")
		f.waitNoRow(" heavy 0 h2 ")
		f.heavyTraffic.rule.Store(mustRefuse)
		before = h2.Requests(engine.Chat)
		require.NoError(f.t, f.Reload())
		f.settle(f.heavyTraffic, 100)
		assert.Equal(guarantee.T(f.t), before, h2.Requests(engine.Chat), "requests at the wrong model")
		f.heavyTraffic.rule.Store(either)
		h2.SetModel(lab.HeavyModel)
		f.waitStatus("heavy", http.StatusOK)
		f.waitStat("heavy", "h2", isUp, "it is open again")

		// What somebody does to it by hand stays.
		_, err := f.Runtime("set server heavy/h2 state maint")
		require.NoError(f.t, err)
		f.heavyTraffic.rule.Store(mustRefuse)
		f.settle(f.heavyTraffic, 600)
		assert.NotEmpty(f.t, f.status().HAProxy[0].Holds)
		require.NoError(f.t, f.Reload())
		f.settle(f.heavyTraffic, 600)
		assert.Equal(guarantee.T(f.t), " 5 ", f.admin(f.HAProxies[0], "heavy", "h2"))
	})
}
