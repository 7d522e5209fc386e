package lab

import (
	"errors"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"

	"golang.org/x/net/dns/dnsmessage"
)

// ttl is short, so that nobody keeps an answer beyond the next question.
const ttl = 1 // second

// SRV is one service record: a host, which has addresses of its own, and a port.
type SRV struct {
	Target string
	Port   uint16
}

// DNS is an authoritative name server over UDP for tests. What Set and SetSRV
// say is answered from the next question on.
type DNS struct {
	conn *net.UDPConn
	done chan struct{} // closed when no question is read any more

	mu    sync.Mutex // protects the rest
	hosts map[string][]netip.Addr
	srv   map[string][]SRV
	asked map[string]int
	mute  bool
}

// StartDNS listens on 127.0.0.1. The port is one of the lab's, or 0 for any.
func StartDNS(port int) (*DNS, error) { return StartDNSAt(fmt.Sprintf("127.0.0.1:%d", port)) }

// StartDNSAt listens on an address and port.
func StartDNSAt(address string) (*DNS, error) {
	at, err := net.ResolveUDPAddr("udp4", address)
	if err != nil {
		return nil, err
	}
	conn, err := net.ListenUDP("udp4", at)
	if err != nil {
		return nil, err
	}
	d := &DNS{
		conn: conn, done: make(chan struct{}),
		hosts: map[string][]netip.Addr{}, srv: map[string][]SRV{}, asked: map[string]int{},
	}
	go d.serve()
	return d, nil
}

// Addr is where it listens, as HAProxy's nameserver line wants it.
func (d *DNS) Addr() string { return d.conn.LocalAddr().String() }

// Close ends the server and returns when it answers nothing more.
func (d *DNS) Close() error {
	err := d.conn.Close()
	<-d.done
	return err
}

// Set gives a name its A records, in the order in which they are answered. With
// no address the name exists and has none; Remove makes it unknown. An address
// that is no IPv4 one is an error, and changes nothing.
func (d *DNS) Set(name string, ips ...string) error {
	var all []netip.Addr
	for _, ip := range ips {
		a, err := netip.ParseAddr(ip)
		if err != nil || !a.Is4() {
			return fmt.Errorf("%s: %q is no IPv4 address such as 127.0.0.2", name, ip)
		}
		all = append(all, a)
	}
	return d.change(name, func(key string) { d.hosts[key] = all })
}

// SetSRV gives a name its service records. An answer brings the addresses of
// their targets along.
func (d *DNS) SetSRV(name string, records ...SRV) error {
	for _, r := range records {
		if _, err := dnsmessage.NewName(fqdn(r.Target)); err != nil {
			return fmt.Errorf("%s: target %q: %w", name, r.Target, err)
		}
	}
	return d.change(name, func(key string) { d.srv[key] = slices.Clone(records) })
}

// Remove makes a name unknown: NXDOMAIN.
func (d *DNS) Remove(name string) error {
	return d.change(name, func(key string) {
		delete(d.hosts, key)
		delete(d.srv, key)
	})
}

// Mute makes the server answer nothing, or answer again.
func (d *DNS) Mute(mute bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.mute = mute
}

// Asked is how many questions about a name have come.
func (d *DNS) Asked(name string) int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.asked[fqdn(name)]
}

func (d *DNS) change(name string, by func(key string)) error {
	if _, err := dnsmessage.NewName(fqdn(name)); err != nil {
		return fmt.Errorf("%q: %w", name, err)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	by(fqdn(name))
	return nil
}

func (d *DNS) serve() {
	defer close(d.done)
	buf := make([]byte, 4096)
	for {
		n, from, err := d.conn.ReadFromUDPAddrPort(buf)
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			continue // an ICMP error about an earlier answer
		}
		if answer := d.answer(buf[:n]); answer != nil {
			_, _ = d.conn.WriteToUDPAddrPort(answer, from)
		}
	}
}

// answer is nil for what is no question, as a name server leaves that alone.
func (d *DNS) answer(packet []byte) []byte {
	var q dnsmessage.Message
	if q.Unpack(packet) != nil || q.Response || len(q.Questions) != 1 {
		return nil
	}
	fits := 512 // RFC 1035; a client that takes more says so in an OPT record
	for _, r := range q.Additionals {
		if r.Header.Type == dnsmessage.TypeOPT {
			fits = max(fits, int(r.Header.Class))
		}
	}
	a := dnsmessage.Message{
		Header: dnsmessage.Header{
			ID: q.ID, Response: true, OpCode: q.OpCode,
			Authoritative: true, RecursionDesired: q.RecursionDesired,
		},
		Questions: q.Questions,
	}
	if !d.fill(&a) {
		return nil
	}
	out, err := a.Pack()
	if err == nil && len(out) > fits {
		a.Truncated, a.Answers, a.Additionals = true, nil, nil
		out, err = a.Pack()
	}
	if err != nil {
		return nil
	}
	return out
}

// fill adds the records, and says whether to answer at all.
func (d *DNS) fill(a *dnsmessage.Message) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	q := a.Questions[0]
	key := fqdn(q.Name.String())
	d.asked[key]++
	ips, host := d.hosts[key]
	services, service := d.srv[key]
	switch {
	case d.mute:
		return false
	case !host && !service:
		a.RCode = dnsmessage.RCodeNameError
	case q.Type == dnsmessage.TypeA:
		a.Answers = addresses(q.Name, ips)
	case q.Type == dnsmessage.TypeSRV:
		targets := map[string]dnsmessage.Name{}
		for _, s := range services {
			target := dnsmessage.MustNewName(fqdn(s.Target)) // SetSRV has tried it
			targets[fqdn(s.Target)] = target
			a.Answers = append(a.Answers, dnsmessage.Resource{
				Header: dnsmessage.ResourceHeader{Name: q.Name, Class: dnsmessage.ClassINET, TTL: ttl},
				Body:   &dnsmessage.SRVResource{Weight: 1, Port: s.Port, Target: target},
			})
		}
		for _, key := range slices.Sorted(maps.Keys(targets)) {
			a.Additionals = append(a.Additionals, addresses(targets[key], d.hosts[key])...)
		}
	}
	return true
}

func addresses(name dnsmessage.Name, ips []netip.Addr) []dnsmessage.Resource {
	var all []dnsmessage.Resource
	for _, ip := range ips {
		all = append(all, dnsmessage.Resource{
			Header: dnsmessage.ResourceHeader{Name: name, Class: dnsmessage.ClassINET, TTL: ttl},
			Body:   &dnsmessage.AResource{A: ip.As4()},
		})
	}
	return all
}

// fqdn is a name as DNS compares it.
func fqdn(name string) string { return strings.ToLower(strings.TrimSuffix(name, ".")) + "." }
