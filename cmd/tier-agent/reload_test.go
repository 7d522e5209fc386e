package main

import (
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"tier-agent/internal/admission"
	"tier-agent/internal/config"
	"tier-agent/internal/httpapi"
	"tier-agent/test/guarantee"
	"tier-agent/test/socketdir"
)

// file is a configuration file that a test edits.
type file struct {
	path string
	head string // what needs a restart
}

func newFile(t testing.TB, tiers ...string) *file {
	t.Helper()
	folder := socketdir.New(t)
	f := &file{path: filepath.Join(folder, "tier-agent.yaml")}
	f.head = fmt.Sprintf(`start_budget: 1m
listen: {agent_check: "127.0.0.1:0", http: "127.0.0.1:0", spoe: {address: "127.0.0.1:0"}, admin: {path: %s, mode: "0600"}}
state_dir: %s
`, filepath.Join(folder, "admin.sock"), folder)
	f.tiers(t, tiers...)
	return f
}

func (f *file) write(t testing.TB, text string) {
	t.Helper()
	require.NoError(t, os.WriteFile(f.path, []byte(text), 0o600))
}

func (f *file) tiers(t testing.TB, tiers ...string) {
	t.Helper()
	f.write(t, f.head+"tiers:\n"+strings.Join(tiers, ""))
}

func (f *file) start(t testing.TB) *running {
	t.Helper()
	cfg, err := config.Load(f.path)
	require.NoError(t, err)
	return start(t, cfg)
}

// probed is a tier with one server, NAME/s1, at a path of the engine. It is
// probed once a minute, so that every count of its probes says something.
func probed(name string, e *engine, path string, more ...string) string {
	return fmt.Sprintf("  - {name: %[1]s, servers: [{server: %[1]s/s1, url: '%[2]s/%[3]s'}], admission: agent-check, probe: {interval: 1m, timeout: 50s, max_age: 5m}%[4]s}\n",
		name, e.url, path, strings.Join(more, ""))
}

// reload takes it as it comes that something is closed.
func (d *running) reload(t testing.TB) httpapi.Reload {
	t.Helper()
	r, err := d.client().Reload(t.Context(), true)
	require.NoError(t, err)
	return r
}

// samples are the metrics that name a tier, and the reload's.
func (d *running) samples(t testing.TB) string {
	t.Helper()
	res, err := http.Get("http://" + d.http + "/metrics")
	require.NoError(t, err)
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	require.NoError(t, err)
	return string(text)
}

