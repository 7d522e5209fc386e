package admission

import (
	"context"
	"time"

	"tier-agent/internal/observe"
	"tier-agent/internal/runtimeapi"
	"tier-agent/internal/tier"
)

// leftover is a drain of ours that may come back after its readmit: a process of
// HAProxy that was starting while the readmit ran has read the row of before from
// the server-state file. Nobody else's it cannot be, and without this it would
// be taken for a hold, and stay for good.
type leftover struct {
	target tier.Target
	found  runtimeapi.AdminState // before the quiesce
	pid    int                   // the process that the readmit has opened
	until  time.Time             // since when the file has no row
}

// leave notes what a readmit that has ended may have left behind. It is called
// once the state files have been written without the rows.
func (r *run) leave(found findings, opened []InstanceResult) {
	pids := map[string]int{}
	for _, one := range opened {
		pids[one.Instance] = one.PID
	}
	now := time.Now()
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, s := range r.servers {
		for instance, pid := range pids {
			at := place{instance, s.FullName()}
			if state, ours := found[at]; ours && pid != 0 && state&forced == 0 {
				r.leftovers[at] = leftover{target: r.Target, found: state, pid: pid, until: now}
			}
		}
	}
}

// adopt opens on one HAProxy what a process that took over from the one that a
// readmit has opened shows drained by the row of before. A process that was started
// later has read no such row: what it shows drained is somebody's hold, and so is
// whatever is not exactly our drain on what was found before it.
func (c *Controller) adopt(ctx context.Context, i *runtimeapi.Instance, o observe.View) {
	for at, l := range c.left(o) {
		shown, known := o.Servers[at.server]
		if !known || shown.Admin != l.found|runtimeapi.ForcedDrain || !c.opened(l.target, at.server) {
			c.forgetLeft(at)
			continue
		}
		spec, err := c.o.Model.Spec(l.target.Tier)
		if err != nil {
			c.forgetLeft(at)
			continue
		}
		// A new process has it up until its checks have been answered; the drain stays
		// until there is evidence.
		if a, _ := c.o.Model.Server([]byte(at.server)); spec.Members == nil && !a.Admit {
			continue
		}
		r := &run{
			Controller: c, Result: Result{Verb: VerbReconcile, Target: tier.Target{Tier: l.target.Tier, Server: at.server}},
			began: time.Now(), spec: spec, set: runtimeapi.NewSet(i),
		}
		r.reopen(ctx, at, l)
	}
}

// left are the leftovers of an instance that another process runs now. Those that
// it cannot have are dropped.
func (c *Controller) left(o observe.View) map[place]leftover {
	// Uptime is in whole seconds: it has been running for less than one more.
	earliest := o.At.Add(-o.Info.Uptime - time.Second)
	found := map[place]leftover{}
	c.mu.Lock()
	defer c.mu.Unlock()
	for at, l := range c.leftovers {
		switch {
		case at.instance != o.Instance || o.Info.PID == l.pid:
		case earliest.After(l.until):
			delete(c.leftovers, at)
		default:
			found[at] = l
		}
	}
	return found
}

func (c *Controller) forgetLeft(at place) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.leftovers, at)
}

// opened reports whether nothing of ours wants the server closed.
func (c *Controller) opened(target tier.Target, server string) bool {
	for _, one := range []tier.Target{{Tier: target.Tier}, {Tier: target.Tier, Server: server}} {
		closed, err := c.o.Model.Closed(one)
		if _, intended := c.intents.store.Get(key(one)); err != nil || closed != nil || intended {
			return false
		}
	}
	return true
}

func (r *run) reopen(ctx context.Context, at place, l leftover) {
	leave, ok := r.lane(r.Target.Tier).try(r.Target)
	if !ok {
		return // another look comes
	}
	defer leave()
	servers, err := r.o.Model.Servers(r.Target)
	if err != nil || !r.opened(r.Target, at.server) {
		r.forgetLeft(at)
		return
	}
	r.servers = servers
	want, said := runtimeapi.StateReady, "%s is open again on haproxy %s too: it was being reloaded during the readmit, and came up with the drain of before"
	if r.spec.Members != nil && l.found&runtimeapi.ConfigMaint != 0 {
		// Another host may be in the slot, and a drain says nothing of whom it was for.
		want, said = runtimeapi.StateMaint, "%s is not drained any more on haproxy %s, which was being reloaded during the readmit; it is opened when there is evidence about who is there"
	}
	_, err = r.everywhere(ctx, func(now seen) (runtimeapi.State, error) {
		if now.pid == l.pid || now.admin != l.found|runtimeapi.ForcedDrain {
			return 0, nil
		}
		return want, nil
	})
	if err != nil {
		r.complain(at.instance+" "+r.Target.String(), err, "a drain from before a readmit could not be taken off",
			"haproxy", at.instance, "target", r.Target.String())
		return
	}
	r.forgetLeft(at)
	r.report(r.end(Done, CodeOK, said, r.Target, at.instance))
	if r.o.Watcher != nil {
		r.o.Watcher.Wake()
	}
}
