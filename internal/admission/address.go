package admission

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"tier-agent/internal/observe"
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
			if at := o.Servers[s.FullName()].Address; !s.Separate && at.IsValid() {
				if _, may := besides(aboutOf(ctx, s), at); may {
					wrong[s.FullName()] = at.String()
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
	return probedAt(ctx, s.Target.URL)
}

// probedAt are the addresses that a probe of the URL may reach.
func probedAt(ctx context.Context, u *url.URL) []netip.AddrPort {
	port, _ := strconv.ParseUint(portOf(u), 10, 16) // the configuration has checked it
	if ip, err := netip.ParseAddr(u.Hostname()); err == nil {
		return []netip.AddrPort{netip.AddrPortFrom(ip.Unmap(), uint16(port))}
	}
	ctx, cancel := context.WithTimeout(ctx, lookUpWithin)
	defer cancel()
	ips, err := net.DefaultResolver.LookupNetIP(ctx, "ip", u.Hostname())
	if err != nil {
		return nil
	}
	all := make([]netip.AddrPort, len(ips))
	for n, ip := range ips {
		all[n] = netip.AddrPortFrom(ip.Unmap(), uint16(port))
	}
	return all
}

func portOf(u *url.URL) string {
	if given := u.Port(); given != "" {
		return given
	}
	return map[string]string{"http": "80", "https": "443"}[strings.ToLower(u.Scheme)]
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
		if s.Separate {
			continue
		}
		table, read := tables[s.Backend]
		if !read {
			var err error
			if table, err = i.Servers(ctx, s.Backend); err != nil {
				return nil, err
			}
			tables[s.Backend] = table
		}
		row, _ := table.Find(s.Backend, s.Name)
		at, probed := row.At(), aboutOf(ctx, s)
		from, may := besides(probed, at)
		if !at.IsValid() || !may {
			continue
		}
		// A name with several addresses is no answer to where HAProxy should send.
		if _, several := besides(probed, probed[0]); setAddress && !several {
			to := probed[0]
			if _, err := i.SetAddress(ctx, s.Backend, s.Name, to.Addr().String(), int(to.Port())); err != nil {
				return nil, err
			}
			continue
		}
		wrong = append(wrong, fmt.Sprintf("%s: haproxy %s sends to %s, evidence is from %s", s.FullName(), i.Name(), at, from))
	}
	return wrong, nil
}
