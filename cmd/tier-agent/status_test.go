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
						State:     "ready", Evidence: "identity_passed", Weight: 100, HAProxy: map[string]string{"edge": "ready", "core": "ready"},
					},
					{
						Readiness: httpapi.Readiness{Name: "heavy/h2", Reason: "quiesced", Generation: "1.2.4", AgeMS: ms(61000)},
						State:     "draining", Left: &httpapi.LeftStatus{Streams: 2, Queue: 1, Unknown: []string{"core"}}, Evidence: "identity_passed", Quiesced: true, Closure: &tier.Closure{Reason: "fan", Who: "bob(1001)", Since: closure.Since},
						Weight: 100, HAProxy: map[string]string{"edge": "drain(forced)", "core": "unknown"},
					},
				},
			},
			{
				Readiness: httpapi.Readiness{Name: "light", Reason: "quiesced", Generation: "1.5"}, Quiesced: true, Closure: closure,
				MinReady: 1, Needed: 2, Members: &httpapi.MembersStatus{Backend: "light", LeftOut: 3}, Servers: []httpapi.ServerStatus{{
					Readiness: httpapi.Readiness{Name: "light/l1", Reason: "quiesced", Generation: "1.5.6"},
					State:     "quiesced", Evidence: "probe_pending", Quiesced: true, Weight: 80,
				}},
			},
			{
				Readiness: httpapi.Readiness{Name: "none", Reason: "too_few_servers", Generation: "1.7"},
				MinReady:  1, Needed: 1, Members: &httpapi.MembersStatus{Backend: "gpu"}, Servers: []httpapi.ServerStatus{},
			},
		},
		HAProxy: []httpapi.HAProxyStatus{
			{Instance: "edge", Readable: true, Version: "3.0.5", PID: 4711, UptimeS: 3725},
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
	assert.Equal(t, []string{"TIER", "heavy", "heavy/h1", "heavy/h2", "heavy/h2", "haproxy", "held", "haproxy"}, first)
	assert.Contains(t, out, "1 of 2 serving")
	out, first = rows("heavy/h1")
	assert.Equal(t, []string{"TIER", "heavy", "heavy/h1", "haproxy", "held", "haproxy"}, first)
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

// What tier-agent admits and HAProxy sends nowhere is not taken.
//
// Control: with admitted alone asked in takes, all of these were "yes" or "no".
func TestTakes(t *testing.T) {
	of := func(ready bool, states ...string) httpapi.ServerStatus {
		s := httpapi.ServerStatus{Readiness: httpapi.Readiness{Ready: ready}, HAProxy: map[string]string{}}
		for i, state := range states {
			s.HAProxy[string(rune('a'+i))] = state
		}
		return s
	}
	for _, c := range []struct {
		servers  []httpapi.ServerStatus
		admitted bool
		want     string
	}{
		{[]httpapi.ServerStatus{of(true)}, true, "yes"},
		{[]httpapi.ServerStatus{of(true, "ready", "ready [config]")}, true, "yes"},
		{[]httpapi.ServerStatus{of(true, "unknown")}, true, "yes"},
		{[]httpapi.ServerStatus{of(true, "drain(forced)")}, true, "no (haproxy)"},
		{[]httpapi.ServerStatus{of(true, "maint(forced,config)", "no such server")}, true, "no (haproxy)"},
		{[]httpapi.ServerStatus{of(true, "maint(dns)+drain(forced)", "ready", "drain(inherited)")}, true, "on 1 of 3"},
		{[]httpapi.ServerStatus{of(false, "ready")}, false, "no"},
		// A tier is taken where one of its admitted servers is.
		{[]httpapi.ServerStatus{of(true, "drain(forced)", "ready"), of(true, "ready", "ready")}, true, "yes"},
		{[]httpapi.ServerStatus{of(true, "drain(forced)", "ready"), of(false, "ready", "ready")}, true, "on 1 of 2"},
		{[]httpapi.ServerStatus{of(true, "drain(forced)"), of(false, "ready")}, true, "no (haproxy)"},
	} {
		assert.Equal(t, c.want, takes(c.servers, c.admitted), "%+v", c.servers)
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
