package main

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"

	"tier-agent/internal/admission"
	"tier-agent/internal/httpapi"
)

// healthy is a picture in which nothing is wrong: heavy/h2 is quiesced, and so is light.
func healthy() httpapi.Status {
	st := picture()
	st.HAProxy = st.HAProxy[:1]
	return st
}

// Controls: with each of the conditions of red taken out, its row had exit code 0.
func TestStatusCheck(t *testing.T) {
	way := admission.WayIn{Instance: "edge", Server: "other/o1", Of: "light/l1", Kind: admission.WayAddress, Message: "haproxy edge sends requests to other/o1"}
	shown := func(st *httpapi.Status, server int, shown httpapi.ShownStatus) {
		st.Tiers[0].Servers[server].Shown = map[string]httpapi.ShownStatus{"edge": shown}
	}
	for _, c := range []struct {
		name, of string
		change   func(*httpapi.Status)
		want     []string
	}{
		{name: "all is well", change: func(*httpapi.Status) {}},
		{name: "gets requests and should not", want: []string{"heavy/h2 on haproxy edge GETS REQUESTS and should not (quiesced); agent-check on, health check disabled there"},
			change: func(st *httpapi.Status) {
				shown(st, 1, httpapi.ShownStatus{Takes: true, State: "up", AgentCheck: "on", HealthCheck: "disabled"})
			}},
		{name: "the gate refuses what it gets", change: func(st *httpapi.Status) {
			st.Tiers[0].Ready = false
			shown(st, 1, httpapi.ShownStatus{Takes: true, State: "up", Gated: true})
		}},
		{name: "the gate admits its tier", want: []string{"heavy/h2 on haproxy edge GETS REQUESTS and should not (quiesced); agent-check none, health check none there"},
			change: func(st *httpapi.Status) {
				shown(st, 1, httpapi.ShownStatus{Takes: true, State: "up", Gated: true, AgentCheck: "none", HealthCheck: "none"})
			}},
		{name: "down and should be up", want: []string{`heavy/h1 on haproxy edge is down and should be up: DOWN (agent); agent-check L7STS via agent : down (full)`},
			change: func(st *httpapi.Status) {
				shown(st, 0, httpapi.ShownStatus{State: "down", Heard: "DOWN (agent); agent-check L7STS via agent : down (full)"})
			}},
		{name: "asked about one that is well", of: "heavy/h1", change: func(st *httpapi.Status) {
			shown(st, 1, httpapi.ShownStatus{Takes: true, State: "up"})
		}},
		{name: "held by an operator", change: func(st *httpapi.Status) { st.HAProxy[0].Holds = []string{"heavy/h1 is maint(forced)"} }},
		{name: "unreadable", want: []string{"haproxy core: timed out; last read 4.2s ago"}, change: func(st *httpapi.Status) {
			st.HAProxy = append(st.HAProxy, httpapi.HAProxyStatus{Instance: "core", Error: "timed out", PID: 12, AgeMS: 4200})
		}},
		{name: "state file", want: []string{"haproxy edge: its server-state file is not written: no space"}, change: func(st *httpapi.Status) {
			st.HAProxy[0].StateFile = "not written: no space"
		}},
		{name: "not closed everywhere", want: []string{"light is not closed everywhere: haproxy edge has light/l1 open"}, change: func(st *httpapi.Status) {
			st.Intents = []httpapi.IntentStatus{{Tier: "light", Drift: []string{"haproxy edge has light/l1 open"}, Note: "carried on"}}
		}},
		{name: "not written down", want: []string{"light: the intents cannot be written"}, change: func(st *httpapi.Status) {
			st.Intents = []httpapi.IntentStatus{{Tier: "light", Note: "the intents cannot be written", Unwritten: true}}
		}},
		{name: "ways in", want: []string{"heavy/h2 is quiesced, and requests still get in: " + way.Message, "light is quiesced, and requests still get in: " + way.Message}, change: func(st *httpapi.Status) {
			st.Tiers[0].Servers[1].WaysIn, st.Tiers[1].WaysIn = []admission.WayIn{way}, []admission.WayIn{way}
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := newFakeAgent(t)
			f.status = healthy()
			c.change(&f.status)
			args := strings.Fields("status --check " + c.of)
			if c.want == nil {
				assert.Equal(t, said{exitDone, "", ""}, f.cli(args...))
				assert.Equal(t, said{exitDone, "", ""}, f.cli(append(args, "--json")...))
				return
			}
			assert.Equal(t, said{exitFailed, strings.Join(c.want, "\n") + "\n", ""}, f.cli(args...))
			json := f.cli(append(args, "--json")...)
			assert.Equal(t, exitFailed, json.code)
			assert.Contains(t, json.out, `"red"`)
			table := f.cli("status")
			assert.Equal(t, exitDone, table.code)
			for _, line := range c.want { // status itself says it, too
				_, end, cut := strings.Cut(line, ", and ")
				if !cut {
					_, end, _ = strings.Cut(line, " ")
				}
				assert.Contains(t, table.out, strings.TrimPrefix(strings.TrimPrefix(end, "edge: "), "core: "))
			}
		})
	}
	f := newFakeAgent(t)
	f.status = healthy()
	assert.Equal(t, exitFailed, f.cli("status", "--check", "gone").code)
}
