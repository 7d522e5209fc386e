package agentcheck

import (
	"context"
	"io"
	"net"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"tier-agent/test/guarantee"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// table is a Source: what it has is ready, "bad" panics.
type table map[string]State

func (s table) AgentState(name []byte) (State, bool) {
	if string(name) == "bad" {
		panic("secret")
	}
	st, ok := s[string(name)]
	return st, ok
}

func (s table) Continues(begun []byte) bool {
	if string(begun) == "bad" {
		panic("secret")
	}
	for name := range s {
		if len(name) > len(begun) && strings.HasPrefix(name, string(begun)) {
			return true
		}
	}
	return false
}

var oneReady = table{"be/s1": {Ready: true}}

// tally counts kinds.
type tally struct {
	mu    sync.Mutex // protects kinds
	kinds map[string]int
}

func (a *tally) add(kind string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.kinds == nil {
		a.kinds = map[string]int{}
	}
	a.kinds[kind]++
}

func (a *tally) all() map[string]int {
	a.mu.Lock()
	defer a.mu.Unlock()
	got := map[string]int{}
	for k, n := range a.kinds {
		got[k] = n
	}
	return got
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
		assert.Zero(guarantee.T(tb), s.live)
		assert.Empty(guarantee.T(tb), s.peers)
	}
}

// serveTCP is serve on a loopback socket; it stops at the end of the test.
func serveTCP(tb testing.TB, src Source, o Options) (s *Server, addr string) {
	tb.Helper()
	ln := listenLoopback(tb)
	s, stop := serve(tb, src, o, ln)
	tb.Cleanup(stop)
	return s, ln.Addr().String()
}

func dialTCP(tb testing.TB, addr string) *net.TCPConn {
	tb.Helper()
	c, err := net.Dial("tcp", addr)
	require.NoError(tb, err)
	tb.Cleanup(func() { _ = c.Close() })
	return c.(*net.TCPConn)
}

// poll sends request and returns all that comes back.
func poll(tb testing.TB, addr, request string) string {
	tb.Helper()
	c := dialTCP(tb, addr)
	_, err := io.WriteString(c, request)
	require.NoError(tb, err)
	got, err := io.ReadAll(c)
	require.NoError(tb, err)
	return string(got)
}
