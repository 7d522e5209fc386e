package admission

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"time"

	"tier-agent/internal/crash"
	"tier-agent/internal/intent"
	"tier-agent/internal/observe"
	"tier-agent/internal/runtimeapi"
	"tier-agent/internal/tier"
)

// reasons is what an operator may give as a reason: it reaches logs, labels
// and HAProxy's pages, where quotes and blanks do harm.
var reasons = regexp.MustCompile(`^[A-Za-z0-9_.-]{1,128}$`)

// ValidReason reports whether a quiesce may be given this reason: 1 to 128 of the
// characters A-Z a-z 0-9 _ . -
func ValidReason(reason string) bool { return reasons.MatchString(reason) }

// QuiesceRequest asks to close a target.
type QuiesceRequest struct {
	Target tier.Target
	Reason string // 1 to 128 of [A-Za-z0-9_.-]
	Who    string
	// Rollback undoes the quiesce where not every HAProxy confirms it.
	Rollback bool
	// Without names instances that are known to be gone.
	Without []string
	// Force closes a server although too few others of its tier serve.
	Force bool
	// AcceptQueueRelease closes a server although HAProxy may release its queue
	// onto it at once.
	AcceptQueueRelease bool
	// Progress is told now and then for what the quiesce waits; may be nil.
	Progress func(Progress)
}

// Quiesce closes the target: here first, so that every face refuses at once,
// then on disk, then the evidence, then every HAProxy. HAProxy's checks hear of it
// once no queue is let loose by that; where one stays, the target is open again.
// A target that is quiesced already keeps its first reason, and is closed again
// wherever it is not. Incomplete means closed here, and not confirmed by every
// HAProxy or not written down.
//
// Once begun it does not end with ctx: half a quiesce helps nobody.
func (c *Controller) Quiesce(ctx context.Context, q QuiesceRequest) Result {
	return c.do(context.WithoutCancel(ctx), VerbQuiesce, q.Target, q.Progress, q.check, func(ctx context.Context, r *run) Result {
		r.By = q.Who
		mine := tier.Closure{Reason: q.Reason, Who: q.Who, Since: time.Now().UTC().Truncate(time.Second)}
		r.lookFirst(ctx)
		pause, refused := r.shut(mine, q.Force)
		if refused != nil {
			return *refused
		}
		defer pause.Release() // nothing, once it is settled
		if !q.AcceptQueueRelease {
			if refused := r.queues(ctx, pause); refused != nil {
				return *refused
			}
		}
		closure, first, err := pause.Settle()
		if err != nil {
			return r.refuse(CodeUnknown, "%v", err)
		}
		crash.Point("quiesce-closed")
		c.intents.begin(q.Target, c.member(q.Target), closure, func(rec *intent.Record) {
			rec.Without, rec.Forced = slices.Clone(q.Without), rec.Forced || q.Force
			rec.Addresses = addressesOf(r.servers)
			c.noteMasters(rec)
		})
		crash.Point("quiesce-written")
		if _, err := c.o.Model.Invalidate(q.Target); err != nil {
			return r.refuse(CodeUnknown, "%v", err)
		}
		err = r.close(ctx)
		crash.Point("quiesce-drained")
		if err != nil && q.Rollback && first {
			return r.rollBack(ctx, closure, err)
		}
		lost := r.written(err == nil)
		crash.Point("quiesce-confirmed")
		files := r.kept(ctx)
		switch {
		case lost != nil:
			return r.end(Incomplete, CodeNotDurable, "%s is closed here, but that is not written down, and a restart of tier-agent would forget it: %v", q.Target, also(lost, err))
		case errors.Is(err, runtimeapi.ErrNoSuchServer):
			return r.end(Incomplete, CodeHAProxy, "%s is closed here, and in HAProxy as far as it has its servers: %v%s%s", q.Target, err, lacking(err), files)
		case err != nil:
			return r.end(Incomplete, CodeHAProxy, "%s is closed here; HAProxy did not confirm, is tried again, and may send requests until its next check: %v%s", q.Target, err, files)
		}
		c.explained(q.Target)
		switch {
		case !first:
			return r.end(Done, CodeOK, "%s was quiesced already, by %s for %q%s%s", q.Target, closure.Who, closure.Reason, files, r.waysIn())
		case r.spec.AgentWords:
			r.lookAround(ctx)
			return r.end(Done, CodeOK, "%s is quiesced; HAProxy hears of it at its next agent-check, which nothing here can confirm%s", q.Target, r.waysIn())
		}
		return r.end(Done, CodeOK, "%s is quiesced and drained in HAProxy%s%s%s%s", q.Target, r.absent(), files, r.unlisted(), r.waysIn())
	})
}

// check refuses what a look at the request and at memory refuses. shut counts
// again, when it counts.
func (q QuiesceRequest) check(r *run) *Result {
	if !ValidReason(q.Reason) {
		return keep(r.refuse(CodeInvalid, "reason %.140q: give 1 to 128 of the characters A-Z a-z 0-9 _ . -", q.Reason))
	}
	if refused := r.goWithout(q.Without); refused != nil {
		return refused
	}
	return r.guard(q.Force)
}

// written ends the phase of a quiesce that is confirmed, and says what is not
// on disk.
func (r *run) written(confirmed bool) error {
	if !confirmed {
		return r.intents.rewrite()
	}
	_, err := r.intents.phase(r.Target, intent.Quiesced)
	return err
}

