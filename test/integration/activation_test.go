package integration

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"tier-agent/test/engine"
	"tier-agent/test/lab"
)

// activated is a world whose heavy has three servers, of which two are needed the
// first time and one after it. HAProxy asks about each request.
type activated struct {
	*world
	heavies []*engine.Engine
	file    string // of tier-agent's configuration
}

func newActivated(t *testing.T, haproxy string) *activated {
	t.Helper()
	o := labOptions(t, haproxy)
	o.Gate = true
	a := &activated{file: filepath.Join(o.Dir, "tier-agent.yaml")}
	var servers, rows []string
	for n := range 3 {
		port := o.Ports.Heavy
		if n > 0 {
			more, err := lab.FreePorts()
			require.NoError(t, err)
			port = more.Heavy
		}
		eng := serveEngine(t, port, lab.HeavyModel)
		require.NoError(t, eng.Set(engine.Health, engine.Behaviour{Status: http.StatusServiceUnavailable}))
		a.heavies = append(a.heavies, eng)
		servers = append(servers, fmt.Sprintf(`{server: heavy/h%d, url: 'http://127.0.0.1:%d'}`, n+1, port))
		rows = append(rows, fmt.Sprintf(`server h%[1]d 127.0.0.1:%[2]d agent-send "heavy/h%[1]d\n"`, n+1, port))
	}
	// The budget is so long that the first answer after a start is always one after the
	// first round of probes.
	o.AgentYAML = lab.Head + `start_budget: 10s
probe: {interval: 200ms, timeout: 2s, max_age: 10s}
tiers:
  - {name: heavy, min_ready: 1, activation_min: 2, servers: [` + strings.Join(servers, ", ") + `], identity: {id: big-70b}}
  - {name: fast, servers: [{server: fast/f1, url: 'http://127.0.0.1:{{.Ports.Fast}}'}], identity: {id: small-8b}}
`
	text, err := os.ReadFile(filepath.Join(o.Root, "haproxy", "haproxy.cfg"))
	require.NoError(t, err)
	const one = `server h1 "${TIER_HEAVY_H1}" agent-send "heavy/h1\n"`
	require.Contains(t, string(text), one)
	o.HAProxyCfg = filepath.Join(o.Dir, "haproxy.cfg")
	require.NoError(t, os.WriteFile(o.HAProxyCfg, []byte(strings.Replace(string(text), one, strings.Join(rows, "\n    "), 1)), 0o644))
	l, err := lab.New(o)
	require.NoError(t, err)
	a.world = &world{Lab: l, t: t, heavy: a.heavies[0], fast: serveEngine(t, o.Ports.Fast, lab.FastModel)}
	t.Cleanup(func() {
		require.NoError(t, l.Close())
		if t.Failed() {
			t.Logf("tier-agent:\n%s", l.AgentProc.Output())
		}
	})
	require.NoError(t, l.StartAgent(t.Context()))
	require.NoError(t, l.StartHAProxy(t.Context()))
	a.waitStatus("fast", http.StatusOK)
	return a
}

// healthy makes the first n of heavy's engines well, and waits until tier-agent
// says so of each.
func (a *activated) healthy(n int) {
	a.t.Helper()
	for i, eng := range a.heavies {
		b := engine.Behaviour{Status: http.StatusServiceUnavailable}
		if i < n {
			b = engine.Behaviour{}
		}
		require.NoError(a.t, eng.Set(engine.Health, b))
	}
	require.NoError(a.t, lab.Within(10*time.Second, func() error {
		if got := a.status().Tiers[0].Serving; got != n {
			return fmt.Errorf("%d servers, not %d", got, n)
		}
		return nil
	}))
}

func (a *activated) waits() {
	a.t.Helper()
	st := a.status().Tiers[0]
	assert.Equal(a.t, "awaiting_activation", st.Reason)
	assert.Equal(a.t, 2, st.Needed)
	a.waitRefusal("awaiting_activation")
	out, _, _ := a.CLI(a.t.Context(), "status")
	assert.Contains(a.t, out, "heavy has not been ready since it appeared: for that it needs 2 ready servers, and 1 after it\n")
}

