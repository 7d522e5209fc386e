package admission

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"tier-agent/internal/intent"
	"tier-agent/internal/observe"
	"tier-agent/internal/runtimeapi"
	"tier-agent/internal/similar"
	"tier-agent/internal/tier"
)

// ForgetRequest asks to end the record of an intent that closes nothing.
type ForgetRequest struct {
	// Target is the record's. Its server may be "backend/server@address" as well,
	// where the record is about that address: a slot has had many hosts. Without a
	// tier it is the record of that server.
	Target tier.Target
	Who    string
	// Progress is told now and then for what this waits; may be nil.
	Progress func(Progress)
}

// Forget ends the record of an intent whose target the configuration does not name,
// or names with another address, or whose host has left. It opens nothing, and changes
// nothing in HAProxy. What of ours is still closed there counts as somebody else's
// then (G10), which the result says; where the next host of a slot would meet it so,
// the record is kept until that is over.
//
// A quiesce is not kept waiting by it, so that the record may be changed meanwhile:
// that one stands. Once begun it does not end with ctx.
func (c *Controller) Forget(ctx context.Context, q ForgetRequest) Result {
	r := newRun(c, VerbForget, q.Target, q.Progress)
	r.By = q.Who
	stop := r.voice.start(c.o.Silence)
	result := r.forget(context.WithoutCancel(ctx))
	stop()
	c.log(result) // and not Ended: admission is as it was
	return result
}

func (r *run) forget(ctx context.Context) Result {
	named := r.Target
	rec, refused := r.recordOf(named)
	if refused != nil {
		return *refused
	}
	var err error
	lane := r.lane(rec.Tier)
	r.waits("other commands of %s to end", slotOf(rec))
	if ctx, r.mine, err = lane.enter(ctx, VerbForget, slotOf(rec)); err != nil {
		return r.refuse(CodeBusy, "%v; nothing was changed", err)
	}
	defer lane.leave(r.mine)
	if r.o.Watcher != nil {
		r.waits("HAProxy to show what is closed")
		r.o.Watcher.Look(ctx) // what was closed a moment ago is not to be missed
	}
	if ctx.Err() != nil {
		return r.stopped(ctx, "nothing was forgotten")
	}
	// In the lane: its host may have come back while this waited.
	named.Tier = rec.Tier
	if rec, refused = r.recordOf(named); refused != nil {
		return *refused
	}
	st := r.standing(rec)
	what := fmt.Sprintf("the intent of %s, by %s for %q", r.Target, rec.Who, rec.Reason)
	if st.Host != "" {
		what += " while it was " + st.Host
	}
	if !st.Orphan && !st.Stale {
		return r.refuse(CodeInForce, "%s is in force and closes it; readmit it to end that", what)
	}
	remains, refused := r.remains(rec)
	if refused != nil {
		return *refused
	}
	switch err := r.intents.drop(r.Target, rec.Serial); {
	case errors.Is(err, intent.ErrMoved):
		return r.refuse(CodeMoved, "%s is kept: %v; look at status and try again", what, err)
	case err != nil:
		return r.refuse(CodeNotDurable, "%s is kept: that it was to be forgotten could not be written down, and a restart of tier-agent would have it again: %v", what, err)
	}
	r.explained(r.Target)
	r.forgetLeftOf(rec)
	return r.end(Done, CodeOK, "%s is forgotten: it closed nothing, and what it was about is not closed again when it is back%s", what, remains)
}

// slotOf is what a record has closed, or may have: the slot that a host had is without
// its address.
func slotOf(rec intent.Record) tier.Target {
	server, _, _ := strings.Cut(rec.Server, "@")
	return tier.Target{Tier: rec.Tier, Server: server}
}

// recordOf finds the record that a target names, and makes its target the
// transition's. Of several tiers' it is the one that closes nothing.
func (r *run) recordOf(target tier.Target) (intent.Record, *Result) {
	var found, idle []intent.Record
	for _, rec := range r.intents.store.All() {
		if target.Tier != "" && target.Tier != rec.Tier || !names(target, rec) {
			continue
		}
		found = append(found, rec)
		if st := r.standing(rec); st.Orphan || st.Stale {
			idle = append(idle, rec)
		}
	}
	if len(found) > 1 && len(idle) > 0 {
		found = idle
	}
	switch {
	case len(found) == 0:
		name := target.Server
		if name == "" {
			name = target.Tier
		}
		var known []string
		for _, rec := range r.intents.store.All() {
			known = append(known, cmp.Or(rec.Server, rec.Tier))
		}
		return intent.Record{}, keep(r.refuse(CodeUnknown, "there is no intent of %.300q%s to be forgotten; status lists those that there are", name, similar.Hint(name, known)))
	case found[0].Tier != found[len(found)-1].Tier:
		return intent.Record{}, keep(r.refuse(CodeInvalid, "tiers %s and %s both have an intent of %s: name the tier as well", found[0].Tier, found[len(found)-1].Tier, found[0].Server))
	}
	r.Target = targetOf(found[0])
	return found[0], nil
}

