package integration

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"tier-agent/test/engine"
	"tier-agent/test/guarantee"
	"tier-agent/test/lab"
)

// literal gives heavy/h1 its address in the file, where a test can edit it: HAProxy 2.6
// and 3.0 take a variable's value when the master starts.
func literal(o lab.Options, text string) string {
	return strings.Replace(text, `"${TIER_HEAVY_H1}"`, at(o.Ports.Heavy), 1)
}

func at(port int) string { return fmt.Sprintf("127.0.0.1:%d", port) }

// h1Line is how heavy/h1's line begins in the shipped file.
func h1Line(port int) string { return "server h1 " + at(port) }

// line makes what follows the address in heavy/h1's line another.
func line(options string) func(lab.Options, string) string {
	return func(o lab.Options, text string) string {
		return strings.Replace(literal(o, text), h1Line(o.Ports.Heavy), h1Line(o.Ports.Heavy)+" "+options, 1)
	}
}

// editHAProxy changes the file that the next reload loads.
func (f *fault) editHAProxy(old, now string) {
	f.t.Helper()
	text, err := os.ReadFile(f.HAProxyCfg)
	require.NoError(f.t, err)
	require.Contains(f.t, string(text), old)
	require.NoError(f.t, os.WriteFile(f.HAProxyCfg, []byte(strings.Replace(string(text), old, now, 1)), 0o644))
}

// waitNoRow waits until the first HAProxy's state file has no row with this in it.
func (f *fault) waitNoRow(part string) {
	f.t.Helper()
	require.NoError(f.t, lab.Within(10*time.Second, func() error {
		text, err := os.ReadFile(f.HAProxies[0].StateFile())
		if err == nil && strings.Contains(string(text), part) {
			err = fmt.Errorf("there is one: %s", text)
		}
		return err
	}))
}

// freePort is one that nobody listens on.
func freePort(t *testing.T) int {
	t.Helper()
	ports, err := lab.FreePorts()
	require.NoError(t, err)
	return ports.Heavy
}

// tier-agent moves to other ports while heavy is quiesced, and heavy is readmitted.
//
// Control: with all fields of the dump in the row, HAProxy asked at the old ports for
// good, and the readmit was not_confirmed.
func TestRows_TierAgentMovesToOtherPorts(t *testing.T) {
	faults(t, "rows: other ports of tier-agent", worldOptions{}, func(f *fault) {
		f.quiesceHeavy()
		f.waitStat("heavy", "h1", isDown, "its checks are told")
		f.waitRow(" heavy 0 h1 - 0 8 ")
		f.movePorts()
		f.settle(f.heavyTraffic, 20)
		f.readmitHeavy()
	})
}

// movePorts ends both, and starts them with other ports of tier-agent in both files.
func (f *fault) movePorts() {
	f.t.Helper()
	if f.fastTraffic != nil {
		f.fastTraffic.rule.Store(either)
	}
	require.NoError(f.t, f.AgentProc.Kill())
	require.NoError(f.t, f.HAProxies[0].Kill())
	ports, err := lab.FreePorts()
	require.NoError(f.t, err)
	f.Ports.AgentCheck, f.Ports.HTTP, f.Ports.SPOE = ports.AgentCheck, ports.HTTP, ports.SPOE
	require.NoError(f.t, f.StartAgent(f.t.Context()))
	require.NoError(f.t, f.HAProxies[0].Start(f.t.Context()))
}

// two is the usual configuration with a second server of heavy, h2.
func two(h2 int) string {
	return lab.Head + fmt.Sprintf(`probe: {interval: 200ms, timeout: 2s, max_age: 5s}
tiers:
  - name: heavy
    servers: [{server: heavy/h1, url: 'http://127.0.0.1:{{.Ports.Heavy}}'}, {server: heavy/h2, url: 'http://127.0.0.1:%d'}]
    identity: {id: big-70b}
  - {name: fast, servers: [{server: fast/f1, url: 'http://127.0.0.1:{{.Ports.Fast}}'}], identity: {id: small-8b}}
`, h2)
}

// twice runs test on every version with heavy/h2 in tier-agent's configuration, on an
// engine of its own, and with a line after heavy/h1's in HAProxy's, %s for its address;
// none where that is empty.
func twice(t *testing.T, name, h2Line string, test func(f *fault, h2 *engine.Engine, at string)) {
	t.Helper()
	onEach(t, func(t *testing.T, haproxy string) {
		port := freePort(t)
		h2 := serveEngine(t, port, lab.HeavyModel)
		w := newWorldWith(t, haproxy, worldOptions{
			agentYAML: two(port),
			config: func(o lab.Options, text string) string {
				text = literal(o, text)
				if h2Line == "" {
					return text
				}
				first := h1Line(o.Ports.Heavy) + ` agent-send "heavy/h1\n"`
				return strings.Replace(text, first, first+"\n    "+fmt.Sprintf(h2Line, at(port)), 1)
			},
		})
		f := &fault{world: w, began: time.Now()}
		f.heavyTraffic, f.fastTraffic = w.traffic("heavy"), w.traffic("fast")
		f.fastTraffic.rule.Store(mustServe)
		test(f, h2, at(port))
		f.heavyTraffic.stop()
		f.fastTraffic.stop()
		f.report(name)
	})
}

