package spoe

import (
	"context"
	"io"
	"maps"
	"net"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"tier-agent/internal/fence"
	"tier-agent/test/guarantee"
	"tier-agent/test/socketdir"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// table is a Source: its keys are "tier" and "tier backend/server". The tier
// "bad" panics.
type table map[string]Verdict

func (s table) SPOEVerdict(tier, server []byte) (Verdict, bool) {
	name := string(tier)
	if name == "bad" {
		panic("secret")
	}
	if len(server) > 0 {
		name += " " + string(server)
	}
	v, known := s[name]
	return v, known
}

var (
	ready = Verdict{
		Admit: true, Reason: "ready", Generation: fence.Generation{Global: 1, Tier: 14},
		Age: 1500 * time.Millisecond, HasEvidence: true,
	}
	stale = Verdict{
		Reason: "probe_stale", Generation: fence.Generation{Global: 1, Tier: 14, Server: 9},
		Age: 240 * time.Millisecond, HasEvidence: true,
	}
	tiers = table{"gold": ready, "gold be/s1": ready, "gold be/s2": stale, "lead": stale, "lead be/s3": stale}
)

// tally counts kinds, by name.
type tally struct {
	mu    sync.Mutex // protects kinds
	kinds map[string]int
}

func (a *tally) answers(k Kind, n int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.kinds == nil {
		a.kinds = map[string]int{}
	}
	a.kinds[k.String()] += n
}

func (a *tally) end(k Kind) { a.answers(k, 1) }

func (a *tally) all() map[string]int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return maps.Clone(a.kinds)
}

// with sets the two hooks of o.
func (a *tally) with(o Options) Options {
	o.OnAnswers, o.OnEnd = a.answers, a.end
	return o
}

// memory is a connection that is read in the given pieces and then has ended.
type memory struct {
	net.Conn // nil: nothing else may be called
	pieces   [][]byte
	writes   [][]byte
	closed   bool
	readBy   int // how often a deadline was set
	writeBy  int
}

func (c *memory) Read(b []byte) (int, error) {
	if len(c.pieces) == 0 {
		return 0, io.EOF
	}
	n := copy(b, c.pieces[0])
	if c.pieces[0] = c.pieces[0][n:]; len(c.pieces[0]) == 0 {
		c.pieces = c.pieces[1:]
	}
	return n, nil
}

func (c *memory) Write(b []byte) (int, error) {
	c.writes = append(c.writes, slices.Clone(b))
	return len(b), nil
}

func (c *memory) Close() error                     { c.closed = true; return nil }
func (c *memory) SetReadDeadline(time.Time) error  { c.readBy++; return nil }
func (c *memory) SetWriteDeadline(time.Time) error { c.writeBy++; return nil }
func (c *memory) RemoteAddr() net.Addr             { return &net.TCPAddr{IP: net.IPv4(192, 0, 2, 1), Port: 1} }
func (c *memory) written() []byte                  { return slices.Concat(c.writes...) }

// talk runs one conversation from its first byte to its end.
func talk(tb testing.TB, src Source, o Options, pieces ...[]byte) (*memory, map[string]int) {
	tb.Helper()
	var kinds tally
	s, nc := NewServer(src, kinds.with(o)), &memory{pieces: pieces}
	var running sync.WaitGroup
	s.start(nc, &running)
	running.Wait()
	assert.True(guarantee.T(tb), nc.closed)
	assert.Empty(guarantee.T(tb), s.live)
	assert.Empty(guarantee.T(tb), s.peers)
	return nc, kinds.all()
}

// serve runs a server on ln until stop, which fails on anything but a clean end.
func serve(tb testing.TB, src Source, o Options, ln net.Listener) (s *Server, stop func()) {
	tb.Helper()
	s = NewServer(src, o)
	served := make(chan error, 1)
	go func() { served <- s.Serve(context.Background(), ln) }()
	return s, func() {
		assert.NoError(tb, s.Shutdown(context.Background()))
		assert.NoError(tb, <-served)
		assert.Zero(guarantee.T(tb), s.Connections())
		assert.Empty(guarantee.T(tb), s.peers)
	}
}

// listen gives a real listener, on loopback or in a folder of the test's.
func listen(tb testing.TB, network string) net.Listener {
	tb.Helper()
	addr := "127.0.0.1:0"
	if network == "unix" {
		addr = socketdir.New(tb) + "/s"
	}
	ln, err := net.Listen(network, addr)
	require.NoError(tb, err)
	return ln
}

// serveTCP is serve on a loopback socket; it stops at the end of the test.
func serveTCP(tb testing.TB, src Source, o Options) (s *Server, ln net.Listener) {
	tb.Helper()
	ln = listen(tb, "tcp")
	s, stop := serve(tb, src, o, ln)
	tb.Cleanup(stop)
	return s, ln
}

func dial(tb testing.TB, ln net.Listener) net.Conn {
	tb.Helper()
	c, err := net.Dial(ln.Addr().Network(), ln.Addr().String())
	require.NoError(tb, err)
	tb.Cleanup(func() { _ = c.Close() })
	return c
}

// send writes and fails where that fails.
func send(tb testing.TB, c net.Conn, frames ...[]byte) {
	tb.Helper()
	_, err := c.Write(slices.Concat(frames...))
	require.NoError(tb, err)
}

// rest reads to the end.
func rest(tb testing.TB, c net.Conn) []received {
	tb.Helper()
	b, err := io.ReadAll(c)
	require.NoError(tb, err)
	return split(tb, b)
}