// names reports whether a target that has a record's tier, or none, names the record.
func names(target tier.Target, rec intent.Record) bool {
	address := rec.Addresses[rec.Server]
	switch {
	case rec.Server == "":
		return target.Tier != "" && target.Server == ""
	case target.Server == rec.Server:
		return true
	}
	return address != "" && target.Server == rec.Server+"@"+address
}

// remains says, in a message, what HAProxy still has closed of what a record has found
// there, or why the record is needed.
//
// A slot's drain is needed: see newcomer. It is taken off at the look that finds it,
// unless the slot is quiesced, or the drain is to go with the opening of who has come.
func (r *run) remains(rec intent.Record) (string, *Result) {
	var observed []observe.View
	if r.o.Watcher != nil {
		observed = r.o.Watcher.Views()
	}
	others := slices.DeleteFunc(r.intents.store.All(), func(other intent.Record) bool { return other.Key() == rec.Key() })
	var closed, unread []string
	for _, instance := range slices.Sorted(maps.Keys(rec.Found)) {
		found := rec.Found[instance]
		n := slices.IndexFunc(observed, func(o observe.View) bool { return o.Instance == instance })
		if n < 0 || !observed[n].Readable() {
			for server := range found {
				if n >= 0 && r.slot(server) {
					return "", keep(r.refuse(CodeHAProxy, "the intent of %s is kept: haproxy %s cannot be read, and may still have a drain of %s that nothing else says is tier-agent's; try again when it can be, or when it has left the configuration", r.Target, instance, server))
				}
			}
			if len(found) > 0 {
				unread = append(unread, "haproxy "+instance)
				r.HAProxy = append(r.HAProxy, InstanceResult{Instance: instance, Error: "what it still has closed is not known: it cannot be read, or is not in the configuration"})
			}
			continue
		}
		o := observed[n]
		one := InstanceResult{Instance: instance, PID: o.Info.PID}
		for _, server := range slices.Sorted(maps.Keys(found)) {
			at := seen{place: place{instance, server}, process: processOf(o.Info), admin: o.Servers[server].Admin, address: o.Servers[server].Address}
			slot := r.slot(server)
			switch {
			case at.admin&forced == 0 || alsoFound(at.place, others, slot):
			case slot && at.admin&runtimeapi.ForcedDrain == 0: // maintenance: how it starts, or somebody's
			case slot && at.drainedFor(rec):
				return "", keep(r.refuse(CodeStillDrained, "the intent of %s is kept: %s, and nothing else says that this is tier-agent's and not somebody's hold; that goes off at the next look, or with a readmit where the slot is quiesced, or once there is evidence about who has it; try again then", r.Target, closedAt(at.place, at.admin)))
			default:
				closed = append(closed, closedAt(at.place, at.admin))
				one.Servers = append(one.Servers, ServerResult{Server: server, Before: at.admin.String(), After: at.admin.String()})
			}
		}
		if one.Servers != nil {
			r.HAProxy = append(r.HAProxy, one)
		}
	}
	said := ""
	if closed != nil {
		if more := len(closed) - 5; more > 0 {
			closed = append(closed[:5], fmt.Sprintf("and %d more", more))
		}
		said = "; what HAProxy still has closed stays so, as a hold (" + strings.Join(closed, ", ") + "): end it there, or with --take-hold at a readmit"
	}
	if unread != nil {
		said += "; what is still closed on " + strings.Join(unread, " and ") + " is not known"
	}
	return said, nil
}

// slot reports whether a server is of a backend that some tier has its members from.
func (c *Controller) slot(server string) bool {
	backend, _, _ := strings.Cut(server, "/")
	return slices.ContainsFunc(c.o.Model.Specs(), func(t tier.Spec) bool { return t.Members != nil && t.Members.Backend == backend })
}

// alsoFound reports whether one of the other records tells a drain of ours at a place
// from somebody's: one that holds, or at a slot that of a server that has left.
func alsoFound(at place, others []intent.Record, slot bool) bool {
	return slices.ContainsFunc(others, func(r intent.Record) bool {
		found, known := r.Found[at.instance][at.server]
		return known && found&uint32(forced) == 0 && (!r.Gone || slot && r.Server != "")
	})
}

// forgetLeftOf makes what a record has closed no leftover of a readmit before it.
func (c *Controller) forgetLeftOf(rec intent.Record) {
	for instance, found := range rec.Found {
		for server := range found {
			c.forgetLeft(place{instance, server})
		}
	}
}
