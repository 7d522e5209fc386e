package integration

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"tier-agent/internal/admission"
	"tier-agent/test/guarantee"
	"tier-agent/test/lab"
)

// oneHeavy has one server, whose engine other servers of HAProxy may lead to as well. No
// state file: each wiring starts anew.
var oneHeavy = strings.Replace(lab.Head, ", state_file: {{.StateFile}}", "", 1) + `probe: {interval: 200ms, timeout: 2s, max_age: 10s}
tiers:
  - name: heavy
    servers: [{server: heavy/h1, url: 'http://127.0.0.1:{{.Ports.Heavy}}'}]
    identity: {id: big-70b}
`

// wayIn is a wiring that may leave a way into a quiesced server's engine.
type wayIn struct {
	name    string
	backend string // lines of heavy before its server
	h1      string // the end of its line
	more    string // other sections
	gate    bool
	runtime []string // commands, before the quiesce
	// path is asked for by a client that has the cookie "srv=one"; /heavy/ where it is "".
	path string
	// kind and server are what the answer is to name; nothing where kind is "".
	kind   admission.WayKind
	server string
	// unseen: requests get in, and nothing of HAProxy's shows it.
	unseen bool
}

const (
	cookies = "\n    cookie srv insert indirect nocache\n    "
	sticky  = "\n    stick-table type string len 32 size 1k expire 1h\n    stick on url_param(who)\n    "
	toHeavy = "\nbackend other\n    server o1 \"${TIER_HEAVY_H1}\" "
)

var waysIn = []wayIn{
	{name: "nothing", backend: wiredEngine},
	{name: "cookie, health check of the engine", backend: wiredEngine + cookies, h1: "cookie one", kind: admission.WayReturning, server: "heavy/h1"},
	{name: "cookie, no checks", backend: cookies, h1: "cookie one", kind: admission.WayReturning, server: "heavy/h1"},
	{name: "cookie, checks of tier-agent", backend: wiredBoth + cookies, h1: `cookie one agent-send "heavy/h1\n"`},
	{name: "cookie, health check of the engine, gate", backend: wiredEngine + cookies, h1: "cookie one", gate: true},
	{name: "a cookie that the backend does not use", backend: wiredEngine, h1: "cookie one"},
	{name: "stick table", backend: wiredEngine + sticky, path: "/heavy/v1/models?who=me", kind: admission.WayReturning, server: "heavy/h1"},
	{name: "stick table of another section", backend: wiredEngine + "\n    stick on url_param(who) table sticky", path: "/heavy/v1/models?who=me", more: "\nbackend sticky\n    stick-table type string len 32 size 1k expire 1h", kind: admission.WayReturning, server: "heavy/h1"},
	{name: "stick table of counters", backend: wiredEngine + "\n    stick-table type ip size 1k store http_req_rate(10s)\n    http-request track-sc0 src"},
	{name: "another server", backend: wiredEngine, more: toHeavy, path: "/other/v1/models", kind: admission.WayAddress, server: "other/o1"},
	{name: "another server at weight 0", backend: wiredEngine, more: toHeavy + "weight 0", path: "/other/v1/models"},
	{name: "another server in maintenance", backend: wiredEngine, more: toHeavy, runtime: []string{"set server other/o1 state maint"}, path: "/other/v1/models"},
	{name: "another server, drained, with a cookie", backend: wiredEngine, more: strings.Replace(toHeavy, "    server", cookies+"server", 1) + "cookie one", runtime: []string{"set server other/o1 state drain"}, path: "/other/v1/models", kind: admission.WayReturning, server: "other/o1"},
	{name: "a tracking server", backend: wiredEngine, more: toHeavy + "track heavy/h1", path: "/other/v1/models"},
	{name: "a tracking server, set ready by hand", backend: wiredEngine, more: toHeavy + "track heavy/h1", runtime: []string{"set server other/o1 state maint", "set server other/o1 state ready"}, path: "/other/v1/models"},
	{name: "a server that tracks elsewhere", backend: wiredEngine, more: toHeavy + "track third/t1\nbackend third\n    server t1 \"${TIER_FAST_F1}\" check inter 200ms", path: "/other/v1/models", kind: admission.WayAddress, server: "other/o1"},
	{name: "option persist", backend: wiredBoth + cookies + "option persist", h1: `cookie one agent-send "heavy/h1\n"`, unseen: true},
	{name: "force-persist", backend: wiredBoth + cookies + "force-persist if TRUE", h1: `cookie one agent-send "heavy/h1\n"`, unseen: true},
	{name: "use-server", backend: wiredEngine + "\n    use-server h1 if TRUE", unseen: true},
}

