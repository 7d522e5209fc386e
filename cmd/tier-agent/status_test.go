package main

import (
	"bytes"
	"encoding/json"
	"net"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"tier-agent/internal/horizon"
	"tier-agent/internal/httpapi"
	"tier-agent/internal/tier"
	"tier-agent/test/socketdir"
)

// picture has each thing that the table can show.
func picture() httpapi.Status {
	ms := func(n int64) *int64 { return &n }
	closure := &tier.Closure{Reason: "swap-to-v2", Who: "alice(1000)", Since: time.Date(2026, 3, 1, 11, 0, 0, 0, time.UTC)}
	return httpapi.Status{
		Version: "1.2.3",
		Time:    time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC),
		Tiers: []httpapi.TierStatus{
			{
				Readiness: httpapi.Readiness{Name: "heavy", Ready: true, Reason: "identity_passed", Generation: "1.2", AgeMS: ms(1500)},
				MinReady:  1, Needed: 1, Serving: 1, Servers: []httpapi.ServerStatus{
					{
						Readiness: httpapi.Readiness{Name: "heavy/h1", Ready: true, Reason: "identity_passed", Generation: "1.2.3", AgeMS: ms(1500)},
						State:     "ready", Evidence: "identity_passed", Weight: 100, HAProxy: map[string]string{"edge": "ready", "core": "unknown"},
						Shown: map[string]httpapi.ShownStatus{"edge": {Takes: true, State: "up", Weight: 100, AgentCheck: "on", HealthCheck: "on", Asks: true}},
						Asked: &httpapi.AskedStatus{AgentCheckMS: ms(200), HealthCheckMS: ms(900)},
					},
					{
						Readiness: httpapi.Readiness{Name: "heavy/h2", Reason: "quiesced", Generation: "1.2.4", AgeMS: ms(61000)},
						State:     "draining", Left: &httpapi.LeftStatus{Streams: 2, Queue: 1, Unknown: []string{"core"}}, Evidence: "identity_passed", Quiesced: true, Closure: &tier.Closure{Reason: "fan", Who: "bob(1001)", Since: closure.Since},
						Weight: 100, HAProxy: map[string]string{"edge": "drain(forced)", "core": "unknown"},
						Shown: map[string]httpapi.ShownStatus{"edge": {State: "drain(forced)", Weight: 100, AgentCheck: "on", HealthCheck: "on", Asks: true}},
						Asked: &httpapi.AskedStatus{AgentCheckMS: ms(300), HealthCheckMS: ms(800)},
					},
				},
			},
			{
				Readiness: httpapi.Readiness{Name: "light", Reason: "quiesced", Generation: "1.5"}, Quiesced: true, Closure: closure,
				MinReady: 1, Needed: 2, Members: &httpapi.MembersStatus{Backend: "light", LeftOut: 3}, Servers: []httpapi.ServerStatus{{
					Readiness: httpapi.Readiness{Name: "light/l1", Reason: "quiesced", Generation: "1.5.6"},
					State:     "quiesced", Evidence: "probe_pending", Quiesced: true, Weight: 80, Asked: &httpapi.AskedStatus{},
				}},
			},
			{
				Readiness: httpapi.Readiness{Name: "none", Reason: "too_few_servers", Generation: "1.7"},
				MinReady:  1, Needed: 1, Members: &httpapi.MembersStatus{Backend: "gpu"}, Servers: []httpapi.ServerStatus{},
			},
		},
		HAProxy: []httpapi.HAProxyStatus{
			{Instance: "edge", Readable: true, Version: "3.0.5", PID: 4711, UptimeS: 3725, KeepsStateFile: true},
			{Instance: "core", Error: "haproxy is unreachable: no such file or directory"},
		},
	}
}

func TestStatusTable(t *testing.T) {
	f := newFakeAgent(t)
	f.status = picture()
	s := f.cli("status")
	assert.Equal(t, exitDone, s.code)
	assert.Empty(t, s.err)
	golden(t, "status.txt", s.out)
	for line := range bytes.Lines([]byte(s.out)) {
		assert.Equal(t, string(bytes.TrimRight(line, " \n"))+"\n", string(line), "a blank at the end")
	}
}

