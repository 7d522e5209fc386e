package fence

import (
	"sync/atomic"
	"time"
)

// server is all that the fence remembers of one server. Its size depends on
// nothing but the evidence it holds.
type server struct {
	name, tier, subject, beside string
	now                         func() time.Time
	counter                     *atomic.Uint64 // the fence's: epochs and issue numbers
	global, tierEpoch           *atomic.Uint64 // shared with the fence and the tier
	*core                                      // whose mu protects everything below

	rules    rules
	removed  bool
	evidence evidence
	against  evidence // newest failing observation, where it has not taken a ready down; see standing
	tally    tally
	health   health
	accepted uint64 // issue number of the newest accepted ticket, kept across invalidations
	checking bool   // a probe through Check is out
}

// rules are what a Member says of how its evidence is judged.
type rules struct {
	maxAge, startWindow time.Duration
	rise, fall          int
}

func (m Member) rules() rules {
	return rules{maxAge: m.MaxAge, startWindow: m.StartWindow, rise: max(m.Rise, 1), fall: max(m.Fall, 1)}
}

// evidence is an accepted observation; none where issue is 0.
type evidence struct {
	obs            Observation
	gen            Generation
	issue          uint64
	started, ended time.Time
}

// generation reads the epochs as they are now. mu must be held, for the
// server's own epoch.
func (s *server) generation() Generation {
	return Generation{Global: s.global.Load(), Tier: s.tierEpoch.Load(), Server: s.epoch}
}

func (s *server) begin(check bool) *Ticket {
	s.out++
	s.checking = s.checking || check
	return &Ticket{
		srv:     s,
		gen:     s.generation(),
		issue:   s.counter.Add(1),
		started: s.now(),
		check:   check,
	}
}

// complete holds the ticket against the present and counts the observation if
// it still may. mu must be held.
func (s *server) complete(t *Ticket, obs Observation) Verdict {
	refused := Verdict{Generation: t.gen, Issue: t.issue}
	now := s.now()
	switch {
	case !t.end(), s.removed, t.gen != s.generation():
		refused.Reason = ReasonInvalidated
		return refused
	case t.issue < s.accepted:
		refused.Reason = ReasonSuperseded
		return refused
	case s.restarted(t.gen, obs.Instance, now):
		s.countHealth(obs) // in the generation that this has begun
		refused.Reason, refused.Restarted = ReasonInvalidated, true
		return refused
	}
	s.accepted = t.issue
	s.countHealth(obs)
	e := evidence{obs: obs, gen: t.gen, issue: t.issue, started: t.started, ended: now}
	s.count(e, now)
	return s.weigh(&e, now)
}

// judge says what the evidence is worth now. mu must be held: the clock is
// read under it, so that a reader never holds a time from before the probe
// whose evidence it judges.
func (s *server) judge() Verdict { return s.judgeAt(s.now(), s.generation()) }

func (s *server) judgeAt(now time.Time, gen Generation) Verdict {
	if s.evidence.issue == 0 || s.evidence.gen != gen || s.removed {
		return Verdict{Reason: ReasonPending, Generation: gen, Starting: s.starting(now)}
	}
	e := s.standing(now)
	v := s.weigh(e, now)
	v.Starting = s.starting(now)
	if s.tally.ready != e.obs.Ready {
		v.Against = s.tally.n
	}
	return v
}

// weigh is the verdict on e alone.
func (s *server) weigh(e *evidence, now time.Time) Verdict {
	age, ok := Age(e.started, now)
	v := Verdict{
		Ready: e.obs.Ready, Reason: e.obs.Reason, Generation: e.gen, Issue: e.issue,
		Started: e.started, Ended: e.ended, Age: age, Address: e.obs.Address,
	}
	if !ok || age > s.rules.maxAge {
		v.Ready, v.Reason = false, ReasonStale
	}
	if v.Ready {
		v.Metadata = e.obs.Metadata
	}
	return v
}

// invalidate advances the server's epoch and drops the evidence with it, also
// that of what stands beside it.
func (s *server) invalidate() Generation {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.advance()
	return s.generation()
}

// advance begins a generation of the server and of what stands beside it. mu must
// be held.
func (s *server) advance() {
	s.epoch = s.counter.Add(1)
	for _, one := range s.members {
		one.drop()
	}
}

// dropOutdated frees what an advance of the tier's or the global epoch has
// already voided: the comparison in judge is what fences, this is memory only.
func (s *server) dropOutdated() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.evidence.gen != s.generation() {
		s.drop()
	}
}

// remove voids every ticket that is still out.
func (s *server) remove() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.removed = true
	s.drop()
}

func (s *server) drop() { s.evidence, s.against = evidence{}, evidence{} }

// Age gives the time from start to now by the clock that says more, and false where
// either says that now came before start; see worse.
func Age(start, now time.Time) (time.Duration, bool) {
	return worse(now.Sub(start), now.Round(0).Sub(start.Round(0))) // Round(0) strips the monotonic reading
}

// worse gives the longer of two ages, and false where either is negative. The
// monotonic clock stands still while a machine is suspended, and the wall
// clock can be set back; each covers for the other, and both fail towards "too
// old".
func worse(mono, wall time.Duration) (time.Duration, bool) {
	return max(mono, wall), mono >= 0 && wall >= 0
}