func (g wayIn) config() string {
	gate, backend := "", ""
	if g.gate {
		gate, backend = gateRules, gateBackend
	}
	return fmt.Sprintf(wiringHead+`frontend api
    bind "${TIER_FRONT_ADDR}"%s
    use_backend other if { path_beg /other/ } { nbsrv(other) ge 0 }
    default_backend heavy
backend heavy
    %s
    http-request replace-path ^/heavy/?(.*) /\1
    server h1 "${TIER_HEAVY_H1}" %s
%s
%s`, gate, g.backend, g.h1, g.others(), backend)
}

// others always have a backend "other", which asks for the engine's own paths.
func (g wayIn) others() string {
	const path = "\n    http-request replace-path ^/other/?(.*) /\\1"
	if strings.Contains(g.more, "backend other\n") {
		return strings.Replace(g.more, "backend other", "backend other"+path, 1) + "\n"
	}
	return "backend other\n" + g.more + "\n"
}

// A quiesce that leaves a way in says so, as status and a drain do, and one that leaves
// none does not.
//
// Controls: with waysIn taken out of the answers, each way was left without a word; with the
// operational state not looked at, a server that checks of tier-agent had down was named in
// status; with takenDown left out, by the quiesce; with refused left out, one that is gated
// was; with the addresses left out, another server was not, and with the backend's cookie
// left out, one was that HAProxy does not use.
func TestAQuiesceSaysWhichWaysAreLeft(t *testing.T) {
	mostlyWaits(t)
	onEach(t, func(t *testing.T, haproxy string) {
		w := newWorldWith(t, haproxy, worldOptions{agentYAML: oneHeavy, bare: true})
		for _, g := range waysIn {
			t.Run(strings.ReplaceAll(g.name, " ", "_"), func(t *testing.T) { w.leaves(t, g) })
		}
	})
}

// Where the checks of a quiesced tier are told its health, the drain alone holds.
//
// Control: with shows left out of staysDown, the quiesce named nothing on some runs and
// status on others: the evidence that the quiesce had voided counted as down.
func TestAQuiesceWhoseChecksShowHealthNamesTheCookie(t *testing.T) {
	onEach(t, func(t *testing.T, haproxy string) {
		yaml := strings.Replace(oneHeavy, "    identity:", "    quiesced_answer: health\n    identity:", 1)
		yaml = strings.Replace(yaml, "master: 'unix:{{.MasterSocket}}'", "master: 'unix:{{.MasterSocket}}', state_file: {{.StateFile}}", 1)
		w := newWorldWith(t, haproxy, worldOptions{agentYAML: yaml, bare: true})
		w.leaves(t, wayIn{backend: wiredBoth + cookies, h1: `cookie one agent-send "heavy/h1\n"`, kind: admission.WayReturning, server: "heavy/h1"})
	})
}

