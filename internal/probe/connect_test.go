package probe

import (
	"context"
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"tier-agent/test/guarantee"
)

// engines serves one model each, by address, all on one port of loopback.
func engines(t *testing.T, hosts ...string) (port uint16, asked map[string]*atomic.Int32) {
	t.Helper()
	asked = map[string]*atomic.Int32{}
	for _, host := range hosts {
		ln, err := net.Listen("tcp", net.JoinHostPort(host, strconv.Itoa(int(port))))
		require.NoError(t, err)
		port = uint16(ln.Addr().(*net.TCPAddr).Port)
		count := new(atomic.Int32)
		asked[host] = count
		s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			count.Add(1)
			w.Header().Set("Connection", "close") // the next step goes over another connection
			_, _ = w.Write([]byte(`{"data":[{"id":"m"}]}`))
		}))
		_ = s.Listener.Close()
		s.Listener = ln
		s.Start()
		t.Cleanup(s.Close)
	}
	return port, asked
}

// A name that gives one address per answer, in turn: a probe is about one of them, and says
// which. It prefers the one that requests go to.
//
// Controls: without reached in connect, health was asked of one engine and identity of the
// other; without Prefer the second probe was about 127.0.0.2.
func TestAProbeByNameIsAboutOneAddress(t *testing.T) {
	port, asked := engines(t, "127.0.0.1", "127.0.0.2")
	one, two := netip.MustParseAddr("127.0.0.1"), netip.MustParseAddr("127.0.0.2")
	var answer []netip.Addr
	var failure error
	lookUps := 0
	p := New(Options{LookUp: func(_ context.Context, host string) ([]netip.Addr, error) {
		assert.Equal(t, "engine.test", host)
		lookUps++
		return answer, failure
	}})
	target := Target{
		URL: &url.URL{Scheme: "http", Host: net.JoinHostPort("engine.test", strconv.Itoa(int(port)))}, Timeout: 5 * time.Second,
		Health: Health{Path: "/health"}, Identity: &Identity{Path: "/v1/models", ID: "m"},
	}
	for _, c := range []struct {
		what          string
		answer        []netip.Addr
		prefer, reach netip.Addr
	}{
		{"one address", []netip.Addr{one}, netip.Addr{}, one},
		{"the preferred one", []netip.Addr{two, one}, one, one},
		{"a name that has it no more", []netip.Addr{two}, one, two},
		{"the first that can be reached", []netip.Addr{netip.MustParseAddr("127.0.0.3"), two}, netip.Addr{}, two},
		{"IPv4 written as IPv6", []netip.Addr{netip.AddrFrom16(one.As16())}, one, one},
	} {
		for _, count := range asked {
			count.Store(0)
		}
		answer, lookUps = c.answer, 0
		target.Prefer = netip.AddrPortFrom(c.prefer, port)
		r := p.Probe(t.Context(), target)
		require.True(t, r.Ready, "%s: %s", c.what, r.Reason)
		assert.Equal(guarantee.T(t), netip.AddrPortFrom(c.reach, port), r.Reached, c.what)
		assert.EqualValues(guarantee.T(t), 2, asked[c.reach.String()].Load(), "%s: all of it is asked there", c.what)
		assert.Equal(t, 1, lookUps, "%s: no second look-up", c.what)
	}

	// The preferred one is not passed over for one that answers: requests go there.
	answer, target.Prefer = []netip.Addr{netip.MustParseAddr("127.0.0.3"), two}, netip.AddrPortFrom(netip.MustParseAddr("127.0.0.3"), port)
	r := p.Probe(t.Context(), target)
	assert.Equal(guarantee.T(t), "health_transport_refused", r.Reason)
	assert.False(t, r.Reached.IsValid())
	answer = nil
	assert.Equal(t, "health_transport_dns", p.Probe(t.Context(), target).Reason, "no address")
	failure = &net.DNSError{Err: "no such host", Name: "engine.test", IsNotFound: true}
	assert.Equal(t, "health_transport_dns", p.Probe(t.Context(), target).Reason)
	failure = errors.New("what no resolver says")
	assert.Equal(t, "health_transport_other", p.Probe(t.Context(), target).Reason)
}
