package tier

import (
	"net/netip"
	"slices"

	"tier-agent/internal/fence"
	"tier-agent/internal/probe"
)

// SetElsewhere says whether some HAProxy sends a server's requests to another
// address than the one that it is configured with (G11). Such a server is not
// ready, whatever its evidence.
func (m *Model) SetElsewhere(name string, elsewhere bool) {
	if s := m.view.Load().servers[name]; s != nil {
		s.elsewhere.Store(elsewhere)
	}
}

// SetSent says where each HAProxy sends the requests of a server that is probed by name.
// Evidence from another address leaves the server not ready (G11): a name may have had
// another one when it was probed.
func (m *Model) SetSent(name string, to []netip.AddrPort) {
	if s := m.view.Load().servers[name]; s != nil {
		s.sent.Store(&to)
	}
}

// Reached is the address that the evidence about a server is from, not valid where there is
// none.
func (m *Model) Reached(name string) netip.AddrPort {
	if s := m.view.Load().servers[name]; s != nil {
		return m.evidence(s).Address
	}
	return netip.AddrPort{}
}

// sentElsewhere reports whether some HAProxy sends the server's requests to another address
// than the one that the evidence is from.
func (s *server) sentElsewhere(v fence.Verdict) bool {
	if s.elsewhere.Load() {
		return true
	}
	sent := s.sent.Load()
	return sent != nil && v.HasEvidence() && slices.ContainsFunc(*sent, func(at netip.AddrPort) bool { return at != v.Address })
}

// target is what is probed. Of a name's addresses it is the one that HAProxy sends to, or
// else the last one: both kinds of probe are to be about one engine.
func (s *server) target() probe.Target {
	t := s.spec.Target
	if sent := s.sent.Load(); sent != nil && len(*sent) > 0 {
		t.Prefer = (*sent)[0]
	} else if reached := s.reached.Load(); reached != nil {
		t.Prefer = *reached
	}
	return t
}
