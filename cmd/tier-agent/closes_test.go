package main

import (
	"errors"
	"net/netip"
	"testing"

	"github.com/stretchr/testify/assert"

	"tier-agent/internal/observe"
	"tier-agent/internal/runtimeapi"
	"tier-agent/internal/tier"
)

// Controls: without sends each of the first was in the list; with its case for a view
// that cannot be read taken out, that one was not.
func TestClosesWhatSomeHAProxyHasOpen(t *testing.T) {
	at := netip.MustParseAddrPort("192.0.2.1:80")
	see := func(state runtimeapi.AdminState) observe.View {
		return observe.View{Servers: map[string]observe.Server{"heavy/h1": {Admin: state, Weight: 1, Address: at}}}
	}
	open, drained := see(0), see(runtimeapi.ForcedDrain)
	without, unread, never := see(0), see(runtimeapi.ForcedDrain), observe.View{}
	without.Servers = map[string]observe.Server{}
	unread.Err = errors.New("cannot be read")
	member := func(address string) tier.ServerSpec {
		return tier.ServerSpec{Backend: "heavy", Name: "h1", Address: netip.MustParseAddrPort(address)}
	}
	listed := tier.ServerSpec{Backend: "heavy", Name: "h1"}
	for name, c := range map[string]struct {
		server   tier.ServerSpec
		unseen   bool
		observed []observe.View
		closes   bool
	}{
		"drained":                {server: listed, observed: []observe.View{drained}},
		"in maintenance":         {server: listed, observed: []observe.View{see(runtimeapi.ForcedMaint)}},
		"gone":                   {server: listed, observed: []observe.View{without, drained}},
		"another host's slot":    {server: member("192.0.2.2:80"), observed: []observe.View{open}},
		"open":                   {server: listed, observed: []observe.View{open}, closes: true},
		"open in one":            {server: listed, observed: []observe.View{drained, open}, closes: true},
		"a member":               {server: member("192.0.2.1:80"), observed: []observe.View{open}, closes: true},
		"not to be read":         {server: listed, observed: []observe.View{unread}, closes: true},
		"never read":             {server: listed, observed: []observe.View{never}, closes: true},
		"no HAProxy":             {server: listed, closes: true},
		"agent-check, elsewhere": {server: listed, unseen: true, observed: []observe.View{without}, closes: true},
	} {
		got := closes([]tier.Closing{{Tier: "heavy", Server: c.server, Unseen: c.unseen, Why: "why"}}, c.observed)
		if c.closes {
			assert.Equal(t, []string{"heavy/h1 (why)"}, got, name)
		} else {
			assert.Empty(t, got, name)
		}
	}
	assert.Equal(t, []string{"heavy (why)"}, closes([]tier.Closing{{Tier: "heavy", Why: "why"}}, []observe.View{drained}))
}
