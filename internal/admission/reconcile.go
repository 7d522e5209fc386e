package admission

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"tier-agent/internal/intent"
	"tier-agent/internal/observe"
	"tier-agent/internal/runtimeapi"
	"tier-agent/internal/tier"
)

// IntentStatus is one intent as status shows it.
type IntentStatus struct {
	intent.Record
	// Orphan: the configuration names no such tier or server. The record is kept,
	// and holds again when the name comes back with the same address.
	Orphan bool
	// Stale: the name has come back with another address. The record closes
	// nothing.
	Stale bool
	// Host is the address of the member that a Stale record is about, which is in no
	// slot now. It is quiesced again when it is back.
	Host string
	// Note says what a start found half done, and what became of it.
	Note string
	// Unwritten: the last write of the intents has failed, which Note says too.
	Unwritten bool
	// Drift says where HAProxy does not show what the intent wants.
	Drift []string
}

// Restore closes what the intents want closed; it is for the start, before
// anything answers. What a kill left half done is carried on, if it was closing,
// and undone, if it was opening: the tier is closed either way, and Watcher's
// looks bring HAProxy there.
func (c *Controller) Restore() {
	c.forgetProcesses()
	c.restoreOverrides()
	c.align(func(string) bool { return true })
}

// Intents returns every record, held against what the HAProxies last showed.
func (c *Controller) Intents() []IntentStatus {
	var observed []observe.View
	if c.o.Watcher != nil {
		observed = c.o.Watcher.Views()
	}
	records := c.intents.store.All()
	written := c.intents.written()
	all := make([]IntentStatus, 0, len(records))
	for _, r := range records {
		st := c.standing(r)
		c.mu.Lock()
		st.Note = c.notes[targetOf(r)]
		c.mu.Unlock()
		if st.Unwritten = !written; !written {
			st.Note = strings.TrimPrefix(st.Note+"; "+unwritten, "; ")
		}
		if spec, err := c.o.Model.Spec(r.Tier); err == nil && !spec.AgentWords && !st.Orphan && !st.Stale {
			servers, _ := c.o.Model.Servers(targetOf(r)) // there are: it is no Orphan
			for _, o := range observed {
				if !slices.Contains(r.Without, o.Instance) {
					st.Drift = append(st.Drift, drift(o, servers)...)
				}
			}
		}
		all = append(all, st)
	}
	return all
}

// standing says whether a record closes its target, and if not, why.
func (c *Controller) standing(r intent.Record) IntentStatus {
	_, err := c.o.Model.Servers(targetOf(r))
	st := IntentStatus{Record: r, Orphan: err != nil, Stale: err == nil && r.Gone}
	if r.Gone && c.member(targetOf(r)) {
		st.Orphan, st.Stale, st.Host = false, true, r.Addresses[r.Server]
	}
	return st
}

// unwritten is what status says of every intent while the last write has failed.
const unwritten = "the intents cannot be written; a restart of tier-agent would take what is on disk"

// explained ends what a start had to say of a target: its state is now the doing
// of a transition that has ended since.
func (c *Controller) explained(target tier.Target) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.notes, target)
}

// drift says where one HAProxy does not have the servers closed.
func drift(o observe.View, servers []tier.ServerSpec) []string {
	if !o.Readable() {
		return []string{"haproxy " + o.Instance + " cannot be read"}
	}
	var all []string
	for _, s := range servers {
		switch shown, known := o.Servers[s.FullName()]; {
		case !known:
			all = append(all, fmt.Sprintf("haproxy %s has no server %s", o.Instance, s.FullName()))
		case shown.Admin&forced == 0:
			all = append(all, fmt.Sprintf("haproxy %s has %s open", o.Instance, s.FullName()))
		}
	}
	return all
}

// Reconcile closes on one HAProxy what an intent wants closed and the look found
// open: a reload has lost a drain, a command that was given up was applied late,
// somebody else opened it. It opens nothing but what a readmit has, where a reload
// brought our own drain back, and members that are new and ready. It is called after
// every good look, and gives way to any transition of the tier that is not a drain.
// It also writes what could not be written.
func (c *Controller) Reconcile(ctx context.Context, i *runtimeapi.Instance, o observe.View) {
	c.judge()
	c.expose(o)
	c.closeUnasked(ctx, i, o)
	c.succeed(ctx, i, o)
	c.compare(o)
	c.adopt(ctx, i, o)
	c.introduce(ctx, i, o)
	c.welcome(ctx, i, o)
	c.complain("", c.intents.rewrite(), "the intents cannot be written")
	for _, rec := range c.intents.store.All() {
		target := targetOf(rec)
		spec, err := c.o.Model.Spec(rec.Tier)
		if err != nil || rec.Gone || spec.AgentWords || slices.Contains(rec.Without, o.Instance) {
			continue
		}
		servers, err := c.o.Model.Servers(target)
		if err != nil {
			continue
		}
		open := drift(o, servers)
		if len(open) == 0 {
			c.settled(target, rec)
			continue
		}
		r := &run{
			Controller: c, Result: Result{Verb: VerbReconcile, Target: target}, began: time.Now(),
			spec: spec, servers: servers, set: runtimeapi.NewSet(i),
		}
		r.reclose(ctx, open)
	}
}