func (a *activated) serves() {
	a.t.Helper()
	st := a.status().Tiers[0]
	assert.True(a.t, st.Ready, st.Reason)
	assert.Equal(a.t, 1, st.Needed)
	a.waitStatus("heavy", http.StatusOK)
}

// waitRefusal polls until the gate refuses heavy for that reason: HAProxy takes a
// moment to find a tier-agent that is back.
func (a *activated) waitRefusal(reason string) {
	a.t.Helper()
	require.NoError(a.t, lab.Within(10*time.Second, func() error {
		r, err := a.ask("heavy").Refusal()
		if err == nil && r.Reason != reason {
			err = fmt.Errorf("refused for %q, not %q", r.Reason, reason)
		}
		return err
	}))
}

// waitFile waits until the record of which tiers have been ready has this.
func (a *activated) waitFile(part string) {
	a.t.Helper()
	require.NoError(a.t, lab.Within(10*time.Second, func() error {
		text, err := os.ReadFile(filepath.Join(a.StateDir(), "activated.json"))
		if err == nil && !strings.Contains(string(text), part) {
			err = fmt.Errorf("%s is not in %s", part, text)
		}
		return err
	}))
}

// configure changes the running tier-agent's file and reloads.
func (a *activated) configure(change func(string) string) (before string) {
	a.t.Helper()
	text, err := os.ReadFile(a.file)
	require.NoError(a.t, err)
	require.NoError(a.t, os.WriteFile(a.file, []byte(change(string(text))), 0o600))
	out, errs, code := a.CLI(a.t.Context(), "reload", "--accept-closing")
	require.Zero(a.t, code, "%s%s", out, errs)
	return string(text)
}

// Three servers, two for the first time, one after it, and tier-agent ends in
// each way there is. Its first answer after a start stands on one ready server.
//
// Controls: with activated.restore taken out of serveOn, the first answer after
// SIGTERM was awaiting_activation; with the goroutine that runs activations, heavy
// was never in the file. With ActivationMin taken out of specs, the tier was ready
// at one; with the save taken out of the reloader, heavy was still in the file, and
// came back activated.
func TestG9_ARestartForgetsNoActivation(t *testing.T) {
	onEach(t, func(t *testing.T, haproxy string) {
		a := newActivated(t, haproxy)
		a.healthy(1)
		a.waits()
		a.healthy(2)
		a.serves()
		a.healthy(1)
		a.serves()
		a.waitFile(`"heavy"`)
		for _, end := range []func() error{
			func() error { return a.AgentProc.Stop(20 * time.Second) },
			func() error { return a.AgentProc.Kill() },
		} {
			require.NoError(t, end())
			require.NoError(t, a.StartAgent(t.Context()))
			a.serves()
		}

		// What leaves the configuration appears anew when it comes back.
		before := a.configure(func(text string) string {
			var kept []string
			for line := range strings.Lines(text) {
				if !strings.Contains(line, "{name: heavy,") {
					kept = append(kept, line)
				}
			}
			return strings.Join(kept, "")
		})
		text, err := os.ReadFile(filepath.Join(a.StateDir(), "activated.json"))
		require.NoError(t, err)
		assert.NotContains(t, string(text), "heavy", "from the moment that the reload is answered")
		a.configure(func(string) string { return before })
		a.waits()
		require.NoError(t, a.AgentProc.Kill())
		require.NoError(t, a.StartAgent(t.Context()))
		a.waits()
		a.healthy(2)
		a.serves()
		a.healthy(1)
		a.serves()
		a.waitFile(`"heavy"`)

		// A record that cannot be read closes nothing; one that is gone has each tier
		// appear.
		path := filepath.Join(a.StateDir(), "activated.json")
		require.NoError(t, a.AgentProc.Stop(20*time.Second))
		require.NoError(t, os.WriteFile(path, []byte("{"), 0o600))
		require.NoError(t, a.StartAgent(t.Context()))
		a.serves()
		log, err := os.ReadFile(a.AgentProc.Log)
		require.NoError(t, err)
		assert.Contains(t, string(log), "which tiers have been ready before is not known: "+path)
		require.NoError(t, a.AgentProc.Stop(20*time.Second))
		require.NoError(t, os.Remove(path))
		require.NoError(t, a.StartAgent(t.Context()))
		a.waits()
	})
}
