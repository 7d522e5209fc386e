package statefile

import (
	"context"
	"log/slog"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"tier-agent/internal/probe"
	"tier-agent/internal/runtimeapi"
	"tier-agent/internal/tier"
)

// prober has all be ready, but for hosts that are named.
type prober []string

func (p prober) Probe(_ context.Context, target probe.Target) probe.Result {
	return probe.Result{Ready: !slices.Contains(p, target.URL.Hostname()), Reason: "said so"}
}

func (p prober) Exercise(ctx context.Context, target probe.Target) probe.Result {
	return p.Probe(ctx, target)
}

// listed is a server that is probed at a URL, in backend gpu where the name says no other.
func listed(t testing.TB, name, at string) tier.ServerSpec {
	t.Helper()
	u, err := url.Parse(at)
	require.NoError(t, err)
	s := tier.ServerSpec{Backend: "gpu", Name: name, Weight: 100, Target: probe.Target{URL: u}, Subject: at}
	if backend, server, cut := strings.Cut(name, "/"); cut {
		s.Backend, s.Name = backend, server
	}
	return s
}

func modelOf(t testing.TB, failing prober, specs ...tier.Spec) *tier.Model {
	t.Helper()
	for n := range specs {
		specs[n].MinReady, specs[n].Interval, specs[n].MaxAge = 1, time.Second, time.Hour
	}
	model, err := tier.New(specs, time.Now)
	require.NoError(t, err)
	monitor := tier.NewMonitor(model, failing, nil, slog.New(slog.DiscardHandler))
	for _, spec := range specs {
		for _, s := range spec.Servers {
			monitor.ProbeNow(t.Context(), s.FullName())
		}
	}
	return model
}

func quiesce(t testing.TB, model *tier.Model, target tier.Target) {
	t.Helper()
	_, err := model.Close(target, tier.Closure{Reason: "swap"})
	require.NoError(t, err)
}

// is is a server as HAProxy shows it, with both checks.
func is(name string, admin runtimeapi.AdminState) runtimeapi.ServerState {
	s := runtimeapi.ServerState{
		Backend: "gpu", Server: name, Address: "192.0.2.9", Port: 7, Admin: admin,
		Operational: runtimeapi.OpRunning, CheckState: 6, AgentState: 22,
	}
	if backend, server, cut := strings.Cut(name, "/"); cut {
		s.Backend, s.Server = backend, server
	}
	return s
}

func with(s runtimeapi.ServerState, change func(*runtimeapi.ServerState)) runtimeapi.ServerState {
	change(&s)
	return s
}

func unchecked(s *runtimeapi.ServerState) { s.CheckState, s.AgentState = 0, 0 }
func agentOnly(s *runtimeapi.ServerState) { s.CheckState = 0 }
func switched(s *runtimeapi.ServerState)  { s.CheckState, s.AgentState = 2, 18 } // off, by hand
func named(s *runtimeapi.ServerState)     { s.FQDN = "gpu.test" }
func waits(s *runtimeapi.ServerState)     { s.FQDN, s.Address, s.Admin = "gpu.test", "", s.Admin|32 }
func socket(s *runtimeapi.ServerState)    { s.Address, s.Port = "", 0 }

func compose(model *tier.Model, live, unread bool, shown ...runtimeapi.ServerState) string {
	var lines []string
	for _, row := range Compose(model, Shown{Servers: shown, Live: live, Unread: unread}) {
		lines = append(lines, row.String())
	}
	return strings.Join(lines, "\n")
}

const (
	forcedMaint = runtimeapi.ForcedMaint
	drained     = runtimeapi.ForcedDrain
	opened      = runtimeapi.ConfigMaint
	starts      = runtimeapi.ForcedMaint | runtimeapi.ConfigMaint
)

