package admission

import (
	"net/netip"
	"testing"

	"github.com/stretchr/testify/assert"

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
