package tier

import (
	"sync"
	"sync/atomic"

	"tier-agent/internal/fence"
)

// ReasonDiffers is the reason of a server whose evidence is ready, but does not
// have the value of Spec.SameField that its tier agrees on.
const ReasonDiffers = "metadata_differs"

// agreement is the value that the ready servers of a tier agree on. It stays with
// the tier's name, as the gate does.
type agreement struct {
	value atomic.Pointer[string] // nil: they agree on none

	mu sync.Mutex // one look at the servers at a time: an older one must not win
}

// agree looks at the servers anew, after a probe of one. More of them have a value
// than any other, or those that have had it stay: a newcomer with another value
// changes nothing by a tie, and where nobody was there before, a tie refuses all.
//
// Servers that are closed have no say while others are open, or a tier that is
// exchanged server by server would go over to the new value while the old one
// serves. Nothing is settled before each has been probed: whoever answers first is
// not right for that.
func (m *Model) agree(t *tier) {
	if t.spec.SameField == "" {
		return
	}
	a := t.agreed
	a.mu.Lock()
	defer a.mu.Unlock()
	counts, settled := m.count(t, true)
	if len(counts) == 0 {
		counts, settled = m.count(t, false)
	}
	if len(counts) == 0 || !settled {
		return
	}
	most, tie := 0, false
	var best string
	for value, n := range counts {
		switch {
		case n > most:
			best, most, tie = value, n, false
		case n == most:
			tie = true
		}
	}
	stands := a.value.Load()
	switch {
	case !tie:
		a.value.Store(&best)
	case stands == nil || counts[*stands] < most:
		a.value.Store(nil)
	}
}

// count says how many ready servers have each value, of the open ones or of all.
// settled is false where one of them has not been probed.
func (m *Model) count(t *tier, open bool) (counts map[string]int, settled bool) {
	counts, settled = map[string]int{}, true
	for _, s := range t.servers {
		if open && (t.gate.closed() != nil || s.gate.closed() != nil) {
			continue
		}
		v := m.evidence(s)
		settled = settled && v.HasEvidence()
		if v.Ready && !s.sentElsewhere(v) {
			counts[v.Metadata[t.spec.SameField]]++
		}
	}
	return counts, settled
}

// differs reports whether ready evidence has another value than the tier.
func (s *server) differs(v fence.Verdict) bool {
	field := s.tier.spec.SameField
	if field == "" || !v.Ready {
		return false
	}
	agreed := s.tier.agreed.value.Load()
	return agreed == nil || *agreed != v.Metadata[field]
}
