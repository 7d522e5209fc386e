package integration

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"tier-agent/test/engine"
	"tier-agent/test/guarantee"
	"tier-agent/test/lab"
)

// discovering is a configuration whose tier heavy has the members that HAProxy shows.
const discovering = lab.Head + `probe: {interval: 200ms, timeout: 1s, max_age: 5s}
tiers:
  - {name: heavy, members: {backend: heavy}, identity: {id: big-70b}}
  - {name: fast, servers: [{server: fast/f1, url: 'http://127.0.0.1:{{.Ports.Fast}}'}], identity: {id: small-8b}}
`

// fleet is a world whose heavy tier has the hosts that a name server names.
type fleet struct {
	*fault
	dns *lab.DNS
}

const heavyName = "heavy.test"

// discovered runs test on every version, with heavy on one host, 127.0.0.2.
func discovered(t *testing.T, slots int, test func(f *fleet)) {
	t.Helper()
	onEach(t, func(t *testing.T, haproxy string) {
		dns, err := lab.StartDNS(0)
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, dns.Close()) })
		require.NoError(t, dns.Set(heavyName, "127.0.0.2"))
		w := newWorldWith(t, haproxy, worldOptions{
			agentYAML: discovering, dns: dns.Addr(), heavyName: heavyName, heavyHost: "127.0.0.2",
			config: func(_ lab.Options, text string) string {
				// The name server changes its mind more often here than elsewhere.
				return strings.NewReplacer("server-template h 8 ", fmt.Sprintf("server-template h %d ", slots),
					"timeout resolve 1s", "timeout resolve 200ms", "timeout retry   1s", "timeout retry 200ms",
					"hold valid      1s", "hold valid 200ms", "hold obsolete   30s", "hold obsolete 1s").Replace(text)
			},
		})
		test(&fleet{fault: &fault{world: w, began: time.Now()}, dns: dns})
	})
}

// host starts an engine on another address.
func (f *fleet) host(ip, model string) *engine.Engine {
	f.t.Helper()
	return serveEngineAt(f.t, fmt.Sprintf("%s:%d", ip, f.Ports.Heavy), model)
}

// member waits until status has a member in the wanted state, "" for none.
func (f *fleet) member(name, state string) {
	f.t.Helper()
	require.NoError(f.t, lab.Within(15*time.Second, func() error {
		for _, t := range f.status().Tiers {
			for _, s := range t.Servers {
				if s.Name != name {
					continue
				}
				if s.State != state {
					return fmt.Errorf("%s is %s, not %q", name, s.State, state)
				}
				return nil
			}
		}
		if state != "" {
			return fmt.Errorf("there is no %s", name)
		}
		return nil
	}))
}

// shows waits until HAProxy shows a server in a state.
func (f *fleet) shows(name, state string) {
	f.t.Helper()
	require.NoError(f.t, lab.Within(15*time.Second, func() error {
		if got := f.serverStatus(name); got != state {
			return fmt.Errorf("%s is %q, not %q", name, got, state)
		}
		return nil
	}))
}

func (f *fleet) serverStatus(name string) string {
	for _, t := range f.status().Tiers {
		for _, s := range t.Servers {
			if s.Name == name {
				return s.HAProxy["edge"]
			}
		}
	}
	return ""
}

// tell says something to HAProxy, as an operator does.
func (f *fleet) tell(command string) {
	f.t.Helper()
	out, err := f.Runtime(command)
	require.NoError(f.t, err)
	require.Empty(f.t, strings.TrimSpace(out))
}

// A host that DNS names is a member once there is evidence about it, and not before;
// one that leaves is none.
//
// Negative control: without "disabled" in the backend, and with welcome and introduce
// taken out, the wrong model got requests. With introduce in it got none: the agent had
// said "down" for the slot while that was empty.
func TestMembers_ComeAndGoWithDNS(t *testing.T) {
	discovered(t, 4, func(f *fleet) {
		f.member("heavy/h1", "ready")
		wrong := f.host("127.0.0.3", lab.FastModel)
		right := f.host("127.0.0.4", lab.HeavyModel)
		heavy := f.traffic("heavy")
		heavy.rule.Store(mustServe)
		require.NoError(t, f.dns.Set(heavyName, "127.0.0.2", "127.0.0.3", "127.0.0.4"))
		f.waitMembers(3)
		require.NoError(t, lab.Within(15*time.Second, func() error {
			if n := right.Stats().Requests[engine.Chat]; n == 0 {
				return fmt.Errorf("the right one has %d requests", n)
			}
			return nil
		}))
		assert.Zero(guarantee.T(t), wrong.Stats().Requests[engine.Chat], "requests at the wrong model")
		require.NoError(t, f.dns.Set(heavyName, "127.0.0.4"))
		f.waitMembers(1)
		heavy.stop()
		assert.Zero(guarantee.T(t), heavy.lost.Load(), "requests lost")
	})
}

