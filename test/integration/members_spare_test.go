package integration

import (
	"fmt"
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

// An ingress controller keeps spare slots, which are closed and at no host. They are
// absent: they fail nobody, and no readmit of the tier is refused for them. One that the
// controller fills becomes a member, and takes nothing before there is evidence.
//
// Negative control: without Spare in shown, the three were unreachable members.
func TestMembers_SpareSlotsAreAbsent(t *testing.T) {
	for name, spare := range map[string]string{
		"weight 0":    "127.0.0.1:1023 disabled weight 0",
		"no weight":   "127.0.0.1:1 disabled",
		"shared port": "127.0.0.1:8999 disabled",
	} {
		t.Run(name, func(t *testing.T) {
			onEach(t, func(t *testing.T, haproxy string) {
				w := newWorldWith(t, haproxy, worldOptions{agentYAML: discovering, config: func(o lab.Options, text string) string {
					const line = `    server h1 "${TIER_HEAVY_H1}" agent-send "heavy/h1\n"`
					slots := []string{strings.Replace(line, "heavy/h1", "heavy", 1)}
					for n := range 3 {
						slots = append(slots, fmt.Sprintf(`    server h%d %s agent-send "heavy\n"`, n+2, spare))
					}
					return strings.Replace(text, line, strings.Join(slots, "\n"), 1)
				}})
				f := &fleet{fault: &fault{world: w, began: time.Now()}}
				f.member("heavy/h1", "ready")
				f.member("heavy/h2", "")
				f.verb(0, "quiesce", "heavy", "--reason", "swap")
				f.verb(0, "readmit", "heavy")
				assert.Equal(t, http.StatusOK, f.ask("heavy").Status)
				if name != "no weight" {
					return // agent-check gives a server a part of its configured weight, which is 0 there
				}

				wrong := serveEngineAt(t, "127.0.0.2:"+fmt.Sprint(f.Ports.Heavy), lab.FastModel)
				_, err := f.Runtime(fmt.Sprintf("set server heavy/h2 addr 127.0.0.2 port %d", f.Ports.Heavy)) // it says what it changes
				require.NoError(t, err)
				f.tell("set server heavy/h2 state ready")
				f.member("heavy/h2", "degraded")
				for range 20 {
					assert.Equal(guarantee.T(t), lab.HeavyModel, f.ask("heavy").Model)
				}
				wrong.SetModel(lab.HeavyModel)
				f.member("heavy/h2", "ready")
				before := wrong.Requests(engine.Chat)
				require.NoError(t, lab.Within(15*time.Second, func() error {
					f.ask("heavy")
					if wrong.Requests(engine.Chat) == before {
						return fmt.Errorf("h2 gets nothing")
					}
					return nil
				}))
			})
		})
	}
}
