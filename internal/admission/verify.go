package admission

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"tier-agent/internal/crash"
	"tier-agent/internal/fence"
	"tier-agent/internal/tier"
)

// probesAtOnce bounds the probes of one readmit.
const probesAtOnce = 64

// verify invalidates and takes evidence that was issued after that. It returns
// the generation that the opening will be held against and the ready servers.
func (r *run) verify(ctx context.Context, q ReadmitRequest) (fence.Generation, map[string]bool, *Result) {
	// The monitor would issue probes between ours and supersede them.
	resume := r.o.Monitor.Suspend(fullNames(r.servers))
	defer resume()
	gen, err := r.o.Model.Invalidate(q.Target)
	if err != nil {
		return gen, nil, keep(r.refuse(CodeUnknown, "%v", err))
	}
	crash.Point("readmit-invalidated")
	if name := r.unsettled(ctx, max(r.o.Settle, r.exerciseTimeout(), q.Wait)); name != "" && ctx.Err() == nil {
		return gen, nil, keep(r.refuse(CodePending, "%s stays quiesced: a probe of %s from before is still out; try again when it has ended, or say --wait", q.Target, name))
	}
	ready := r.probe(ctx)
	if ctx.Err() != nil {
		return gen, nil, keep(r.stopped(ctx, q.Target.String()+" stays quiesced"))
	}
	held := r.heldEverywhere()
	for name := range held {
		delete(ready, name) // its evidence opens nothing, and must not stand for another's
	}
	need := len(r.servers) - len(held)
	if q.Partial && q.Target.Server == "" {
		need = min(need, r.spec.MinReady)
	}
	if len(ready) < need || len(ready) == 0 {
		return gen, nil, keep(r.refuse(r.refusalCode(), "%s stays quiesced: %d of %d servers are ready (%s)", q.Target, len(ready), len(r.servers), r.reasons()))
	}
	return gen, ready, nil
}

// unsettled waits until no probe from before is out, but no longer than wait, and
// names a server that still has one.
func (r *run) unsettled(ctx context.Context, wait time.Duration) string {
	ctx, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	for _, s := range r.servers {
		idle := r.o.Monitor.WhenIdle(s.FullName())
		r.waits("a probe of %s from before to end", s.FullName())
		select {
		case <-idle:
		case <-ctx.Done():
			select { // it may be idle all the same: select took either
			case <-idle:
			default:
				return s.FullName()
			}
		}
	}
	return ""
}

func fullNames(servers []tier.ServerSpec) []string {
	names := make([]string, len(servers))
	for n, s := range servers {
		names[n] = s.FullName()
	}
	return names
}

// exerciseTimeout is how long an exercise may be out that is well, 0 where the
// tier has none. A readmit would otherwise be refused whenever one happens to run.
func (r *run) exerciseTimeout() time.Duration {
	if r.spec.Exercise == nil {
		return 0
	}
	return r.spec.Exercise.Timeout
}

// probe takes fresh evidence of every server, of each kind that the tier has, and
// returns the ready ones. The exercises go first, all of them: while the slowest is
// out, other evidence would grow too old.
func (r *run) probe(ctx context.Context) map[string]bool {
	var exercised []fence.Verdict
	if r.spec.Exercise != nil {
		r.waits("an exercise of each server")
		exercised = r.ofEach(func(name string) fence.Verdict { return r.o.Monitor.ExerciseNow(ctx, name) })
	}
	r.waits("a probe of each server")
	ready := map[string]bool{}
	r.Evidence = make([]Evidence, len(r.servers))
	for n, v := range r.ofEach(func(name string) fence.Verdict { return r.o.Monitor.ProbeNow(ctx, name) }) {
		name := r.servers[n].FullName()
		if exercised != nil {
			v = alsoExercised(v, exercised[n])
		}
		r.Evidence[n] = evidenceOf(name, v)
		if v.Ready {
			ready[name] = true
		}
	}
	return ready
}

// ofEach looks at the servers side by side and returns what it saw in their order.
func (r *run) ofEach(look func(name string) fence.Verdict) []fence.Verdict {
	seen := make([]fence.Verdict, len(r.servers))
	var group errgroup.Group
	group.SetLimit(probesAtOnce)
	for n, s := range r.servers {
		group.Go(func() error {
			seen[n] = look(s.FullName())
			return nil
		})
	}
	_ = group.Wait() // no probe returns an error
	return seen
}

// alsoExercised is v, unless the exercise before it has failed, or is of another
// generation: then something was invalidated between the two.
func alsoExercised(v, exercise fence.Verdict) fence.Verdict {
	switch {
	case !v.Ready:
		return v
	case !exercise.Ready:
		return exercise
	case exercise.Generation != v.Generation:
		return fence.Verdict{Reason: fence.ReasonInvalidated, Generation: exercise.Generation}
	}
	return v
}

// refusalCode is the fence's own reason where it is the same for all that are
// not ready, so that a caller sees probe_invalidated as what it is.
func (r *run) refusalCode() string {
	for _, e := range r.Evidence {
		if !e.Ready && e.Reason != fence.ReasonInvalidated && e.Reason != fence.ReasonSuperseded {
			return CodeNotReady
		}
	}
	for _, e := range r.Evidence {
		if !e.Ready {
			return e.Reason
		}
	}
	return CodeNotReady
}

// reasons lists who is not ready and why, the first few by name.
func (r *run) reasons() string {
	var all []string
	for _, e := range r.Evidence {
		if !e.Ready {
			all = append(all, e.Server+": "+e.Reason)
		}
	}
	slices.Sort(all)
	if more := len(all) - 5; more > 0 {
		all = append(all[:5], fmt.Sprintf("and %d more", more))
	}
	return strings.Join(all, ", ")
}