func (f *fleet) waitMembers(n int) {
	f.t.Helper()
	require.NoError(f.t, lab.Within(15*time.Second, func() error {
		got := 0
		for _, t := range f.status().Tiers {
			if t.Name == "heavy" {
				got = len(t.Servers)
			}
		}
		if got != n {
			return fmt.Errorf("%d members, not %d", got, n)
		}
		return nil
	}))
}

// A slot whose host leaves while it is drained for it: the next host in that slot is
// neither drained nor trusted, and the intent goes with the first.
//
// Negative controls: with state kept by the name alone in newView, and align taking
// the intent along, the newcomer stayed quiesced; without departed the drain stayed;
// with the drain taken off at once by "ready", the slot was open to the wrong model.
func TestMembers_ANewcomerInADrainedSlot(t *testing.T) {
	discovered(t, 1, func(f *fleet) {
		f.member("heavy/h1", "ready")
		f.verb(0, "quiesce", "heavy", "--server", "heavy/h1", "--force", "--reason", "leaves")
		f.shows("heavy/h1", "drain(forced) [config]")

		// Another host comes to the slot, of the wrong model.
		wrong := f.host("127.0.0.3", lab.FastModel)
		heavy := f.traffic("heavy")
		heavy.rule.Store(mustRefuse)
		require.NoError(t, f.dns.Set(heavyName, "127.0.0.3"))
		f.member("heavy/h1", "degraded")
		f.shows("heavy/h1", "maint(forced,config)")
		assert.Zero(guarantee.T(t), wrong.Stats().Requests[engine.Chat], "requests at the wrong model")
		require.Len(t, f.status().Intents, 1)
		assert.True(t, f.status().Intents[0].Stale, "it is of a host that has left")

		// The first one comes back, and is still quiesced.
		require.NoError(t, f.dns.Set(heavyName, "127.0.0.2"))
		f.member("heavy/h1", "quiesced")
		assert.False(t, f.status().Intents[0].Stale)
		f.shows("heavy/h1", "maint(forced,config)") // closed, and not by us
		before := f.heavy.Stats().Requests[engine.Chat]

		// A third one is the right model, and serves.
		right := f.host("127.0.0.4", lab.HeavyModel)
		heavy.rule.Store(either)
		require.NoError(t, f.dns.Set(heavyName, "127.0.0.4"))
		f.shows("heavy/h1", "ready [config]")
		require.NoError(t, lab.Within(15*time.Second, func() error {
			if right.Stats().Requests[engine.Chat] == 0 {
				return fmt.Errorf("nothing has reached the third host")
			}
			return nil
		}))
		assert.Equal(guarantee.T(t), before, f.heavy.Stats().Requests[engine.Chat], "requests at the quiesced one")

		// The first is to be one like any other when it is back.
		first := f.status().Intents[0]
		f.verb(0, "forget", first.Server+"@"+first.Host)
		assert.Empty(t, f.status().Intents)
		require.NoError(t, f.dns.Set(heavyName, "127.0.0.2"))
		require.NoError(t, lab.Within(15*time.Second, func() error {
			if f.heavy.Stats().Requests[engine.Chat] == before {
				return fmt.Errorf("nothing has reached the first host")
			}
			return nil
		}))
		f.member("heavy/h1", "ready")
		heavy.stop()
		assert.Zero(guarantee.T(t), heavy.reached.Load(), "requests before there was evidence")
	})
}

// A reload costs a member that is ready nothing, though its slot starts disabled and
// without an address; a host that comes at the same time gets nothing before there is
// evidence about it.
//
// Negative control: without the rows of what is open, requests were lost.
func TestMembers_AcrossReloads(t *testing.T) {
	discovered(t, 4, func(f *fleet) {
		f.member("heavy/h1", "ready")
		f.shows("heavy/h1", "ready [config]")
		wrong := f.host("127.0.0.3", lab.FastModel)
		heavy := f.traffic("heavy")
		heavy.rule.Store(mustServe)
		for n := range times(5) {
			if n == 1 {
				require.NoError(t, f.dns.Set(heavyName, "127.0.0.2", "127.0.0.3"))
			}
			require.NoError(t, f.Reload())
			f.settle(heavy, 50)
		}
		f.waitMembers(2)
		f.shows("heavy/h2", "maint(forced,config)")
		heavy.stop()
		assert.Zero(guarantee.T(t), heavy.lost.Load(), "requests lost")
		assert.Zero(guarantee.T(t), wrong.Stats().Requests[engine.Chat], "requests at the wrong model")
	})
}