// shut closes the gate to requests, unless that would leave a server's tier with
// too few that serve. The two are one step: of two operators who each take one of
// the last two servers, one is refused.
func (r *run) shut(mine tier.Closure, force bool) (*tier.Pause, *Result) {
	guard := r.lane(r.Target.Tier)
	guard.shutting.Lock()
	defer guard.shutting.Unlock()
	if refused := r.guard(force); refused != nil {
		return nil, refused
	}
	pause, err := r.o.Model.Pause(r.Target, mine)
	if err != nil {
		return nil, keep(r.refuse(CodeUnknown, "%v", err))
	}
	return pause, nil
}

func (r *run) guard(force bool) *Result {
	where, left := r.tooFew()
	if where == "" || force {
		return nil
	}
	return keep(r.refuse(CodeMinReady, "%s stays open: without it %s of its tier would serve %s, and min_ready is %d; quiesce the tier, or say --force", r.Target, plural(left, "server", "servers"), where, r.spec.MinReady))
}

// tooFew says where fewer than MinReady servers would serve without the target,
// a server that serves there now, and how many. A tier's own quiesce is meant
// to empty it.
func (r *run) tooFew() (where string, left int) {
	a, _ := r.o.Model.Server([]byte(r.Target.Server))
	if r.Target.Server == "" || !a.Admit {
		return "", 0
	}
	all, err := r.o.Model.Servers(tier.Target{Tier: r.Target.Tier})
	if err != nil {
		return "", 0
	}
	lane := r.lane(r.Target.Tier)
	views := []observe.View{{}} // without a Runtime API: what the model knows
	// Otherwise what each HAProxy sends to, also by its checks and what they inherit.
	if r.o.Watcher != nil && len(r.set.Instances()) > 0 {
		views = r.o.Watcher.Views()
	}
	for _, o := range views {
		takes := func(s string) bool { return o.Servers == nil || o.Servers[s].Takes() }
		// An answer about another server would take such a one down, too.
		alone := func(s string) bool { return !r.o.Polls.Follows(o, s, r.spec.Name, time.Now()) }
		if !takes(r.Target.Server) || slices.Contains(r.Without, o.Instance) {
			continue // it does not serve there, or nothing does
		}
		left = 0
		for _, s := range all {
			other, _ := r.o.Model.Server([]byte(s.FullName()))
			if s.FullName() != r.Target.Server && other.Admit && takes(s.FullName()) && alone(s.FullName()) && !lane.opening(s.FullName(), r.Target) {
				left++
			}
		}
		if left < r.spec.MinReady {
			if o.Instance == "" {
				return "at all", left
			}
			return "on haproxy " + o.Instance, left
		}
	}
	return "", 0
}

// lookWithin bounds the look that the guard begins with: a HAProxy that hangs keeps no
// server open for longer.
const lookWithin = time.Second

// lookFirst has the guard of a server count what HAProxy does now, and not a look ago.
func (r *run) lookFirst(ctx context.Context) {
	if r.Target.Server != "" && len(r.set.Instances()) > 0 {
		r.lookAround(ctx)
	}
}

func (r *run) lookAround(ctx context.Context) {
	if r.o.Watcher == nil {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, lookWithin)
	defer cancel()
	r.o.Watcher.Look(ctx)
	r.judge()
}

// rollBack puts every server back to what was found and opens the gate again.
// What another intent wants closed stays closed.
func (r *run) rollBack(ctx context.Context, closure tier.Closure, why error) Result {
	if !r.lane(r.Target.Tier).alone(r.mine) {
		return r.end(Incomplete, CodeHAProxy, "%s stays closed, and is not rolled back: another command of its tier has come to rely on that; HAProxy did not confirm, and is tried again: %v", r.Target, why)
	}
	serial, err := r.intents.phase(r.Target, intent.RollingBack)
	if err != nil {
		return r.end(Incomplete, CodeNotDurable, "%s stays closed: %v; it was to be rolled back because of: %v", r.Target, err, why)
	}
	r.servers = r.readmitted()
	if above, _ := r.o.Model.Closed(tier.Target{Tier: r.Target.Tier}); above != nil && r.Target.Server != "" {
		r.servers = nil
	}
	found := r.intents.found(r.Target)
	_, failed := r.everywhere(context.WithoutCancel(ctx), func(at seen) (runtimeapi.State, error) {
		if before, ours := found[at.place]; !ours || before&forced != 0 || at.admin&forced != runtimeapi.ForcedDrain {
			return 0, nil
		}
		return runtimeapi.StateReady, nil
	})
	gen, err := r.o.Model.Generation(r.Target)
	switch {
	case ctx.Err() != nil:
		return *r.back(ctx, closure, CodeSuperseded, context.Cause(ctx))
	case err == nil:
		err = r.o.Model.Open(r.Target, gen)
	}
	if err != nil {
		return *r.back(ctx, closure, CodeMoved, err)
	}
	if refused := r.ended(ctx, closure, serial); refused != nil {
		return *refused
	}
	note := ""
	if failed != nil {
		note = fmt.Sprintf(" (not to be reached, and left as it is: %v)", failed)
	}
	if errors.Is(why, runtimeapi.ErrUncertain) {
		note += "; a drain that was sent may yet be applied, and is a hold then"
	}
	return r.refuse(CodeRolledBack, "%s is open again, as it was found%s%s; the quiesce failed: %v", r.Target, note, r.kept(ctx), why)
}

// Invalidate advances the target's generation; a target without a tier is
// everything. It needs no lane: it can only take evidence away.
func (c *Controller) Invalidate(target tier.Target) Result {
	r := newRun(c, VerbInvalidate, target, nil)
	gen, err := c.o.Model.Invalidate(target)
	if err != nil {
		return r.refuse(CodeUnknown, "%v", err)
	}
	r.Generation = gen.String()
	what := "everything"
	if target.Tier != "" {
		what = target.String()
	}
	result := r.end(Done, CodeOK, "%s is invalidated: evidence and probes from before no longer count", what)
	c.report(result)
	return result
}
