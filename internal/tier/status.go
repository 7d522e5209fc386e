package tier

import (
	"net/netip"
	"time"
)

// Status is one tier as status, page and metrics show it.
type Status struct {
	Name     string
	Answer   Answer
	Closure  *Closure
	MinReady int
	Needed   int // servers that must be ready now; more than MinReady until the tier is activated
	Serving  int // servers that are admitted now
	Servers  []ServerStatus
	Members  *Members  // nil where the configuration lists the servers
	Override *Override // nil where none is in force
}

// ServerStatus is one server of a Status.
type ServerStatus struct {
	Backend, Name string
	Address       netip.AddrPort // of a member; not valid where the configuration lists it
	Answer        Answer
	// Evidence is the reason that the evidence alone gives, also while the
	// server is quiesced.
	Evidence string
	// Against counts the newest probes in a row that say the opposite of the
	// evidence, and are fewer yet than the tier's Rise or Fall.
	Against int
	// Seen is what the newest probe that counted says, whatever gates, Rise and
	// Fall make of it; Since is when the first one began that said so, with no
	// other between. Both are zero where there is no evidence. An exercise is not
	// among these probes.
	Seen     State
	Since    time.Time
	Metadata map[string]string
	Closure  *Closure // the server's own, not its tier's
	Probing  int      // probes that have not ended, fenced ones included
}

// StatusOf returns one tier, looked up as in Tier.
func (m *Model) StatusOf(name []byte) (Status, bool) {
	for {
		v := m.view.Load()
		t := v.tiers[string(name)]
		if t == nil {
			return Status{}, false
		}
		if st := m.statusOf(t); m.view.Load() == v {
			m.activated(t, st.Answer)
			return st, true
		}
	}
}

// Status returns every tier in the configuration's order, judged now.
func (m *Model) Status() []Status {
	for {
		v := m.view.Load()
		if all := m.status(v); m.view.Load() == v {
			for n, t := range v.order {
				m.activated(t, all[n].Answer)
			}
			return all
		}
	}
}

func (m *Model) status(v *view) []Status {
	all := make([]Status, 0, len(v.order))
	for _, t := range v.order {
		all = append(all, m.statusOf(t))
	}
	return all
}

func (m *Model) statusOf(t *tier) Status {
	st := Status{
		Name: t.spec.Name, Answer: m.tier(t), Closure: t.gate.closed(), MinReady: t.spec.MinReady,
		Members: t.spec.Members, Override: m.Override(t.spec.Name),
	}
	st.Needed = t.neededIf(st.Answer.Overridden)
	for _, s := range t.servers {
		one, v := m.serverIf(s, st.Answer.Overridden)
		if one.Admit {
			st.Serving++
		}
		ss := ServerStatus{
			Backend: s.spec.Backend, Name: s.spec.Name, Address: s.spec.Address, Answer: one,
			Evidence: v.Reason, Against: v.Against, Metadata: v.Metadata,
			Closure: s.gate.closed(), Probing: m.fence.Outstanding(s.name),
		}
		if seen := s.sight.Load(); seen != nil && v.HasEvidence() {
			ss.Seen, ss.Since = seen.state, seen.since
		}
		st.Servers = append(st.Servers, ss)
	}
	return st
}
