package fence

// health is what the health checks alone of the accepted probes say. No verdict rests on
// it.
type health struct {
	gen    Generation
	up     bool
	failed int    // checks in a row that had no answer; fewer than Member.Fall leave up
	reason string // of the newest check that failed
}

// countHealth takes the health of an accepted observation into what stands in the
// generation that is current. mu must be held.
//
// An observation that has shown a restart counts here too: which instance it was is not
// asked, and an engine that names another one in each answer is never anything else.
func (s *server) countHealth(obs Observation) {
	h := &s.health
	if gen := s.generation(); h.gen != gen {
		*h = health{gen: gen}
	}
	if obs.Healthy {
		*h = health{gen: h.gen, up: true}
		return
	}
	h.failed++
	h.up = h.up && !obs.Judged && h.failed < s.rules.fall
	h.reason = obs.Reason
}

// Health says whether the server's health check passes, and otherwise why not: whatever
// its identity, its metadata and what stands beside it say, and however old that is. An
// invalidation voids it, as it does evidence. Rise does not count, Fall does.
func (f *Fence) Health(name string) (up bool, reason string) {
	s := f.table.Load().servers[name]
	if s == nil {
		return false, ReasonUnknown
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.removed || s.health.gen != s.generation() {
		return false, ReasonPending
	}
	return s.health.up, s.health.reason
}
