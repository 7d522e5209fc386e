package admission

import (
	"context"
	"fmt"
	"net/netip"
	"strings"
	"time"

	"tier-agent/internal/observe"
	"tier-agent/internal/runtimeapi"
	"tier-agent/internal/tier"
)

// comparison is what came of one look at a HAProxy.
type comparison struct {
	at    time.Time                 // of the look
	wrong map[string]string         // server -> the address that it sends to instead of the configured one
	sent  map[string]netip.AddrPort // server that is probed by name -> the address that it sends to
	told  map[string]bool           // servers of sent whose evidence is from elsewhere
}

// Compare looks at every HAProxy, and holds where it sends to against where evidence is
// from. Reconcile does so after each look; this is for who does not want to wait for one.
// There must be a Watcher.
func (c *Controller) Compare(ctx context.Context) {
	c.o.Watcher.Look(ctx)
	c.judge()
	for _, o := range c.o.Watcher.Views() {
		c.compare(o)
	}
}

// compare holds the addresses that one HAProxy sends to against those that
// evidence is about (G11), and tells the model. Of a name that is the one which a probe
// has reached, so the model compares by itself.
func (c *Controller) compare(o observe.View) {
	// Held over the reading of the specs, too: the comparison of a Replace comes after it.
	c.mu.Lock()
	defer c.mu.Unlock()
	before := c.elsewhere[o.Instance]
	if o.At.Before(before.at) {
		return
	}
	now := comparison{at: o.At, wrong: map[string]string{}, sent: map[string]netip.AddrPort{}, told: map[string]bool{}}
	for _, spec := range c.o.Model.Specs() {
		for _, s := range spec.Servers {
			shown, known := o.Servers[s.FullName()]
			if !known {
				continue
			}
			if byName(s) && shown.Address.IsValid() {
				now.sent[s.FullName()] = shown.Address
			} else if to, _ := sendsElsewhere(s, shown, netip.AddrPort{}); to != "" {
				now.wrong[s.FullName()] = to
			}
		}
	}
	c.elsewhere[o.Instance] = now
	for name := range before.wrong {
		c.o.Model.SetElsewhere(name, c.anywhere(name))
	}
	for name, at := range now.wrong {
		c.o.Model.SetElsewhere(name, true)
		if before.wrong[name] != at {
			c.warnElsewhere(o.Instance, name)
		}
	}
	for name := range before.sent {
		c.o.Model.SetSent(name, c.sent(name))
	}
	for name, at := range now.sent {
		c.o.Model.SetSent(name, c.sent(name))
		if reached := c.o.Model.Reached(name); reached.IsValid() && reached != at {
			if now.told[name] = true; !before.told[name] {
				c.warnElsewhere(o.Instance, name)
			}
		}
	}
}

func (c *Controller) warnElsewhere(instance, server string) {
	c.o.Log.Warn("haproxy sends to another address than the one that is probed", "haproxy", instance, "server", server)
}

// sent is where the HAProxies send the requests of a server that is probed by name. mu must
// be held.
func (c *Controller) sent(name string) []netip.AddrPort {
	var all []netip.AddrPort
	for _, one := range c.elsewhere {
		if at, known := one.sent[name]; known {
			all = append(all, at)
		}
	}
	return all
}

// anywhere reports whether some HAProxy sends the server's requests elsewhere.
// mu must be held.
func (c *Controller) anywhere(name string) bool {
	for _, one := range c.elsewhere {
		if one.wrong[name] != "" {
			return true
		}
	}
	return false
}

// A HAProxy that sends to a unix socket, or to the port that its client has come to, shows
// neither.
const unshown = "an address that it does not show (a unix socket?)"

// sendsElsewhere says where a HAProxy sends a server's requests, and where evidence is
// from instead; empty where that is the same address. What cannot be compared differs, and
// a server that has no address now sends nowhere. reached is where evidence is from that was
// taken by name; where that is not valid there is none, and nothing to compare.
func sendsElsewhere(s tier.ServerSpec, shown observe.Server, reached netip.AddrPort) (to, from string) {
	at := shown.Address
	switch {
	case s.Separate, !at.IsValid() && (shown.Resolving || shown.Spare):
		return "", ""
	case !at.IsValid():
		return unshown, s.Target.Address()
	case s.Target.Unix():
		return at.String(), s.Target.Address()
	}
	if !byName(s) {
		reached = probedAt(s)
	}
	if reached.IsValid() && reached != at {
		return at.String(), reached.String()
	}
	return "", ""
}

// byName reports whether where a server is probed is known by its probes alone, and is
// compared.
func byName(s tier.ServerSpec) bool { return !s.Separate && !s.Target.Unix() && !probedAt(s).IsValid() }

// probedAt is where a server is probed, of a member the address that it is; not valid where
// that is a name or a unix socket.
func probedAt(s tier.ServerSpec) netip.AddrPort {
	if s.Address.IsValid() {
		return s.Address
	}
	at, _ := netip.ParseAddrPort(s.Target.Address())
	return netip.AddrPortFrom(at.Addr().Unmap(), at.Port())
}

// sameAddress refuses a readmit of servers that HAProxy sends elsewhere, or
// with set makes HAProxy send where evidence is taken.
func (r *run) sameAddress(ctx context.Context, setAddress bool) *Result {
	var wrong []string
	results := runtimeapi.Each(ctx, r.set, func(ctx context.Context, i *runtimeapi.Instance) ([]string, error) {
		return r.elsewhereOn(ctx, i, setAddress)
	})
	for _, one := range results {
		if one.Err != nil {
			return keep(r.refuse(CodeHAProxy, "%s stays quiesced: %v", r.Target, one.Err))
		}
		wrong = append(wrong, one.Value...)
	}
	if wrong != nil {
		return keep(r.refuse(CodeAddress, "%s stays quiesced: evidence is about another address than the one that HAProxy sends to (%s); correct one of them, say --set-address to change HAProxy's, or declare it with address: separate", r.Target, strings.Join(wrong, "; ")))
	}
	if setAddress && r.o.Watcher != nil {
		r.Compare(ctx)
	}
	return nil
}

// elsewhereOn names the servers that one HAProxy sends elsewhere, both addresses
// with it, or sets the address and names those where that failed.
func (r *run) elsewhereOn(ctx context.Context, i *runtimeapi.Instance, setAddress bool) ([]string, error) {
	var wrong []string
	tables := map[string]runtimeapi.ServersState{}
	for _, s := range r.servers {
		table, read := tables[s.Backend]
		if !read {
			var err error
			if table, err = i.Servers(ctx, s.Backend); err != nil {
				return nil, err
			}
			tables[s.Backend] = table
		}
		row, known := table.Find(s.Backend, s.Name)
		if !known {
			continue
		}
		reached := r.o.Model.Reached(s.FullName())
		to, from := sendsElsewhere(s, observe.ServerOf(row, false), reached)
		if to == "" {
			continue
		}
		if !byName(s) {
			reached = probedAt(s)
		}
		if setAddress && to != unshown && reached.IsValid() {
			if _, err := i.SetAddress(ctx, s.Backend, s.Name, reached.Addr().String(), int(reached.Port())); err != nil {
				return nil, err
			}
			continue
		}
		wrong = append(wrong, fmt.Sprintf("%s: haproxy %s sends to %s, evidence is from %s", s.FullName(), i.Name(), to, from))
	}
	return wrong, nil
}
