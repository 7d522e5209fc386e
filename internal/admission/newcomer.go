package admission

import (
	"context"
	"slices"
	"strings"
	"time"

	"tier-agent/internal/intent"
	"tier-agent/internal/members"
	"tier-agent/internal/observe"
	"tier-agent/internal/runtimeapi"
	"tier-agent/internal/tier"
)

// Openings remember which members have been opened; see package members.
type Openings interface {
	Get(members.Place) (members.Opening, bool)
	Of(haproxy string) []members.Opening
	Keep(changed []members.Opening, gone []members.Place) error
}

// opened is what is known of a place; the zero value where that is nothing.
func (c *Controller) openedAt(at place) members.Opening {
	if c.o.Openings == nil {
		return members.Opening{}
	}
	known, _ := c.o.Openings.Get(members.Place{HAProxy: at.instance, Server: at.server})
	return known
}

// wasOpen reports whether a place has been open in the process that is there. HAProxy
// puts none into maintenance by itself, and before we do, that is noted: so one that is
// in maintenance in the same process is somebody's, whoever has its slot by now.
func (at seen) wasOpen(known members.Opening) bool {
	return known.PID != 0 && at.process == process{known.PID, known.Started}
}

// newcomer reports whether a member is closed for no other reason than that it has
// not been opened yet, or that its slot still has our drain of somebody who has left. A
// server that the configuration lists is one where it has been opened although its line
// in HAProxy disables it, and a reload has closed it again.
func (c *Controller) newcomer(at seen, s tier.ServerSpec) bool {
	known := c.openedAt(at.place)
	if !s.Address.IsValid() && known.Server == "" {
		return false
	}
	if at.admin.StartsClosed() {
		return !known.Held && at.pid != 0 && !at.wasOpen(known)
	}
	at.address = s.Address
	return s.Address.IsValid() && c.intents.departed(at)
}

// welcome looks after the members on one HAProxy. One whose evidence is ready is
// opened, where it has not been before; one that has come to an open slot is closed
// until there is evidence about it. What an operator has put in maintenance stays so,
// whoever comes to have the slot (G10).
func (c *Controller) welcome(ctx context.Context, i *runtimeapi.Instance, o observe.View) {
	if c.o.Openings == nil {
		return
	}
	w := &welcoming{Controller: c, instance: i, o: o, members: map[string]bool{}, found: map[string]bool{}, touched: map[string]bool{}}
	for _, r := range c.intents.store.All() {
		for server := range r.Found[o.Instance] {
			w.found[server] = true
		}
	}
	for _, spec := range c.o.Model.Specs() {
		if spec.Members != nil {
			w.tier(ctx, spec.Name)
		} else if !spec.AgentWords {
			w.standbys(ctx, spec.Name)
		}
	}
	w.absent()
	c.complain("openings", c.o.Openings.Keep(w.changed, w.gone), unwrittenOpenings)
	if w.acted && c.o.Watcher != nil {
		c.o.Watcher.Wake() // the server-state file is to say so, too
	}
}

const unwrittenOpenings = "which members are open cannot be written"

// welcoming is one look at one HAProxy.
type welcoming struct {
	*Controller
	instance *runtimeapi.Instance
	o        observe.View
	members  map[string]bool // "backend/server" of all there are
	found    map[string]bool // what an intent says something of there
	touched  map[string]bool // what this look has changed, or tried to
	changed  []members.Opening
	gone     []members.Place
	acted    bool
}

func (w *welcoming) tier(ctx context.Context, name string) {
	spec, err := w.Controller.o.Model.Spec(name) // now: it may have changed while another tier was looked after
	if err != nil || spec.Members == nil {
		return
	}
	for _, s := range spec.Servers {
		w.members[s.FullName()] = true
	}
	for _, s := range spec.Servers {
		at, known := w.sees(s.FullName())
		if known && at.address == s.Address && !w.alone(name, at.server, func() bool { return w.member(ctx, spec, s, at) }) {
			return // it hangs: the rest would cost as much again
		}
	}
	for name := range w.o.Servers {
		backend, server, _ := strings.Cut(name, "/")
		// One without an IP address, such as a unix socket, is no member, and nothing of ours.
		if at, _ := w.sees(name); backend == spec.Members.Backend && at.admin&runtimeapi.DNSMaint != 0 {
			if !w.alone(name, at.server, func() bool { return w.empty(ctx, spec, tier.ServerSpec{Backend: backend, Name: server}, at) }) {
				return
			}
		}
	}
}