// settled ends the phase of a quiesce that is now confirmed everywhere.
func (c *Controller) settled(target tier.Target, rec intent.Record) {
	if rec.Phase == intent.Quiesced {
		return
	}
	for _, st := range c.Intents() {
		if targetOf(st.Record) != target || st.Drift != nil {
			continue
		}
		leave, ok := c.lane(target.Tier).try(target)
		if !ok {
			return
		}
		defer leave()
		c.complain("", c.intents.settle(target, rec.Serial), "the intents cannot be written")
	}
}

func (r *run) reclose(ctx context.Context, open []string) {
	leave, ok := r.lane(r.Target.Tier).try(r.Target)
	if !ok {
		return
	}
	defer leave()
	// Looked at in the lane: it may have been readmitted since the look.
	rec, known := r.intents.store.Get(key(r.Target))
	if closure, _ := r.o.Model.Closed(r.Target); closure == nil || !known {
		return
	}
	if rec.Phase == intent.Readmitting {
		// A kill came in the middle of an opening, perhaps of what somebody had in
		// maintenance: drain would leave that to persistent clients.
		r.maint = r.intents.found(r.Target).inMaint()
	}
	err := r.close(ctx)
	if ctx.Err() != nil {
		return
	}
	instance := r.set.Instances()[0].Name()
	r.complain(instance+" "+r.Target.String(), err, "an intent could not be restored in HAProxy",
		"haproxy", instance, "target", r.Target.String(), "found", open)
	if slices.ContainsFunc(r.HAProxy, InstanceResult.changed) {
		result := r.end(Done, CodeOK, "%s is closed again in HAProxy, as its intent says: %s", r.Target, open[0])
		if err != nil {
			result = r.end(Incomplete, CodeHAProxy, "%s is closed again in HAProxy only in part: %v", r.Target, err)
		}
		r.report(result)
		if r.o.Watcher != nil {
			r.o.Watcher.Wake()
		}
	}
}

// complain logs what is wrong when it is new, not at every look; without an error
// nothing is wrong any more.
func (c *Controller) complain(about string, err error, message string, attrs ...any) {
	text := ""
	if err != nil {
		text = err.Error()
	}
	c.mu.Lock()
	was := c.complaints[about]
	if c.complaints[about] = text; text == "" {
		delete(c.complaints, about)
	}
	c.mu.Unlock()
	if text != "" && text != was {
		c.o.Log.Warn(message, append(attrs, "error", err)...)
	}
}

// changed reports whether anything had to be changed there.
func (i InstanceResult) changed() bool {
	return slices.ContainsFunc(i.Servers, func(s ServerResult) bool { return s.Before != s.After })
}

// Hold is a server that somebody else has closed in one HAProxy.
type Hold struct {
	Server string // "backend/server"
	State  runtimeapi.AdminState
}

func (h Hold) String() string { return h.Server + " is " + h.State.String() }

// Holds gives the configured servers that one HAProxy has closed and no intent
// of ours explains. They are shown, and never undone (G10).
func (c *Controller) Holds(o observe.View) []Hold {
	var all []Hold
	for _, t := range c.o.Model.Specs() {
		if t.AgentWords {
			continue
		}
		for _, s := range t.Servers {
			name := s.FullName()
			at := seen{place: place{o.Instance, name}, process: processOf(o.Info)}
			at.admin = c.besidesUnasked(at.place, o.Servers[name].Admin)
			if at.admin&forced == 0 || c.newcomer(at, s) {
				continue
			}
			found := c.intents.found(tier.Target{Tier: t.Name})
			if _, ours := found[at.place]; !ours {
				found = c.intents.found(tier.Target{Tier: t.Name, Server: name})
			}
			if found.held(at) {
				all = append(all, Hold{Server: name, State: at.admin})
			}
		}
	}
	return all
}