// Each row was measured on 2.6, 3.0 and 3.2: what a reload makes of it, with the checks
// saying no and then yes, and with lines that say "disabled" and do not.
//
// Controls: with is.Port for the url's, the port of before beat an edited line; with the
// look at Checked left out, a server without checks stayed down for good; with the bits
// of StartsClosed kept, a line that was not disabled any more came up open.
func TestRowsOfListedServers(t *testing.T) {
	const (
		ready, not = "http://192.0.2.1:9001", "http://192.0.2.66:9001"
		d9001      = " 1 1 0 6 1 0 6 0 0 0 - 9001 -"
	)
	for name, c := range map[string]struct {
		url      string
		quiesced bool
		shown    []runtimeapi.ServerState
		want     string
	}{
		"ready":              {ready, false, []runtimeapi.ServerState{is("h1", 0)}, ""},
		"ready, new":         {ready, false, nil, ""},
		"not ready":          {not, false, []runtimeapi.ServerState{is("h1", 0)}, "0 gpu 0 h1 - 0 0" + d9001},
		"not ready, new":     {not, false, []runtimeapi.ServerState{is("h9", 0)}, "0 gpu 0 h1 - 0 0" + d9001},
		"quiesced":           {ready, true, []runtimeapi.ServerState{is("h1", drained)}, "0 gpu 0 h1 - 0 8" + d9001},
		"quiesced, open yet": {ready, true, []runtimeapi.ServerState{is("h1", 0)}, "0 gpu 0 h1 - 0 8" + d9001},
		// Of its checks nothing is known, and the drain needs none.
		"quiesced, new": {ready, true, []runtimeapi.ServerState{is("h9", 0)}, "0 gpu 0 h1 - 2 8" + d9001},

		"held in drain":                 {ready, false, []runtimeapi.ServerState{is("h1", drained)}, "0 gpu 0 h1 - 2 8" + d9001},
		"held in maintenance":           {ready, false, []runtimeapi.ServerState{is("h1", forcedMaint)}, "0 gpu 0 h1 - 2 1" + d9001},
		"held in maintenance, quiesced": {ready, true, []runtimeapi.ServerState{is("h1", forcedMaint)}, "0 gpu 0 h1 - 0 1" + d9001},
		"closed by what it tracks":      {ready, false, []runtimeapi.ServerState{is("h1", runtimeapi.InheritedDrain|runtimeapi.InheritedMaint)}, ""},

		"disabled by its line":            {ready, false, []runtimeapi.ServerState{is("h1", starts)}, ""},
		"disabled by its line, quiesced":  {ready, true, []runtimeapi.ServerState{is("h1", starts)}, "0 gpu 0 h1 - 0 8" + d9001},
		"disabled by its line, not ready": {not, false, []runtimeapi.ServerState{is("h1", starts)}, "0 gpu 0 h1 - 0 0" + d9001},
		"opened against its line":         {ready, false, []runtimeapi.ServerState{is("h1", opened)}, "0 gpu 0 h1 - 2 4" + d9001},
		"opened, quiesced":                {ready, true, []runtimeapi.ServerState{is("h1", opened)}, "0 gpu 0 h1 - 0 12" + d9001},
		"opened, not ready":               {not, false, []runtimeapi.ServerState{is("h1", opened)}, ""},
		"opened, drained by somebody":     {ready, false, []runtimeapi.ServerState{is("h1", drained|opened)}, "0 gpu 0 h1 - 2 12" + d9001},

		"not ready, agent-check alone":       {not, false, []runtimeapi.ServerState{with(is("h1", 0), agentOnly)}, "0 gpu 0 h1 - 0 0" + d9001},
		"not ready, checks switched off":     {not, false, []runtimeapi.ServerState{with(is("h1", 0), switched)}, "0 gpu 0 h1 - 0 0" + d9001},
		"not ready, no check, or tracks":     {not, false, []runtimeapi.ServerState{with(is("h1", 0), unchecked)}, ""},
		"quiesced, no check, or tracks":      {ready, true, []runtimeapi.ServerState{with(is("h1", 0), unchecked)}, "0 gpu 0 h1 - 2 8 1 1 0 6 1 0 0 0 0 0 - 9001 -"},
		"not ready, new, others unchecked":   {not, false, []runtimeapi.ServerState{with(is("h9", 0), unchecked)}, ""},
		"not ready, new, nothing is known":   {not, false, nil, ""},
		"not ready, new, others are checked": {not, false, []runtimeapi.ServerState{is("h9", 0), with(is("web/w1", 0), unchecked)}, "0 gpu 0 h1 - 0 0" + d9001},
		"not ready, a new backend":           {not, false, []runtimeapi.ServerState{is("chat/c1", 0)}, "0 gpu 0 h1 - 0 0" + d9001},
		"not ready, a new backend, unlisted": {not, false, []runtimeapi.ServerState{is("web/w1", 0)}, ""},

		"without a port":           {"https://192.0.2.66", false, []runtimeapi.ServerState{is("h9", 0)}, "0 gpu 0 h1 - 0 0 1 1 0 6 1 0 6 0 0 0 - 443 -"},
		"on a unix socket":         {not, false, []runtimeapi.ServerState{with(is("h1", 0), socket)}, "0 gpu 0 h1 - 0 0 1 1 0 6 1 0 6 0 0 0 - 0 -"},
		"a unix socket, new":       {"unix:/run/gpu.sock", true, nil, "0 gpu 0 h1 - 2 8 1 1 0 6 1 0 0 0 0 0 - 0 -"},
		"by name, not ready":       {not, false, []runtimeapi.ServerState{with(is("h1", 0), named)}, "0 gpu 0 h1 192.0.2.9 0 0 1 1 0 6 1 0 6 0 0 0 gpu.test 9001 -"},
		"by name, waiting for DNS": {not, false, []runtimeapi.ServerState{with(is("h1", 0), waits)}, "0 gpu 0 h1 - 0 0 1 1 0 6 1 0 6 0 0 0 gpu.test 9001 -"},

		"somebody's hold of a server that is not listed": {ready, false, []runtimeapi.ServerState{is("h1", 0), is("h5", forcedMaint), is("h6", 0), is("h7", starts)}, "0 gpu 0 h5 - 2 1 1 1 0 6 1 0 6 0 0 0 - 7 -"},
		"somebody's hold in another backend":             {ready, false, []runtimeapi.ServerState{is("h1", 0), is("web/w1", forcedMaint)}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			model := modelOf(t, prober{"192.0.2.66"}, tier.Spec{Name: "heavy", Servers: []tier.ServerSpec{listed(t, "h1", c.url)}},
				tier.Spec{Name: "chat", Servers: []tier.ServerSpec{listed(t, "chat/c1", "http://192.0.2.1:9002")}})
			if c.quiesced {
				quiesce(t, model, tier.Target{Tier: "heavy"})
			}
			assert.Equal(t, c.want, compose(model, true, false, c.shown...))
		})
	}
}