// Controls: with Follow taken out of replace, the new tier and the edited one had
// no evidence; with SetTiers taken out, the removed tier's series stayed.
func TestReloadTakesOverWhatHasChangedAndNothingElse(t *testing.T) {
	e := newEngine(t)
	f := newFile(t, probed("heavy", e, "blue"), probed("light", e, "light"), probed("old", e, "old"))
	d := f.start(t)
	d.awaitReady(t, "old")
	release := e.hold("/old/health")
	_, err := d.client().Run(t.Context(), "invalidate", httpapi.Command{Tier: "old"}, nil)
	require.NoError(t, err)
	// The monitor's next probe is a minute away: a readmit's comes at once.
	_, err = d.client().Run(t.Context(), "quiesce", httpapi.Command{Tier: "old", Reason: "swap"}, nil)
	require.NoError(t, err)
	readmitted := make(chan admission.Result, 1)
	go func() {
		r, _ := d.client().Run(t.Context(), "readmit", httpapi.Command{Tier: "old", AllowUnidentified: true}, nil)
		readmitted <- r
	}()
	<-e.asks

	next := []string{probed("new", e, "new"), probed("heavy", e, "green"), probed("light", e, "light")}
	f.tiers(t, next...)
	r := d.reload(t)
	assert.Equal(t, httpapi.CodeReloadBusy, r.Code)
	assert.Equal(t, `the configuration stays as it was: a transition is under way: a readmit of tier "old"; reload when it has ended`, r.Message)
	assert.Equal(t, ok, d.check("/readyz/heavy"))
	assert.Zero(t, e.count("/new/health"))
	release()
	require.Equal(t, admission.Done, (<-readmitted).Outcome)

	r = d.reload(t)
	assert.Equal(t, httpapi.Reload{
		Outcome: admission.Done, Code: "ok", By: r.By, Seconds: r.Seconds,
		Message: "the configuration has been read again: added new; changed heavy; removed old; " +
			"closed by it: heavy/s1 (its url or what is asked of it has changed), old/s1 (tier old is no longer in the file)",
		Added: []string{"new"}, Changed: []string{"heavy"}, Removed: []string{"old"},
		Closing: []string{"heavy/s1 (its url or what is asked of it has changed)", "old/s1 (tier old is no longer in the file)"},
	}, r)
	assert.Contains(t, r.By, fmt.Sprintf("(%d)", os.Getuid()))
	// The answer comes when all have been probed.
	assert.Equal(t, 1, e.count("/green/health"))
	assert.Equal(t, 1, e.count("/new/health"))
	assert.Equal(t, 1, e.count("/light/health"), "not probed again")
	for _, name := range []string{"new", "heavy", "light"} {
		assert.Equal(t, ok, d.check("/readyz/"+name), name)
		assert.Equal(t, "ready up 100%\n", d.poll(name+"/s1"))
	}
	assert.Equal(t, "HTTP/1.0 404 Not Found", d.check("/readyz/old"))
	assert.Equal(t, "HTTP/1.0 404 Not Found", d.check("/readyz/old/s1"))
	assert.Equal(t, "down # unknown_tier\n", d.poll("old/s1"))
	assert.NotContains(t, d.samples(t), `tier="old"`)
	assert.Contains(t, d.samples(t), `tier_agent_probes_total{outcome="passed",tier="new"} 1`)
	assert.Contains(t, d.log.String(), `"msg":"`+r.Message+`","outcome":"done","code":"ok","by":"`)

	again := d.reload(t)
	assert.Equal(t, "the configuration has been read again; no tier has changed", again.Message)
	assert.Equal(t, 1, e.count("/green/health"))
	d.end(t)
}

// A probe that is out when its tier goes is let end, and leaves nothing behind:
// no evidence, no series, and where the tier has come back, no right to be first.
func TestAProbeThatOutlivesItsTier(t *testing.T) {
	e := newEngine(t)
	release := e.hold("/blue/health")
	defer release()
	f := newFile(t, probed("heavy", e, "blue"), probed("light", e, "light"))
	f.head = strings.Replace(f.head, "start_budget: 1m", "start_budget: 0s", 1)
	f.tiers(t, probed("heavy", e, "blue"), probed("light", e, "light"))
	d := f.start(t)
	<-e.asks
	d.awaitReady(t, "light")

	f.tiers(t, probed("light", e, "light"))
	require.Equal(t, []string{"heavy"}, d.reload(t).Removed)
	f.tiers(t, probed("heavy", e, "green"), probed("light", e, "light"))
	r := d.reload(t)
	assert.True(t, r.Unproven, "the budget is none")
	assert.Equal(t, "the configuration has been read again: added heavy; not every server that is new or changed has been probed yet", r.Message)
	assert.Equal(guarantee.T(t), "down # probe_pending\n", d.poll("heavy/s1"))
	assert.Zero(guarantee.T(t), e.count("/green/health"), "the old probe is out")

	f.tiers(t, probed("light", e, "light"))
	d.reload(t)
	release()
	f.tiers(t, probed("heavy", e, "green"), probed("light", e, "light"))
	d.reload(t)
	d.awaitReady(t, "heavy")
	assert.Equal(t, 1, e.count("/green/health"))
	assert.Equal(t, 1, e.count("/blue/health"))
	d.end(t)
}

