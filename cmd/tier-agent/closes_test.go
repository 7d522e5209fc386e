package main

import (
	"errors"
	"net/netip"
	"testing"

	"github.com/stretchr/testify/assert"

	"tier-agent/internal/admission"
	"tier-agent/internal/runtimeapi"
	"tier-agent/internal/tier"
)

// Controls: without sends each of the first was in the list; with its case for a view
// that cannot be read taken out, that one was not.
func TestClosesWhatSomeHAProxyHasOpen(t *testing.T) {
	at := netip.MustParseAddrPort("192.0.2.1:80")
	see := func(state runtimeapi.AdminState) admission.Observed {
		return admission.Observed{
			Servers:   map[string]runtimeapi.AdminState{"heavy/h1": state},
			Addresses: map[string]netip.AddrPort{"heavy/h1": at},
		}
	}
	open, drained := see(0), see(runtimeapi.ForcedDrain)
	without, unread, never := see(0), see(runtimeapi.ForcedDrain), admission.Observed{}
	without.Servers = map[string]runtimeapi.AdminState{}
	unread.Err = errors.New("cannot be read")
	member := func(address string) tier.ServerSpec {
		return tier.ServerSpec{Backend: "heavy", Name: "h1", Address: netip.MustParseAddrPort(address)}
	}
	listed := tier.ServerSpec{Backend: "heavy", Name: "h1"}
	for name, c := range map[string]struct {
		server   tier.ServerSpec
		unseen   bool
		observed []admission.Observed
		closes   bool
	}{
		"drained":                {server: listed, observed: []admission.Observed{drained}},
		"in maintenance":         {server: listed, observed: []admission.Observed{see(runtimeapi.ForcedMaint)}},
		"gone":                   {server: listed, observed: []admission.Observed{without, drained}},
		"another host's slot":    {server: member("192.0.2.2:80"), observed: []admission.Observed{open}},
		"open":                   {server: listed, observed: []admission.Observed{open}, closes: true},
		"open in one":            {server: listed, observed: []admission.Observed{drained, open}, closes: true},
		"a member":               {server: member("192.0.2.1:80"), observed: []admission.Observed{open}, closes: true},
		"not to be read":         {server: listed, observed: []admission.Observed{unread}, closes: true},
		"never read":             {server: listed, observed: []admission.Observed{never}, closes: true},
		"no HAProxy":             {server: listed, closes: true},
		"agent-check, elsewhere": {server: listed, unseen: true, observed: []admission.Observed{without}, closes: true},
	} {
		got := closes([]tier.Closing{{Tier: "heavy", Server: c.server, Unseen: c.unseen, Why: "why"}}, c.observed)
		if c.closes {
			assert.Equal(t, []string{"heavy/h1 (why)"}, got, name)
		} else {
			assert.Empty(t, got, name)
		}
	}
	assert.Equal(t, []string{"heavy (why)"}, closes([]tier.Closing{{Tier: "heavy", Why: "why"}}, []admission.Observed{drained}))
}
