package fence

import (
	"slices"
	"sync"
	"time"
)

// core is what a server has in common with what stands beside it, which is
// nothing in most cases. One lock over all of it makes an invalidation one step for
// every reader.
type core struct {
	// mu protects the rest, and the servers' own. It is held for comparing and
	// writing only, never while a probe runs, and no other lock is taken under it.
	mu      sync.Mutex
	epoch   uint64
	life    life
	members []*server     // the server, and those beside it
	out     int           // tickets that have not ended
	idle    chan struct{} // closed when out falls to 0; nil while nobody waits
}

// Together gives the verdicts on a server and on what stands beside it, of one
// moment and one generation. Asked for one after the other, both could be ready
// where they never were at once. A name that is not there, or that does not stand
// beside the server, is ReasonUnknown.
func (f *Fence) Together(name, beside string) (own, other Verdict) {
	t := f.table.Load()
	s, o := t.servers[name], t.servers[beside]
	if s == nil || o == nil || s.core != o.core {
		return s.current(), Verdict{Reason: ReasonUnknown}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	now, gen := s.now(), s.generation()
	return s.judgeAt(now, gen), o.judgeAt(now, gen)
}

// turn voids what stands beside a server whose own evidence has turned: the
// evidence, and by their issue numbers the probes that are out. mu must be held.
func (s *server) turn() {
	for _, one := range s.members {
		if one != s {
			one.drop()
			one.accepted = s.counter.Add(1)
		}
	}
}

// whole reports whether the server and all beside it are ready. mu must be held.
func (s *server) whole(now time.Time) bool {
	gen := s.generation()
	for _, one := range s.members {
		e := one.standing(now)
		if e.issue == 0 || e.gen != gen || !e.obs.Ready || !one.fresh(e, now) {
			return false
		}
	}
	return true
}

// besideLast puts the members that stand beside others after those.
func besideLast(members []Member) []Member {
	sorted := slices.Clone(members)
	slices.SortStableFunc(sorted, func(a, b Member) int { return rank(a) - rank(b) })
	return sorted
}

func rank(m Member) int {
	if m.Beside == "" {
		return 0
	}
	return 1
}
