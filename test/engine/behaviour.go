package engine

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"
)

// ErrBehaviour is wrapped by every refusal of a Behaviour.
var ErrBehaviour = errors.New("bad behaviour")

// Fault is a way to misbehave that an ordinary handler would not.
type Fault string

const (
	Hang           Fault = "hang"            // no answer until the behaviour is replaced
	Drip           Fault = "drip"            // the right answer, one byte each Interval (1s)
	EndlessHeaders Fault = "endless-headers" // header lines for ever, one each Interval (10ms)
	CutBody        Fault = "cut-body"        // Content-Length promises more than comes
	HugeBody       Fault = "huge-body"       // Size bytes (64 MiB) of JSON
	Garbage        Fault = "garbage"         // bytes that are not HTTP
	NoAnswer       Fault = "no-answer"       // the connection is closed without a byte
	Reset          Fault = "reset"           // the connection is reset without a byte

	// Of Chat and Completions alone, in an answer that is right otherwise.
	Blank      Fault = "blank"       // the text is blanks
	GaveUp     Fault = "gave-up"     // finish_reason is "error"
	OtherModel Fault = "other-model" // "model" is another one
)

var faults = []Fault{"", Hang, Drip, EndlessHeaders, CutBody, HugeBody, Garbage, NoAnswer, Reset, Blank, GaveUp, OtherModel}

// worded reports whether a fault is in what an answer says, not in how it is sent.
func (f Fault) worded() bool { return f == Blank || f == GaveUp || f == OtherModel }

const maxSize = 1 << 30 // of a huge body: endless would be a leak in a careless test

// Behaviour is what one endpoint does instead of answering well. The zero value answers
// well. Delay applies before the answer, whatever that is; Fault wins over Status.
type Behaviour struct {
	Delay    time.Duration // until the first byte
	Status   int           // this code (400 to 599) and an error body
	Fault    Fault
	Interval time.Duration // pace of Drip and EndlessHeaders
	Size     int64         // bytes of HugeBody, at most 1 GiB
}

// rule is a behaviour in force.
type rule struct {
	Behaviour
	replaced chan struct{}
}

// hold stops the requests of one endpoint.
type hold struct {
	reached  chan struct{}
	released chan struct{}
}

// maxReached bounds the arrivals that a hold can report; later ones are held all the same.
const maxReached = 1024

func (h *hold) arrived() {
	select {
	case h.reached <- struct{}{}:
	default:
	}
}

// Set makes an endpoint behave so from the next request on, and lets go of those that hang
// there. It returns ErrBehaviour, with the field that is wrong, and then changes nothing.
func (e *Engine) Set(at Endpoint, b Behaviour) error {
	if err := b.check(at); err != nil {
		return err
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.replace(at, &rule{Behaviour: b, replaced: make(chan struct{})})
	return nil
}

// Reset makes every endpoint behave well again. Holds stay; they have a release of their own.
func (e *Engine) Reset() {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, at := range Endpoints {
		e.replace(at, nil)
	}
}

func (b Behaviour) check(at Endpoint) error {
	switch {
	case !slices.Contains(Endpoints, at):
		return fmt.Errorf("%w: endpoint %q is none of %v", ErrBehaviour, at, Endpoints)
	case !slices.Contains(faults, b.Fault):
		return fmt.Errorf("%w: fault %q is none of %q", ErrBehaviour, b.Fault, faults[1:])
	case b.Fault.worded() && at != Chat && at != Completions:
		return fmt.Errorf("%w: fault %q is for %s and %s", ErrBehaviour, b.Fault, Chat, Completions)
	case b.Status != 0 && (b.Status < 400 || b.Status > 599):
		return fmt.Errorf("%w: status %d is not between 400 and 599", ErrBehaviour, b.Status)
	case b.Delay < 0 || b.Interval < 0:
		return fmt.Errorf("%w: delay %v and interval %v must not be negative", ErrBehaviour, b.Delay, b.Interval)
	case b.Size < 0 || b.Size > maxSize:
		return fmt.Errorf("%w: size %d is not between 0 and %d", ErrBehaviour, b.Size, maxSize)
	}
	return nil
}

// replace needs e.mu.
func (e *Engine) replace(at Endpoint, r *rule) {
	if old := e.rules[at]; old != nil {
		close(old.replaced)
	}
	e.rules[at] = r
}

// Hold stops every request of an endpoint from now on. reached gets a value for each that
// has arrived. release lets all of them go on to the answer that was fixed when they
// arrived; it may be called again, and after Close. A later Hold of the same endpoint takes
// the requests that come after it; each release is for its own.
func (e *Engine) Hold(at Endpoint) (release func(), reached <-chan struct{}) {
	h := &hold{reached: make(chan struct{}, maxReached), released: make(chan struct{})}
	e.mu.Lock()
	e.holds[at] = h
	e.mu.Unlock()
	return sync.OnceFunc(func() {
		e.mu.Lock()
		if e.holds[at] == h {
			delete(e.holds, at)
		}
		e.mu.Unlock()
		close(h.released)
	}), h.reached
}

// SetModel makes the engine serve another model, as a swapped or mixed-up deployment does.
func (e *Engine) SetModel(name string) { e.change(func(s *state) { s.model = name }) }

// SetWeightsDigest changes what /info says of the weights.
func (e *Engine) SetWeightsDigest(digest string) {
	e.change(func(s *state) { s.weightsDigest = digest })
}

// SetEarly changes how the engine behaves while it is not loaded.
func (e *Engine) SetEarly(early Early) { e.change(func(s *state) { s.early = early }) }

// SetLoaded ends the loading, or begins one that lasts until SetLoaded(true).
func (e *Engine) SetLoaded(loaded bool) {
	e.change(func(s *state) {
		s.loadedAt = time.Time{}
		if !loaded {
			s.loadedAt = time.Now().AddDate(100, 0, 0)
		}
	})
}

func (e *Engine) change(apply func(*state)) {
	e.mu.Lock()
	defer e.mu.Unlock()
	apply(&e.state)
}

// pass waits at the gates and then for the delay. It reports whether anybody is still there
// to be answered.
func (e *Engine) pass(ctx context.Context, c call, gates []<-chan struct{}) bool {
	for _, gate := range gates {
		select {
		case <-gate:
		case <-e.done:
		case <-ctx.Done():
			return false
		}
	}
	return e.wait(ctx, c.rule.Delay, nil)
}

// Hurry makes the streams that run now send the rest of their tokens at once. So a test
// can have one for as long as it needs it, and then see it end whole.
func (e *Engine) Hurry() {
	e.mu.Lock()
	defer e.mu.Unlock()
	close(e.hurried)
	e.hurried = make(chan struct{})
}

// wait is false when the client has gone; Close and hurried cut it short.
func (e *Engine) wait(ctx context.Context, d time.Duration, hurried <-chan struct{}) bool {
	if d > 0 {
		timer := time.NewTimer(d)
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-hurried:
		case <-e.done:
		case <-ctx.Done():
		}
	}
	return ctx.Err() == nil
}
