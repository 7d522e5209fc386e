// Package probe looks at one server once: HTTP health, then identity, then metadata; or, as a
// probe of its own kind, one request that makes it work (Exercise). A probe ends at the latest at
// its one deadline, and what it reports is either that every required step passed or a reason
// from a closed vocabulary that holds nothing the server sent. Its own text is reported only from
// the fields that Metadata.Collect names.
//
// # One connection, made for the probe
//
// A probe opens a connection of its own and closes it at its end, so it can never be carried by
// one that still leads to the process that is being replaced. Its requests share that connection
// as long as the server keeps it, so health and identity speak of one process. Where the server
// ends the connection by the rules (Connection: close, HTTP/1.0, a body that ends with the
// connection) or sends a health body longer than MaxBody, the next step goes over a new one.
// Where the server promised to keep it and then did not, the step fails with
// transport_closed or transport_reset: that is how a process looks that ends between two steps,
// and joining its health with the identity of its successor would make evidence of neither.
// Nothing is ever sent twice.
//
// net/http's Transport is not used because it repeats a GET on a new connection when a reused
// one breaks; one made for each probe also takes about twice the processor time (BenchmarkProbe).
// Requests are written and answers are read by net/http (Request.Write, ReadResponse), in the
// caller's goroutine.
package probe

import (
	"cmp"
	"context"
	"crypto/tls"
	"net"
	"net/netip"
	"net/url"
	"strings"
	"time"

	"tier-agent/internal/patient"
)

// Bounds of Target.MaxBody, in bytes. A value outside is moved to the nearer one.
const (
	MinBody = 256
	MaxBody = 1 << 20
)

// Target is what to probe and what has to hold.
type Target struct {
	// URL is the base: http or https, whose path is the prefix of the paths below, and whose
	// user and query are not sent; or unix, whose path is the socket of an HTTP server.
	URL      *url.URL
	Health   Health        // always asked, first
	Identity *Identity     // nil: not required
	Metadata *Metadata     // nil: not required
	Exercise *Exercise     // nil: none. Probe leaves it out: it is asked by Prober.Exercise alone
	Timeout  time.Duration // over everything that Probe does: name lookup, connect, TLS and all requests; none is left at 0 or below
	MaxBody  int64         // bytes per answer, MinBody to MaxBody
	// Prefer is the address to connect to where URL's host is a name that has it; otherwise
	// the name's addresses are tried in the order in which they come.
	Prefer netip.AddrPort
}

const schemeUnix = "unix"

// Unix reports whether the target is the socket of a path.
func (t Target) Unix() bool { return t.URL != nil && t.URL.Scheme == schemeUnix }

// Address is where probes connect: host:port, or unix:path.
func (t Target) Address() string {
	if t.Unix() {
		return "unix:" + t.URL.Path
	}
	return net.JoinHostPort(t.URL.Hostname(), portOf(t.URL))
}

func portOf(u *url.URL) string {
	return cmp.Or(u.Port(), map[string]string{"http": "80", "https": "443"}[strings.ToLower(u.Scheme)])
}

// Health passes when GET Path is answered with StatusMin to StatusMax, both included. Without
// either bound it is 200 to 399, the range that HAProxy's httpchk takes (configuration manual,
// "option httpchk"). A redirect is never followed: it counts as the status that it is.
type Health struct {
	Path      string // may carry a query after "?", like the other paths
	StatusMin int
	StatusMax int
}

// Identity passes when GET Path is answered with 200 to 299 and a JSON list, at the top or under
// "data", in which one object has an "id" equal to ID, byte for byte.
type Identity struct {
	Path  string
	ID    string
	Token func(context.Context) (string, error) // bearer token of this one request; nil: none. It has to return when its context ends
}

// Metadata passes when GET Path is answered with 200 to 299 and a JSON object that has every
// field of Fields and of Collect. A name is a path into nested objects with dots between the keys.
//
// A value of Fields is a string, bool, int64, uint64 or float64, or a []any of them, of which the
// field has to equal one. Numbers compare by their exact decimal value, a float64 by its shortest
// decimal form, so 2 equals 2.0 and no integer is rounded. Types do not mix: "42" is not 42.
//
// Collect names fields that may have any value, at most MaxCollect of them, for rules that compare
// a server with others or with its own past. Two values have the same text in Result.Metadata
// exactly when they are equal as above: a number is in one decimal form, and a string stands as it
// is unless it could be taken for something else (it is JSON, begins with a quotation mark, or
// holds what is not printable), when it is quoted as in Go. A field that is not there, null, an
// empty string, a list, an object or what cannot be compared (half a surrogate pair, an exponent
// beyond 32 bits) is metadata_missing; a text of more than 256 bytes is metadata_oversized, never
// cut.
type Metadata struct {
	Path    string
	Fields  map[string]any
	Collect []string
}

