package probe

import (
	"context"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"time"

	"golang.org/x/sync/singleflight"
)

// maxAddresses bounds how many addresses of a name are tried.
const maxAddresses = 16

// connect goes to where the probe has been before, so that all of it is about one address.
// The first time it looks a name up, once, and goes to the address that is preferred, where
// the name has it: that is where requests go, and another one's answer says nothing of it.
// Otherwise to the first that lets itself be connected to.
func (r *run) connect() (net.Conn, error) {
	u := r.target.URL
	if r.target.Unix() {
		return r.prober.dial(r.ctx, "unix", u.Path)
	}
	if r.reached.IsValid() {
		return r.dial(r.ctx, r.reached)
	}
	host := u.Hostname()
	port, err := strconv.ParseUint(portOf(u), 10, 16)
	if err != nil {
		return nil, err
	}
	at := func(ip netip.Addr) netip.AddrPort { return netip.AddrPortFrom(ip.Unmap(), uint16(port)) }
	if ip, err := netip.ParseAddr(host); err == nil {
		return r.dial(r.ctx, at(ip))
	}
	if r.prober.lookUp == nil {
		return r.prober.dial(r.ctx, "tcp", r.target.Address())
	}
	ips, err := r.prober.lookUp(r.ctx, host)
	if err != nil {
		return nil, err
	}
	var all []netip.AddrPort
	for _, ip := range ips[:min(len(ips), maxAddresses)] {
		all = append(all, at(ip))
	}
	if slices.Contains(all, r.target.Prefer) {
		all = []netip.AddrPort{r.target.Prefer}
	}
	if len(all) == 0 {
		return nil, &net.DNSError{Err: "no address", Name: host, IsNotFound: true}
	}
	var first error
	for n, to := range all {
		ctx, cancel := share(r.ctx, len(all)-n)
		conn, err := r.dial(ctx, to)
		cancel()
		if err == nil {
			return conn, nil
		}
		if first == nil {
			first = err
		}
	}
	return nil, first
}

// lookUps has one look-up of each name under way. One that a probe has given up goes on until
// the resolver gives up, with the files that it holds.
var lookUps singleflight.Group

// lookUpWithin is longer than the resolver takes for one name server.
const lookUpWithin = 10 * time.Second

func lookUpOnce(ctx context.Context, host string) ([]netip.Addr, error) {
	found := lookUps.DoChan(host, func() (any, error) {
		ctx, cancel := context.WithTimeout(context.Background(), lookUpWithin)
		defer cancel()
		return net.DefaultResolver.LookupNetIP(ctx, "ip", host)
	})
	select {
	case r := <-found:
		ips, _ := r.Val.([]netip.Addr) // nil with an error
		return ips, r.Err
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func (r *run) dial(ctx context.Context, to netip.AddrPort) (net.Conn, error) {
	conn, err := r.prober.dial(ctx, "tcp", to.String())
	if err == nil {
		r.reached = to
	}
	return conn, err
}

// share ends a context after its part of the time that is left for so many.
func share(ctx context.Context, among int) (context.Context, context.CancelFunc) {
	end, _ := ctx.Deadline() // every probe has one
	left := time.Until(end)
	return context.WithTimeout(ctx, left/time.Duration(among))
}
