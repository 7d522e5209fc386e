package admission

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
)

// errSuperseded is the cause with which a quiesce ends a running readmit.
var errSuperseded = errors.New("a quiesce came in between")

// errStopping is the cause with which the end of tier-agent ends what runs.
var errStopping = errors.New("tier-agent is ending")

// lane orders the transitions of one tier.
type lane struct {
	mu       sync.Mutex // protects the next three, and what says so in a transition
	running  []*transition
	quiesces int // that have entered
	waiting  int // transitions that wait to enter

	shutting sync.Mutex // held while a quiesce counts who is left and closes its gate
}

type transition struct {
	verb   Verb
	cancel context.CancelCauseFunc
	done   chan struct{}
	nth    int  // of the quiesces
	opens  bool // a quiesce ends it, and waits for it; lane.mu protects it
}

// enter takes the lane for verb, or says which verb has it. A quiesce is never
// refused, nor kept waiting by what it contradicts: a readmit is ended, and
// closes what it opened first; drains and other quiesces only close, too, and
// what they find is noted before they act on it, so that it runs beside them.
// Reconciling only closes as well; the others wait for it, it is over soon, and
// it never waits for them.
func (l *lane) enter(ctx context.Context, verb Verb) (context.Context, *transition, error) {
	for waited := 0; ; waited = 1 {
		l.mu.Lock()
		l.waiting -= waited
		other := l.against(verb)
		if other == nil {
			ctx, cancel := context.WithCancelCause(ctx)
			mine := &transition{verb: verb, cancel: cancel, done: make(chan struct{}), opens: verb == VerbReadmit}
			if verb == VerbQuiesce {
				l.quiesces++
				mine.nth = l.quiesces
			}
			l.running = append(l.running, mine)
			l.mu.Unlock()
			return ctx, mine, nil
		}
		if verb != VerbQuiesce && other.verb != VerbReconcile {
			l.mu.Unlock()
			return nil, nil, fmt.Errorf("a %s of this tier is running", other.verb)
		}
		l.waiting++
		l.mu.Unlock()
		if verb == VerbQuiesce {
			other.cancel(errSuperseded)
		}
		select {
		case <-other.done:
		case <-ctx.Done():
			l.mu.Lock()
			l.waiting--
			l.mu.Unlock()
			return nil, nil, context.Cause(ctx)
		}
	}
}

// against finds what must have ended before verb may run: of a quiesce what opens
// only, of the others anything, and first what is not only waited for. mu must be
// held.
func (l *lane) against(verb Verb) *transition {
	var found *transition
	for _, other := range l.running {
		if verb != VerbQuiesce || other.opens {
			if found == nil || found.verb == VerbReconcile {
				found = other
			}
		}
	}
	return found
}

// alone lets a quiesce go over to opening what it has closed, unless somebody
// relies on that: whoever else runs, and every quiesce that came later.
func (l *lane) alone(mine *transition) bool {
	for {
		l.mu.Lock()
		alone := mine.nth == l.quiesces
		var reconciling *transition
		for _, other := range l.running {
			switch {
			case other == mine:
			case other.verb == VerbReconcile:
				reconciling = other
			default:
				alone = false
			}
		}
		mine.opens = alone && reconciling == nil
		l.mu.Unlock()
		if !alone || reconciling == nil {
			return alone
		}
		<-reconciling.done // over soon, and no other comes: mine runs
	}
}

// try takes the lane for reconciling, unless something runs that must not be
// closed behind its back, or waits to run. Instances are reconciled beside each
// other: one that hangs delays no other.
func (l *lane) try() (leave func(), ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.waiting > 0 {
		return nil, false
	}
	for _, other := range l.running {
		if other.verb != VerbDrain && other.verb != VerbReconcile {
			return nil, false
		}
	}
	mine := &transition{verb: VerbReconcile, cancel: func(error) {}, done: make(chan struct{})}
	l.running = append(l.running, mine)
	return func() { l.leave(mine) }, true
}

// stop ends what waits or opens, and returns all that runs.
func (l *lane) stop() []*transition {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, t := range l.running {
		if t.verb != VerbQuiesce {
			t.cancel(errStopping)
		}
	}
	return slices.Clone(l.running)
}

func (l *lane) leave(mine *transition) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.running = slices.DeleteFunc(l.running, func(t *transition) bool { return t == mine })
	mine.cancel(nil)
	close(mine.done)
}
