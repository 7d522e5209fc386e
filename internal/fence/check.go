package fence

// Check runs probe for the server, unless one started through Check is still
// out: then it returns at once what is current, which is probe_pending where
// an invalidation has voided the evidence (G3). The probe runs on the caller's
// goroutine, without a lock.
func (f *Fence) Check(name string, probe func(*Ticket) Observation) Verdict {
	t, v := f.BeginCheck(name)
	if t == nil {
		return v
	}
	return f.run(t, probe)
}

// ProbeNow runs probe for the server whatever else is out. Of several at once
// the latest issued counts (G2).
func (f *Fence) ProbeNow(name string, probe func(*Ticket) Observation) Verdict {
	t := f.BeginProbe(name)
	if t == nil {
		return Verdict{Reason: ReasonUnknown}
	}
	return f.run(t, probe)
}

// BeginCheck takes the server's one ticket for Check. Where it is taken
// already, or the server is unknown, the ticket is nil and the verdict is the
// answer.
func (f *Fence) BeginCheck(name string) (*Ticket, Verdict) {
	s := f.table.Load().servers[name]
	if s == nil {
		return nil, s.current()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.checking {
		return nil, s.judge()
	}
	return s.begin(true), Verdict{}
}

// BeginProbe takes a ticket for a direct probe; nil where the server is
// unknown.
func (f *Fence) BeginProbe(name string) *Ticket {
	s := f.table.Load().servers[name]
	if s == nil {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.begin(false)
}

// Complete ends the ticket with what its probe saw. The verdict is about that
// probe, whatever Rise and Fall make of it: ready, not ready, or refused
// (probe_invalidated, probe_superseded), in which case nothing has changed
// unless it is Restarted. Nothing is relaunched from here.
func (f *Fence) Complete(t *Ticket, obs Observation) Verdict {
	t.srv.mu.Lock()
	defer t.srv.mu.Unlock()
	return t.srv.complete(t, obs)
}

// Outstanding counts the server's tickets that have not ended, current and
// voided alike, and those of what stands beside it.
func (f *Fence) Outstanding(name string) int {
	s := f.table.Load().servers[name]
	if s == nil {
		return 0
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.out
}

// WhenIdle returns a channel that is closed once no ticket of the server, nor of
// what stands beside it, is out; it is closed already where none is, or where the
// server is unknown.
func (f *Fence) WhenIdle(name string) <-chan struct{} {
	s := f.table.Load().servers[name]
	if s == nil {
		return closed
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.out == 0 {
		return closed
	}
	if s.idle == nil {
		s.idle = make(chan struct{})
	}
	return s.idle
}

var closed = func() chan struct{} { c := make(chan struct{}); close(c); return c }()

// run completes the ticket with what probe saw, and gives it back where the
// probe panics.
func (f *Fence) run(t *Ticket, probe func(*Ticket) Observation) Verdict {
	defer t.Abandon()
	return f.Complete(t, probe(t))
}
