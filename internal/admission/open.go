package admission

import (
	"context"
	"errors"
	"fmt"
	"time"

	"tier-agent/internal/crash"
	"tier-agent/internal/fence"
	"tier-agent/internal/intent"
	"tier-agent/internal/runtimeapi"
	"tier-agent/internal/tier"
)

// open opens HAProxy, then here, then waits for HAProxy to have the servers
// up. The order matters: HAProxy keeps the servers down by the agent's answers
// until the gate opens, so nothing is open in one place only.
func (r *run) open(ctx context.Context, gen fence.Generation, ready map[string]bool, closure tier.Closure, serial uint64, opening change, confirm time.Duration) *Result {
	// Not ended by a quiesce: HAProxy may apply a command that was cut off after
	// the read that found the server closed again.
	crash.Point("readmit-written")
	results, err := r.everywhere(context.WithoutCancel(ctx), opening)
	r.maint = inMaint(results)
	crash.Point("readmit-opened")
	switch {
	case ctx.Err() != nil:
		return r.back(ctx, closure, endCode(ctx, CodeSuperseded), also(err, context.Cause(ctx)))
	case errors.Is(err, errHeld):
		return r.back(ctx, closure, CodeHeld, err)
	case err != nil:
		return r.back(ctx, closure, CodeHAProxy, err)
	}
	if err := r.o.Model.StartRamp(r.Target); err != nil {
		return r.back(ctx, closure, CodeMoved, err)
	}
	if err := r.o.Model.Open(r.Target, gen); err != nil {
		return r.back(ctx, closure, CodeMoved, err)
	}
	r.noteWaiting()
	for _, e := range r.Evidence {
		now, err := r.o.Model.Generation(tier.Target{Tier: r.Target.Tier, Server: e.Server})
		if err != nil || ready[e.Server] && now.String() != e.Generation {
			return r.back(ctx, closure, CodeMoved, fmt.Errorf("%s was invalidated since it was probed", e.Server))
		}
	}
	crash.Point("readmit-gate")
	if err := r.confirm(ctx, ready, confirm, opening); err != nil {
		return r.back(ctx, closure, endCode(ctx, CodeNotConfirmed), err)
	}
	for name := range ready {
		if a, _ := r.o.Model.Server([]byte(name)); !a.Admit {
			return r.back(ctx, closure, CodeNotReady, fmt.Errorf("%s is no longer ready: %s", name, a.Reason))
		}
	}
	crash.Point("readmit-confirmed")
	failed := r.ended(ctx, closure, serial)
	crash.Point("readmit-ended")
	return failed
}

// ended ends the intent of what has been opened, or closes it again: nothing is
// open that the disk says is closed.
func (r *run) ended(ctx context.Context, closure tier.Closure, serial uint64) *Result {
	err := r.intents.drop(r.Target, serial)
	switch {
	case errors.Is(err, intent.ErrMoved):
		return r.back(ctx, closure, CodeMoved, err)
	case err != nil:
		return r.back(ctx, closure, CodeNotDurable, err)
	}
	r.explained(r.Target)
	return nil
}

// inMaint tells where servers were in maintenance before they were opened.
func inMaint(results []runtimeapi.Result[visit]) map[place]bool {
	found := map[place]bool{}
	for _, one := range results {
		for name, state := range one.Value.before {
			if state&runtimeapi.ForcedMaint != 0 {
				found[place{one.Instance, name}] = true
			}
		}
	}
	return found
}

// back closes again what a transition had opened: here first, then everywhere.
// It does so even when the transition was ended.
func (r *run) back(ctx context.Context, closure tier.Closure, code string, why error) *Result {
	if _, err := r.o.Model.Close(r.Target, closure); err != nil {
		why = also(why, err)
	}
	if _, err := r.o.Model.Invalidate(r.Target); err != nil {
		why = also(why, err)
	}
	code = endCode(ctx, code)
	err := r.close(context.WithoutCancel(ctx))
	// Where it cannot be written the record that stands says closed as well, and
	// Reconcile writes it later.
	_ = r.written(err == nil)
	files := r.kept(context.WithoutCancel(ctx))
	if err == nil && errors.Is(why, runtimeapi.ErrUncertain) {
		err = errors.New("an opening that was sent may yet be applied") // what a read shows now does not rule it out
	}
	if err != nil {
		return keep(r.end(Incomplete, code, "%s is closed again here, but not confirmed by every HAProxy (%v); it was: %v%s", r.Target, err, why, files))
	}
	return keep(r.refuse(code, "%s is closed again: %v%s", r.Target, why, files))
}
