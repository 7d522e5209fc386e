package admission

import (
	"errors"
	"slices"
	"time"

	"tier-agent/internal/observe"
)

// judge tells the model what the watcher has seen: which servers no HAProxy would send to,
// by their admin states and weights (G14), and which weights HAProxy has taken. It is called
// after each look, and before a transition reports what it has done.
func (c *Controller) judge() {
	if c.o.Watcher == nil {
		return
	}
	// One at a time: views that were read earlier must not be published later.
	c.judging.Lock()
	defer c.judging.Unlock()
	views := c.o.Watcher.Views()
	restarted := false
	for _, v := range views {
		if now := processOf(v.Info); v.Servers != nil && now != c.judged[v.Instance] {
			_, known := c.judged[v.Instance]
			c.judged[v.Instance], restarted = now, restarted || known
		}
	}
	for _, spec := range c.o.Model.Specs() {
		if spec.AgentWords {
			continue
		}
		for _, s := range spec.Servers {
			name := s.FullName()
			c.o.Model.SetShut(name, shut(views, name))
			if weighed := havingAgents(views, name); weighed != nil {
				configured := slices.MinFunc(weighed, func(a, b observe.Server) int { return a.ConfiguredWeight - b.ConfiguredWeight }).ConfiguredWeight
				c.o.Model.SeeWeight(name, restarted, configured, func(percent int) bool {
					return !slices.ContainsFunc(weighed, func(s observe.Server) bool { return !s.HasWeight(percent) })
				})
			}
		}
	}
}

// havingAgents are a server's in the HAProxies that can be read and whose agent-check is
// told its weight.
func havingAgents(views []observe.View, server string) (all []observe.Server) {
	for _, v := range views {
		if s, has := v.Servers[server]; has && v.Readable() && s.Agent.Enabled {
			all = append(all, s)
		}
	}
	return all
}

// shut reports whether no HAProxy was last seen to have the server open. One that has never
// been read may have it so.
func shut(views []observe.View, server string) bool {
	for _, v := range views {
		if s, has := v.Servers[server]; v.Servers == nil || has && s.Open() {
			return false
		}
	}
	return len(views) > 0
}

// exposedAfter is how long HAProxy may go on sending to a server that is not ready before
// that is a warning: its checks take an interval to hear of it, and some of them several.
const exposedAfter = 5 * time.Second

var errExposed = errors.New("its checks do not ask tier-agent about that server, or are disabled there; see tier-agent status")

// expose warns, once, of each server that one HAProxy goes on sending requests to although
// the evidence says no.
func (c *Controller) expose(o observe.View) {
	for _, spec := range c.o.Model.Specs() {
		for _, s := range spec.Servers {
			a, known := c.o.Model.Server([]byte(s.FullName()))
			at := place{o.Instance, s.FullName()}
			var err error
			if since := c.exposedSince(at, known && !a.Up && o.Servers[s.FullName()].Takes(), o.At); !since.IsZero() && o.At.Sub(since) >= exposedAfter {
				err = errExposed
			}
			c.complain("exposed "+at.instance+" "+at.server, err, "haproxy sends requests to a server that is not ready, where no gate refuses them",
				"haproxy", o.Instance, "tier", spec.Name, "server", s.FullName(), "reason", a.Reason)
		}
	}
}

// exposedSince is zero for a server that is not exposed now.
func (c *Controller) exposedSince(at place, now bool, seen time.Time) time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !now {
		delete(c.exposed, at)
		return time.Time{}
	}
	if c.exposed[at].IsZero() {
		c.exposed[at] = seen
	}
	return c.exposed[at]
}
