package admission

import (
	"context"
	"slices"
	"time"

	"tier-agent/internal/observe"
	"tier-agent/internal/runtimeapi"
	"tier-agent/internal/tier"
)

// unasked is a server that was taken down in one process of HAProxy.
type unasked struct {
	process
	overruled bool // somebody has brought it up again: theirs from then on
}

// closeUnasked takes down, in one HAProxy, a server that gets requests although its
// evidence says no, and that none of whose checks runs there: they were disabled by a
// command, or the server was added without any. It uses HAProxy's health and not its admin
// state, which stays the operator's, and brings the server up again on evidence. It does
// so only where HAProxy is meant to ask about the tier. A server with a running check of
// something else cannot be held down this way; expose warns of it.
func (c *Controller) closeUnasked(ctx context.Context, i *runtimeapi.Instance, o observe.View) {
	if c.o.Polls == nil {
		return
	}
	now := time.Now()
	for _, spec := range c.o.Model.Specs() {
		if spec.AgentWords || !c.o.Polls.Wired(o, append(fullNames(spec.Servers), spec.Name), now) {
			continue
		}
		for _, s := range spec.Servers {
			at := seen{place: place{o.Instance, s.FullName()}, process: processOf(o.Info)}
			a, known := c.o.Model.Server([]byte(at.server))
			shown, there := o.Servers[at.server]
			if !known || !there {
				continue
			}
			was, ours := c.wasUnasked(at)
			switch {
			case ours && !was.overruled && shown.Takes():
				c.noteUnasked(at, &unasked{process: at.process, overruled: true})
				c.o.Log.Warn("a server that tier-agent had taken down was brought up by somebody else, and stays so", "haproxy", at.instance, "server", at.server)
			case ours && !was.overruled && a.Up:
				c.setHealth(ctx, i, at, s, true)
			case !ours && shown.Takes() && !a.Up && !shown.Health.Enabled && !c.o.Polls.Checks(o, at.server, spec.Name, now):
				c.setHealth(ctx, i, at, s, false)
			}
		}
	}
}

func (c *Controller) setHealth(ctx context.Context, i *runtimeapi.Instance, at seen, s tier.ServerSpec, good bool) {
	change, err := i.SetHealth(runtimeapi.ExpectPID(ctx, at.pid), s.Backend, s.Name, good)
	c.complain("unasked "+at.instance+" "+at.server, err, "HAProxy's health of a server that nothing asks about could not be set", "haproxy", at.instance, "server", at.server)
	if err != nil {
		return
	}
	attrs := []any{"haproxy", at.instance, "server", at.server, "pid", change.Info.PID}
	if good {
		c.noteUnasked(at, nil)
		c.o.Log.Info("a server that tier-agent had taken down is up again: its evidence is ready", attrs...)
	} else {
		c.noteUnasked(at, &unasked{process: at.process})
		c.o.Log.Warn("a server was taken down: it is not ready, got requests, and none of its checks runs", attrs...)
	}
	c.o.Watcher.Wake()
}

func (c *Controller) wasUnasked(at seen) (unasked, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	u, known := c.unasked[at.place]
	return u, known && u.process == at.process // a reload forgets it
}

func (c *Controller) noteUnasked(at seen, u *unasked) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if u == nil {
		delete(c.unasked, at.place)
		return
	}
	c.unasked[at.place] = *u
}

// Unasked are the servers of a view that tier-agent has taken down, in words.
func (c *Controller) Unasked(o observe.View) []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	var all []string
	for at, u := range c.unasked {
		if at.instance != o.Instance || u.process != processOf(o.Info) {
			continue
		}
		said := at.server
		if u.overruled {
			said += " (somebody has brought it up since)"
		}
		all = append(all, said)
	}
	slices.Sort(all)
	return all
}
