package fence

import "time"

// tally counts the accepted observations of one generation. Where its
// generation is not the current one it counts for nothing.
type tally struct {
	gen     Generation
	ready   bool // what the newest n have said
	n       int  // how many in a row
	proving bool // the first does not decide by itself; see restarted
	named   bool // one of them, or what began the generation, has named an instance
}

// within makes the tally, and with it what stands, one of the generation.
func (s *server) within(gen Generation) *tally {
	if s.tally.gen != gen {
		s.tally = tally{gen: gen}
		s.drop()
	}
	return &s.tally
}

// count takes an accepted observation into what stands. mu must be held.
//
// The first one of a generation decides by itself, so that neither a start of
// this process nor a readmit waits for rise; HAProxy's own first check of a
// server does so too. From then on ready turns to not ready with fall failing
// ones in a row, or one that was judged, and back with rise passing ones.
func (s *server) count(e evidence, now time.Time) {
	t := s.within(e.gen)
	if e.obs.Ready != t.ready {
		t.ready, t.n = e.obs.Ready, 0
	}
	t.n++
	first := s.evidence.issue == 0 && !t.proving
	up := s.standing(now).obs.Ready
	switch {
	case e.obs.Ready && !up && !first && t.n < s.rules.rise:
		e.obs = Observation{Reason: ReasonRising}
	case !e.obs.Ready && !e.obs.Judged && up && t.n < s.rules.fall && s.fresh(&s.evidence, now):
		s.against = e
		return
	}
	turned := s.evidence.issue != 0 && e.obs.Ready != up
	s.evidence, s.against = e, evidence{}
	if turned && s.beside == "" {
		s.turn()
	}
	if s.whole(now) {
		s.life.proven = true
	}
}

// standing is the evidence to judge by. Failing observations that are fewer
// than fall leave a ready as old as its last passing one; once that is too old,
// it has fallen however few they are (G5), and what is told is their reason. mu
// must be held.
func (s *server) standing(now time.Time) *evidence {
	if s.against.issue != 0 && !s.fresh(&s.evidence, now) {
		return &s.against
	}
	return &s.evidence
}

func (s *server) fresh(e *evidence, now time.Time) bool {
	age, ok := Age(e.started, now)
	return ok && age <= s.rules.maxAge
}
