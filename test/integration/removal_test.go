package integration

import (
	"net/http"
	"os"
	"regexp"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"tier-agent/test/guarantee"
	"tier-agent/test/lab"
)

// without takes tier-agent out of the shipped configuration, as operations.md says.
func without(text string) string {
	for pattern, by := range map[string]string{
		`(?s)    \.if strneq\("\$TIER_GATE",off\)\n    # The gate\..*?    \.endif\n`: "",
		`(?s)\.if strneq\("\$TIER_GATE",off\)\n# Where the gate.*\.endif\n`:          "",
		` agent-send "\w+(/\w+)?\\n"`:                                                "",
		`.*default-server agent-check .*\n`:                                          "",
		`check addr "\$\{TIER_AGENT_ADDR\}" port "\$\{TIER_AGENT_HTTP_PORT\}"`:       "check",
		`uri-lf "/readyz/%\[be_name\]/%\[srv_name\]"`:                                "uri /health",
		`.*server-state-file ".*\n`:                                                  "",
		`.*load-server-state-from-file global\n`:                                     "",
	} {
		text = regexp.MustCompile(pattern).ReplaceAllString(text, by)
	}
	return text
}

// A reload takes tier-agent out, and then it ends. Fast is open and loses nothing; heavy
// is quiesced, and its drain outlives tier-agent.
//
// Controls: with tier-agent ended before the reload, heavy was not drained after it; with
// the checks left as they are, it did not open in the end.
func TestTierAgentIsTakenOutOfHAProxy(t *testing.T) {
	mostlyWaits(t)
	onEach(t, func(t *testing.T, haproxy string) {
		w := newWorldWith(t, haproxy, worldOptions{gate: true, config: func(_ lab.Options, text string) string {
			return "# another\n" + text
		}})
		w.checked()
		f := &fault{world: w, began: time.Now(), heavyTraffic: w.traffic("heavy"), fastTraffic: w.traffic("fast")}
		f.fastTraffic.rule.Store(mustServe)
		f.quiesceHeavy()
		text, err := os.ReadFile(w.HAProxyCfg)
		require.NoError(t, err)
		changed := without(string(text))
		assert.NotRegexp(t, `(?m)^[^#\n]*(TIER_AGENT_HTTP_PORT\}|agent-send|spoe |send-spoe|server-state-file)`, changed)
		require.NoError(t, os.WriteFile(w.HAProxyCfg, []byte(changed), 0o644))

		f.heavyTraffic.rule.Store(either) // until tier-agent's next look
		require.NoError(t, w.Reload())
		require.NoError(t, lab.Within(10*time.Second, func() error {
			if w.admin(w.HAProxies[0], "heavy", "h1") != " 8 " {
				return assert.AnError
			}
			return nil
		}), "it is drained in the new worker, too")
		f.heavyTraffic.rule.Store(mustRefuse)
		f.settle(f.fastTraffic, 100)
		require.NoError(t, w.AgentProc.Stop(20*time.Second))
		f.settle(f.fastTraffic, 1500) // longer than checks that ask nobody would need
		assert.Equal(guarantee.T(t), " 8 ", w.admin(w.HAProxies[0], "heavy", "h1"))
		f.heavyTraffic.rule.Store(either)
		_, err = w.Runtime("set server heavy/h1 state ready")
		require.NoError(t, err)
		w.waitStatus("heavy", http.StatusOK)
		f.heavyTraffic.stop()
		f.fastTraffic.stop()
		f.report("tier-agent is taken out")
	})
}
