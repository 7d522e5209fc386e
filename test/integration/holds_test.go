package integration

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"tier-agent/test/guarantee"
	"tier-agent/test/lab"
)

func isDown(row map[string]string) bool { return strings.HasPrefix(row["status"], "DOWN") }
func isUp(row map[string]string) bool   { return strings.HasPrefix(row["status"], "UP") }

// What an operator does in HAProxy stays, however often the agent answers.
// Control: with AdminWords made true for every tier, so that steady replies
// said `ready`, both were undone at the first poll.
func TestG10_AnOperatorsDrainAndMaintSurviveTwentyPolls(t *testing.T) {
	for state, mask := range map[string]string{"drain": " 8 ", "maint": " 1 "} {
		t.Run(state, func(t *testing.T) {
			onEach(t, func(t *testing.T, haproxy string) {
				w := newWorld(t, haproxy, "")
				// What the operator has set is in the mask. The status may say "DOWN (agent)" in its
				// place, once the agent has answered for a quiesced tier.
				stands := func() {
					t.Helper()
					assert.Equal(guarantee.T(t), mask, w.admin(w.HAProxies[0], "heavy", "h1"))
				}
				_, err := w.Runtime("set server heavy/h1 state " + state)
				require.NoError(t, err)
				const polls = `tier_agent_agent_check_answers_total{kind="up"}`
				before := w.metric(polls)
				require.NoError(t, lab.Within(60*time.Second, func() error {
					// Both servers are polled in turn, so twice as many answers.
					if w.metric(polls) < before+40 {
						return assert.AnError
					}
					return nil
				}))
				stands()

				w.verb(0, "quiesce", "heavy", "--reason", "swap")
				r := w.verb(1, "readmit", "heavy")
				assert.Equal(t, "held", r.Code)
				assert.Contains(t, r.Message, "heavy/h1 is "+state)
				stands()

				w.verb(0, "readmit", "heavy", "--take-hold", "--wait", "5s")
				w.waitStat("heavy", "h1", isUp, "an operator's word for it opens the hold")
			})
		})
	}
}
