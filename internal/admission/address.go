package admission

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	"tier-agent/internal/observe"
	"tier-agent/internal/probe"
	"tier-agent/internal/runtimeapi"
	"tier-agent/internal/tier"
)

// lookUpWithin bounds the look-up of a probe URL's host name.
const lookUpWithin = time.Second

// comparison is what came of one look at a HAProxy.
type comparison struct {
	at    time.Time         // of the look
	wrong map[string]string // server -> the address that it sends to instead
}

// Compare looks at every HAProxy, and holds where it sends to against where evidence is
// from. Reconcile does so after each look; this is for who does not want to wait for one.
// There must be a Watcher.
func (c *Controller) Compare(ctx context.Context) {
	c.o.Watcher.Look(ctx)
	c.judge()
	for _, o := range c.o.Watcher.Views() {
		c.compare(ctx, o)
	}
}

// compare holds the addresses that one HAProxy sends to against those that
// evidence is about (G11), and tells the model. A name that does not resolve is
// compared with nothing, as no probe of it can pass either.
func (c *Controller) compare(ctx context.Context, o observe.View) {
	version := c.o.Model.Version()
	wrong := map[string]string{}
	for _, spec := range c.o.Model.Specs() {
		for _, s := range spec.Servers {
			if shown, known := o.Servers[s.FullName()]; known {
				if to, _ := sendsElsewhere(ctx, s, shown); to != "" {
					wrong[s.FullName()] = to
				}
			}
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.o.Model.Version() != version {
		return // of servers that may be others now; Replace compares by itself
	}
	before := c.elsewhere[o.Instance]
	if o.At.Before(before.at) {
		return // looking names up has taken longer than the next look
	}
	c.elsewhere[o.Instance] = comparison{o.At, wrong}
	for name := range before.wrong {
		c.o.Model.SetElsewhere(name, c.anywhere(name))
	}
	for name, at := range wrong {
		if before.wrong[name] != at {
			c.o.Log.Warn("haproxy sends to another address than the one that is probed", "haproxy", o.Instance, "server", name)
		}
		c.o.Model.SetElsewhere(name, true)
	}
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

// sendsElsewhere says where a HAProxy sends a server's requests, and where evidence may be
// from instead; empty where that is the same address. What cannot be compared differs, and
// a server that has no address now sends nowhere.
func sendsElsewhere(ctx context.Context, s tier.ServerSpec, shown observe.Server) (to, from string) {
	at := shown.Address
	switch {
	case s.Separate, !at.IsValid() && (shown.Resolving || shown.Spare):
		return "", ""
	case !at.IsValid():
		return unshown, s.Target.Address()
	case s.Target.Unix():
		return at.String(), s.Target.Address()
	}
	if other, may := besides(aboutOf(ctx, s), at); may {
		return at.String(), other.String()
	}
	return "", ""
}

// besides finds an address that evidence may be about although HAProxy sends to another.
// Each probe of a name that has several goes to one of them, and none says to which. One
// of each family is let pass: that is how the names of most hosts are.
func besides(probed []netip.AddrPort, at netip.AddrPort) (netip.AddrPort, bool) {
	known := slices.Contains(probed, at)
	for _, p := range probed {
		if p != at && (!known || p.Addr().Is4() == at.Addr().Is4()) {
			return p, true
		}
	}
	return netip.AddrPort{}, false
}

// aboutOf are the addresses that evidence about a server may be of: of a member the
// one that it is.
func aboutOf(ctx context.Context, s tier.ServerSpec) []netip.AddrPort {
	if s.Address.IsValid() {
		return []netip.AddrPort{s.Address}
	}
	return probedAt(ctx, s.Target)
}

// probedAt are the addresses that a probe of the target may reach; none of a unix socket.
func probedAt(ctx context.Context, t probe.Target) []netip.AddrPort {
	if t.Unix() {
		return nil
	}
	host, digits, _ := net.SplitHostPort(t.Address())
	port, _ := strconv.ParseUint(digits, 10, 16) // the configuration has checked it
	if ip, err := netip.ParseAddr(host); err == nil {
		return []netip.AddrPort{netip.AddrPortFrom(ip.Unmap(), uint16(port))}
	}
	ctx, cancel := context.WithTimeout(ctx, lookUpWithin)
	defer cancel()
	ips, err := net.DefaultResolver.LookupNetIP(ctx, "ip", host)
	if err != nil {
		return nil
	}
	all := make([]netip.AddrPort, len(ips))
	for n, ip := range ips {
		all[n] = netip.AddrPortFrom(ip.Unmap(), uint16(port))
	}
	return all
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
		to, from := sendsElsewhere(ctx, s, observe.ServerOf(row, false))
		if to == "" {
			continue
		}
		// A name with several addresses is no answer to where HAProxy should send.
		if probed := aboutOf(ctx, s); setAddress && to != unshown && only(probed) {
			if _, err := i.SetAddress(ctx, s.Backend, s.Name, probed[0].Addr().String(), int(probed[0].Port())); err != nil {
				return nil, err
			}
			continue
		}
		wrong = append(wrong, fmt.Sprintf("%s: haproxy %s sends to %s, evidence is from %s", s.FullName(), i.Name(), to, from))
	}
	return wrong, nil
}

// only reports whether probes reach one address alone, or one of each family.
func only(probed []netip.AddrPort) bool {
	if len(probed) == 0 {
		return false
	}
	_, several := besides(probed, probed[0])
	return !several
}
