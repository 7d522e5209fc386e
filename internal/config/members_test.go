package config

import (
	"net/netip"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// Negative control: without the brackets of an IPv6 address its URL was one of another
// host and port.
func TestWhereAMemberIsProbed(t *testing.T) {
	for _, c := range []struct{ template, address, want string }{
		{"", "192.0.2.1:9000", "http://192.0.2.1:9000"},
		{"", "[2001:db8::1]:9000", "http://[2001:db8::1]:9000"},
		{"http://{address}:{port}/engine/v2", "192.0.2.1:9000", "http://192.0.2.1:9000/engine/v2"},
		{"https://{address}:8443/engine", "[2001:db8::1]:9000", "https://[2001:db8::1]:8443/engine"},
		{"https://{address}", "192.0.2.1:9000", "https://192.0.2.1"},
		{"http://{address}/{port}", "192.0.2.1:9000", "http://192.0.2.1/9000"},
	} {
		u := ProbeURL{c.template}.At(netip.MustParseAddrPort(c.address))
		assert.Equal(t, c.want, u.String(), "%q", c.template)
		assert.Equal(t, netip.MustParseAddrPort(c.address).Addr().String(), u.Hostname())
	}
	assert.Equal(t, "http://{address}:{port}", ProbeURL{}.String())
}

// What the decoder takes gives the member's own address, and nobody else's.
func TestAProbeURLThatIsTakenNamesTheMember(t *testing.T) {
	const head = "haproxy: [{name: edge, runtime: 'tcp:127.0.0.1:1'}]\ntiers: [{name: a, members: {backend: a, url: '"
	for template, taken := range map[string]bool{
		"http://{address}:{port}":           true,
		"https://{address}/":                true,
		"http://{address}:{port}/a/b":       true,
		"http://user@{address}:{port}":      false,
		"http://{port}:{address}":           false,
		"http://{address}.example:{port}":   false,
		"http://{address}{port}":            false,
		"http://{address}:{port}/{address}": false,
		"http://[{address}]:{port}":         false,
		"{address}:{port}":                  false,
	} {
		cfg, err := Parse("test.yaml", []byte(head+template+"'}}]\n"))
		if !taken {
			assert.ErrorContains(t, err, "tiers[0].members.url", template)
			continue
		}
		require.NoError(t, err, template)
		for _, address := range []string{"192.0.2.1:9000", "[2001:db8::1]:9000"} {
			at := netip.MustParseAddrPort(address)
			assert.Equal(t, at.Addr().String(), cfg.Tiers[0].Members.Probe.At(at).Hostname(), template)
		}
	}
}
