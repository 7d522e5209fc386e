package integration

import (
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"tier-agent/test/guarantee"
	"tier-agent/test/lab"
)

// After a readmit HAProxy gives the tier little at first, never nothing, and in the
// end its whole weight.
//
// Control: with StartRamp taken out of open.go the weight was whole at once.
func TestRampOfAReadmit(t *testing.T) {
	mostlyWaits(t)
	yaml := lab.Head + `probe: {interval: 500ms, timeout: 2s, max_age: 5s}
tiers:
  - {name: heavy, ramp: 8s, servers: [{server: heavy/h1, url: 'http://127.0.0.1:{{.Ports.Heavy}}'}], identity: {id: big-70b}}
  - {name: fast, servers: [{server: fast/f1, url: 'http://127.0.0.1:{{.Ports.Fast}}'}], identity: {id: small-8b}}
`
	onEach(t, func(t *testing.T, haproxy string) {
		w := newWorld(t, haproxy, yaml)
		weight := func(row map[string]string) int {
			n, err := strconv.Atoi(row["weight"])
			require.NoError(t, err, row["weight"])
			return n
		}
		assert.Equal(t, 100, weight(w.stat("heavy", "h1")))
		w.verb(0, "quiesce", "heavy", "--reason", "swap")
		// Until HAProxy has heard of it, the readmit may come before its next poll, and
		// with the weight that it had.
		w.waitStat("heavy", "h1", func(row map[string]string) bool {
			return strings.HasPrefix(row["last_agt"], "via agent : down") || strings.Contains(row["status"], "DOWN")
		}, "told down")
		w.verb(0, "readmit", "heavy", "--wait", "2s")
		first := weight(w.stat("heavy", "h1"))
		assert.Positive(t, first)
		assert.Less(t, first, 100)
		last := first
		w.waitStat("heavy", "h1", func(row map[string]string) bool {
			now := weight(row)
			assert.GreaterOrEqual(t, now, last, "it only grows")
			last = now
			return now == 100
		}, "the whole weight")
	})
}

// What somebody sets as a weight in HAProxy is left alone, and shown; a weight that
// tier-agent has for the server is told until HAProxy has it.
//
// Control: with the weight in each reply it was back within a second.
func TestG10_AWeightThatIsSetByHandStays(t *testing.T) {
	yaml := lab.Head + `probe: {interval: 200ms, timeout: 2s, max_age: 5s}
tiers:
  - {name: heavy, servers: [{server: heavy/h1, url: 'http://127.0.0.1:{{.Ports.Heavy}}', weight: 60}], identity: {id: big-70b}}
  - {name: fast, servers: [{server: fast/f1, url: 'http://127.0.0.1:{{.Ports.Fast}}'}], identity: {id: small-8b}}
`
	onEach(t, func(t *testing.T, haproxy string) {
		w := newWorld(t, haproxy, yaml)
		weighs := func(backend, server, weight string) {
			t.Helper()
			w.waitStat(backend, server, func(row map[string]string) bool { return row["weight"] == weight }, weight)
			require.NoError(t, lab.Within(15*time.Second, func() error { // and tier-agent has seen it
				for _, tier := range w.status().Tiers {
					if s := tier.Servers[0]; s.Name == backend+"/"+server && fmt.Sprint(s.Shown[w.HAProxies[0].Name].Weight) != weight {
						return fmt.Errorf("status says %v", s.Shown)
					}
				}
				return nil
			}))
		}
		weighs("heavy", "h1", "60")
		weighs("fast", "f1", "100")
		for _, server := range []string{"heavy/h1", "fast/f1"} {
			said, err := w.Runtime("set server " + server + " weight 10")
			require.NoError(t, err)
			require.Empty(t, strings.TrimSpace(said))
		}
		// Several polls and looks later.
		require.NoError(t, lab.Within(15*time.Second, func() error {
			for _, tier := range w.status().Tiers {
				if s := tier.Servers[0]; !s.WeightByHand {
					return fmt.Errorf("status says nothing of the weight of %s", s.Name)
				}
			}
			return nil
		}))
		assert.Equal(guarantee.T(t), "10", w.stat("heavy", "h1")["weight"])
		assert.Equal(guarantee.T(t), "10", w.stat("fast", "f1")["weight"])

		require.NoError(t, w.Reload())
		weighs("heavy", "h1", "60")
		weighs("fast", "f1", "100")
	})
}
