package integration

import (
	"fmt"
	"io"
	"net/http"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"tier-agent/test/guarantee"
	"tier-agent/test/lab"
)

// gateAlone is a configuration in which a quiesce does nothing in HAProxy, and
// HAProxy's checks hear of it at their next round at the earliest: what refuses
// before that is the gate.
const gateAlone = lab.Head + `probe: {interval: 500ms, timeout: 2s, max_age: 5s}
tiers:
  - {name: heavy, admission: agent-check, servers: [{server: heavy/h1, url: 'http://127.0.0.1:{{.Ports.Heavy}}'}], identity: {id: big-70b}}
  - {name: fast, admission: agent-check, servers: [{server: fast/f1, url: 'http://127.0.0.1:{{.Ports.Fast}}'}], identity: {id: small-8b}}
`

func refusalOf(t *testing.T, a lab.Answer) lab.Refusal {
	t.Helper()
	r, err := a.Refusal()
	require.NoError(guarantee.T(t), err)
	return r
}

// A quiesce is in force for the very next request: HAProxy still has the server
// up, and has not asked a check meanwhile.
//
// Control: with TIER_GATE off the request was served.
func TestGate_TheVeryNextRequestIsRefused(t *testing.T) {
	onEach(t, func(t *testing.T, haproxy string) {
		w := newWorldWith(t, haproxy, worldOptions{agentYAML: gateAlone, gate: true})
		var slowest time.Duration
		for range times(10) {
			began := time.Now()
			require.Equal(t, "done", string(w.verb(0, "quiesce", "heavy", "--reason", "swap").Outcome))
			told := time.Now()
			r := refusalOf(t, w.ask("heavy"))
			slowest = max(slowest, time.Since(told))
			assert.Equal(t, "quiesced", r.Reason)
			assert.Equal(t, w.status().Tiers[0].Generation, r.Generation)
			if row := w.stat("heavy", "h1"); time.Since(began) < 200*time.Millisecond {
				t.Logf("refused while HAProxy shows %s, %s after the command had ended", row["status"], time.Since(told))
			}
			w.verb(0, "readmit", "heavy", "--wait", "5s")
			w.waitStatus("heavy", http.StatusOK)
		}
		t.Logf("from the end of the command to the refusal: %s at most", slowest)
		assert.Equal(t, http.StatusOK, w.ask("fast").Status)
	})
}

// A tier that HAProxy's maps know and tier-agent does not is refused.
func TestGate_UnknownTier(t *testing.T) {
	onEach(t, func(t *testing.T, haproxy string) {
		w := newWorldWith(t, haproxy, worldOptions{gate: true, config: func(_ lab.Options, text string) string {
			return strings.Replace(text, `map_str("${TIER_MAP_FILE}")`, `map_str("${TIER_MAP_FILE}",nosuch)`, 1)
		}})
		r := refusalOf(t, w.askWith("/v1/chat/completions", `{}`, "nosuch"))
		assert.Equal(t, "unknown_tier", r.Reason)
		assert.Empty(t, r.Generation)
	})
}

// The tier is named by the model, in requests that name it nowhere else, also behind a
// long prompt.
//
// Control: without tune.bufsize in haproxy.cfg, 16 kB before the model were a 400.
func TestGate_TheModelNamesTheTier(t *testing.T) {
	onEach(t, func(t *testing.T, haproxy string) {
		w := newWorldWith(t, haproxy, worldOptions{gate: true})
		for model, tier := range map[string]string{lab.HeavyModel: "heavy", lab.FastModel: "fast"} {
			a := w.askWith("/v1/chat/completions", fmt.Sprintf(`{"model":%q,"messages":[],"max_tokens":1}`, model), "")
			assert.Equal(t, http.StatusOK, a.Status, a.Body)
			assert.Equal(t, model, a.Model, tier)
		}
		assert.Equal(t, http.StatusNotFound, w.askWith("/v1/chat/completions", `{"model":"gpt"}`, "").Status)
		assert.Equal(t, http.StatusBadRequest, w.askWith("/v1/chat/completions", `{"messages":[]}`, "").Status)
		assert.Equal(t, http.StatusBadRequest, w.askWith("/v1/chat/completions", "model=big-70b", "").Status)
		for _, kilobytes := range []int{16, 32, 60} {
			late := fmt.Sprintf(`{"messages":["%s"],"max_tokens":1,"model":"big-70b"}`, strings.Repeat("x", kilobytes<<10))
			a := w.askWith("/v1/chat/completions", late, "")
			assert.Equal(t, http.StatusOK, a.Status, "%d kB before the model: %s", kilobytes, a.Body)
			assert.Equal(t, lab.HeavyModel, a.Model)
		}
		long := `{"messages":["` + strings.Repeat("x", 64<<10) + `"],"model":"big-70b"}`
		// HAProxy closes with most of the body unread, and the reset may overtake its answer.
		require.NoError(t, lab.Within(15*time.Second, func() error {
			a, err := w.tryWith("/v1/chat/completions", long, "")
			assert.True(t, err != nil || a.Status == http.StatusBadRequest, a.Status)
			return err
		}))
		w.verb(0, "quiesce", "heavy", "--reason", "swap")
		assert.Equal(t, "quiesced", refusalOf(t, w.askWith("/v1/completions", `{"model":"big-70b"}`, "")).Reason)
	})
}