// alone looks after one server, unless a transition has it; then another look comes.
func (w *welcoming) alone(name, server string, look func() bool) bool {
	leave, ok := w.lane(name).try(tier.Target{Tier: name, Server: server})
	if !ok {
		return true
	}
	defer leave()
	return look()
}

// sees gives a place as the look has found it.
func (w *welcoming) sees(name string) (at seen, known bool) {
	shown, known := w.o.Servers[name]
	return seen{place: place{w.o.Instance, name}, process: processOf(w.o.Info), admin: shown.Admin, address: shown.Address}, known
}

// empty closes a slot that its host has left open: the next one would find it so. And
// it takes our drain off: once its intent has ended nothing would say that it was ours,
// and the next host would count as held.
func (w *welcoming) empty(ctx context.Context, spec tier.Spec, s tier.ServerSpec, at seen) bool {
	switch {
	case at.admin&runtimeapi.ConfigMaint == 0:
		return true
	case at.admin&forced == 0:
		return w.set(ctx, spec, s, at, runtimeapi.StateMaint, members.Opening{},
			"%s is closed on haproxy %s: its host has left")
	case !w.intents.departed(at):
		return true
	}
	return w.set(ctx, spec, s, at, runtimeapi.StateMaint, members.Opening{},
		"%s is not drained any more on haproxy %s: its host has left; it stays closed until there is evidence about the next one")
}

// member does what one member needs, and reports whether HAProxy answers.
func (w *welcoming) member(ctx context.Context, spec tier.Spec, s tier.ServerSpec, at seen) bool {
	a, _ := w.Controller.o.Model.Server([]byte(s.FullName()))
	known := w.openedAt(at.place)
	now := members.Opening{HAProxy: at.instance, Server: at.server, Address: s.Address.String(), PID: at.pid, Started: at.started}
	if at.admin&forced != runtimeapi.ForcedDrain && w.found[at.server] {
		w.intents.forgetFound(at)
	}
	switch {
	case at.admin&forced == 0 && a.Quiesced:
		// It is about to be closed again. A readmit that a kill has ended may have
		// opened it: noted, it would be taken for held once it is in maintenance again.
		if known.Held {
			w.keep(known, members.Opening{})
		}
	case at.admin&forced == 0 && (a.Admit || known.Address == "" || known.Address == now.Address):
		w.keep(known, now)
	case at.admin&forced == 0 && at.admin&runtimeapi.ConfigMaint != 0:
		return w.set(ctx, spec, s, at, runtimeapi.StateMaint, members.Opening{},
			"%s is closed on haproxy %s: another host has come to its slot, and there is no evidence about it yet")
	case at.admin.StartsClosed() && !known.Held && at.wasOpen(known):
		w.hold(known)
	case !w.newcomer(at, s) || a.Quiesced:
		// somebody's hold, or ours
	case a.Admit:
		return w.set(ctx, spec, s, at, runtimeapi.StateReady, now,
			"%s is open on haproxy %s: it is new there, and its evidence is ready")
	case at.admin&forced == runtimeapi.ForcedDrain && at.admin&runtimeapi.ConfigMaint != 0:
		return w.set(ctx, spec, s, at, runtimeapi.StateMaint, members.Opening{},
			"%s is not drained any more on haproxy %s: that was for a host that has left; it stays closed until there is evidence about the new one")
	}
	return true
}