// Probes go elsewhere, and only HAProxy knows the port.
func TestRowsOfAServerWhoseAddressIsSeparate(t *testing.T) {
	s := listed(t, "h1", "http://192.0.2.66:9001")
	s.Separate = true
	model := modelOf(t, prober{"192.0.2.66"}, tier.Spec{Name: "heavy", Servers: []tier.ServerSpec{s}})
	assert.Equal(t, "0 gpu 0 h1 - 0 0 1 1 0 6 1 0 6 0 0 0 - 7 -", compose(model, true, false, is("h1", 0)))
	assert.Empty(t, compose(model, true, false), "a row with a wrong port would be worse than none")
}

// An address that is not the one of the evidence is not brought back.
func TestRowsOfANameThatHasAnotherAddressNow(t *testing.T) {
	model := modelOf(t, nil, tier.Spec{Name: "heavy", Servers: []tier.ServerSpec{listed(t, "h1", "http://gpu.test:9001")}})
	model.SetElsewhere("gpu/h1", true)
	assert.Equal(t, "0 gpu 0 h1 - 0 0 1 1 0 6 1 0 6 0 0 0 - 9001 -", compose(model, true, false, with(is("h1", 0), named)))
}

func TestATierThatAgentCheckHoldsHasNoRows(t *testing.T) {
	model := modelOf(t, prober{"192.0.2.66"}, tier.Spec{Name: "heavy", AgentWords: true, Servers: []tier.ServerSpec{listed(t, "h1", "http://192.0.2.66:9001")}})
	quiesce(t, model, tier.Target{Tier: "heavy"})
	assert.Empty(t, compose(model, true, false, is("h1", drained), is("h2", forcedMaint)))
}

