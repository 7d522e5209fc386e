package integration

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"tier-agent/internal/httpapi"
	"tier-agent/test/guarantee"
	"tier-agent/test/lab"
)

// startWired starts HAProxy with a wiring of heavy's two servers.
func (w *world) startWired(g wiring) {
	w.t.Helper()
	require.NoError(w.t, os.WriteFile(w.HAProxyCfg, []byte(g.config()), 0o644))
	require.NoError(w.t, w.HAProxies[0].Start(w.t.Context()))
}

func (w *world) commands(all ...string) {
	w.t.Helper()
	for _, command := range all {
		said, err := w.Runtime(command)
		require.NoError(w.t, err)
		said = strings.TrimSpace(said)
		require.True(w.t, said == "" || strings.HasPrefix(said, "New server registered"), "%s: %s", command, said)
	}
}

// answers waits until twelve requests reach the servers so.
func (w *world) answers(want string) {
	w.t.Helper()
	require.NoError(w.t, lab.Within(20*time.Second, func() error {
		got := fmt.Sprint(w.loop())
		if got != want {
			return fmt.Errorf("%s, not %s", got, want)
		}
		return nil
	}))
}

// A server whose checks somebody has disabled goes on getting requests by what they said
// last. When its evidence says no it is taken down, by its health, and comes up again on
// evidence; what somebody does to it after that stays.
//
// Control: with closeUnasked left out, half of the answers were the wrong model's.
func TestAServerWhoseChecksAreDisabledIsTakenDown(t *testing.T) {
	mostlyWaits(t)
	onEach(t, func(t *testing.T, haproxy string) {
		w := newWorldWith(t, haproxy, worldOptions{agentYAML: twoHeavy, bare: true})
		w.fast.SetModel(lab.HeavyModel)
		w.waitServer("heavy/h2", func(s httpapi.ServerStatus) bool { return s.Ready })
		w.startWired(wiring{backend: wiredBoth, h1: `agent-send "heavy/h1\n"`, h2: `agent-send "heavy/h2\n"`})
		w.waitStat("heavy", "h2", func(row map[string]string) bool {
			return row["agent_status"] == "L7OK" && row["check_status"] == "L7OK"
		}, "both checks have asked")
		w.says("h2", "yes")
		w.commands("disable agent heavy/h2", "disable health heavy/h2")
		w.says("h2", "yes")

		w.fast.SetModel(lab.FastModel)
		w.answers("map[h1:12 h2:0]")
		for range 10 {
			assert.Equal(guarantee.T(t), map[string]string{"h1": "12", "h2": "0"}, w.loop())
		}
		assert.Equal(t, []string{"heavy/h2"}, w.status().HAProxy[0].ClosedHere)
		assert.Equal(guarantee.T(t), "0", w.state("heavy", "h2")["srv_admin_state"], "the admin state stays the operator's")

		w.fast.SetModel(lab.HeavyModel)
		w.says("h2", "yes")
		w.fast.SetModel(lab.FastModel)
		w.says("h2", "no")
		w.commands("set server heavy/h2 health up")
		w.says("h2", "yes")
		require.NoError(t, lab.Within(20*time.Second, func() error {
			if got := fmt.Sprint(w.status().HAProxy[0].ClosedHere); got != "[heavy/h2 (somebody has opened it since)]" {
				return fmt.Errorf("status says %s", got)
			}
			return nil
		}))
		assert.Equal(guarantee.T(t), "6", w.loop()["h2"], "it stays up, as the operator wants")
	})
}

// Where a health check of tier-agent's goes on, HAProxy's health takes the server down at
// once, rather than after fall times inter.
//
// Control: with the case of asking.Health left out, it was drained, after ten seconds.
func TestAServerWhoseAgentCheckAloneIsDisabledIsTakenDownAtOnce(t *testing.T) {
	mostlyWaits(t)
	onEach(t, func(t *testing.T, haproxy string) {
		w := newWorldWith(t, haproxy, worldOptions{agentYAML: twoHeavy, bare: true})
		w.fast.SetModel(lab.HeavyModel)
		w.waitServer("heavy/h2", func(s httpapi.ServerStatus) bool { return s.Ready })
		slow := strings.Replace(wiredBoth, "inter 200ms fall 1", "inter 3s fastinter 3s fall 20", 1)
		w.startWired(wiring{backend: slow, h1: `agent-send "heavy/h1\n"`, h2: `agent-send "heavy/h2\n"`})
		w.waitStat("heavy", "h2", func(row map[string]string) bool {
			return row["agent_status"] == "L7OK" && row["check_status"] == "L7OK"
		}, "both checks have asked")
		w.commands("disable agent heavy/h2")
		w.says("h2", "yes")
		w.fast.SetModel(lab.FastModel)
		w.answers("map[h1:12 h2:0]")
		assert.Empty(t, w.status().HAProxy[0].ClosedHere, "its own check brings it up again")
		w.fast.SetModel(lab.HeavyModel)
		w.says("h2", "yes")
	})
}

