package spoe

import (
	"bytes"

	"github.com/negasus/haproxy-spoe-go/message"
)

// The message and its arguments, as HAProxy's configuration names them.
const (
	messageName    = "tier-readiness"
	tierArgument   = "tier"
	serverArgument = "server"
)

// The reasons of this package's own.
const (
	ReasonUnknownTier    = "unknown_tier"
	ReasonNoMessage      = "no_message"
	ReasonUnknownMessage = "unknown_message"
	ReasonBadArgument    = "bad_argument"
	ReasonInternal       = "internal_error"
)

const (
	// maxName is that of "backend/server", each of 64 bytes.
	maxName = 64 + 1 + 64

	// maxAsked is how many questions a connection remembers: HAProxy asks about few
	// tiers, and in the same bytes each time.
	maxAsked = 4

	// maxKept is the longest payload that is remembered; ours has less than 200 bytes.
	maxKept = 256
)

// question is what a payload asks, and the answer of one batch. It lies where it
// is: its names point into itself.
type question struct {
	payload      []byte // a copy
	flaw         string // the reason for one that cannot be asked; empty for others
	tier, server []byte // server is empty where the question is about the tier
	tierAt       [maxName]byte
	serverAt     [maxName]byte

	fresh   bool // what follows is of this batch
	actions []byte
	kind    Kind
}

// answer appends the ACK of a NOTIFY, and reports false for one whose payload is
// malformed. The same question again in one batch gets the same answer: all of the
// batch was there before the first was answered.
func (c *conn) answer(f frame) bool {
	q := c.find(f.payload)
	if q == nil {
		if !wellFormed(f.payload) {
			return false
		}
		q = c.learn(f.payload)
	}
	if !q.fresh {
		var v Verdict
		v, q.kind = c.verdict(q)
		q.actions, q.fresh = c.encoder.appendActions(q.actions[:0], v), true
	}
	c.counts[q.kind]++
	c.out = appendACK(c.out, f, q.actions)
	return true
}

// forget ends what is the answer of one batch.
func (c *conn) forget() {
	for i := range c.asked {
		c.asked[i].fresh = false
	}
}

// find returns the question that has been asked in the same bytes before.
func (c *conn) find(payload []byte) *question {
	for i := range c.asked[:min(c.learned, maxAsked)] {
		if bytes.Equal(c.asked[i].payload, payload) {
			return &c.asked[i]
		}
	}
	return nil
}

// learn reads a payload that is well formed.
func (c *conn) learn(payload []byte) *question {
	q := &c.once
	if len(payload) <= maxKept {
		q = &c.asked[c.learned%maxAsked]
		c.learned++
		q.payload = append(q.payload[:0], payload...)
	}
	q.fresh = false
	q.flaw = c.decode(payload, q)
	return q
}

// decode lets the library read a payload into q. A panic of its own makes that a
// question that cannot be asked.
func (c *conn) decode(payload []byte, q *question) (flaw string) {
	defer func() {
		c.all.Reset()
		if p := recover(); p != nil {
			c.srv.panicked(p)
			flaw = ReasonInternal
		}
	}()
	if err := c.all.Decode(payload); err != nil { // never, for what is well formed
		return ReasonBadArgument
	}
	return q.read(c.all)
}

// read takes the names out of a NOTIFY's messages. A reason says what is wrong
// with them.
func (q *question) read(all message.Messages) (flaw string) {
	q.tier, q.server = nil, nil
	if len(all) == 0 {
		return ReasonNoMessage
	}
	m, err := all.GetByName(messageName)
	if err != nil {
		return ReasonUnknownMessage
	}
	for _, arg := range m.KV.Data() {
		var to *[]byte
		var at []byte
		switch arg.Name {
		case tierArgument:
			to, at = &q.tier, q.tierAt[:0]
		case serverArgument:
			to, at = &q.server, q.serverAt[:0]
		default:
			continue
		}
		if arg.Name == serverArgument && arg.Value == nil {
			continue // NULL: HAProxy's for a variable that is not set
		}
		s, ok := arg.Value.(string)
		switch {
		case !ok || s == "" || *to != nil:
			return ReasonBadArgument
		case len(s) > maxName:
			return ReasonUnknownTier // longer than any name may be
		}
		*to = append(at, s...)
	}
	if q.tier == nil {
		return ReasonBadArgument
	}
	return ""
}

// verdict asks the source. A panic there is that request's answer.
func (c *conn) verdict(q *question) (v Verdict, kind Kind) {
	defer func() {
		if p := recover(); p != nil {
			c.srv.panicked(p)
			v, kind = Verdict{Reason: ReasonInternal}, Panicked
		}
	}()
	switch q.flaw {
	case "":
	case ReasonUnknownTier:
		return Verdict{Reason: q.flaw}, UnknownTier
	case ReasonInternal:
		return Verdict{Reason: q.flaw}, Panicked
	default:
		return Verdict{Reason: q.flaw}, BadMessage
	}
	v, known := c.srv.src.SPOEVerdict(q.tier, q.server)
	switch {
	case !known:
		return Verdict{Reason: ReasonUnknownTier}, UnknownTier
	case !v.Admit:
		return v, Refused
	}
	return v, Admitted
}
