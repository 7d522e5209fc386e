package admission

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"time"

	"tier-agent/internal/override"
	"tier-agent/internal/tier"
)

// Overrides keep which tiers are open on health alone; see package override.
type Overrides interface {
	All() []override.Record
	Put(override.Record) error
	Drop(tier string) error
	Flush() error
}

// OverrideRequest asks to open a tier on health alone, for a time, or to end that.
type OverrideRequest struct {
	Tier   string
	For    time.Duration // override.Shortest to override.Longest; not with End
	Reason string        // as of a quiesce; not with End
	Who    string
	End    bool
}

// Override opens a tier on HAProxy's word and the health of its engines alone, for a time,
// in place of an override that stands, or ends that. It is on disk before it is in force.
// What is quiesced stays closed, and so does what somebody holds in HAProxy.
func (c *Controller) Override(q OverrideRequest) Result {
	r := &run{Controller: c, Result: Result{Verb: VerbOverride, Target: tier.Target{Tier: q.Tier}, By: q.Who}, began: time.Now()}
	c.overriding.Lock()
	defer c.overriding.Unlock()
	var result Result
	if q.End {
		result = r.endOverride()
	} else {
		result = r.beginOverride(q)
	}
	c.report(result)
	if c.o.Watcher != nil {
		c.o.Watcher.Wake()
	}
	return result
}

func (r *run) beginOverride(q OverrideRequest) Result {
	spec, err := r.o.Model.Spec(q.Tier)
	switch {
	case err != nil:
		return r.refuse(CodeUnknown, "%v", err)
	case !ValidReason(q.Reason):
		return r.refuse(CodeInvalid, "reason %.140q: give 1 to 128 of the characters A-Z a-z 0-9 _ . -", q.Reason)
	case q.For < override.Shortest || q.For > override.Longest:
		return r.refuse(CodeInvalid, "an override of %v: give %v to %v", q.For, override.Shortest, override.Longest)
	case r.o.Overrides == nil:
		return r.refuse(CodeNotDurable, "%s is not overridden: there is no state directory to write that to", r.Target)
	}
	// The fraction of a second goes: the record is to be the time that is said.
	now := time.Now()
	since := now.UTC().Truncate(time.Second)
	rec := override.Record{Tier: q.Tier, Reason: q.Reason, Who: q.Who, Since: since, Until: since.Add(q.For)}
	if err := r.o.Overrides.Put(rec); err != nil {
		return r.refuse(CodeNotDurable, "%s is not overridden, since that could not be written down: %v", r.Target, err)
	}
	r.publishOverride(rec, now)
	text := fmt.Sprintf("%s is overridden until %s, by %s for %q: its servers take requests on HAProxy's word and their health checks alone",
		r.Target, rec.Until.Format(time.RFC3339), rec.Who, rec.Reason)
	if closed, _ := r.o.Model.Closed(r.Target); closed != nil {
		text += "; but it is quiesced, and stays closed until it is readmitted"
	}
	if spec.AgentWords {
		text += "; HAProxy hears of it at its next agent-check"
	}
	return r.end(Done, CodeOK, "%s", text)
}

func (r *run) endOverride() Result {
	_, known := r.o.Model.Overrides()[r.Target.Tier]
	if _, err := r.o.Model.Spec(r.Target.Tier); err != nil && !known {
		return r.refuse(CodeUnknown, "%v", err)
	}
	if !known {
		return r.end(Done, CodeOK, "%s is not overridden", r.Target)
	}
	r.withdrawOverride(r.Target.Tier)
	if err := r.o.Overrides.Drop(r.Target.Tier); err != nil {
		return r.end(Incomplete, CodeNotDurable, "the override of %s has ended, but that is not written down, and a restart of tier-agent before its end would bring it back: %v", r.Target, err)
	}
	return r.end(Done, CodeOK, "the override of %s has ended: it takes requests on evidence again", r.Target)
}

// restoreOverrides puts into force what the file has, for what is left of it.
func (c *Controller) restoreOverrides() {
	if c.o.Overrides == nil {
		return
	}
	now := time.Now()
	for _, rec := range c.o.Overrides.All() {
		c.publishOverride(rec, now)
		c.o.Log.Warn("an override is in force: the tier is open on the health of its engines alone",
			"tier", rec.Tier, "who", rec.Who, "reason", rec.Reason, "until", rec.Until)
	}
}

// publishOverride puts a record into force. overriding must be held, or nothing run yet.
func (c *Controller) publishOverride(rec override.Record, now time.Time) {
	all := maps.Clone(c.o.Model.Overrides())
	if all == nil {
		all = map[string]tier.Override{}
	}
	all[rec.Tier] = tier.Override{
		Reason: rec.Reason, Who: rec.Who, Since: rec.Since, Until: rec.Until,
		From: now, Lasting: rec.Until.Sub(now.Round(0)),
	}
	c.o.Model.SetOverrides(all)
}

func (c *Controller) withdrawOverride(name string) {
	all := maps.Clone(c.o.Model.Overrides())
	delete(all, name)
	c.o.Model.SetOverrides(all)
}

// Tend looks after what is kept until ctx ends, once a second: it writes what could not be
// written, says of each override that it is over, and forgets it. That is for people and for
// the disk; every answer judges for itself.
func (c *Controller) Tend(ctx context.Context) error {
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			c.tend()
		case <-ctx.Done():
			return nil
		}
	}
}

func (c *Controller) tend() {
	c.endOverrides()
	c.complain("", c.intents.rewrite(), "the intents cannot be written")
}

func (c *Controller) endOverrides() {
	c.overriding.Lock()
	defer c.overriding.Unlock()
	if c.o.Overrides == nil {
		return
	}
	var lost error
	for name, o := range c.o.Model.Overrides() {
		if o.Left(time.Now()) > 0 {
			continue
		}
		c.withdrawOverride(name)
		lost = errors.Join(lost, c.o.Overrides.Drop(name))
		c.o.Log.Warn("an override has ended: the tier takes requests on evidence again",
			"tier", name, "who", o.Who, "reason", o.Reason, "until", o.Until)
	}
	c.complain("overrides", errors.Join(lost, c.o.Overrides.Flush()), "the overrides cannot be written")
}
