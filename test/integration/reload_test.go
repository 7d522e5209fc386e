package integration

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"tier-agent/internal/httpapi"
	"tier-agent/test/engine"
	"tier-agent/test/guarantee"
	"tier-agent/test/lab"
)

// separate is a configuration in which heavy may be probed anywhere, and in which
// a held probe does not time out.
const separate = lab.Head + `probe: {interval: 200ms, timeout: 60s, max_age: 120s}
tiers:
  - {name: heavy, servers: [{server: heavy/h1, url: 'http://127.0.0.1:{{.Ports.Heavy}}', address: separate}], identity: {id: big-70b}}
  - {name: fast, servers: [{server: fast/f1, url: 'http://127.0.0.1:{{.Ports.Fast}}'}], identity: {id: small-8b}}
`

// edit changes the file of the running tier-agent.
func (f *fault) edit(old, now string) {
	f.t.Helper()
	path := filepath.Join(f.Dir, "tier-agent.yaml")
	text, err := os.ReadFile(path)
	require.NoError(f.t, err)
	require.Contains(f.t, string(text), old)
	require.NoError(f.t, os.WriteFile(path, []byte(strings.Replace(string(text), old, now, 1)), 0o600))
}

// hangUp sends SIGHUP and waits until it has been carried out or refused.
func (f *fault) hangUp(outcome string) {
	f.t.Helper()
	said := func() int {
		text, err := os.ReadFile(f.AgentProc.Log)
		require.NoError(f.t, err)
		return strings.Count(string(text), `"outcome":"`+outcome+`"`)
	}
	before := said()
	require.NoError(f.t, f.AgentProc.Signal(syscall.SIGHUP))
	require.NoError(f.t, lab.Within(10*time.Second, func() error {
		if said() == before {
			return errors.New("the log does not say so")
		}
		return nil
	}), outcome)
}

// reload runs the verb.
func (f *fault) reload(code int, flags ...string) httpapi.Reload {
	f.t.Helper()
	out, errs, got := f.CLI(f.t.Context(), append([]string{"reload", "--json"}, flags...)...)
	require.Equal(f.t, code, got, "%s%s", out, errs)
	var r httpapi.Reload
	require.NoError(f.t, json.Unmarshal([]byte(out), &r), out)
	return r
}

func (f *fault) evidence(want string) {
	f.t.Helper()
	require.NoError(f.t, lab.Within(10*time.Second, func() error {
		if got := f.status().Tiers[0].Servers[0].Evidence; got != want {
			return fmt.Errorf("heavy's evidence is %s, not %s", got, want)
		}
		return nil
	}))
}

func port(n int) string { return fmt.Sprintf("127.0.0.1:%d'", n) }

// heavy's probe address is edited while a probe of the old one is out: what that
// one says, and said before, counts no more. fast loses nothing.
//
// Control: with the fence's Replace left to the first view of the model alone, the
// evidence of the old address kept heavy open.
func TestReloadFencesTheEvidenceOfAnEditedAddress(t *testing.T) {
	faults(t, "reload: heavy's probe address edited", worldOptions{agentYAML: separate}, func(f *fault) {
		ports, err := lab.FreePorts()
		require.NoError(f.t, err)
		green := serveEngine(f.t, ports.Heavy, "another-model")
		release, reached := f.heavy.Hold(engine.Models)
		defer release()
		<-reached
		f.edit(port(f.Ports.Heavy), port(ports.Heavy))
		f.hangUp("done")
		f.waitStat("heavy", "h1", isDown, "its evidence is gone")
		f.heavyTraffic.rule.Store(mustRefuse)
		f.evidence("probe_pending")
		f.settle(f.heavyTraffic, 20)
		assert.Zero(guarantee.T(f.t), green.Requests(engine.Models), "one at a time: the old probe is out")

		release()
		f.evidence("identity_mismatch")
		f.settle(f.heavyTraffic, 20)
		f.heavyTraffic.rule.Store(either)
		green.SetModel(lab.HeavyModel)
		f.waitStatus("heavy", http.StatusOK)
		f.heavyTraffic.rule.Store(mustServe)
		f.settle(f.heavyTraffic, 20)
	})
}