// MaxCollect bounds Metadata.Collect; no server has what a longer one asks for.
const MaxCollect = 16

// Result is what a probe saw.
type Result struct {
	Ready  bool
	Reason string // one of Reasons
	// Healthy: the health step has passed, whatever came of the steps behind it.
	Healthy bool
	// Reached is the address that the connections of the probe have got to; not valid where
	// there was none, or none of IP.
	Reached netip.AddrPort
	// Metadata, only with Ready, has the required fields with the value that each was seen to
	// equal, as it is written in Fields: at most 64, each name and value cut at 256 bytes. It also
	// has the collected ones, which alone are the server's own text and can be compared. A field
	// that is both is written as a collected one.
	Metadata map[string]string
}

// Options are what all probes of a Prober share.
type Options struct {
	// DialContext replaces net.Dialer, for tests, and without LookUp is given names as they
	// are. It has to return when its context ends.
	DialContext func(ctx context.Context, network, address string) (net.Conn, error)
	// LookUp replaces the system's resolver, for tests.
	LookUp    func(ctx context.Context, host string) ([]netip.Addr, error)
	TLS       *tls.Config // for https; RootCAs mostly. ALPN is always http/1.1
	UserAgent string      // "tier-agent" if empty
}

// Prober runs probes. It holds no connection between them and may be used by any number of
// goroutines at once.
type Prober struct {
	dial      func(ctx context.Context, network, address string) (net.Conn, error)
	lookUp    func(ctx context.Context, host string) ([]netip.Addr, error)
	tls       *tls.Config
	userAgent string
}

// New makes a Prober.
func New(o Options) *Prober {
	p := &Prober{dial: o.DialContext, lookUp: o.LookUp, tls: &tls.Config{}, userAgent: o.UserAgent}
	if p.lookUp == nil && p.dial == nil {
		p.lookUp = lookUpOnce
	}
	if p.dial == nil {
		// It sets no TCP keep-alive, which a connection that lives for one probe does not need.
		p.dial = patient.Dial
	}
	if o.TLS != nil {
		p.tls = o.TLS.Clone()
	}
	p.tls.NextProtos = []string{"http/1.1"}
	if p.userAgent == "" {
		p.userAgent = "tier-agent"
	}
	return p
}

// Probe looks at t once. It returns at the latest when t.Timeout has passed or ctx has ended,
// never panics, and has closed its connection when it returns.
func (p *Prober) Probe(ctx context.Context, t Target) Result {
	return p.look(ctx, t, stepHealth, t.Timeout, (*run).all)
}

// look runs steps, which begin with first and return why they failed, or "".
func (p *Prober) look(ctx context.Context, t Target, first step, timeout time.Duration, steps func(*run) string) (result Result) {
	r := &run{prober: p, target: t, step: first}
	defer func() {
		// What a dialer, a TLS callback or the parser of an answer does wrong must cost one
		// probe, not the process.
		if recover() != nil {
			result = Result{Reason: transport(r.step, classOther), Healthy: r.healthy}
		}
		result.Reached = r.reached
	}()
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	defer r.hangUp()
	r.ctx = ctx
	r.target.MaxBody = min(max(t.MaxBody, MinBody), MaxBody)
	if u := t.URL; u == nil || !t.Unix() && (u.Hostname() == "" || u.Scheme != "http" && u.Scheme != "https") {
		return Result{Reason: reasonFor(ctx, first, wrap(errTarget, classOther))}
	}
	if failed := steps(r); failed != "" {
		return Result{Reason: failed, Healthy: r.healthy}
	}
	// An answer that arrived in time but was judged too late is late.
	if err := ctx.Err(); err != nil {
		return Result{Reason: reasonFor(ctx, r.step, err), Healthy: r.healthy && r.step != stepHealth}
	}
	return Result{Ready: true, Reason: r.step.passed(), Healthy: r.healthy, Metadata: r.seen}
}
