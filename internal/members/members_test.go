package members

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
)

func shows(pairs ...string) map[string]netip.AddrPort {
	all := map[string]netip.AddrPort{}
	for n := 0; n < len(pairs); n += 2 {
		at, _ := netip.ParseAddrPort(pairs[n+1]) // "" is not valid
		all[pairs[n]] = at
	}
	return all
}

func list(f Found) (all []string) {
	for _, m := range f.Members {
		all = append(all, fmt.Sprintf("%s=%s", m.Server, m.Address))
	}
	return all
}

func TestServersOfTheBackendThatHaveAnAddress(t *testing.T) {
	found := Of([]Want{{"heavy", "gpu", 9}, {"fast", "cpu", 9}}, []map[string]netip.AddrPort{shows(
		"gpu/gpu10", "192.0.2.10:9000", "gpu/gpu9", "192.0.2.9:9000", "gpu/gpu1", "", "gpux/x", "192.0.2.8:1", "cpu/c", "[2001:db8::1]:1",
	)}, nil, 99)
	assert.Equal(t, []string{"gpu9=192.0.2.9:9000", "gpu10=192.0.2.10:9000"}, list(found["heavy"]))
	assert.Equal(t, []string{"c=[2001:db8::1]:1"}, list(found["fast"]))
}

// Negative control: without the look at an earlier one, the last HAProxy counted.
func TestOfTwoHAProxiesTheFirstCounts(t *testing.T) {
	found := Of([]Want{{"heavy", "gpu", 9}}, []map[string]netip.AddrPort{
		shows("gpu/a", "192.0.2.1:1", "gpu/c", ""),
		shows("gpu/a", "192.0.2.2:1", "gpu/b", "192.0.2.3:1", "gpu/c", "192.0.2.4:1"),
	}, nil, 99)
	assert.Equal(t, []string{"a=192.0.2.1:1", "b=192.0.2.3:1", "c=192.0.2.4:1"}, list(found["heavy"]))
}

// Negative control: without the look at its length, it was a member.
func TestANameThatIsTooLongIsLeftOut(t *testing.T) {
	long := strings.Repeat("x", 65)
	found := Of([]Want{{"heavy", "gpu", 9}}, []map[string]netip.AddrPort{shows("gpu/"+long, "192.0.2.1:1", "gpu/"+long[1:], "192.0.2.2:1")}, nil, 99)
	assert.Equal(t, []string{long[1:] + "=192.0.2.2:1"}, list(found["heavy"]))
	assert.Equal(t, 1, found["heavy"].LeftOut)
}

// Negative control: with the order of names alone, a newcomer took a member's place.
func TestMembersStayWhereThereAreTooMany(t *testing.T) {
	wants := []Want{{"heavy", "gpu", 2}, {"fast", "cpu", 9}}
	first := Of(wants, []map[string]netip.AddrPort{shows("gpu/b", "192.0.2.2:1", "gpu/c", "192.0.2.3:1")}, nil, 3)
	all := shows("gpu/a", "192.0.2.1:1", "gpu/b", "192.0.2.2:1", "gpu/c", "192.0.2.3:1",
		"cpu/a", "192.0.2.4:1", "cpu/b", "192.0.2.5:1")
	second := Of(wants, []map[string]netip.AddrPort{all}, first, 3)
	assert.Equal(t, []string{"b=192.0.2.2:1", "c=192.0.2.3:1"}, list(second["heavy"]))
	assert.Equal(t, 1, second["heavy"].LeftOut)
	assert.Equal(t, []string{"a=192.0.2.4:1"}, list(second["fast"]), "of the three in all")
	assert.Equal(t, 1, second["fast"].LeftOut)

	all["gpu/c"] = netip.MustParseAddrPort("192.0.2.9:1") // another member by the name
	third := Of(wants, []map[string]netip.AddrPort{all}, second, 99)
	assert.Equal(t, []string{"a=192.0.2.1:1", "b=192.0.2.2:1"}, list(third["heavy"]))
	assert.False(t, third["heavy"].Equal(second["heavy"]))
}