// What is quiesced stays so while its address is edited, also over a restart. A
// tier that has gone and come back with another address is open; with the same it
// is closed.
func TestIntentsFollowTheirAddress(t *testing.T) {
	e := newEngine(t)
	light := probed("light", e, "light")
	f := newFile(t, probed("heavy", e, "blue"), light)
	d := f.start(t)
	d.awaitReady(t, "heavy")
	_, err := d.client().Run(t.Context(), "quiesce", httpapi.Command{Tier: "heavy", Reason: "swap"}, nil)
	require.NoError(t, err)
	f.tiers(t, probed("heavy", e, "green"), light)
	require.Equal(t, []string{"heavy"}, d.reload(t).Changed)
	assert.Equal(guarantee.T(t), "drain # quiesced\n", d.poll("heavy/s1"))

	f.tiers(t, light)
	d.reload(t)
	st, err := d.client().Status(t.Context())
	require.NoError(t, err)
	require.Len(guarantee.T(t), st.Intents, 1)
	assert.True(t, st.Intents[0].Orphan)

	other := newEngine(t)
	f.tiers(t, probed("heavy", other, "green"), light)
	d.reload(t)
	assert.Equal(t, "ready up 100%\n", d.poll("heavy/s1"))
	s := cli("--socket", d.socket, "status")
	assert.Contains(t, s.out, "heavy was quiesced by ")
	assert.Contains(t, s.out, " (swap) when it had another address; that closes nothing now, and the next quiesce takes its place; tier-agent forget heavy ends it\n")

	f.tiers(t, probed("heavy", e, "green"), light)
	d.reload(t)
	assert.Equal(guarantee.T(t), "drain # quiesced\n", d.poll("heavy/s1"))
	s = cli("--socket", d.socket, "forget", "heavy")
	assert.Equal(t, exitFailed, s.code)
	assert.Contains(t, s.out, "admission quiesced, generation ")
	assert.Contains(t, s.out, ", code in_force\n")

	f.tiers(t, light)
	d.reload(t)
	s = cli("--socket", d.socket, "forget", "heavy")
	assert.Equal(t, exitDone, s.code, s.out)
	assert.NotContains(t, s.out, "admission")
	f.tiers(t, probed("heavy", e, "green"), light)
	d.reload(t)
	assert.Equal(t, "ready up 100%\n", d.poll("heavy/s1"), "what is forgotten closes nothing when it is back")
	d.end(t)
}

