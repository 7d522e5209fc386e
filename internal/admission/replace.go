package admission

import (
	"errors"
	"fmt"
	"maps"
	"slices"

	"tier-agent/internal/intent"
	"tier-agent/internal/tier"
)

// ErrTierBusy: a transition of a tier that would change is under way.
var ErrTierBusy = errors.New("a transition is under way")

// Replace makes specs the whole of the model, or changes nothing and says why.
// Whoever probes is told afterwards, see tier.Monitor.Follow: until then what has
// changed has no evidence.
//
// A tier that would be added, removed or changed must have no transition under
// way; a reconciling is none. Transitions of the other tiers are not disturbed.
//
// An intent goes with the name of its tier while the configuration has that,
// whatever becomes of its address: closed is the safe side. The intent of a name
// that is gone is kept. Where the name comes back with an address that the intent
// was about, it holds again; where it comes back with another, it closes nothing,
// and is shown until a quiesce takes its place.
func (c *Controller) Replace(specs []tier.Spec) (tier.Changes, error) {
	c.replacing.Lock()
	defer c.replacing.Unlock()
	changes := c.o.Model.Changes(specs)
	changed := changes.All()
	thaw, err := c.freeze(changed)
	if err != nil {
		return tier.Changes{}, err
	}
	if err = c.o.Model.Replace(specs); err == nil {
		c.align(func(name string) bool { return slices.Contains(changed, name) })
		if c.o.Watcher != nil {
			c.judge()
			for _, o := range c.o.Watcher.Views() {
				c.compare(o) // what is not compared would count as the same
			}
		}
	}
	thaw()
	if err != nil {
		return tier.Changes{}, err
	}
	return changes, nil
}

// freeze takes the lanes of all the tiers or of none.
func (c *Controller) freeze(names []string) (thaw func(), err error) {
	var leave []func()
	thaw = func() {
		for _, f := range leave {
			f()
		}
	}
	for _, name := range names {
		f, verb := c.lane(name).freeze()
		if f == nil {
			thaw()
			return nil, fmt.Errorf("%w: a %s of tier %q", ErrTierBusy, verb, name)
		}
		leave = append(leave, f)
	}
	return thaw, nil
}

// freeze takes the lane for as long as its tier is replaced, or says what else
// has it. What comes meanwhile waits, a quiesce too: it is over at once.
func (l *lane) freeze() (leave func(), busy Verb) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, other := range l.running {
		if other.verb != VerbReconcile {
			return nil, other.verb
		}
	}
	mine := newTransition(VerbReconcile, tier.Target{}, func(error) {}) // every server
	mine.opens = true
	l.running = append(l.running, mine)
	return func() { l.leave(mine) }, ""
}

// align holds the intents of some tiers against the configuration, and closes what
// is to be closed. No transition of these tiers may run: a readmit has its gate
// open before it ends its intent. What cannot be written holds in memory, as always.
func (c *Controller) align(about func(name string) bool) {
	c.follow(about)
	for _, r := range c.intents.store.All() {
		if !about(r.Tier) {
			continue
		}
		target := targetOf(r)
		log := c.o.Log.With("target", target.String(), "reason", r.Reason, "who", r.Who, "phase", r.Phase)
		servers, err := c.o.Model.Servers(target)
		now := addressesOf(servers)
		switch {
		case c.member(target) && (err != nil || !meets(r.Addresses, now)):
			if !r.Gone { // hosts come and go: told once
				log.Info("the host that an intent is about has left its slot; the intent is kept and closes nothing")
			}
			c.intents.readdress(target, true, r.Addresses)
			continue
		case err != nil:
			log.Warn("an intent names what the configuration does not; it is kept", "error", err)
			c.intents.readdress(target, true, r.Addresses)
			continue
		case r.Gone && !meets(r.Addresses, now):
			log.Warn("an intent is of another address than its tier has come back with; it is kept and closes nothing")
			continue
		}
		if standing, _ := c.o.Model.Closed(target); standing == nil {
			_, _ = c.o.Model.Close(target, closureOf(r)) // the target is there: see above
			note := halfDone(r.Phase)
			if note != "" {
				c.mu.Lock()
				c.notes[target] = note
				c.mu.Unlock()
			}
			log.Info("quiesced by an intent", "note", note)
		} else if !maps.Equal(r.Addresses, now) {
			log.Info("the address of what is quiesced has changed; it stays quiesced")
		}
		c.intents.readdress(target, false, now)
	}
}

// halfDone says what a kill has left half done, and what becomes of it.
func halfDone(p intent.Phase) string {
	switch p {
	case intent.Quiescing:
		return "a quiesce was under way when tier-agent ended; it is carried on"
	case intent.Readmitting:
		return "a readmit was under way when tier-agent ended; it is undone, the tier is closed again"
	case intent.RollingBack:
		return "a rollback was under way when tier-agent ended; it is not carried on, the tier stays closed"
	}
	return ""
}

// readdress writes what an intent is about now, and whether the configuration has
// been without it.
func (in *intents) readdress(target tier.Target, gone bool, addresses map[string]string) {
	in.mu.Lock()
	defer in.mu.Unlock()
	r, known := in.store.Get(key(target))
	if !known || r.Gone == gone && maps.Equal(r.Addresses, addresses) {
		return
	}
	r.Gone, r.Addresses = gone, addresses
	_, _ = in.put(r)
}

// get is the target's record, unless it is of an address that the target no
// longer has: that one explains nothing.
func (in *intents) get(target tier.Target) (intent.Record, bool) {
	r, known := in.store.Get(key(target))
	if r.Gone {
		return intent.Record{}, false
	}
	return r, known
}

// addressesOf are the addresses that evidence about the servers is taken from, as
// the configuration has them, by "backend/server".
func addressesOf(servers []tier.ServerSpec) map[string]string {
	all := make(map[string]string, len(servers))
	for _, s := range servers {
		if s.Address.IsValid() {
			all[s.FullName()] = s.Address.String()
		} else if s.Target.URL != nil {
			all[s.FullName()] = s.Target.Address()
		}
	}
	return all
}

// meets reports whether some address is in both. A record of before addresses
// were written meets all: closed is the safe side.
func meets(recorded, now map[string]string) bool {
	for _, was := range recorded {
		for _, is := range now {
			if was == is {
				return true
			}
		}
	}
	return len(recorded) == 0
}
