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

// A name with two addresses was probed at one of them, and HAProxy sent to the other,
// where another model was: it was open.
//
// Control: with an address that is one of the name's held to be right, "two of a family"
// and "three" had none.
func TestEvidenceOfANameWithSeveralAddresses(t *testing.T) {
	const a, b, six, other = "10.0.0.1:80", "10.0.0.2:80", "[fd00::1]:80", "10.0.0.9:80"
	for name, tt := range map[string]struct {
		probed []string
		want   string
	}{
		"no address":      {nil, ""},
		"the one":         {[]string{a}, ""},
		"another":         {[]string{b}, b},
		"another port":    {[]string{"10.0.0.1:81"}, "10.0.0.1:81"},
		"two of a family": {[]string{a, b}, b},
		"one of each":     {[]string{six, a}, ""},
		"three":           {[]string{six, a, other}, other},
		"another family":  {[]string{six}, six},
	} {
		var probed []netip.AddrPort
		for _, p := range tt.probed {
			probed = append(probed, netip.MustParseAddrPort(p))
		}
		got, may := besides(probed, netip.MustParseAddrPort(a))
		assert.Equal(guarantee.T(t), tt.want != "", may, name)
		if may {
			assert.Equal(t, tt.want, got.String(), name)
		}
	}
}

// What cannot be compared is no match.
//
// Controls: with unshown left out, "HAProxy's unix socket" was the same address, and with
// Unix left out so was "a unix socket that is probed".
func TestAddressesThatCannotBeComparedDiffer(t *testing.T) {
	at := func(address string) observe.Server { return observe.Server{Address: netip.MustParseAddrPort(address)} }
	tcp, socket := &url.URL{Scheme: "http", Host: "10.0.0.1:80"}, &url.URL{Scheme: "unix", Path: "/run/engine.sock"}
	for name, c := range map[string]struct {
		probed   *url.URL
		separate bool
		shown    observe.Server
		to, from string
	}{
		"the same":                      {tcp, false, at("10.0.0.1:80"), "", ""},
		"another":                       {tcp, false, at("10.0.0.1:81"), "10.0.0.1:81", "10.0.0.1:80"},
		"HAProxy's unix socket":         {tcp, false, observe.Server{}, unshown, "10.0.0.1:80"},
		"a unix socket that is probed":  {socket, false, at("10.0.0.1:80"), "10.0.0.1:80", "unix:/run/engine.sock"},
		"both":                          {socket, false, observe.Server{}, unshown, "unix:/run/engine.sock"},
		"both, and meant":               {socket, true, observe.Server{}, "", ""},
		"a name without an address yet": {tcp, false, observe.Server{Resolving: true}, "", ""},
		"a spare slot":                  {tcp, false, observe.Server{Spare: true}, "", ""},
	} {
		s := tier.ServerSpec{Target: probe.Target{URL: c.probed}, Separate: c.separate}
		to, from := sendsElsewhere(t.Context(), s, c.shown)
		assert.Equal(guarantee.T(t), c.to, to, name)
		assert.Equal(t, c.from, from, name)
	}
}
