package integration

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"tier-agent/test/guarantee"
	"tier-agent/test/lab"
)

// Control: with the state file never written (keep) and both checks told the
// evidence alone (readiness.go, wiring.go), requests reached heavy.
func TestFault01_QuiescedHeavyAcrossReloads(t *testing.T) {
	faults(t, "1 reloads, heavy quiesced", worldOptions{}, func(f *fault) {
		f.quiesceHeavy()
		for range times(20) {
			require.NoError(f.t, f.Reload())
			f.settle(f.heavyTraffic, 20)
		}
		f.readmitHeavy()
	})
}

// The same where the checks tell the engine's health: the drain alone keeps
// requests out, from the state file's row. Control: with the call of Keep taken
// out of the watcher's keep, requests reached heavy.
func TestFault01_QuiescedHeavyAcrossReloadsByTheDrainAlone(t *testing.T) {
	yaml := lab.Head + `probe: {interval: 500ms, timeout: 2s, max_age: 5s}
tiers:
  - {name: heavy, quiesced_answer: health, servers: [{server: heavy/h1, url: 'http://127.0.0.1:{{.Ports.Heavy}}'}], identity: {id: big-70b}}
  - {name: fast, servers: [{server: fast/f1, url: 'http://127.0.0.1:{{.Ports.Fast}}'}], identity: {id: small-8b}}
`
	faults(t, "1 the same, quiesced_answer: health", worldOptions{agentYAML: yaml}, func(f *fault) {
		f.quiesceHeavy()
		f.waitStat("heavy", "h1", func(row map[string]string) bool {
			return strings.Contains(row["status"], "DRAIN")
		}, "HAProxy shows the drain, and the engine's health")
		for range times(20) {
			require.NoError(f.t, f.Reload())
			f.settle(f.heavyTraffic, 20)
		}
		f.readmitHeavy()
	})
}

func TestFault02_ReadyHeavyAcrossReloads(t *testing.T) {
	faults(t, "2 reloads, heavy ready", worldOptions{}, func(f *fault) {
		f.heavyTraffic.rule.Store(mustServe)
		for range times(20) {
			require.NoError(f.t, f.Reload())
			f.settle(f.heavyTraffic, 20)
		}
	})
}

func TestFault03_NotReadyHeavyAcrossReloads(t *testing.T) {
	faults(t, "3 reloads, heavy not ready", worldOptions{}, func(f *fault) {
		f.heavy.SetModel("another-model")
		f.waitStat("heavy", "h1", isDown, "the evidence closes it")
		f.waitRow(" heavy 0 h1 ")
		f.heavyTraffic.rule.Store(mustRefuse)
		for range times(20) {
			require.NoError(f.t, f.Reload())
			f.settle(f.heavyTraffic, 20)
		}
		f.heavyTraffic.rule.Store(either)
		f.heavy.SetModel(lab.HeavyModel)
		f.waitStatus("heavy", http.StatusOK)
	})
}

func TestFault04_HAProxyIsKilledWhileHeavyIsQuiesced(t *testing.T) {
	for name, alive := range map[string]bool{"with tier-agent alive": true, "with tier-agent dead": false} {
		t.Run(name, func(t *testing.T) {
			faults(t, "4 HAProxy killed, "+name, worldOptions{}, func(f *fault) {
				f.quiesceHeavy()
				for range times(5) {
					f.fastTraffic.rule.Store(either)
					if !alive {
						require.NoError(f.t, f.AgentProc.Kill())
					}
					require.NoError(f.t, f.HAProxies[0].Kill())
					require.NoError(f.t, f.HAProxies[0].Start(f.t.Context()))
					f.settle(f.heavyTraffic, 20)
					if !alive {
						require.NoError(f.t, f.StartAgent(f.t.Context()))
					}
					f.waitStatus("fast", http.StatusOK)
					f.checked() // the first check may still wait for the answer of a tier-agent that has just started
					f.fastTraffic.rule.Store(mustServe)
				}
				f.readmitHeavy()
			})
		})
	}
}

// Control: with Restore taken out of serveOn, the tier was open after the start,
// and the readmit found nothing quiesced.
func TestFault05_TierAgentIsKilled(t *testing.T) {
	faults(t, "5 tier-agent killed", worldOptions{}, func(f *fault) {
		f.heavyTraffic.rule.Store(mustServe)
		for range times(5) {
			f.checked()
			require.NoError(f.t, f.AgentProc.Kill())
			require.NoError(f.t, f.StartAgent(f.t.Context()))
			f.settle(f.heavyTraffic, 20)
		}
		f.heavyTraffic.rule.Store(either)
		f.quiesceHeavy()
		for range times(5) {
			f.checked()
			require.NoError(f.t, f.AgentProc.Kill())
			require.NoError(f.t, f.StartAgent(f.t.Context()))
			st := f.status()
			require.Len(guarantee.T(f.t), st.Intents, 1)
			assert.Equal(f.t, "swap", st.Intents[0].Reason)
			require.NoError(f.t, f.Reload())
			f.settle(f.heavyTraffic, 20)
		}
		f.readmitHeavy()

		// One that stays away closes its tiers.
		f.heavyTraffic.rule.Store(either)
		f.fastTraffic.rule.Store(either)
		require.NoError(f.t, f.AgentProc.Kill())
		died := time.Now()
		f.waitStatus("heavy", http.StatusServiceUnavailable)
		f.waitStatus("fast", http.StatusServiceUnavailable)
		assert.Less(f.t, time.Since(died), 10*time.Second, "inter x fall, and what a busy machine adds")
		require.NoError(f.t, f.StartAgent(f.t.Context()))
		f.waitStatus("heavy", http.StatusOK)
	})
}