// Where a health check of the engine goes on, it would bring the server up again: the
// server is drained, also over a restart of tier-agent, until its evidence is ready or
// somebody opens it.
//
// Controls: with drain left out of first, half of the answers were the wrong model's;
// without besidesUnasked the drain was told as somebody's hold; with the file left out, the
// server stayed drained after the restart.
func TestAServerThatItsEngineKeepsUpIsDrained(t *testing.T) {
	mostlyWaits(t)
	onEach(t, func(t *testing.T, haproxy string) {
		w := newWorldWith(t, haproxy, worldOptions{agentYAML: twoHeavy, bare: true})
		w.fast.SetModel(lab.HeavyModel)
		w.waitServer("heavy/h2", func(s httpapi.ServerStatus) bool { return s.Ready })
		w.startWired(wiring{backend: wiredEngine + "\n    " + wiredAgent, h1: `agent-send "heavy/h1\n"`, h2: `agent-send "heavy/h2\n"`})
		w.waitStat("heavy", "h2", func(row map[string]string) bool { return row["agent_status"] == "L7OK" }, "it has asked")
		w.commands("disable agent heavy/h2")
		w.says("h2", "yes")
		closed := func(want string) {
			t.Helper()
			require.NoError(t, lab.Within(20*time.Second, func() error {
				if got := fmt.Sprint(w.status().HAProxy[0].ClosedHere); got != want {
					return fmt.Errorf("status says %s", got)
				}
				return nil
			}))
		}

		w.fast.SetModel(lab.FastModel)
		w.answers("map[h1:12 h2:0]")
		closed("[heavy/h2 (drained)]")
		assert.Equal(t, "8", w.state("heavy", "h2")["srv_admin_state"])
		assert.Empty(t, w.status().HAProxy[0].Holds, "it is ours")

		require.NoError(t, w.AgentProc.Kill())
		require.NoError(t, w.StartAgent(t.Context()))
		closed("[heavy/h2 (drained)]")
		assert.Empty(t, w.status().HAProxy[0].Holds, "it is ours still")
		w.fast.SetModel(lab.HeavyModel)
		w.says("h2", "yes")
		closed("[]")

		// A quiesce of it makes the drain its own, and a readmit ends it.
		w.fast.SetModel(lab.FastModel)
		closed("[heavy/h2 (drained)]")
		w.verb(0, "quiesce", "heavy", "--server", "heavy/h2", "--reason", "swap")
		closed("[]")
		w.fast.SetModel(lab.HeavyModel)
		w.verb(0, "readmit", "heavy", "--server", "heavy/h2")
		w.says("h2", "yes")

		w.fast.SetModel(lab.FastModel)
		closed("[heavy/h2 (drained)]")
		w.commands("set server heavy/h2 state ready")
		closed("[heavy/h2 (somebody has opened it since)]")
		w.says("h2", "yes")
		assert.Equal(guarantee.T(t), "6", w.loop()["h2"], "it stays open, as the operator wants")
		w.fast.SetModel(lab.HeavyModel)
		closed("[]")
	})
}

// A server that is added by hand, without checks, takes nothing before there is evidence.
//
// Control: with closeUnasked left out, half of the answers were the wrong model's.
func TestAServerThatIsAddedWithoutChecksIsTakenDown(t *testing.T) {
	const yaml = lab.Head + `probe: {interval: 200ms, timeout: 2s, max_age: 10s}
tiers:
  - {name: heavy, members: {backend: heavy}, identity: {id: big-70b}}
`
	onEach(t, func(t *testing.T, haproxy string) {
		w := newWorldWith(t, haproxy, worldOptions{agentYAML: yaml, bare: true})
		g := wiring{backend: wiredBoth, h1: `agent-send "heavy/h1\n"`}
		require.NoError(t, os.WriteFile(w.HAProxyCfg, []byte(strings.Replace(g.config(), `server h2 "${TIER_FAST_F1}"`, "# ", 1)), 0o644))
		require.NoError(t, w.HAProxies[0].Start(t.Context()))
		w.answers("map[h1:12 h2:0]")
		w.commands(fmt.Sprintf("add server heavy/h8 127.0.0.1:%d weight 100", w.Ports.Fast), "enable server heavy/h8")
		w.answers("map[h1:12 h2:0]")
		require.NoError(t, lab.Within(20*time.Second, func() error {
			if got := fmt.Sprint(w.status().HAProxy[0].ClosedHere); got != "[heavy/h8]" {
				return fmt.Errorf("status says %s", got)
			}
			return nil
		}))
		for range 10 {
			assert.Equal(guarantee.T(t), map[string]string{"h1": "12", "h2": "0"}, w.loop())
		}
	})
}

// says waits until status says so of new requests to one of heavy's servers.
func (w *world) says(server, want string) {
	w.t.Helper()
	require.NoError(w.t, lab.Within(20*time.Second, func() error {
		if got := w.told()[server]; got != want {
			return fmt.Errorf("%s: %s, not %s", server, got, want)
		}
		return nil
	}))
}

// state is a server's row of `show servers state`, by column.
func (w *world) state(backend, server string) map[string]string {
	w.t.Helper()
	text, err := w.Runtime("show servers state " + backend)
	require.NoError(w.t, err)
	lines := strings.Split(strings.TrimSpace(text), "\n")
	columns := strings.Fields(strings.TrimPrefix(lines[1], "# "))
	for _, line := range lines[2:] {
		of := map[string]string{}
		for n, field := range strings.Fields(line) {
			of[columns[n]] = field
		}
		if of["srv_name"] == server {
			return of
		}
	}
	require.Fail(w.t, "no such server", text)
	return nil
}