// askWith posts body to a path. tier is the X-Tier header, if not empty.
func (w *world) askWith(path, body, tier string) lab.Answer {
	w.t.Helper()
	a, err := w.tryWith(path, body, tier)
	require.NoError(w.t, err)
	return a
}

func (w *world) tryWith(path, body, tier string) (lab.Answer, error) {
	req, err := http.NewRequestWithContext(w.t.Context(), http.MethodPost, w.URL(path), strings.NewReader(body))
	if err != nil {
		return lab.Answer{}, err
	}
	req.Header.Set("Content-Type", "application/json")
	req.Close = true
	if tier != "" {
		req.Header.Set("X-Tier", tier)
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return lab.Answer{}, err
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	return lab.Answer{Status: res.StatusCode, Model: res.Header.Get("X-Engine-Model"), Retry: res.Header.Get("Retry-After"), Body: string(text)}, err
}

// A dead tier-agent lets nothing pass: each request is refused in time, and as
// soon as it is back they flow again. HAProxy's own checks have not closed yet.
//
// Control: with the rules on gate_failed and gate_admits taken out of haproxy.cfg
// requests were served.
func TestGate_ADeadAgentLetsNothingPass(t *testing.T) {
	onEach(t, func(t *testing.T, haproxy string) {
		w := newWorldWith(t, haproxy, worldOptions{gate: true})
		w.checked()
		require.NoError(t, w.AgentProc.Kill())
		began := time.Now()
		var slowest time.Duration
		asked := 0
		for time.Since(began) < 2*time.Second { // the checks close after 3 s
			sent := time.Now()
			r := refusalOf(t, w.ask("heavy"))
			slowest = max(slowest, time.Since(sent))
			assert.Equal(t, "gate_error", r.Reason)
			assert.NotZero(t, r.GateError)
			asked++
		}
		t.Logf("%d requests, each refused within %s", asked, slowest)
		// "timeout processing" is 500 ms; the rest is the machine's.
		assert.Less(t, slowest, 1500*time.Millisecond)
		require.NoError(t, w.StartAgent(t.Context()))
		w.waitStatus("heavy", http.StatusOK)
		w.waitStatus("fast", http.StatusOK)
	})
}

// What a hung tier-agent costs is the same.
func TestGate_AHungAgentLetsNothingPass(t *testing.T) {
	onEach(t, func(t *testing.T, haproxy string) {
		w := newWorldWith(t, haproxy, worldOptions{gate: true})
		require.NoError(t, w.AgentProc.Suspend())
		resumed := false
		resume := func() {
			if !resumed {
				resumed = true
				require.NoError(t, w.AgentProc.Signal(syscall.SIGCONT))
			}
		}
		defer resume()
		for range 3 {
			sent := time.Now()
			assert.Equal(t, "gate_error", refusalOf(t, w.ask("fast")).Reason)
			assert.Less(t, time.Since(sent), 1500*time.Millisecond)
		}
		resume()
		w.waitStatus("fast", http.StatusOK)
	})
}

// The gate on a unix socket, and on nothing else.
func TestGate_OverAUnixSocket(t *testing.T) {
	yaml := strings.Replace(gateAlone, "spoe: {address: '127.0.0.1:{{.Ports.SPOE}}'}", "spoe: {address: none, unix: {path: '{{.Dir}}/gate.sock'}}", 1)
	onEach(t, func(t *testing.T, haproxy string) {
		w := newWorldWith(t, haproxy, worldOptions{agentYAML: yaml, gate: true, config: func(o lab.Options, text string) string {
			return strings.Replace(text, `server a1 "${TIER_AGENT_SPOE_ADDR}"`, "server a1 unix@"+filepath.Join(o.Dir, "gate.sock"), 1)
		}})
		w.verb(0, "quiesce", "heavy", "--reason", "swap")
		assert.Equal(t, "quiesced", refusalOf(t, w.ask("heavy")).Reason)
		assert.Equal(t, http.StatusOK, w.ask("fast").Status)
		gate := w.status().Gate
		assert.Positive(t, gate.Connections)
		assert.NotNil(t, gate.AskedMS)
		assert.Positive(t, w.metric(`tier_agent_gate_answers_total{kind="refused"}`))
	})
}
