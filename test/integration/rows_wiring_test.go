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

// No wiring of a server leaves it down for good, or lets a quiesced one be reached, over
// reloads. One that has no check of its own, or follows another server's, has no row that
// starts it down: nothing would bring it up.
//
// Control: with such a row for every wiring, the server without checks, and the one that
// tracks a server which is up, stayed down: their readmits were not confirmed.
func TestRows_EachWiring(t *testing.T) {
	// heavy/h1 follows a server whose health check asks tier-agent for a path.
	tracked := func(asks string) func(lab.Options, string) string {
		return func(o lab.Options, text string) string {
			return strings.Replace(line("no-check no-agent-check track asked/x1")(o, text), "backend fast\n",
				"backend asked\n    http-check send meth GET uri "+asks+" ver HTTP/1.1 hdr Host tier-agent\n"+
					"    server x1 127.0.0.1:9 no-agent-check\n\nbackend fast\n", 1)
		}
	}
	for _, wiring := range []struct {
		name   string
		config func(lab.Options, string) string
		gated  bool // HAProxy follows the evidence
	}{
		{"agent-check alone", line("no-check"), true},
		{"health check alone", line("no-agent-check"), true},
		{"tracks a server that asks about it", tracked("/readyz/heavy/h1"), true},
		{"tracks a server that is up", tracked("/livez"), false},
		{"no check", line("no-check no-agent-check"), false},
	} {
		t.Run(wiring.name, func(t *testing.T) {
			faults(t, "rows: "+wiring.name, worldOptions{config: wiring.config}, func(f *fault) {
				f.quiesceHeavy()
				for range 2 {
					require.NoError(f.t, f.Reload())
					f.settle(f.heavyTraffic, 50)
				}
				f.readmitHeavy()

				f.heavyTraffic.rule.Store(either)
				f.heavy.SetModel("another-model")
				f.evidence("identity_mismatch")
				if wiring.gated {
					f.waitStat("heavy", "h1", isDown, "HAProxy follows")
				}
				require.NoError(f.t, f.Reload())
				f.settle(f.heavyTraffic, 50)
				f.heavy.SetModel(lab.HeavyModel)
				f.waitStatus("heavy", http.StatusOK)
				f.heavyTraffic.rule.Store(mustServe)
				f.settle(f.heavyTraffic, 50)
			})
		})
	}
}

// A server with agent-check alone takes nothing over a reload while it is not ready,
// where HAProxy by itself has it up until the agent has answered.
//
// Control: without its row, 1 request reached it on 3.2 and 3 on 2.6.
func TestRows_AgentCheckAloneIsNotReady(t *testing.T) {
	faults(t, "rows: agent-check alone, not ready", worldOptions{config: line("no-check")}, func(f *fault) {
		f.heavy.SetModel("another-model")
		f.waitStat("heavy", "h1", isDown, "the agent says so")
		f.waitRow(" heavy 0 h1 - 0 0 ")
		f.heavyTraffic.rule.Store(mustRefuse)
		before := f.heavy.Requests(engine.Chat)
		for range times(10) {
			require.NoError(f.t, f.Reload())
			f.settle(f.heavyTraffic, 50)
		}
		assert.Equal(guarantee.T(f.t), before, f.heavy.Requests(engine.Chat), "requests at a server that is not ready")
		f.heavyTraffic.rule.Store(either)
		f.heavy.SetModel(lab.HeavyModel)
		f.waitStatus("heavy", http.StatusOK)
	})
}

// A member that was open and is not ready takes nothing over reloads, though the slots
// behind it stay open, and it is open again when it is ready.
//
// Control: with the row of an opened slot for it, HAProxy had it up until its first
// check, and it got 25 to 44 requests.
func TestMembers_OneIsNotReadyAcrossReloads(t *testing.T) {
	discovered(t, 4, func(f *fleet) {
		second := f.host("127.0.0.3", lab.HeavyModel)
		f.host("127.0.0.4", lab.HeavyModel)
		for n, all := range [][]string{{"127.0.0.2", "127.0.0.3"}, {"127.0.0.2", "127.0.0.3", "127.0.0.4"}} {
			require.NoError(t, f.dns.Set(heavyName, all...))
			f.shows(fmt.Sprintf("heavy/h%d", n+2), "ready [config]")
		}
		second.SetModel("another-model")
		slot := f.slotOf("127.0.0.3")
		f.member(slot, "degraded")
		f.waitStat("heavy", strings.TrimPrefix(slot, "heavy/"), isDown, "HAProxy follows")
		f.waitRow(" heavy 0 " + strings.TrimPrefix(slot, "heavy/") + " 127.0.0.3 0 5 ")
		before := second.Requests(engine.Chat)
		heavy := f.traffic("heavy")
		heavy.rule.Store(mustServe)
		for range times(5) {
			require.NoError(t, f.Reload())
			f.settle(heavy, 50)
		}
		heavy.stop()
		assert.Zero(guarantee.T(t), heavy.lost.Load(), "requests lost")
		assert.Equal(guarantee.T(t), before, second.Requests(engine.Chat), "requests at a member that is not ready")
		second.SetModel(lab.HeavyModel)
		f.shows(slot, "ready [config]")
	})
}

// The port of a template is edited after the engine has moved there: the first reload
// takes it over.
//
// Control: with a row for the slot, the old port was back after each reload.
func TestMembers_APortThatIsEdited(t *testing.T) {
	onEach(t, func(t *testing.T, haproxy string) {
		dns, err := lab.StartDNS(0)
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, dns.Close()) })
		require.NoError(t, dns.Set(heavyName, "127.0.0.2"))
		template := func(port int) string { return fmt.Sprintf(`"%s:%d" agent-send "heavy\n"`, heavyName, port) }
		w := newWorldWith(t, haproxy, worldOptions{
			agentYAML: discovering, dns: dns.Addr(), heavyName: heavyName, heavyHost: "127.0.0.2",
			config: func(o lab.Options, text string) string {
				return strings.Replace(text, `"${TIER_HEAVY_NAME}" agent-send "heavy\n"`, template(o.Ports.Heavy), 1)
			},
		})
		f := &fleet{fault: &fault{world: w, began: time.Now()}, dns: dns}
		f.shows("heavy/h1", "ready [config]")
		require.NoError(t, f.heavyPort.Close())
		f.member("heavy/h1", "unreachable")
		f.waitNoRow(" heavy 0 h1 ")
		now := freePort(t)
		serveEngineAt(t, fmt.Sprintf("127.0.0.2:%d", now), lab.HeavyModel)
		f.editHAProxy(template(f.Ports.Heavy), template(now))
		require.NoError(t, f.Reload())
		f.sends("h1", now)
		f.waitStatus("heavy", http.StatusOK)
	})
}

// tier-agent moves to other ports where a tier has members, which have rows.
//
// Control: with all fields of the dump in the row, HAProxy asked at the old ports for
// good: all members were down.
func TestMembers_TierAgentMovesToOtherPorts(t *testing.T) {
	discovered(t, 2, func(f *fleet) {
		f.shows("heavy/h1", "ready [config]")
		f.waitRow(" heavy 0 h1 127.0.0.2 2 4 ")
		f.movePorts()
		f.waitStatus("heavy", http.StatusOK)
		f.waitStat("heavy", "h1", func(row map[string]string) bool {
			return isUp(row) && strings.HasSuffix(row["check_status"], "L7OK") && strings.Contains(row["agent_status"], "L7OK")
		}, "both checks are answered")
	})
}
