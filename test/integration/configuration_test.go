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

	"tier-agent/internal/httpapi"
	"tier-agent/test/guarantee"
	"tier-agent/test/lab"
)

// log is what tier-agent has logged.
func (w *world) log() string {
	w.t.Helper()
	text, err := os.ReadFile(w.AgentProc.Log)
	require.NoError(w.t, err)
	return string(text)
}

// probes waits until so many more probes of heavy have passed, so that what a reload has
// brought has had its say.
func (w *world) probes(more float64) {
	w.t.Helper()
	passed := func() float64 { return w.metric(`tier_agent_probes_total{outcome="passed",tier="heavy"}`) }
	before := passed()
	require.NoError(w.t, lab.Within(10*time.Second, func() error {
		if got := passed(); got < before+more {
			return fmt.Errorf("%v probes of heavy have passed, not %v", got-before, more)
		}
		return nil
	}))
}

// looks waits until tier-agent has read HAProxy so many more times.
func (w *world) looks(more int) {
	w.t.Helper()
	read := func() time.Time {
		st := w.status()
		return st.Time.Add(-time.Duration(st.HAProxy[0].AgeMS) * time.Millisecond)
	}
	for last := read(); more > 0; more-- {
		require.NoError(w.t, lab.Within(10*time.Second, func() error {
			if now := read(); now.Sub(last) > 100*time.Millisecond {
				last = now
				return nil
			}
			return fmt.Errorf("the last look is still that of %v", last)
		}))
	}
}

// A secret that cannot be used is found by check-config and at a reload, with its place. A healthy tier goes on as it was.
//
// Control: with the call of usable taken out of tokened, check-config said "is valid",
// the reload was done, and heavy was closed at its next probe.
func TestAReloadWithASecretThatDoesNotExistClosesNothing(t *testing.T) {
	faults(t, "reload: a token file that does not exist", worldOptions{}, func(f *fault) {
		f.heavyTraffic.rule.Store(mustServe)
		file, token := filepath.Join(f.Dir, "tier-agent.yaml"), filepath.Join(f.Dir, "token")
		f.edit("id: big-70b", "id: big-70b, token_file: "+token)
		for _, content := range []string{"absent", "", "two\nlines\n"} {
			if content != "absent" {
				require.NoError(f.t, os.WriteFile(token, []byte(content), 0o600))
			}
			out, errs, code := f.CLI(f.t.Context(), "check-config", "-c", file)
			assert.Equal(f.t, 1, code, out)
			assert.Regexp(f.t, `^\S+/tier-agent.yaml:\d+:\d+: tiers\[0\]\.identity\.token_file: the file with the token `, errs)
			f.hangUp("refused")
			r := f.reload(1)
			assert.Equal(f.t, httpapi.CodeInvalidConfig, r.Code)
			require.Len(f.t, r.Problems, 1)
			assert.Equal(f.t, "tiers[0].identity.token_file", r.Problems[0].Path)
			f.probes(2)
			f.settle(f.heavyTraffic, 20)
		}
		require.NoError(f.t, os.WriteFile(token, []byte("secret\n"), 0o600))
		f.reload(0)
		f.probes(2)
		f.settle(f.heavyTraffic, 20)
		assert.Equal(guarantee.T(f.t), "ready", f.status().Tiers[0].Servers[0].State)
	})
}

// A reload that would close what serves names it and changes nothing, not one request.
// With --accept-closing, or by SIGHUP, it is carried out, and says what it has closed. What
// is quiesced, or drained by hand, serves nothing.
//
// Controls: without the question in replace the first reload was done, and heavy was
// closed; without sends, or without the look in replace, the last one was refused.
func TestAReloadThatWouldCloseWhatServesIsRefused(t *testing.T) {
	faults(t, "reload: another identity", worldOptions{}, func(f *fault) {
		f.heavyTraffic.rule.Store(mustServe)
		const closing = "heavy/h1 (its url or what is asked of it has changed)"
		f.edit("id: big-70b", "id: big-71b")
		out, _, code := f.CLI(f.t.Context(), "reload")
		assert.Equal(f.t, 1, code)
		assert.Equal(f.t, "refused: the configuration stays as it was: what serves now would be closed: "+closing+"; quiesce that first, or say --accept-closing\n", out)
		r := f.reload(1)
		assert.Equal(f.t, []any{httpapi.CodeWouldClose, []string{closing}}, []any{r.Code, r.Closing})
		f.probes(2)
		f.settle(f.heavyTraffic, 20)

		f.heavyTraffic.rule.Store(either)
		assert.Equal(f.t, []string{closing}, f.reload(0, "--accept-closing").Closing)
		f.evidence("identity_mismatch")
		f.edit("id: big-71b", "id: big-70b")
		assert.Empty(f.t, f.reload(0).Closing, "it serves nothing")
		f.waitStatus("heavy", http.StatusOK)
		f.edit("id: big-70b", "id: big-71b")
		f.hangUp("done")
		assert.Contains(f.t, f.log(), `"level":"WARN","msg":"the configuration has been read again: changed heavy; closed by it: `+closing)
		f.edit("id: big-71b", "id: big-70b")
		f.hangUp("done")
		f.waitStatus("heavy", http.StatusOK)

		f.quiesceHeavy()
		f.edit("id: big-70b", "id: big-71b")
		assert.Empty(f.t, f.reload(0).Closing)
		f.settle(f.heavyTraffic, 20)
		f.edit("id: big-71b", "id: big-70b")
		f.reload(0)
		f.readmitHeavy()

		f.heavyTraffic.rule.Store(either)
		_, err := f.Runtime("set server heavy/h1 state drain")
		require.NoError(f.t, err)
		f.edit("id: big-70b", "id: big-71b")
		assert.Empty(f.t, f.reload(0).Closing)
	})
}