// bring adds heavy/h2's line and reloads HAProxy.
func (f *fault) bring(at string) {
	f.t.Helper()
	first := h1Line(f.Ports.Heavy) + ` agent-send "heavy/h1\n"`
	f.editHAProxy(first, first+"\n    server h2 "+at+` agent-send "heavy/h2\n"`)
	require.NoError(f.t, f.Reload())
}

// A reload brings a server that is not ready: it takes nothing, until it is ready, and
// then it serves without anybody's doing.
//
// Control: without rows for servers that HAProxy does not have, it got 15 to 27 requests.
func TestRows_ANewServerThatIsNotReady(t *testing.T) {
	twice(t, "rows: a new server, not ready", "", func(f *fault, h2 *engine.Engine, at string) {
		h2.SetModel("another-model")
		f.waitRow(" heavy 0 h2 - 0 0 ")
		f.heavyTraffic.rule.Store(mustServe)
		f.bring(at)
		f.settle(f.heavyTraffic, 200)
		assert.Zero(guarantee.T(f.t), h2.Requests(engine.Chat), "requests at the new server")
		h2.SetModel(lab.HeavyModel)
		f.waitStat("heavy", "h2", isUp, "it is ready")
		require.NoError(f.t, lab.Within(10*time.Second, func() error {
			if h2.Requests(engine.Chat) == 0 {
				return fmt.Errorf("nothing has reached it")
			}
			return nil
		}))
		assert.Equal(f.t, " 0 ", f.admin(f.HAProxies[0], "heavy", "h2"), "no admin state is left behind")
		f.settle(f.heavyTraffic, 20)
	})
}

// A server is quiesced before HAProxy has it. It takes nothing when a reload brings it,
// and the drain is nobody's hold.
//
// Controls: without its row, it got 7 to 26 requests; without its place in showing, the
// readmit was refused: held.
func TestRows_AServerIsQuiescedBeforeHAProxyHasIt(t *testing.T) {
	twice(t, "rows: a new server, quiesced", "", func(f *fault, h2 *engine.Engine, at string) {
		out, errs, _ := f.CLI(f.t.Context(), "quiesce", "heavy", "--server", "heavy/h2", "--reason", "new")
		require.Contains(f.t, out, "heavy/h2", errs)
		f.waitRow(" heavy 0 h2 - 2 8 ")
		f.heavyTraffic.rule.Store(mustServe)
		f.bring(at)
		f.settle(f.heavyTraffic, 200)
		require.NoError(f.t, f.Reload())
		f.settle(f.heavyTraffic, 100)
		assert.Zero(guarantee.T(f.t), h2.Requests(engine.Chat), "requests at the new server")
		assert.Empty(f.t, f.status().HAProxy[0].Holds)
		f.verb(0, "readmit", "heavy", "--server", "heavy/h2", "--wait", "5s")
		f.waitStat("heavy", "h2", isUp, "it is open")
	})
}

// A reload, and a readmit at once: nothing is wrong with the state file.
//
// Control: with the rows of before alone in Forgotten, status said until the next reload
// that the file was not loaded.
func TestRows_AReadmitRightAfterAReload(t *testing.T) {
	faults(t, "rows: a readmit after a reload", worldOptions{}, func(f *fault) {
		f.quiesceHeavy()
		require.NoError(f.t, f.Reload())
		f.readmitHeavy()
		f.settle(f.heavyTraffic, 600) // some looks
		for _, h := range f.status().HAProxy {
			assert.Empty(f.t, h.StateFile)
		}
	})
}

// heavy is quiesced while HAProxy does not run. Its start lets nothing through, and what
// it starts with is nobody's hold.
//
// Controls: with the file left alone until HAProxy has been read, 1 request reached it; with a drain in
// the row, the readmit was refused: held.
func TestRows_AQuiesceWhileHAProxyIsAway(t *testing.T) {
	faults(t, "rows: quiesced while HAProxy is away", worldOptions{}, func(f *fault) {
		f.fastTraffic.rule.Store(either)
		require.NoError(f.t, f.HAProxies[0].Kill())
		assert.Equal(f.t, "haproxy_failed", f.verb(1, "quiesce", "heavy", "--reason", "swap").Code)
		f.waitRow(" heavy 0 h1 - 0 0 ")
		f.heavyTraffic.rule.Store(mustRefuse)
		require.NoError(f.t, f.HAProxies[0].Start(f.t.Context()))
		f.settle(f.heavyTraffic, 100)
		f.awaitDrained(1)
		assert.Empty(f.t, f.status().HAProxy[0].Holds)
		f.readmitHeavy()
	})
}

// What an operator has closed in HAProxy stays closed over reloads, quiesced or not.
//
// Control: without the bits of the dump in the row, it was open after the reload.
func TestRows_HoldsSurviveReloads(t *testing.T) {
	faults(t, "rows: holds", worldOptions{}, func(f *fault) {
		for state, mask := range map[string]string{"maint": " 1 ", "drain": " 8 "} {
			f.heavyTraffic.rule.Store(either)
			_, err := f.Runtime("set server heavy/h1 state " + state)
			require.NoError(f.t, err)
			f.waitRow(" heavy 0 h1 - 2" + mask)
			f.heavyTraffic.rule.Store(mustRefuse)
			for range 2 {
				require.NoError(f.t, f.Reload())
				f.settle(f.heavyTraffic, 50)
				assert.Equal(guarantee.T(f.t), mask, f.admin(f.HAProxies[0], "heavy", "h1"))
			}
		}
	})
}
