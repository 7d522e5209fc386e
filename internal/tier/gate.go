package tier

import (
	"net/netip"
	"slices"
	"sync/atomic"
	"time"
)

// Closure says why a tier or a server is quiesced.
type Closure struct {
	Reason string    `json:"reason"`
	Who    string    `json:"who"`
	Since  time.Time `json:"since"`
}

// gate is the local half of admission: open where it has no closing.
type gate struct{ closing atomic.Pointer[closing] }

// closing is what has a gate closed. Once published it is not changed.
type closing struct {
	by      []*Closure // never empty; the first is the one that is shown
	settled bool       // otherwise paused, by each of them; see Pause
}

func (g *gate) closed() *Closure {
	if c := g.closing.Load(); c != nil {
		return c.by[0]
	}
	return nil
}

func (g *gate) settled() bool {
	c := g.closing.Load()
	return c != nil && c.settled
}

// close settles the gate and returns the closure that is shown: an earlier one
// where one stands, otherwise c.
func (g *gate) close(c *Closure) *Closure {
	for {
		standing, next := g.closing.Load(), &closing{by: []*Closure{c}, settled: true}
		if standing != nil {
			if standing.settled {
				return standing.by[0]
			}
			next.by = standing.by[:1:1]
		}
		if g.closing.CompareAndSwap(standing, next) {
			return next.by[0]
		}
	}
}

// pause closes the gate for c, unless a settled closing stands: that one is not
// softened.
func (g *gate) pause(c *Closure) {
	for {
		standing, next := g.closing.Load(), &closing{}
		if standing != nil {
			if standing.settled {
				return
			}
			next.by = slices.Clip(standing.by)
		}
		next.by = append(next.by, c)
		if g.closing.CompareAndSwap(standing, next) {
			return
		}
	}
}

// release takes c off a gate that is paused, and opens it where nobody else
// pauses it.
func (g *gate) release(c *Closure) {
	for {
		standing := g.closing.Load()
		if standing == nil || standing.settled || !slices.Contains(standing.by, c) {
			return
		}
		var next *closing
		if len(standing.by) > 1 {
			mine := func(other *Closure) bool { return other == c }
			next = &closing{by: slices.DeleteFunc(slices.Clone(standing.by), mine)}
		}
		if g.closing.CompareAndSwap(standing, next) {
			return
		}
	}
}

// state is what a server keeps while the configuration names it in its tier
// without a gap, whatever else about it changes: the views share it.
type state struct {
	gate      gate
	suspended atomic.Int32 // > 0: the monitor leaves it alone
	elsewhere atomic.Bool  // HAProxy sends to another address than the one that is configured
	// sent is where each HAProxy sends the requests of a server that is probed by name.
	sent    atomic.Pointer[[]netip.AddrPort]
	reached atomic.Pointer[netip.AddrPort] // by the last probe that was connected
	shut    atomic.Bool                    // no HAProxy sends there, by its administration or weight
	sight   atomic.Pointer[sight]
	settled atomic.Int32              // the weight in percent that HAProxy was last seen to have taken, or asConfigured or unsettled
	least   atomic.Int32              // the percent below which HAProxy would make 0 of its configured weight
	byHand  atomic.Bool               // HAProxy has another weight, which nobody here has told it
	ramp    atomic.Pointer[time.Time] // when its weight began to grow; nil where it never did
}

// Target names what a transition is about: a tier, or one server of it.
type Target struct {
	Tier   string `json:"tier"`
	Server string `json:"server,omitempty"` // "backend/server"; empty for the whole tier
}

// String gives the tier, or tier and server, as an operator would name them.
func (t Target) String() string {
	if t.Server == "" {
		return t.Tier
	}
	return t.Tier + " (" + t.Server + ")"
}