// A server that HAProxy does not have is a remark of check-config --live, and logged once,
// at a start and when a reload brings it.
//
// Control: with the comparison left out of noteMissing it was logged at each look.
func TestServersThatHAProxyDoesNotHaveAreNamed(t *testing.T) {
	onEach(t, func(t *testing.T, haproxy string) {
		w := newWorld(t, haproxy, "")
		file := filepath.Join(w.Dir, "tier-agent.yaml")
		assert.NotContains(t, w.log(), `"level":"WARN","msg":"haproxy does not have`)
		out, errs, code := w.CLI(t.Context(), "check-config", "-c", file, "--live", "--strict")
		assert.Equal(t, 0, code, errs)
		assert.Contains(t, out, "tier-agent.yaml is valid: 2 tiers, 1 HAProxy instance\n")

		text, err := os.ReadFile(file)
		require.NoError(t, err)
		edited := strings.Replace(string(text), "servers: [{server: heavy/h1,", fmt.Sprintf("servers: [{server: heavy/h3, url: 'http://127.0.0.1:%d'}, {server: heavy/h1,", w.Ports.Heavy), 1)
		require.NoError(t, os.WriteFile(file, []byte(edited), 0o600))
		_, errs, code = w.CLI(t.Context(), "check-config", "-c", file, "--live")
		assert.Equal(t, 0, code, errs)
		assert.Regexp(t, `tier-agent.yaml:\d+:\d+: remark: tiers\[0\]\.servers\[0\]\.server: haproxy edge has no server heavy/h3 \(did you mean heavy/h1\?\); name it as in haproxy.cfg, or reload that HAProxy\n$`, errs)
		_, errs, code = w.CLI(t.Context(), "reload")
		require.Zero(t, code, errs)
		said := func() int { return strings.Count(w.log(), `"missing":["no server heavy/h3 (did you mean heavy/h1?)"]`) }
		require.NoError(t, lab.Within(10*time.Second, func() error {
			if said() == 0 {
				return fmt.Errorf("it is not in the log")
			}
			return nil
		}))
		w.looks(2)
		assert.Equal(t, 1, said(), "once")
	})
}

// A swap that nobody announces is noticed within one probe: what docs/operations.md says
// of how long, with and without the gate, is no less than it takes.
//
// Control: with the identity left out of the configuration it was never noticed.
func TestAnUnannouncedSwapIsNoticedWithinOneProbe(t *testing.T) {
	const interval, timeout, agentInter = 3 * time.Second, 800 * time.Millisecond, 500 * time.Millisecond
	slow := strings.Replace(patient, "interval: 200ms, timeout: 60s, max_age: 120s", fmt.Sprintf("interval: %v, timeout: %v, max_age: 10s", interval, timeout), 1)
	for name, gate := range map[string]bool{"gate": true, "checks": false} {
		t.Run(name, func(t *testing.T) {
			onEach(t, func(t *testing.T, haproxy string) {
				w := newWorldWith(t, haproxy, worldOptions{agentYAML: slow, gate: gate})
				w.probes(1) // the one before the swap has just ended: as long as it may take
				w.heavy.SetModel("another-model")
				began, wrong := time.Now(), 0
				require.NoError(t, lab.Within(15*time.Second, func() error {
					a, err := w.Ask(t.Context(), "heavy")
					if err == nil && a.Status == http.StatusOK {
						wrong++
						err = fmt.Errorf("heavy still serves %s", a.Model)
					}
					return err
				}))
				took := time.Since(began)
				t.Logf("%d requests at the wrong model in %v", wrong, took)
				most := interval + timeout
				if !gate {
					most += agentInter
				}
				// A second for two cores that run other tests beside this one.
				assert.Less(t, took, most+time.Second, "%d requests", wrong)
			})
		})
	}
}