// A file with a mistake changes nothing, by either way, and says where it is.
//
// Control: with the deferred call of Reloaded taken out of the reloader's replace,
// the gauge stayed at 1.
func TestReloadOfABrokenFileChangesNothing(t *testing.T) {
	faults(t, "reload: a broken file", worldOptions{}, func(f *fault) {
		f.heavyTraffic.rule.Store(mustServe)
		probes := func() float64 { return f.metric(`tier_agent_probes_total{outcome="passed",tier="heavy"}`) }
		f.edit("id: big-70b", "id: another-model")
		f.edit("name: fast", "nmae: fast")
		f.hangUp("refused")
		r := f.reload(1)
		assert.Equal(f.t, httpapi.CodeInvalidConfig, r.Code)
		require.Len(f.t, r.Problems, 2, "the key that is wrong, and the one that is missing")
		wrong := r.Problems[1]
		assert.Equal(f.t, "tiers[1].nmae", wrong.Path)
		out, errs, code := f.CLI(f.t.Context(), "reload")
		assert.Equal(f.t, 1, code)
		assert.Contains(f.t, out, "refused: the configuration stays as it was: ")
		assert.Contains(f.t, errs, fmt.Sprintf("tier-agent.yaml:%d:%d: tiers[1].nmae: ", wrong.Line, wrong.Column))
		assert.Zero(f.t, f.metric("tier_agent_config_last_reload_successful"))
		before := probes()
		require.NoError(f.t, lab.Within(10*time.Second, func() error {
			if probes() < before+2 {
				return errors.New("no probe has passed since")
			}
			return nil
		}))
		f.settle(f.heavyTraffic, 20)

		f.edit("nmae: fast", "name: fast")
		f.edit("id: another-model", "id: big-70b")
		assert.Equal(f.t, "the configuration has been read again; no tier has changed", f.reload(0).Message)
		assert.InDelta(f.t, 1, f.metric("tier_agent_config_last_reload_successful"), 0)
		f.settle(f.heavyTraffic, 20)
	})
}

// G11: where the probe goes elsewhere and HAProxy does not, good evidence from
// there opens nothing, not even until the next look at HAProxy.
//
// Control: with the call of compare taken out of Replace, the answer right after
// the reload was admitted.
func TestG11_ReloadToAnAddressThatHAProxyDoesNotSendTo(t *testing.T) {
	faults(t, "reload: another address than HAProxy's", worldOptions{}, func(f *fault) {
		ports, err := lab.FreePorts()
		require.NoError(f.t, err)
		serveEngine(f.t, ports.Heavy, lab.HeavyModel)
		f.edit(port(f.Ports.Heavy), port(ports.Heavy))
		assert.Equal(f.t, []string{"heavy"}, f.reload(0, "--accept-closing").Changed)
		heavy := f.status().Tiers[0].Servers[0]
		assert.Equal(f.t, []any{"identity_passed", "address_mismatch", false}, []any{heavy.Evidence, heavy.Reason, heavy.Ready})
		f.waitStat("heavy", "h1", isDown, "HAProxy follows")
		f.heavyTraffic.rule.Store(mustRefuse)
		f.settle(f.heavyTraffic, 20)
		f.heavyTraffic.rule.Store(either)
		f.edit(port(ports.Heavy), port(f.Ports.Heavy))
		f.hangUp("done")
		f.waitStatus("heavy", http.StatusOK)
	})
}

// A quiesced tier stays closed while its address is edited, while it is gone from
// the file, and when it comes back with the address that was quiesced.
//
// Control: with the call of align taken out of Replace, the tier that came back was
// not closed, and its intent not known to have been away.
func TestReloadKeepsWhatIsQuiesced(t *testing.T) {
	faults(t, "reload: heavy quiesced, removed, back", worldOptions{agentYAML: separate}, func(f *fault) {
		file := filepath.Join(f.Dir, "tier-agent.yaml")
		whole, err := os.ReadFile(file)
		require.NoError(f.t, err)
		f.quiesceHeavy()
		f.edit("interval: 200ms", "interval: 300ms")
		assert.Equal(f.t, []string{"heavy", "fast"}, f.reload(0).Changed)
		f.settle(f.heavyTraffic, 10)

		var without []string
		for line := range strings.Lines(string(whole)) {
			if !strings.Contains(line, "name: heavy") {
				without = append(without, line)
			}
		}
		require.NoError(f.t, os.WriteFile(file, []byte(strings.Join(without, "")), 0o600))
		assert.Equal(f.t, []string{"heavy"}, f.reload(0).Removed)
		f.waitStat("heavy", "h1", func(row map[string]string) bool { return strings.Contains(row["last_agt"], "unknown_tier") }, "HAProxy hears that there is no such tier")
		require.NoError(f.t, f.HAProxies[0].Reload())
		f.settle(f.heavyTraffic, 20)
		st := f.status()
		require.Len(guarantee.T(f.t), st.Intents, 1)
		assert.True(f.t, st.Intents[0].Orphan)

		require.NoError(f.t, os.WriteFile(file, whole, 0o600))
		assert.Equal(f.t, []string{"heavy"}, f.reload(0).Added)
		assert.Equal(guarantee.T(f.t), "quiesced", f.status().Tiers[0].Reason)
		f.awaitDrained(1)
		f.settle(f.heavyTraffic, 20)
		f.readmitHeavy()
	})
}