// Control: with the tiers of only not narrowed, all were shown; with shownOf left out of
// the table, the other servers of the tier were.
func TestStatusOfOne(t *testing.T) {
	f := newFakeAgent(t)
	f.status = picture()
	f.status.Intents = []httpapi.IntentStatus{{Tier: "gone", Orphan: true, Who: "bob", Reason: "x"}, {Tier: "light", Orphan: true, Who: "bob", Reason: "x"}}
	f.status.HAProxy[0].Holds = []string{"heavy/h1 is maint(forced)", "heavy/h11 is maint(forced)", "light/l1 is maint(forced)"}
	rows := func(args ...string) (out string, first []string) {
		s := f.cli(append([]string{"status"}, args...)...)
		require.Equal(t, said{exitDone, s.out, ""}, s)
		for line := range strings.Lines(s.out) {
			first = append(first, strings.Join(strings.Fields(line)[:1], ""))
		}
		return s.out, first
	}
	out, first := rows("heavy")
	assert.Equal(t, []string{"TIER", "heavy", "heavy/h1", "heavy/h2", "heavy/h2", "heavy", "haproxy", "held", "haproxy"}, first)
	assert.Contains(t, out, "1 of 2 serving")
	out, first = rows("heavy/h1")
	assert.Equal(t, []string{"TIER", "heavy", "heavy/h1", "heavy", "haproxy", "held", "haproxy"}, first)
	assert.Contains(t, out, "1 of 2 serving", "the tier is whole")
	_, first = rows("gone")
	assert.Equal(t, []string{"TIER", "haproxy", "haproxy", "gone"}, first)

	var st httpapi.Status
	out, _ = rows("heavy/h2", "--json")
	require.NoError(t, json.Unmarshal([]byte(out), &st))
	require.Len(t, st.Tiers, 1)
	require.Len(t, st.Tiers[0].Servers, 1)
	assert.Equal(t, "heavy/h2", st.Tiers[0].Servers[0].Name)
	assert.Empty(t, st.Intents)

	for name, hint := range map[string]string{"haevy": " (did you mean heavy?)", "heavy/h3": " (did you mean heavy/h1?)", "gine": " (did you mean gone?)", "other": ""} {
		assert.Equal(t, said{exitFailed, "", "tier-agent: there is no tier or server \"" + name + "\"" + hint + "; tier-agent status lists them\n"}, f.cli("status", name))
	}
}

func TestStatusJSON(t *testing.T) {
	f := newFakeAgent(t)
	f.status = picture()
	s := f.cli("status", "--json")
	assert.Equal(t, exitDone, s.code)
	assert.Empty(t, s.err)
	var back httpapi.Status
	require.NoError(t, json.Unmarshal([]byte(s.out), &back))
	assert.Equal(t, f.status, back)
}

// A socket that takes connections and never answers is a tier-agent that is
// starting, or one that hangs; a script must not hang with it.
func TestStatusTimesOut(t *testing.T) {
	path := filepath.Join(socketdir.New(t), "admin.sock")
	ln, err := net.Listen("unix", path)
	require.NoError(t, err)
	defer ln.Close()
	err = (&app{socket: path}).showStatus(t.Context(), "", time.Millisecond)
	var exit *exitError
	require.ErrorAs(t, err, &exit)
	assert.Equal(t, exitTimedOut, exit.code)
	assert.EqualError(t, err, "no answer at "+path+" within 1ms: tier-agent still waits for its first round of probes (start_budget), or hangs")
}

// Controls: with s.Ready alone asked in takes, each of these was "yes" or "no"; with the
// gate left out, what it refuses was "yes".
func TestTakes(t *testing.T) {
	// Each state is an instance's: as HAProxy shows it, or "unknown".
	of := func(ready bool, states ...string) httpapi.ServerStatus {
		s := httpapi.ServerStatus{Readiness: httpapi.Readiness{Ready: ready}, HAProxy: map[string]string{}, Shown: map[string]httpapi.ShownStatus{}}
		for i, state := range states {
			instance := string(rune('a' + i))
			s.HAProxy[instance] = state
			if state != "unknown" && state != "no such server" {
				s.Shown[instance] = httpapi.ShownStatus{Takes: state == "up", State: state}
			}
		}
		return s
	}
	gate := func(s httpapi.ServerStatus) httpapi.ServerStatus {
		for instance, shown := range s.Shown {
			shown.Gated = true
			s.Shown[instance] = shown
		}
		return s
	}
	var plain, open, few httpapi.TierStatus
	open.Ready, few.Reason = true, "too_few_servers"
	for _, c := range []struct {
		tier    httpapi.TierStatus
		servers []httpapi.ServerStatus
		want    string
	}{
		{plain, []httpapi.ServerStatus{of(true)}, "yes"},
		{plain, []httpapi.ServerStatus{of(false)}, "no"},
		{plain, []httpapi.ServerStatus{of(true, "up", "up")}, "yes"},
		{plain, []httpapi.ServerStatus{of(true, "unknown")}, "yes"},
		{plain, []httpapi.ServerStatus{of(false, "unknown")}, "no"},
		{plain, []httpapi.ServerStatus{of(true, "drain(forced)")}, "no (haproxy)"},
		{plain, []httpapi.ServerStatus{of(true, "down")}, "no (haproxy)"},
		{plain, []httpapi.ServerStatus{of(true, "weight 0")}, "no (haproxy)"},
		{plain, []httpapi.ServerStatus{of(true, "maint(forced,config)", "no such server")}, "no (haproxy)"},
		{plain, []httpapi.ServerStatus{of(true, "maint(dns)+drain(forced)", "up", "drain(inherited)")}, "on 1 of 3"},
		// HAProxy sends where it was not told to.
		{plain, []httpapi.ServerStatus{of(false, "up")}, "yes"},
		{plain, []httpapi.ServerStatus{of(false, "down")}, "no"},
		{open, []httpapi.ServerStatus{gate(of(false, "up"))}, "yes"}, // the gate does not know which server it will be
		{open, []httpapi.ServerStatus{gate(of(true, "up"))}, "yes"},
		{few, []httpapi.ServerStatus{gate(of(true, "up"))}, "no (haproxy)"},
		// A tier is taken where one of its servers is.
		{plain, []httpapi.ServerStatus{of(true, "drain(forced)", "up"), of(true, "up", "up")}, "yes"},
		{open, []httpapi.ServerStatus{gate(of(true, "drain(forced)", "up")), gate(of(false, "down", "up"))}, "on 1 of 2"},
	} {
		assert.Equal(t, c.want, takes(c.tier, c.servers), "%+v", c.servers)
	}
}

