package admission

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"tier-agent/internal/observe"
	"tier-agent/internal/runtimeapi"
	"tier-agent/internal/tier"
)

// WayIn is a way on which the engine of a quiesced server still gets new requests. What
// HAProxy shows of no server is not among them: `option persist`, `force-persist` and
// `use-server` (measured on 2.6, 3.0 and 3.2).
type WayIn struct {
	Instance string `json:"instance"`
	// Server is the "backend/server" of HAProxy that sends them, Of the quiesced one.
	Server string  `json:"server"`
	Of     string  `json:"of"`
	Kind   WayKind `json:"kind"`
	// Message says it in words.
	Message string `json:"message"`
}

// WayKind says what lets requests in.
type WayKind string

// The kinds of ways.
const (
	// WayAddress: another server is open and has the same address.
	WayAddress WayKind = "same_address"
	// WayReturning: the server is drained and not down, and clients come back to it by a
	// cookie or a stick table.
	WayReturning WayKind = "returning_clients"
)

// checksAct is how long after a quiesce checks that ask tier-agent may take until they
// have taken a server down. After that it counts what HAProxy shows.
const checksAct = 10 * time.Second

// ways looks for ways in, in what the HAProxies last showed.
type ways struct {
	*Controller
	now   time.Time
	views []observe.View
	at    []map[netip.AddrPort][]string // the servers at each address, for each view
	tiers map[string][]string           // the tiers that have servers in a backend
	shows map[string]bool               // servers whose checks are told their health also while they are quiesced
}

// Ways are those that are left into each of the targets, which are quiesced; those of
// instances that cannot be read are not known. It reads memory.
func (c *Controller) Ways(targets ...tier.Target) map[tier.Target][]WayIn {
	if c.o.Watcher == nil || len(targets) == 0 {
		return nil
	}
	w := ways{Controller: c, now: time.Now(), tiers: map[string][]string{}, shows: map[string]bool{}}
	for _, v := range c.o.Watcher.Views() {
		if !v.Readable() {
			continue
		}
		at := map[netip.AddrPort][]string{}
		for name, s := range v.Servers {
			if s.Address.IsValid() && !s.Spare {
				at[s.Address] = append(at[s.Address], name)
			}
		}
		w.views, w.at = append(w.views, v), append(w.at, at)
	}
	for _, spec := range c.o.Model.Specs() {
		for _, s := range spec.Servers {
			w.shows[s.FullName()] = spec.QuiescedHealth
			if !slices.Contains(w.tiers[s.Backend], spec.Name) {
				w.tiers[s.Backend] = append(w.tiers[s.Backend], spec.Name)
			}
		}
	}
	all := map[tier.Target][]WayIn{}
	for _, t := range targets {
		if found := w.into(t); found != nil {
			all[t] = found
		}
	}
	return all
}

func (w *ways) into(target tier.Target) (all []WayIn) {
	servers, err := w.o.Model.Servers(target)
	closure, _ := w.o.Model.Closed(target)
	if err != nil || closure == nil {
		return nil
	}
	settled := w.now.Sub(closure.Since) > checksAct
	for n, v := range w.views {
		met := map[string]bool{}
		for _, s := range servers {
			of := s.FullName()
			shown, known := v.Servers[of]
			if !known {
				continue
			}
			for _, name := range append([]string{of}, slices.Sorted(slices.Values(w.at[n][shown.Address]))...) {
				if met[name] {
					continue
				}
				met[name] = true
				if way := w.through(v, name, of, settled); way.Message != "" {
					all = append(all, way)
				}
			}
		}
	}
	return all
}

// through is the way through one server of a HAProxy, of that name or at its address.
func (w *ways) through(v observe.View, name, of string, settled bool) WayIn {
	s, by := v.Servers[name], v.Returning[name]
	way := WayIn{Instance: v.Instance, Server: name, Of: of}
	switch {
	case w.refused(v, name):
	case s.Takes() && name == of && !(w.inWords(of) && by != ""): // opened behind the quiesce, which status and its intent say
	case s.Takes() && name != of:
		way.Kind = WayAddress
		way.Message = fmt.Sprintf("haproxy %s sends requests to %s, which is open and has the address of %s, %s", v.Instance, name, of, s.Address)
	case by != "" && !s.Admin.Maint() && !w.staysDown(v, name, settled):
		way.Kind = WayReturning
		way.Message = fmt.Sprintf("haproxy %s sends clients with %s to %s while that is up: a drain does not hold them off", v.Instance, by, name)
	}
	return way
}

// inWords reports whether a server is driven by the agent-check's words alone. Right after a
// quiesce HAProxy has not heard of it yet.
func (w *ways) inWords(server string) bool {
	a, _ := w.o.Model.Server([]byte(server))
	return a.AgentWords
}

// refused reports whether the gate refuses all that goes to a server's backend: that
// HAProxy asks it about the tier, or each of the tiers, that are there.
func (w *ways) refused(v observe.View, name string) bool {
	backend, _, _ := strings.Cut(name, "/")
	for _, t := range w.tiers[backend] {
		a, known := w.o.Model.Tier([]byte(t))
		if !known || a.Admit || !w.o.Polls.Asks(v, observe.Gate, t, w.now) {
			return false
		}
	}
	return len(w.tiers[backend]) > 0
}

// staysDown reports whether the server is down, or soon is, for as long as its tier is
// quiesced. Where the checks are told its health it is down until its next good probe.
func (w *ways) staysDown(v observe.View, name string, settled bool) bool {
	if w.shows[name] {
		return false
	}
	return v.Servers[name].Operational == runtimeapi.OpStopped || !settled && w.takenDown(v, name)
}

// takenDown reports whether checks of that HAProxy ask about the server, by its name or
// its tier's, and are told that it is down.
func (w *ways) takenDown(v observe.View, name string) bool {
	backend, _, _ := strings.Cut(name, "/")
	told := func(about string, a tier.Answer, known bool) bool {
		asks := func(k observe.Kind) bool { return w.o.Polls.CheckAsks(v, k, name, about, w.now) }
		// In the agent-check's admin words it is drained, and a drain holds nobody off.
		return known && !a.Up && (asks(observe.AgentCheck) && !a.AgentWords || asks(observe.HealthCheck))
	}
	if a, known := w.o.Model.Server([]byte(name)); told(name, a, known) {
		return true
	}
	return slices.ContainsFunc(w.tiers[backend], func(t string) bool {
		a, known := w.o.Model.Tier([]byte(t))
		return told(t, a, known)
	})
}

// waysSaid bounds the ways that a message names; the list has all.
const waysSaid = 3

// waysIn notes which ways are left, and says so in a message.
func (r *run) waysIn() string {
	found := r.Ways(r.Target)[r.Target]
	r.WaysIn = slices.DeleteFunc(found, func(way WayIn) bool { return slices.Contains(r.Without, way.Instance) })
	if len(r.WaysIn) == 0 {
		return ""
	}
	var said []string
	for _, way := range r.WaysIn[:min(len(r.WaysIn), waysSaid)] {
		said = append(said, way.Message)
	}
	if more := len(r.WaysIn) - len(said); more > 0 {
		said = append(said, fmt.Sprintf("%d more", more))
	}
	return "; requests still get in: " + strings.Join(said, "; ")
}