// What an operator has done to a slot stays, whoever comes to have it, also across a
// restart of tier-agent (G10).
//
// Negative controls: without Held in member, the maintenance had ended when another
// host had come; without the file, too; with departed true of every drain, the
// operator's drain was taken off.
func TestMembers_AnOperatorsHandStays(t *testing.T) {
	discovered(t, 2, func(f *fleet) {
		f.host("127.0.0.3", lab.HeavyModel)
		f.host("127.0.0.4", lab.HeavyModel)
		require.NoError(t, f.dns.Set(heavyName, "127.0.0.2", "127.0.0.3"))
		f.shows("heavy/h1", "ready [config]")
		f.shows("heavy/h2", "ready [config]")
		f.tell("set server heavy/h1 state maint")
		f.tell("set server heavy/h2 state drain")
		f.member("heavy/h1", "held")
		f.member("heavy/h2", "held")

		require.NoError(t, f.AgentProc.Kill())
		require.NoError(t, f.StartAgent(t.Context()))
		require.NoError(t, f.dns.Set(heavyName, "127.0.0.4"))
		f.waitMembers(1)
		f.settle(f.traffic("fast"), 500)
		for _, s := range f.status().Tiers[0].Servers {
			assert.Equal(t, "held", s.State, s.Name)
			assert.Contains(guarantee.T(t), []string{"maint(forced,config)", "drain(forced) [config]"}, s.HAProxy["edge"])
		}
		f.tell("set server heavy/h1 state ready")
		f.tell("set server heavy/h2 state ready")
		f.waitStatus("heavy", 200)
	})
}

// All slots of a server-template send one text to the agent-check, until tier-agent has
// given each its own: then one of them is down, and another up. A reload forgets that.
//
// Negative controls: without introduce, h2 stayed up by the agent; with the process not
// compared in introduced, it did after the reload.
func TestMembers_EachSlotAsksForItself(t *testing.T) {
	discovered(t, 2, func(f *fleet) {
		f.member("heavy/h1", "ready")
		second := f.host("127.0.0.3", lab.HeavyModel)
		require.NoError(t, f.dns.Set(heavyName, "127.0.0.2", "127.0.0.3"))
		f.shows("heavy/h2", "ready [config]")
		second.SetModel(lab.FastModel)
		for _, when := range []string{"at first", "after a reload"} {
			f.waitStat("heavy", "h2", func(row map[string]string) bool {
				return strings.Contains(row["last_agt"], "identity_mismatch") && row["status"] != "UP"
			}, when+" the agent says of the second that it is not ready")
			f.waitStat("heavy", "h1", func(row map[string]string) bool {
				return strings.Contains(row["last_agt"], "up") && row["status"] == "UP"
			}, when+" it says of the first that it is")
			if when == "at first" {
				require.NoError(t, f.Reload())
			}
		}
	})
}

// A drain of ours does not outlast its intent on a slot whose host has left.
//
// Negative control: without empty, h2 stayed at 44.
func TestMembers_ADrainOfAnEmptySlot(t *testing.T) {
	discovered(t, 2, func(f *fleet) {
		f.member("heavy/h1", "ready")
		f.host("127.0.0.3", lab.HeavyModel)
		require.NoError(t, f.dns.Set(heavyName, "127.0.0.2", "127.0.0.3"))
		f.shows("heavy/h2", "ready [config]")
		f.verb(0, "quiesce", "heavy", "--reason", "swap")
		require.NoError(t, f.dns.Set(heavyName, "127.0.0.2"))
		f.waitMembers(1)
		require.NoError(t, lab.Within(15*time.Second, func() error {
			if got := f.admin(f.HAProxies[0], "heavy", "h2"); got != " 37 " {
				return fmt.Errorf("h2 is %s, not 37", got)
			}
			return nil
		}))
		f.verb(0, "readmit", "heavy", "--wait", "5s")
		require.NoError(t, f.dns.Set(heavyName, "127.0.0.2", "127.0.0.3"))
		f.shows("heavy/h2", "ready [config]")
	})
}