func TestStatusSaysWhereHAProxyDoesOtherwise(t *testing.T) {
	silent := httpapi.ShownStatus{Takes: true, State: "up", AgentCheck: "disabled", HealthCheck: "none"}
	up, gated := silent, silent
	up.Asks, gated.Gated = true, true
	down := httpapi.ShownStatus{State: "down", Heard: "DOWN (agent); agent-check L7STS via agent : down (quiesced)"}
	ready, not := httpapi.Readiness{Ready: true}, httpapi.Readiness{Reason: "identity_mismatch"}
	for _, c := range []struct {
		said  string
		ready httpapi.Readiness
		shown httpapi.ShownStatus
		wired bool
	}{
		{"", ready, up, true},
		{"", ready, silent, false},
		{"", ready, gated, true},
		{"does not ask tier-agent, and would go on getting requests if it were not ready; agent-check disabled, health check none there", ready, silent, true},
		{"GETS REQUESTS and should not (identity_mismatch); agent-check disabled, health check none there", not, up, true},
		{"GETS REQUESTS and should not (identity_mismatch); agent-check disabled, health check none there", not, silent, false},
		{"is up and should not be (identity_mismatch): only the gate keeps requests out; agent-check disabled, health check none there", not, gated, true},
		{"is down and should be up: DOWN (agent); agent-check L7STS via agent : down (quiesced)", ready, down, true},
		{"", not, down, true},
		{"has weight 0 and gets no requests", ready, httpapi.ShownStatus{State: "weight 0"}, true},
	} {
		assert.Equal(t, c.said, unlike(httpapi.TierStatus{}, httpapi.ServerStatus{Readiness: c.ready}, c.shown, c.wired))
	}
}

func TestStatusSaysWhatConcernsTheWhole(t *testing.T) {
	var out strings.Builder
	printWhole(&out, httpapi.DaemonReadiness{
		CorrelatedFailure: 4,
		Verdict:           horizon.Verdict{StaleDegraded: []horizon.Stale{{Name: "old", Reason: "health_transport_refused", IdleSeconds: 5400}}},
	})
	assert.Equal(t, `all 4 servers became unreachable together: look at the network, and at tier-agent itself
old has failed for so long that it no longer counts: health_transport_refused, unchanged for 1h30m0s
`, out.String())
}

func TestStatusSaysWhetherTheGateIsUsed(t *testing.T) {
	ago := int64(1500)
	for want, gate := range map[string]*httpapi.GateStatus{
		"":                                  nil,
		"gate: no HAProxy is connected\n":   {},
		"gate: 1 connection, never asked\n": {Connections: 1},
		"gate: 2 connections, last asked 1.5s ago\n": {Connections: 2, AskedMS: &ago},
	} {
		var out strings.Builder
		printGate(&out, gate)
		assert.Equal(t, want, out.String())
	}
}

func TestStatusSaysWhatIsLeft(t *testing.T) {
	for want, l := range map[string]*httpapi.LeftStatus{
		" (1 stream)":            {Streams: 1},
		" (2 streams, 3 queued)": {Streams: 2, Queue: 3},
		" (1 queued)":            {Queue: 1},
		" (at least 2 streams)":  {Streams: 2, Unknown: []string{"edge"}},
		" (streams unknown)":     {Unknown: []string{"edge"}},
	} {
		assert.Equal(t, want, left(l))
	}
	assert.Empty(t, left(nil))
	assert.Empty(t, left(&httpapi.LeftStatus{}))
}