// absent looks after what is known of slots that have no host now. What an operator
// holds outlasts that, and so does that a slot is open.
func (w *welcoming) absent() {
	for _, known := range w.Controller.o.Openings.Of(w.o.Instance) {
		if w.members[known.Server] || w.touched[known.Server] {
			continue
		}
		at, there := w.sees(known.Server)
		switch maint := at.admin&runtimeapi.ForcedMaint != 0; {
		case !there, maint && !known.Held && !at.wasOpen(known), !maint && (known.Held || !at.wasOpen(known)):
			w.gone = append(w.gone, known.Place())
		case maint && !known.Held:
			w.hold(known)
		}
	}
}

func (w *welcoming) hold(known members.Opening) {
	known.Held = true
	w.changed = append(w.changed, known)
	w.Controller.o.Log.Info("a member has been put in maintenance by somebody else; it is held", "haproxy", known.HAProxy, "server", known.Server)
}

// keep notes what is known now, where that differs.
func (w *welcoming) keep(was, now members.Opening) {
	switch {
	case now == was:
	case now == members.Opening{}:
		w.gone = append(w.gone, was.Place())
	default:
		w.changed = append(w.changed, now)
	}
}

// set makes one change in HAProxy, unless somebody has come between.
func (w *welcoming) set(ctx context.Context, spec tier.Spec, s tier.ServerSpec, at seen, want runtimeapi.State, now members.Opening, format string) bool {
	r := &run{
		Controller: w.Controller, Result: Result{Verb: VerbReconcile, Target: tier.Target{Tier: spec.Name, Server: at.server}},
		began: time.Now(), spec: spec, servers: []tier.ServerSpec{s}, set: runtimeapi.NewSet(w.instance),
	}
	w.touched[at.server] = true
	if known := w.openedAt(at.place); want == runtimeapi.StateMaint && at.wasOpen(known) {
		known.PID, known.Started = 0, 0
		w.complain("openings", w.Controller.o.Openings.Keep([]members.Opening{known}, nil), unwrittenOpenings)
	}
	met := false
	_, err := r.everywhere(ctx, func(there seen) (runtimeapi.State, error) {
		// Asked before the change, and of what the change has found.
		if met = there == at; !met {
			return 0, nil
		}
		return want, nil
	})
	r.complain("welcome "+at.instance+" "+at.server, err, "a member could not be opened or closed", "haproxy", at.instance, "server", at.server)
	if err != nil || !met {
		return err == nil
	}
	w.acted = true
	w.intents.forgetFound(at)
	w.keep(w.openedAt(at.place), now)
	r.report(r.end(Done, CodeOK, format, at.server, at.instance))
	return true
}

// departed reports whether a place is drained by us, for an intent that is not about
// whoever is there.
func (in *intents) departed(at seen) bool {
	return at.admin&forced == runtimeapi.ForcedDrain && slices.ContainsFunc(in.store.All(), at.drainedFor)
}

// drainedFor reports whether a record is such an intent.
func (at seen) drainedFor(r intent.Record) bool {
	found, ours := r.Found[at.instance][at.server]
	return ours && at.admin&forced == runtimeapi.ForcedDrain && at.leftBehind(r) && runtimeapi.AdminState(found)&runtimeapi.ForcedDrain == 0
}

// leftBehind reports whether what a record has found at a member's place was for
// somebody who is not there any more. Where nobody is that is so of every record.
func (at seen) leftBehind(r intent.Record) bool {
	return !at.address.IsValid() || r.Server != "" && (r.Gone || r.Server != at.server)
}

// forgetFound ends what records that are left behind say of a place.
func (in *intents) forgetFound(at seen) {
	for _, r := range in.store.All() {
		if _, ours := r.Found[at.instance][at.server]; !ours || !at.leftBehind(r) {
			continue
		}
		in.mu.Lock()
		if now, known := in.store.Get(r.Key()); known && now.Serial == r.Serial {
			delete(now.Found[at.instance], at.server)
			_, _ = in.put(now) // what cannot be written is tried again
		}
		in.mu.Unlock()
	}
}