// Whatever is wrong: everything is said, and nothing is changed.
//
// Control: with fixed taken out, a change of the listeners was reported as done.
func TestReloadsThatAreRefused(t *testing.T) {
	e := newEngine(t)
	tiers := []string{probed("heavy", e, "blue"), probed("light", e, "light")}
	f := newFile(t, tiers...)
	d := f.start(t)
	d.awaitReady(t, "heavy")
	verb := func(args ...string) said { return cli(append([]string{"--socket", d.socket, "reload"}, args...)...) }
	assert.Contains(t, d.samples(t), "tier_agent_config_last_reload_successful 1\n")

	edited := []string{probed("heavy", e, "green"), probed("light", e, "light")}
	heads := func(old, now string) string {
		return strings.Replace(f.head, old, now, 1) + "tiers:\n" + strings.Join(edited, "")
	}
	for what, c := range map[string]struct{ text, code, out, err string }{
		"two mistakes": {
			f.head + "tiers:\n" + strings.Join(edited, "") + "  - {name: bad/name, servers: [{server: x/y, url: 'http://x'}], admission: agent-check}\n  - {name: good, servers: [{server: x/z, url: 'ftp://x'}], admission: agent-check}\n", "invalid_config",
			"refused: the configuration stays as it was: FILE has 2 problems\n",
			`FILE:7:12: tiers[2].name: "bad/name"`,
		},
		"no YAML":        {"tiers: [", "invalid_config", "refused: the configuration stays as it was: FILE has 1 problem\n", "FILE:1:8: not valid YAML"},
		"state_dir":      {heads("state_dir: ", "state_dir: /nowhere"), "needs_restart", "refused: the configuration stays as it was: state_dir cannot be changed while tier-agent runs: restart it, or undo that\n", ""},
		"the listeners":  {heads(`"127.0.0.1:0", http: "127.0.0.1:0"`, `"127.0.0.1:1", http: "127.0.0.1:2"`), "needs_restart", "refused: the configuration stays as it was: listen.agent_check, listen.http cannot be changed while tier-agent runs: restart it, or undo that\n", ""},
		"the admin mode": {heads("0600", "0660"), "needs_restart", "refused: the configuration stays as it was: listen.admin cannot be changed while tier-agent runs: restart it, or undo that\n", ""},
		"a HAProxy":      {"haproxy: [{name: edge, runtime: 'unix:/x'}]\n" + heads("", ""), "needs_restart", "refused: the configuration stays as it was: haproxy cannot be changed while tier-agent runs: restart it, or undo that\n", ""},
	} {
		f.write(t, c.text)
		s := verb()
		assert.Equal(t, exitFailed, s.code, what)
		assert.Equal(t, strings.ReplaceAll(c.out, "FILE", f.path), s.out, what)
		assert.Contains(t, s.err, strings.ReplaceAll(c.err, "FILE", f.path), what)
		if c.err == "" {
			assert.Empty(t, s.err, what)
		}
		s = verb("--json")
		assert.Equal(t, exitFailed, s.code, what)
		assert.Empty(t, s.err, what)
		var r httpapi.Reload
		require.NoError(t, json.Unmarshal([]byte(s.out), &r), what)
		assert.Equal(t, []any{admission.Refused, c.code}, []any{r.Outcome, r.Code}, what)
		if what == "two mistakes" {
			require.Len(t, r.Problems, 2)
			assert.Equal(t, []any{7, "tiers[2].name"}, []any{r.Problems[0].Line, r.Problems[0].Path})
			assert.Contains(t, d.log.String(), `bad/name`)
		}
	}
	require.NoError(t, os.Remove(f.path))
	s := verb()
	assert.Equal(t, exitFailed, s.code)
	assert.Contains(t, s.out, "does not exist: create it or name another one")

	assert.Contains(t, d.samples(t), "tier_agent_config_last_reload_successful 0\n")
	assert.Contains(t, d.samples(t), "tier_agent_config_last_reload_success_timestamp_seconds 1")
	assert.Zero(t, e.count("/green/health"))
	assert.Equal(t, 1, e.count("/blue/health"))
	assert.Equal(t, ok, d.check("/readyz/heavy"))

	f.tiers(t, edited...)
	// It would take the evidence from heavy, which serves.
	closing := "heavy/s1 (its url or what is asked of it has changed)"
	assert.Equal(t, said{exitFailed, "refused: the configuration stays as it was: what serves now would be closed: " + closing + "; quiesce that first, or say --accept-closing\n", ""}, verb())
	var r httpapi.Reload
	require.NoError(t, json.Unmarshal([]byte(verb("--json").out), &r))
	assert.Equal(t, []any{admission.Refused, httpapi.CodeWouldClose, []string{closing}}, []any{r.Outcome, r.Code, r.Closing})
	assert.Contains(t, d.samples(t), "tier_agent_config_last_reload_successful 0\n")
	assert.Zero(t, e.count("/green/health"))
	assert.Equal(t, ok, d.check("/readyz/heavy"))
	assert.Equal(t, said{exitDone, "done: the configuration has been read again: changed heavy; closed by it: " + closing + "\n", ""}, verb("--accept-closing"))
	assert.Contains(t, d.samples(t), "tier_agent_config_last_reload_successful 1\n")
	assert.Equal(t, 1, e.count("/green/health"))
	d.end(t)
}

// What serves nothing, or is there still, is no reason to refuse: a tier that is quiesced,
// one that is renamed, one that is new, another interval.
//
// Control: with newcomers left out of Closes, the renamed one was refused.
func TestReloadsThatCloseNothing(t *testing.T) {
	e := newEngine(t)
	f := newFile(t, probed("heavy", e, "blue"), probed("light", e, "light"))
	d := f.start(t)
	d.awaitReady(t, "heavy")
	d.awaitReady(t, "light")
	for _, tiers := range [][]string{
		{strings.Replace(probed("heavy", e, "blue"), "timeout: 50s", "timeout: 40s", 1), probed("light", e, "light")},
		{probed("heavier", e, "blue"), probed("light", e, "light")},
		{probed("heavier", e, "blue"), probed("light", e, "light"), probed("new", e, "new")},
	} {
		f.tiers(t, tiers...)
		s := cli("--socket", d.socket, "reload")
		assert.Equal(t, exitDone, s.code, s.out)
		assert.NotContains(t, s.out, "closed by it")
	}
	d.awaitReady(t, "heavier")
	f.tiers(t, probed("heavier", e, "green"), probed("light", e, "light"), probed("new", e, "new"))
	assert.Equal(t, exitFailed, cli("--socket", d.socket, "reload").code)
	require.Equal(t, exitDone, cli("--socket", d.socket, "quiesce", "heavier", "--reason", "swap").code)
	s := cli("--socket", d.socket, "reload")
	assert.Equal(t, said{exitDone, "done: the configuration has been read again: changed heavier\n", ""}, s)
	d.end(t)
}

