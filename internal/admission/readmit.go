package admission

import (
	"context"
	"slices"
	"time"

	"tier-agent/internal/intent"
	"tier-agent/internal/tier"
)

// ReadmitRequest asks to open a quiesced target.
type ReadmitRequest struct {
	Target tier.Target
	Who    string
	// AllowUnidentified accepts health alone of a tier that compares neither
	// identity nor metadata.
	AllowUnidentified bool
	// Partial accepts MinReady ready servers; otherwise every server must be.
	// The others stay out on their own evidence.
	Partial bool
	// TakeHold opens also what somebody else drained or disabled in HAProxy.
	TakeHold bool
	// KeepHold leaves that as it is, and opens the rest.
	KeepHold bool
	// SetAddress makes HAProxy send where evidence is taken, where it differs.
	SetAddress bool
	// Wait is how long to wait for probes from before the invalidation, where
	// that is longer than Options.Settle and than the tier's exercise may take.
	Wait time.Duration
	// WhenReady ends the quiesce and leaves the servers to their evidence, whatever that
	// is now.
	WhenReady bool
	// Confirm is how long HAProxy may take to show every server up, instead of as long
	// as its checks get further.
	Confirm time.Duration
	// Without names instances that are known to be gone.
	Without []string
	// Progress is told now and then for what the readmit waits; may be nil.
	Progress func(Progress)
}

// Readmit opens the target on fresh evidence: it invalidates, probes anew,
// opens every HAProxy, opens here, and waits until every HAProxy has the
// servers up. Anything else on the way leaves, or puts, the target back closed.
//
// With WhenReady it takes no evidence: see release.
//
// It does not end with ctx once begun, but a quiesce of the tier ends it.
func (c *Controller) Readmit(ctx context.Context, q ReadmitRequest) Result {
	check := func(r *run) *Result { return r.goWithout(q.Without) }
	return c.do(context.WithoutCancel(ctx), VerbReadmit, q.Target, q.Progress, check, func(ctx context.Context, r *run) Result {
		r.By = q.Who
		closure, _ := c.o.Model.Closed(q.Target)
		if closure == nil {
			return r.refuse(CodeNotQuiesced, "%s is not quiesced itself; there is nothing to readmit", q.Target)
		}
		if above, _ := c.o.Model.Closed(tier.Target{Tier: q.Target.Tier}); above != nil && q.Target.Server != "" {
			return r.refuse(CodeTierQuiesced, "tier %s is quiesced itself; readmit the tier first", q.Target.Tier)
		}
		if len(r.servers) == 0 {
			return r.refuse(CodeNotReady, "%s stays quiesced: HAProxy shows no member of it, no server of backend %s that has an address, so there is nothing to take evidence of; readmit it when there is", q.Target, r.spec.Members.Backend)
		}
		if r.servers = r.readmitted(); len(r.servers) == 0 {
			return r.openAlone(ctx, *closure)
		}
		if !r.spec.Identified && !q.AllowUnidentified {
			return r.refuse(CodeUnidentified, "tier %s compares neither identity nor metadata, so ready would mean no more than that a port answers; configure one, or say --allow-unidentified", q.Target.Tier)
		}
		if refused := r.holds(ctx, q); refused != nil {
			return *refused
		}
		if refused := r.sameAddress(ctx, q.SetAddress); refused != nil {
			return *refused
		}
		if q.WhenReady {
			return r.release(ctx, q, *closure)
		}
		gen, ready, refused := r.verify(ctx, q)
		if refused != nil {
			return *refused
		}
		if slices.ContainsFunc(r.servers, byName) { // it is known now where that evidence is from
			if refused := r.sameAddress(ctx, q.SetAddress); refused != nil {
				return *refused
			}
		}
		r.waiting = r.unguarded(ready)
		found := r.intents.found(q.Target)
		serial, refused := r.beginOpening()
		if refused != nil {
			return *refused
		}
		if failed := r.open(ctx, gen, ready, *closure, serial, r.opening(q.TakeHold, ready), q.Confirm); failed != nil {
			return *failed
		}
		opened := r.HAProxy
		note := r.absent() + r.leftHeld() + r.leftWaiting() + r.kept(ctx)
		r.leave(found, opened)
		switch {
		case r.spec.AgentWords:
			note += "; HAProxy hears of it at its next agent-check, which nothing here can confirm"
		case !r.spec.Identified:
			note += "; on its health alone: no identity was compared"
		}
		return r.end(Done, CodeOK, "%s is open again: %s of %d ready%s", q.Target, plural(len(ready), "server", "servers"), len(r.servers), note)
	})
}

// readmitted are the servers that a readmit covers: of a tier, those that are
// not quiesced on their own account, which stay as they are.
func (r *run) readmitted() []tier.ServerSpec {
	if r.Target.Server != "" {
		return r.servers
	}
	var covered []tier.ServerSpec
	for _, s := range r.servers {
		if closed, _ := r.o.Model.Closed(tier.Target{Tier: r.Target.Tier, Server: s.FullName()}); closed == nil {
			covered = append(covered, s)
		}
	}
	return covered
}

// openAlone opens a tier each of whose servers is quiesced on its own account.
// Nothing can be verified, and nothing is admitted, until a server is readmitted;
// but that needs an open tier, so that a refusal here would lock both for ever.
func (r *run) openAlone(ctx context.Context, closure tier.Closure) Result {
	serial, refused := r.beginOpening()
	if refused != nil {
		return *refused
	}
	gen, err := r.o.Model.Invalidate(r.Target)
	if err == nil {
		err = r.o.Model.Open(r.Target, gen)
	}
	if err != nil {
		return *r.back(ctx, closure, CodeMoved, err)
	}
	if refused := r.ended(ctx, closure, serial); refused != nil {
		return *refused
	}
	return r.end(Done, CodeOK, "%s is open again, and admits nothing: each of its servers is quiesced on its own account; readmit them", r.Target)
}

// beginOpening writes that an opening is under way: after a kill it is undone.
func (r *run) beginOpening() (uint64, *Result) {
	serial, err := r.intents.phase(r.Target, intent.Readmitting)
	if err != nil {
		return 0, keep(r.refuse(CodeNotDurable, "%s stays quiesced: its opening could not be written down, and a restart of tier-agent would not know how far it had come: %v", r.Target, err))
	}
	return serial, nil
}

func keep(r Result) *Result { return &r }
