package fence

import "time"

// Ticket is what a probe takes when it begins. It is ended exactly once, by
// [Fence.Complete] or [Ticket.Abandon]; ending it again changes nothing.
type Ticket struct {
	srv     *server
	gen     Generation
	issue   uint64
	started time.Time
	check   bool // holds the server's one place for probes through Check
	ended   bool // protected by srv.mu
}

// Server is the name of the server that the ticket was taken for.
func (t *Ticket) Server() string { return t.srv.name }

// Tier and Subject are those of the member that the ticket was taken for. The
// name of a server may have passed to another member meanwhile: who asks for a
// ticket by name holds these against what it is about to probe.
func (t *Ticket) Tier() string { return t.srv.tier }

// Subject is described with Tier.
func (t *Ticket) Subject() string { return t.srv.subject }

// Generation is the one that was current when the probe began.
func (t *Ticket) Generation() Generation { return t.gen }

// Issue orders the tickets of one fence: a later ticket has a higher number.
func (t *Ticket) Issue() uint64 { return t.issue }

// Abandon ends a ticket without an observation. Evidence stays as it is.
func (t *Ticket) Abandon() {
	t.srv.mu.Lock()
	defer t.srv.mu.Unlock()
	t.end()
}

// end gives back what the ticket holds and reports whether it held it still.
// srv.mu must be held.
func (t *Ticket) end() bool {
	if t.ended {
		return false
	}
	t.ended = true
	if t.check {
		t.srv.checking = false
	}
	t.srv.out--
	if t.srv.out == 0 && t.srv.idle != nil {
		close(t.srv.idle)
		t.srv.idle = nil
	}
	return true
}