func (w *world) leaves(t *testing.T, g wayIn) {
	w.t = t
	w.restartWith(g.config())
	if g.path == "" {
		g.path = "/heavy/v1/models"
	}
	require.NoError(t, lab.Within(15*time.Second, func() error {
		if got := w.returning("/heavy/v1/models?who=me"); got != http.StatusOK {
			return fmt.Errorf("heavy answers %d", got)
		}
		if t := w.status().Tiers[0]; !t.Ready || g.gate && t.GateAskedMS == nil {
			return fmt.Errorf("not ready: %s", t.Reason)
		}
		if strings.Contains(g.backend, wiredBoth) {
			return w.askedByThisProcess()
		}
		return nil
	}))
	for _, command := range g.runtime {
		said, err := w.Runtime(command)
		require.NoError(t, err)
		require.Empty(t, strings.TrimSpace(said), command)
	}
	t.Cleanup(func() {
		_, errs, code := w.CLI(context.Background(), "readmit", "heavy")
		assert.Zero(t, code, errs)
	})
	quiesced := w.verb(0, "quiesce", "heavy", "--reason", "swap")
	w.named(g, "the quiesce", quiesced.WaysIn, quiesced.Message)
	// Checks that ask tier-agent take their time; then what is said is what is so.
	require.NoError(guarantee.T(t), lab.Within(15*time.Second, func() error {
		getsIn := w.returning(g.path) == http.StatusOK
		if getsIn != (g.kind != "" || g.unseen) {
			return fmt.Errorf("a request gets in: %v", getsIn)
		}
		return nil
	}))
	st := w.status().Tiers[0]
	w.named(g, "status", st.WaysIn, "")
	drained := w.verb(0, "drain", "heavy", "--timeout", "10s")
	w.named(g, "the drain", drained.WaysIn, drained.Message)
	out, errs, code := w.CLI(t.Context(), "status", "--check")
	if g.kind == "" {
		assert.Zero(t, code, errs+out)
		assert.Empty(t, out+errs)
		return
	}
	assert.Equal(t, 1, code, errs)
	assert.Equal(t, "heavy is quiesced, and requests still get in: "+st.WaysIn[0].Message+"\n", out)
	out, _, _ = w.CLI(t.Context(), "status")
	assert.Contains(t, out, "\n  requests still get in: "+st.WaysIn[0].Message+"\n")
}

// askedByThisProcess is nil once checks of the running HAProxy have asked. It shows its
// start in whole seconds, so what asked before its second second may be an earlier one.
func (w *world) askedByThisProcess() error {
	st := w.status()
	up, asked := st.HAProxy[0].UptimeS, st.Tiers[0].Servers[0].Asked.HealthCheckMS
	if up < 2 || asked == nil || *asked > 500 {
		return fmt.Errorf("its checks are not known to ask: up for %d s", up)
	}
	return nil
}

// named holds what was named to what is there.
func (w *world) named(g wayIn, where string, ways []admission.WayIn, message string) {
	w.t.Helper()
	if g.kind == "" {
		assert.Empty(w.t, ways, where)
		assert.NotContains(w.t, message, "still get in", where)
		return
	}
	require.Len(w.t, ways, 1, where)
	assert.Equal(w.t, admission.WayIn{Instance: "edge", Server: g.server, Of: "heavy/h1", Kind: g.kind, Message: ways[0].Message}, ways[0], where)
	if message != "" {
		assert.Contains(w.t, message, "; requests still get in: "+ways[0].Message, where)
	}
}

// restartWith starts HAProxy with another configuration, and waits until it has been read.
func (w *world) restartWith(config string) {
	w.t.Helper()
	if w.HAProxies[0].Proc != nil {
		require.NoError(w.t, w.HAProxies[0].Kill())
	}
	require.NoError(w.t, os.WriteFile(w.HAProxyCfg, []byte(config), 0o644))
	require.NoError(w.t, os.WriteFile(w.HAProxies[0].StateFile(), []byte("1\n"), 0o644))
	require.NoError(w.t, w.HAProxies[0].Start(w.t.Context()))
	pid, err := w.WorkerPID()
	require.NoError(w.t, err)
	require.NoError(w.t, lab.Within(15*time.Second, func() error {
		if h := w.status().HAProxy[0]; fmt.Sprint(h.PID) != pid || !h.Readable {
			return fmt.Errorf("tier-agent has seen process %d, not %s", h.PID, pid)
		}
		return nil
	}))
}

// returning is the status that a client gets which has been here before.
func (w *world) returning(path string) int {
	w.t.Helper()
	req, err := http.NewRequestWithContext(w.t.Context(), http.MethodGet, w.URL(path), nil)
	require.NoError(w.t, err)
	req.Header.Set("Cookie", "srv=one")
	res, err := (&http.Client{Timeout: 10 * time.Second, Transport: &http.Transport{DisableKeepAlives: true}}).Do(req)
	require.NoError(w.t, err)
	defer res.Body.Close()
	var models struct {
		Data []struct{ ID string }
	}
	if res.StatusCode == http.StatusOK {
		require.NoError(w.t, json.NewDecoder(res.Body).Decode(&models))
		require.Equal(w.t, lab.HeavyModel, models.Data[0].ID)
	}
	return res.StatusCode
}
