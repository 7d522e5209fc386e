package admission

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"tier-agent/internal/crash"
	"tier-agent/internal/members"
	"tier-agent/internal/observe"
	"tier-agent/internal/runtimeapi"
	"tier-agent/internal/tier"
)

// release ends a quiesce and leaves the target to its evidence: of a server that is not
// ready now, and is not to be, such as a replica. Evidence from before is void, and
// HAProxy has to have heard from its agent-check that each server is down before our
// drain is taken off. So nothing is open before there is evidence that was issued after.
func (r *run) release(ctx context.Context, q ReadmitRequest, closure tier.Closure) Result {
	gen, err := r.o.Model.Invalidate(q.Target)
	if err != nil {
		return r.refuse(CodeUnknown, "%v", err)
	}
	crash.Point("readmit-invalidated")
	if refused := r.heardDown(ctx); refused != nil {
		return *refused
	}
	if err := r.asNewcomers(q.TakeHold); err != nil {
		return r.refuse(CodeNotDurable, "%s stays quiesced: %v", q.Target, err)
	}
	found := r.intents.found(q.Target)
	serial, refused := r.beginOpening()
	if refused != nil {
		return *refused
	}
	if failed := r.letGo(ctx, q, closure, func() error { return r.o.Model.Open(q.Target, gen) }); failed != nil {
		return *failed
	}
	if failed := r.ended(ctx, closure, serial); failed != nil {
		return *failed
	}
	opened := r.HAProxy
	note := r.absent() + r.leftHeld() + r.kept(ctx)
	r.leave(found, opened)
	return r.end(Done, CodeOK, "%s is quiesced no more, and left to its evidence: HAProxy sends to each of its %s once that is ready, and not before%s", q.Target, plural(len(r.servers), "server", "servers"), note)
}

// letGo takes our drain off everywhere, and then opens here.
func (r *run) letGo(ctx context.Context, q ReadmitRequest, closure tier.Closure, open func() error) *Result {
	opening := r.opening(q.TakeHold, nil)
	results, err := r.everywhere(context.WithoutCancel(ctx), func(at seen) (runtimeapi.State, error) {
		want, err := opening(at)
		if want == runtimeapi.StateReady && r.slotted(at.admin) {
			want = runtimeapi.StateMaint // as it has started: it is opened on evidence
		}
		return want, err
	})
	r.maint = inMaint(results)
	switch {
	case ctx.Err() != nil:
		return r.back(ctx, closure, endCode(ctx, CodeSuperseded), also(err, context.Cause(ctx)))
	case errors.Is(err, errHeld):
		return r.back(ctx, closure, CodeHeld, err)
	case err != nil:
		return r.back(ctx, closure, CodeHAProxy, err)
	}
	if err := open(); err != nil {
		return r.back(ctx, closure, CodeMoved, err)
	}
	return nil
}

// slotted reports whether a server is a member's slot that starts disabled: such a one is
// opened by tier-agent alone, on evidence.
func (r *run) slotted(admin runtimeapi.AdminState) bool {
	return r.spec.Members != nil && admin&runtimeapi.ConfigMaint != 0
}

// asNewcomers makes members that have been open ones that have not: otherwise their
// maintenance, in the same process, would be somebody's hold.
func (r *run) asNewcomers(take bool) error {
	if r.spec.Members == nil || r.o.Openings == nil {
		return nil
	}
	var changed []members.Opening
	for _, at := range r.places() {
		known := r.openedAt(at)
		if _, held := r.held[at]; !held && (known.PID != 0 || take && known.Held) {
			known.PID, known.Started, known.Held = 0, 0, false
			changed = append(changed, known)
		}
	}
	return r.o.Openings.Keep(changed, nil)
}

// heardDown waits until every HAProxy has heard, by its agent-check, that each server is
// down, and refuses where one does not ask: nothing would keep the server closed there.
func (r *run) heardDown(ctx context.Context) *Result {
	deadline := time.Now().Add(r.o.Confirm)
	for down := 0; ; {
		unasked, missing := r.notDown(ctx)
		switch {
		case ctx.Err() != nil:
			return keep(r.stopped(ctx, r.Target.String()+" stays quiesced"))
		case unasked != "":
			return keep(r.refuse(CodeUnguarded, "%s stays quiesced: %s, so nothing would keep it closed until its evidence is ready; give it an agent-check, or readmit it when it is ready", r.Target, unasked))
		case missing != "":
			down = 0
		default:
			if down++; down == confirmations {
				return nil
			}
			missing = "it has shown that once only"
		}
		if time.Now().After(deadline) {
			return keep(r.refuse(CodeNotConfirmed, "%s stays quiesced: after %v %s", r.Target, r.o.Confirm, missing))
		}
		r.waits("HAProxy to hear that every server is down: %s", missing)
		select {
		case <-ctx.Done():
		case <-time.After(r.o.Poll):
		}
	}
}

// notDown names a server that a HAProxy does not ask about, or one that it has not heard
// to be down; empty where there is none.
func (r *run) notDown(ctx context.Context) (unasked, missing string) {
	for _, one := range r.loads(ctx) {
		if one.Err != nil {
			missing = one.Err.Error()
			continue
		}
		for _, s := range r.servers {
			at := fmt.Sprintf("haproxy %s has %s", one.Instance, s.FullName())
			load, ok := one.Value[s.Backend].Find(s.Name)
			if _, held := r.held[place{one.Instance, s.FullName()}]; held || r.spec.Members != nil && load.Status == "MAINT" {
				continue
			}
			a, _ := r.o.Model.Server([]byte(s.FullName()))
			switch {
			case !ok:
				missing = fmt.Sprintf("haproxy %s has no server %s", one.Instance, s.FullName())
			case !asks(load):
				unasked = at + " without an agent-check that is enabled"
			case !r.agentAsked(s):
				missing = at + ", whose agent-check has not asked tier-agent since"
			case load.AgentHealth > 0 && !a.Ready: // with evidence since the invalidation it may be up
				missing = at + " up by its agent-check, and not asked since"
			}
		}
	}
	return unasked, missing
}

// agentAsked reports whether an agent-check has asked about the server, or its tier, since
// the transition began.
func (r *run) agentAsked(s tier.ServerSpec) bool {
	return r.o.Polls == nil || slices.ContainsFunc([]string{s.FullName(), r.spec.Name}, func(name string) bool {
		at, _ := r.o.Polls.Last(observe.AgentCheck, name, time.Now())
		return at.After(r.began)
	})
}

// asks reports whether HAProxy asks an agent-check about a server. Whose that is it does
// not say.
func asks(load runtimeapi.ServerLoad) bool { return load.AgentStatus != "" }
