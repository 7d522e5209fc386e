package integration

import (
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"tier-agent/test/lab"
)

// After a readmit HAProxy gives the tier little at first, never nothing, and in the
// end its whole weight.
//
// Control: with StartRamp taken out of open.go the weight was whole at once.
func TestRampOfAReadmit(t *testing.T) {
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
