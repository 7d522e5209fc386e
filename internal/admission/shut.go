package admission

import (
	"tier-agent/internal/observe"
)

// judge tells the model which servers no HAProxy would send to, by what the watcher has
// seen of their admin states and weights (G14). It is called after each look, and before
// a transition reports what it has done.
func (c *Controller) judge() {
	if c.o.Watcher == nil {
		return
	}
	// One at a time: views that were read earlier must not be published later.
	c.judging.Lock()
	defer c.judging.Unlock()
	views := c.o.Watcher.Views()
	for _, spec := range c.o.Model.Specs() {
		for _, s := range spec.Servers {
			c.o.Model.SetShut(s.FullName(), !spec.AgentWords && shut(views, s.FullName()))
		}
	}
}

// shut reports whether every HAProxy that has the server was last seen to have it closed.
// One that has never been read may have it open.
func shut(views []observe.View, server string) bool {
	closed := false
	for _, v := range views {
		s, has := v.Servers[server]
		if v.Servers == nil || has && s.Open() {
			return false
		}
		closed = closed || has
	}
	return closed
}
