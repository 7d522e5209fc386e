package tier

import (
	"time"

	"tier-agent/internal/fence"
)

// kind is one of the two kinds of probe that a server may have.
type kind struct {
	member   string // the fence's, which its tickets are taken for
	subject  string
	interval time.Duration
	exercise bool
}

func (s *server) probed() kind {
	return kind{member: s.name, subject: s.spec.Subject, interval: s.tier.spec.Interval}
}

// exercising is the zero kind, of no member, where the server is not exercised.
func (s *server) exercising() kind {
	if s.exercise == "" {
		return kind{}
	}
	return kind{member: s.exercise, subject: s.exercised(), interval: s.tier.spec.Exercise.Interval, exercise: true}
}

// exercised is what evidence of the exercise is about: also the server itself, with
// which it goes.
func (s *server) exercised() string { return s.spec.Subject + "|" + s.tier.spec.Exercise.Subject }

func (s *server) kinds() []kind {
	if s.exercise == "" {
		return []kind{s.probed()}
	}
	return []kind{s.probed(), s.exercising()}
}

// evidence is what all the evidence about a server says: ready where every kind
// does, and otherwise the one that does not, the server's own first.
func (m *Model) evidence(s *server) fence.Verdict {
	if s.exercise == "" {
		return m.fence.Current(s.name)
	}
	own, other := m.fence.Together(s.name, s.exercise)
	switch {
	case !own.Ready:
		return own
	case other.Ready && other.Address != own.Address:
		// The two are of two engines: neither says anything of the other.
		own.Ready, own.Reason, own.Metadata = false, ReasonElsewhere, nil
		return own
	case other.Ready:
		return own
	}
	other.Generation = own.Generation
	return other
}

// probedAlike reports whether a watcher has nothing to do differently.
func (s *server) probedAlike(other *server, exercise bool) bool {
	a, b := s.tier.spec, other.tier.spec
	if a.Name != b.Name || a.Jitter != b.Jitter || s.spec.Subject != other.spec.Subject || s.exercise != other.exercise {
		return false
	}
	if !exercise {
		return a.Interval == b.Interval && a.Instance == b.Instance && s.spec.Manner == other.spec.Manner
	}
	return a.Exercise != nil && b.Exercise != nil && *a.Exercise == *b.Exercise
}

// about reports whether a ticket, which is given by name, is for this server and
// not for one that has taken its place, or whose place it is about to take.
func (s *server) about(t *fence.Ticket, k kind) bool {
	return t.Tier() == s.tier.spec.Name && t.Subject() == k.subject
}

// lacks reports whether the member, of a server, has no evidence that counts, and a probe
// would bring some.
func (m *Monitor) lacks(s *server, member string) bool {
	v := m.model.fence.Current(member)
	return v.Reason == fence.ReasonPending || v.Reason == fence.ReasonStale ||
		member == s.exercise && v.Ready && v.Address != m.model.fence.Current(s.name).Address
}

// hasten makes a watcher probe before its time, if it finds then that it should:
// an invalidation, or an engine that comes back, would otherwise cost a whole
// interval of an exercise. What hastens it is a probe that has passed.
func (ws *watchers) hasten(member string) {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	if w := ws.all[member]; w != nil {
		select {
		case w.early <- struct{}{}:
		default: // asked for already
		}
	}
}
