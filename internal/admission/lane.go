package admission

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"tier-agent/internal/tier"
)

// errSuperseded is the cause with which a quiesce ends a running readmit.
var errSuperseded = errors.New("a quiesce came in between")

// errStopping is the cause with which the end of tier-agent ends what runs.
var errStopping = errors.New("tier-agent is ending")

// lane orders the transitions of one tier. Those whose targets share no server run side
// by side; the tier itself shares all of them.
type lane struct {
	mu      sync.Mutex // protects the next two, and what says so in a transition
	running []*transition
	waiting int // transitions that wait to enter

	shutting sync.Mutex // held while a quiesce counts who is left and closes its gate
}

type transition struct {
	verb   Verb
	target tier.Target
	cancel context.CancelCauseFunc
	done   chan struct{}
	opens  bool // a quiesce ends it, and waits for it; lane.mu protects it
	relied bool // a later quiesce relies on what this one has closed; lane.mu protects it
}

func newTransition(verb Verb, target tier.Target, cancel context.CancelCauseFunc) *transition {
	return &transition{verb: verb, target: target, cancel: cancel, done: make(chan struct{}), opens: verb == VerbReadmit}
}

// overlaps reports whether two targets of one tier share a server.
func overlaps(a, b tier.Target) bool {
	return a.Server == "" || b.Server == "" || a.Server == b.Server
}

// overlapping are the transitions that share a server with the target. mu must be held.
func (l *lane) overlapping(target tier.Target) (all []*transition) {
	for _, other := range l.running {
		if overlaps(other.target, target) {
			all = append(all, other)
		}
	}
	return all
}

// enter takes the target's servers for verb, or says which verb has one of them. A
// quiesce is never refused, nor kept waiting by what it contradicts: a readmit is ended,
// and closes what it opened first; drains and other quiesces only close, too, and what
// they find is noted before they act on it, so that it runs beside them. Reconciling
// only closes as well; the others wait for it, it is over soon, and it never waits for
// them.
func (l *lane) enter(ctx context.Context, verb Verb, target tier.Target) (context.Context, *transition, error) {
	for waited := 0; ; waited = 1 {
		l.mu.Lock()
		l.waiting -= waited
		against := l.against(verb, target)
		if len(against) == 0 {
			ctx, cancel := context.WithCancelCause(ctx)
			mine := newTransition(verb, target, cancel)
			if verb == VerbQuiesce {
				for _, other := range l.overlapping(target) {
					other.relied = true
				}
			}
			l.running = append(l.running, mine)
			l.mu.Unlock()
			return ctx, mine, nil
		}
		for _, other := range against {
			if verb != VerbQuiesce && other.verb != VerbReconcile {
				l.mu.Unlock()
				return nil, nil, fmt.Errorf("a %s of %s is running", other.verb, other.target)
			}
		}
		l.waiting++
		l.mu.Unlock()
		if verb == VerbQuiesce {
			for _, other := range against {
				other.cancel(errSuperseded)
			}
		}
		select {
		case <-against[0].done:
		case <-ctx.Done():
			l.mu.Lock()
			l.waiting--
			l.mu.Unlock()
			return nil, nil, context.Cause(ctx)
		}
	}
}

// against are those that must have ended before verb may run: of a quiesce what opens
// only, of the others anything. mu must be held.
func (l *lane) against(verb Verb, target tier.Target) []*transition {
	return slices.DeleteFunc(l.overlapping(target), func(other *transition) bool {
		return verb == VerbQuiesce && !other.opens
	})
}

// opening reports whether a transition beside the target's is opening the server, and may
// yet close it again: nobody counts on it until then.
func (l *lane) opening(server string, beside tier.Target) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.ContainsFunc(l.overlapping(tier.Target{Server: server}), func(other *transition) bool {
		return other.opens && !overlaps(other.target, beside)
	})
}

// alone lets a quiesce go over to opening what it has closed, unless somebody
// relies on that: another transition that runs, or a quiesce that came later.
func (l *lane) alone(mine *transition) bool {
	for {
		l.mu.Lock()
		alone := !mine.relied
		var reconciling *transition
		for _, other := range l.overlapping(mine.target) {
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

// try takes the target's servers for reconciling, unless something runs that must not be
// closed behind its back, or waits to run. Instances are reconciled beside each
// other: one that hangs delays no other.
func (l *lane) try(target tier.Target) (leave func(), ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.waiting > 0 {
		return nil, false
	}
	for _, other := range l.overlapping(target) {
		if other.verb != VerbDrain && other.verb != VerbReconcile {
			return nil, false
		}
	}
	mine := newTransition(VerbReconcile, target, func(error) {})
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