// A tier that has left the configuration while it was quiesced stays closed, and an
// operator's hold of a server that was never in one is HAProxy's own affair.
//
// Control: without Had, a reload opened what was quiesced.
func TestRowsOfATierThatHasLeft(t *testing.T) {
	model := modelOf(t, nil, tier.Spec{Name: "heavy", Servers: []tier.ServerSpec{listed(t, "h1", "http://192.0.2.1:9001")}})
	shown := Shown{Live: true, Servers: []runtimeapi.ServerState{is("h1", 0), is("old/o1", drained), is("web/w1", drained), is("old/o2", 0)}}
	assert.Empty(t, Compose(model, shown))
	shown.Had = map[string]bool{"old/o1": true, "old/o2": true}
	rows := Compose(model, shown)
	require.Len(t, rows, 1)
	assert.Equal(t, "0 old 0 o1 - 2 8 1 1 0 6 1 0 6 0 0 0 - 7 -", rows[0].String())
}

// A pause ends as if it had never been.
//
// Control: with Answer.Quiesced taken for it, the row would have drained the server of
// a quiesce that was refused.
func TestAPauseIsNoQuiesce(t *testing.T) {
	model := modelOf(t, nil, tier.Spec{Name: "heavy", Servers: []tier.ServerSpec{listed(t, "h1", "http://192.0.2.1:9001")}})
	pause, err := model.Pause(tier.Target{Tier: "heavy"}, tier.Closure{Reason: "swap"})
	require.NoError(t, err)
	assert.Empty(t, compose(model, true, false, is("h1", 0)))
	pause.Release()
}

// HAProxy has not been read since the start: the file says what somebody holds, and the
// model the rest.
func TestRowsBeforeHAProxyIsRead(t *testing.T) {
	model := modelOf(t, prober{"192.0.2.66"},
		tier.Spec{Name: "heavy", Servers: []tier.ServerSpec{
			listed(t, "h1", "http://192.0.2.1:9001"), listed(t, "h2", "http://192.0.2.66:9002"), listed(t, "h3", "http://192.0.2.1:9003"),
		}},
		tier.Spec{Name: "pool", Members: &tier.Members{Backend: "pool"}})
	open := with(is("pool/p1", opened), named)
	const member = "0 pool 0 p1 192.0.2.9 2 4 1 1 0 6 1 0 6 0 0 0 gpu.test 7 -"
	assert.Equal(t, "0 gpu 0 h2 - 0 0 1 1 0 6 1 0 6 0 0 0 - 9002 -\n0 gpu 0 h3 - 2 1 1 1 0 6 1 0 6 0 0 0 - 9003 -\n"+member,
		compose(model, false, true, open, is("h2", 0), with(is("h3", forcedMaint), socket)), "a row of the file has no address")
	quiesce(t, model, tier.Target{Tier: "pool"})
	assert.Contains(t, compose(model, false, true, open), "0 pool 0 p1 192.0.2.9 2 5 ", "as its slot starts")
}

// A HAProxy that cannot be read now: what is quiesced starts down, and not drained by
// us, since nothing would tell such a drain from somebody's.
//
// Control: with the drain in the row, the readmit was refused: held.
func TestRowsWhileHAProxyCannotBeRead(t *testing.T) {
	for name, c := range map[string]struct {
		shown runtimeapi.ServerState
		want  string
	}{
		"open":             {is("h1", 0), "0 gpu 0 h1 - 0 0 1 1 0 6 1 0 6 0 0 0 - 9001 -"},
		"drained before":   {is("h1", drained), "0 gpu 0 h1 - 0 8 1 1 0 6 1 0 6 0 0 0 - 9001 -"},
		"opened, disabled": {is("h1", opened), ""},
	} {
		for _, health := range []bool{false, true} { // whether its checks are told its health
			model := modelOf(t, nil, tier.Spec{Name: "heavy", QuiescedHealth: health, Servers: []tier.ServerSpec{listed(t, "h1", "http://192.0.2.1:9001")}})
			quiesce(t, model, tier.Target{Tier: "heavy"})
			assert.Equal(t, c.want, compose(model, true, true, c.shown), name)
		}
	}
}
