package fence

import "time"

// life is what is known of the engine behind a server, across invalidations, and
// is one for it and what stands beside it. A new subject is a new server, and
// begins another one.
type life struct {
	instance string    // the last that an observation has named
	appeared time.Time // when the subject did, or the instance
	proven   bool      // has been ready since
}

// restarted reports whether the observation is of another instance than the
// last one that was named in its generation, and if so begins a generation: a
// replacement that nobody announced is fenced like one that was. mu must be held.
//
// The observation itself counts for neither. Its probe began before the
// generation did, and its first steps may have been answered by the instance
// that went: only a probe that begins from here on speaks of the new one alone.
// Nor does that one decide by itself, or an engine that restarts again and again
// would never have to rise.
//
// After an announced one the new instance is the first of its generation, and
// nothing of the server's own is left to fence. What stands beside it may be quicker
// than that first one, and have been answered by the instance that went.
func (s *server) restarted(gen Generation, instance string, now time.Time) bool {
	if instance == "" {
		return false
	}
	t := s.within(gen)
	named := t.named
	t.named = true
	if instance == s.life.instance {
		return false
	}
	if s.life.instance != "" {
		s.life.appeared, s.life.proven = now, false
		s.turn()
	}
	s.life.instance = instance
	if !named {
		return false
	}
	s.advance()
	s.tally = tally{gen: s.generation(), proving: true, named: true}
	return true
}

// starting reports whether the engine has never been ready and may still be
// loading. mu must be held.
func (s *server) starting(now time.Time) bool {
	if s.life.proven || s.rules.startWindow <= 0 {
		return false
	}
	age, ok := Age(s.life.appeared, now)
	return ok && age <= s.rules.startWindow
}