// A start says what check-config remarks, and so does each reload.
//
// Control: with the call of remark taken out of serveOn or of replace, one was missing.
func TestRemarksAreLogged(t *testing.T) {
	e := newEngine(t)
	f := newFile(t, probed("heavy", e, "blue"))
	d := f.start(t)
	d.awaitReady(t, "heavy")
	said := func() int {
		return strings.Count(d.log.String(), `"level":"WARN","msg":"a remark about the configuration","remark":"`+f.path+`:5:5: tiers[0]: no identity is compared: `)
	}
	assert.Equal(t, 1, said(), d.log.String())
	d.reload(t)
	assert.Equal(t, 2, said())
	f.tiers(t, probed("heavy", e, "blue", ", identity: {id: m1}"))
	assert.Equal(t, httpapi.CodeReloaded, d.reload(t).Code)
	assert.Equal(t, 2, said(), "there is an identity")
	d.end(t)
}

// A SIGHUP that comes while tier-agent starts is carried out when it serves.
func TestSIGHUPDuringTheStart(t *testing.T) {
	e := newEngine(t)
	release := e.hold("/blue/health")
	f := newFile(t, probed("heavy", e, "blue"))
	d := f.start(t)
	<-e.asks
	f.tiers(t, probed("heavy", e, "blue"), probed("new", e, "new"))
	d.hangups <- syscall.SIGHUP
	release()
	d.awaitLog(t, `"msg":"the configuration has been read again: added new","outcome":"done","code":"ok","by":"SIGHUP"`)
	log := d.log.String()
	assert.Less(t, strings.Index(log, `"msg":"serving"`), strings.Index(log, "read again"))
	d.end(t)
}

// The whole way: a real signal to a real serve, and what systemd is told.
//
// Control: without signal.Notify in serve the test's own process ended.
func TestSIGHUPFromEndToEnd(t *testing.T) {
	e := newEngine(t)
	f := newFile(t, probed("heavy", e, "blue"))
	told, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Net: "unixgram", Name: filepath.Join(socketdir.New(t), "notify")})
	require.NoError(t, err)
	defer told.Close()
	t.Setenv("NOTIFY_SOCKET", told.LocalAddr().String())
	hears := func() string {
		text := make([]byte, 4096)
		require.NoError(t, told.SetReadDeadline(time.Now().Add(deadline)))
		n, err := told.Read(text)
		require.NoError(t, err)
		return string(text[:n])
	}
	log, code := new(journal), make(chan int, 1)
	go func() { code <- run([]string{"serve", "-c", f.path}, strings.NewReader(""), io.Discard, log) }()
	d := &running{log: log}
	d.awaitLog(t, `"msg":"serving"`)
	assert.Equal(t, "READY=1", hears())

	f.tiers(t, probed("heavy", e, "green"))
	require.NoError(t, syscall.Kill(syscall.Getpid(), syscall.SIGHUP))
	d.awaitLog(t, `"level":"WARN","msg":"the configuration has been read again: changed heavy; closed by it: heavy/s1 (`)
	assert.Regexp(t, `^RELOADING=1\nMONOTONIC_USEC=\d+\n$`, hears())
	assert.Equal(t, "READY=1", hears())
	assert.Equal(t, 1, e.count("/green/health"))

	f.write(t, "tiers: 7\n")
	require.NoError(t, syscall.Kill(syscall.Getpid(), syscall.SIGHUP))
	d.awaitLog(t, `"code":"invalid_config","by":"SIGHUP"`)
	assert.Contains(t, hears(), "RELOADING=1")
	assert.Equal(t, "READY=1", hears())
	assert.Contains(t, log.String(), `"problems":["`+f.path+`:1:8: tiers: `)

	require.NoError(t, syscall.Kill(syscall.Getpid(), syscall.SIGTERM))
	assert.Equal(t, exitDone, <-code)
}
