package statefile

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"

	"tier-agent/internal/runtimeapi"
	"tier-agent/internal/tier"
)

// Of the slots that DNS fills an open one keeps those before it, closed where they are
// not open themselves: a new worker lets the first answer fill an empty slot as it likes.
//
// Controls: without before, what is behind a slot that is not open had no row; without
// empty, what is behind an empty slot had one.
func TestRowsOfMembers(t *testing.T) {
	slot := func(server, address string, admin runtimeapi.AdminState) runtimeapi.ServerState {
		return with(is(server, admin), func(s *runtimeapi.ServerState) { s.Address, s.Port, s.FQDN = address, 9, "gpu.test" })
	}
	static := func(server, address string, admin runtimeapi.AdminState) runtimeapi.ServerState {
		return with(slot(server, address, admin), func(s *runtimeapi.ServerState) { s.FQDN = "" })
	}
	const empty = starts | runtimeapi.DNSMaint
	for name, c := range map[string]struct {
		shown []runtimeapi.ServerState
		want  string // server, operational and admin state of each
	}{
		"all are open":            {[]runtimeapi.ServerState{slot("s1", "192.0.2.1", opened), slot("s2", "192.0.2.2", opened)}, "s1 2 4, s2 2 4"},
		"one is empty":            {[]runtimeapi.ServerState{slot("s1", "192.0.2.1", opened), slot("s2", "", empty), slot("s3", "192.0.2.3", opened)}, "s1 2 4"},
		"the first is new":        {[]runtimeapi.ServerState{slot("s1", "192.0.2.1", starts), slot("s2", "192.0.2.2", opened)}, "s1 0 5, s2 2 4"},
		"the last is new":         {[]runtimeapi.ServerState{slot("s1", "192.0.2.1", opened), slot("s2", "192.0.2.2", starts)}, "s1 2 4"},
		"one is drained":          {[]runtimeapi.ServerState{slot("s1", "192.0.2.1", opened), slot("s2", "192.0.2.2", drained|opened), slot("s3", "192.0.2.3", opened)}, "s1 2 4, s2 2 12, s3 2 4"},
		"one is not ready":        {[]runtimeapi.ServerState{slot("s1", "192.0.2.1", opened), slot("s4", "192.0.2.66", opened), slot("s3", "192.0.2.3", opened)}, "s1 2 4, s4 0 5, s3 2 4"},
		"the last is not ready":   {[]runtimeapi.ServerState{slot("s1", "192.0.2.1", opened), slot("s4", "192.0.2.66", opened)}, "s1 2 4"},
		"another host has come":   {[]runtimeapi.ServerState{slot("s1", "192.0.2.8", opened), slot("s2", "192.0.2.2", opened)}, "s1 0 5, s2 2 4"},
		"the name was set":        {[]runtimeapi.ServerState{slot("s1", "192.0.2.1", opened|runtimeapi.HostChanged)}, "s1 2 4"},
		"an empty one is drained": {[]runtimeapi.ServerState{slot("s1", "", drained|opened|runtimeapi.DNSMaint), slot("s2", "192.0.2.2", opened)}, "s1 2 12"},
		"not disabled":            {[]runtimeapi.ServerState{slot("s1", "192.0.2.1", 0)}, ""},
		"not disabled, not ready": {[]runtimeapi.ServerState{slot("s4", "192.0.2.66", 0)}, "s4 0 0"},
		"not disabled, no check":  {[]runtimeapi.ServerState{with(slot("s4", "192.0.2.66", 0), unchecked)}, ""},
		"not disabled, no member": {[]runtimeapi.ServerState{slot("s9", "192.0.2.66", 0)}, ""},
		"not from DNS":            {[]runtimeapi.ServerState{static("s1", "192.0.2.1", starts), static("s2", "192.0.2.2", opened), static("s3", "192.0.2.3", opened)}, "s2 2 4, s3 2 4"},
		"not from DNS, not ready": {[]runtimeapi.ServerState{static("s4", "192.0.2.66", opened), static("s2", "192.0.2.2", opened)}, "s2 2 4"},
		"quiesced, and open yet":  {[]runtimeapi.ServerState{slot("s5", "192.0.2.5", opened)}, "s5 0 12"},
		"quiesced, not disabled":  {[]runtimeapi.ServerState{slot("s5", "192.0.2.5", 0)}, "s5 0 8"},
		"held by somebody":        {[]runtimeapi.ServerState{slot("s1", "192.0.2.1", forcedMaint)}, "s1 2 1"},
		"of a backend of others":  {[]runtimeapi.ServerState{is("x/s1", opened)}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			spec := tier.Spec{Name: "pool", Members: &tier.Members{Backend: "gpu"}}
			for server, at := range map[string]string{"s1": "192.0.2.1", "s2": "192.0.2.2", "s3": "192.0.2.3", "s4": "192.0.2.66", "s5": "192.0.2.5"} {
				s := listed(t, server, "http://"+at+":9")
				s.Address = netip.MustParseAddrPort(at + ":9")
				spec.Servers = append(spec.Servers, s)
			}
			model := modelOf(t, prober{"192.0.2.66"}, spec)
			quiesce(t, model, tier.Target{Tier: "pool", Server: "gpu/s5"})
			var got []string
			for _, row := range Compose(model, Shown{Servers: c.shown, Live: true}) {
				p := strings.Fields(row.String())
				got = append(got, strings.Join([]string{p[3], p[5], p[6]}, " "))
			}
			assert.Equal(t, c.want, strings.Join(got, ", "))
		})
	}
}

// A slot is what DNS has made of it, to the byte.
func TestARowOfASlotThatAnSRVRecordFills(t *testing.T) {
	s := listed(t, "s1", "http://192.0.2.1:8002")
	s.Address = netip.MustParseAddrPort("192.0.2.1:8002")
	model := modelOf(t, nil, tier.Spec{Name: "pool", Members: &tier.Members{Backend: "gpu"}, Servers: []tier.ServerSpec{s}})
	shown := with(is("s1", opened), func(s *runtimeapi.ServerState) {
		s.Address, s.Port, s.FQDN, s.SRV = "192.0.2.1", 8002, "w1.test", "_http._tcp.gpu.test"
	})
	assert.Equal(t, "0 gpu 0 s1 192.0.2.1 2 4 1 1 0 6 1 0 6 0 0 0 w1.test 8002 _http._tcp.gpu.test", compose(model, true, false, shown))
}
