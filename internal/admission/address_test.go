package admission

import (
	"net/netip"
	"net/url"
	"testing"

	"github.com/stretchr/testify/assert"

	"tier-agent/internal/observe"
	"tier-agent/internal/probe"
	"tier-agent/internal/tier"
	"tier-agent/test/guarantee"
)

// What cannot be compared is no match.
//
// Controls: with unshown left out, "HAProxy's unix socket" was the same address, and with
// Unix left out so was "a unix socket that is probed".
func TestAddressesThatCannotBeComparedDiffer(t *testing.T) {
	var none netip.AddrPort
	at := func(address string) observe.Server { return observe.Server{Address: netip.MustParseAddrPort(address)} }
	tcp, socket := &url.URL{Scheme: "http", Host: "10.0.0.1:80"}, &url.URL{Scheme: "unix", Path: "/run/engine.sock"}
	host, one := &url.URL{Scheme: "http", Host: "engine:80"}, netip.MustParseAddrPort("10.0.0.1:80")
	for name, c := range map[string]struct {
		probed   *url.URL
		separate bool
		shown    observe.Server
		reached  netip.AddrPort
		to, from string
	}{
		"the same":                      {tcp, false, at("10.0.0.1:80"), none, "", ""},
		"another":                       {tcp, false, at("10.0.0.1:81"), none, "10.0.0.1:81", "10.0.0.1:80"},
		"HAProxy's unix socket":         {tcp, false, observe.Server{}, none, unshown, "10.0.0.1:80"},
		"a unix socket that is probed":  {socket, false, at("10.0.0.1:80"), none, "10.0.0.1:80", "unix:/run/engine.sock"},
		"both":                          {socket, false, observe.Server{}, none, unshown, "unix:/run/engine.sock"},
		"both, and meant":               {socket, true, observe.Server{}, none, "", ""},
		"a name without an address yet": {tcp, false, observe.Server{Resolving: true}, none, "", ""},
		"a name, of the same":           {host, false, at("10.0.0.1:80"), one, "", ""},
		"a name, of another":            {host, false, at("10.0.0.2:80"), one, "10.0.0.2:80", "10.0.0.1:80"},
		"a name, of another port":       {host, false, at("10.0.0.1:81"), one, "10.0.0.1:81", "10.0.0.1:80"},
		"a name, without evidence":      {host, false, at("10.0.0.2:80"), none, "", ""},
		"a name, and a unix socket":     {host, false, observe.Server{}, one, unshown, "engine:80"},
		"a spare slot":                  {tcp, false, observe.Server{Spare: true}, none, "", ""},
	} {
		s := tier.ServerSpec{Target: probe.Target{URL: c.probed}, Separate: c.separate}
		to, from := sendsElsewhere(s, c.shown, c.reached)
		assert.Equal(guarantee.T(t), c.to, to, name)
		assert.Equal(t, c.from, from, name)
	}
}
