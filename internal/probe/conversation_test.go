package probe

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"tier-agent/test/guarantee"
)

var quiet = log.New(io.Discard, "", 0)

// recorder is an engine that is well, and notes what it is asked.
type recorder struct {
	*httptest.Server
	url      *url.URL
	mu       sync.Mutex
	requests []*http.Request // guarded by mu
}

func record(t testing.TB) *recorder {
	r := &recorder{}
	r.Server = httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		r.mu.Lock()
		r.requests = append(r.requests, q)
		r.mu.Unlock()
		switch {
		case strings.HasSuffix(q.URL.Path, "/v1/models"):
			_, _ = io.WriteString(w, models)
		case strings.HasSuffix(q.URL.Path, "/info"):
			_, _ = io.WriteString(w, info)
		}
	}))
	r.Config.ErrorLog = quiet
	r.Start()
	t.Cleanup(r.Close)
	u, err := url.Parse(r.URL)
	require.NoError(t, err)
	r.url = u
	return r
}

func (r *recorder) seen() []*http.Request {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append([]*http.Request(nil), r.requests...)
}

// Negative controls: with the Prober keeping the line of the last probe, the two probes had one
// address; with hangUp called at the end of every step, one probe had three.
func TestOneConnectionForEachProbe(t *testing.T) {
	e := record(t)
	p := New(Options{})
	for range 2 {
		require.True(t, p.Probe(t.Context(), want(e.url).withIdentity().withMetadata()).Ready)
	}
	q := e.seen()
	require.Len(t, q, 6)
	for i := range q {
		assert.Equal(t, q[i/3*3].RemoteAddr, q[i].RemoteAddr, "request %d of one probe", i)
	}
	assert.NotEqual(t, q[0].RemoteAddr, q[3].RemoteAddr, "two probes")
	assert.Equal(t, []bool{false, false, true}, []bool{q[0].Close, q[1].Close, q[2].Close}, "the last request says that it is the last")
}

// Negative control: with one line kept in the Prober for all, the race detector stopped this.
func TestManyProbesAtOnce(t *testing.T) {
	e := record(t)
	p := New(Options{})
	var wg sync.WaitGroup
	for range 16 {
		wg.Go(func() { assert.True(t, p.Probe(t.Context(), want(e.url).withIdentity()).Ready) })
	}
	wg.Wait()
	requests := map[string]int{}
	for _, q := range e.seen() {
		requests[q.RemoteAddr]++
	}
	assert.Len(t, requests, 16)
	for address, n := range requests {
		assert.Equal(t, 2, n, address)
	}
}

// Where the server ends the connection by the rules, the next step opens another. Where it
// breaks its word the step fails, and no request is sent twice.
//
// Negative controls: without keep's look at answer.Close the first three rows failed as closed
// or reset; without its look at n, "body beyond MaxBody" failed as protocol.
func TestServerThatClosesBetweenSteps(t *testing.T) {
	big := strings.Repeat("x", 5000)
	for _, c := range []struct {
		name, health string
	}{
		{"connection close", "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\nok"},
		{"http 1.0", "HTTP/1.0 200 OK\r\nContent-Length: 2\r\n\r\nok"},
		{"body ends with the connection", "HTTP/1.1 200 OK\r\n\r\nok"},
		{"body beyond MaxBody", ok(big)},
	} {
		t.Run(c.name, func(t *testing.T) {
			e := startEngine(t, func(p *peer, n int) {
				if p.asked() == nil {
					return
				}
				p.say([]string{c.health, ok(models)}[n])
			})
			assert.Equal(t, IdentityPassed, probeOnce(t, want(e.url).withIdentity()).Reason)
			assert.Equal(t, 2, e.connections())
		})
	}
	t.Run("unannounced", func(t *testing.T) {
		e := startEngine(t, func(p *peer, _ int) {
			if p.asked() != nil {
				p.say(ok(""))
			}
		})
		reason := probeOnce(t, want(e.url).withIdentity()).Reason
		// The kernel decides whether the probe meets the server's FIN or the RST to its request.
		assert.Contains(t, []string{"identity_transport_closed", "identity_transport_reset"}, reason)
		assert.Equal(t, 1, e.connections())
	})
}

// Negative control: without the look at Buffered in exchange, the second half passed as identity.
func TestAnswerBeforeItsRequestCountsForNothing(t *testing.T) {
	e := startEngine(t, turn(says(ok(""), ok(models))))
	assert.Equal(t, "identity_transport_protocol", probeOnce(t, want(e.url).withIdentity()).Reason)
}

// Negative control: with the token handed on to metadata's document call, this failed.
func TestTokenOnlyOnTheIdentityRequest(t *testing.T) {
	e := record(t)
	target := want(e.url).withIdentity().withMetadata()
	target.Identity.Token = func(context.Context) (string, error) { return "s3cret", nil }
	target.URL.User = url.UserPassword("user", "pass")
	require.Equal(t, MetadataPassed, probeOnce(t, target).Reason)
	q := e.seen()
	require.Len(t, q, 3)
	for i, want := range []string{"", "Bearer s3cret", ""} {
		assert.Equal(t, want, q[i].Header.Get("Authorization"), q[i].URL.Path)
	}
}

// Negative control: with sendable always true, all rows with a token reached the
// server.
func TestUnusableToken(t *testing.T) {
	e := record(t)
	for _, c := range []struct {
		token string
		err   error
	}{
		{"", nil}, {"s3cret", errors.New("s3cret")}, {"a\r\nX: y", nil}, {"a b", nil}, {"tok\n", nil}, {"é", nil},
		{strings.Repeat("a", maxToken+1), nil},
	} {
		target := want(e.url).withIdentity()
		target.Identity.Token = func(context.Context) (string, error) { return c.token, c.err }
		assert.Equal(t, Result{Reason: "identity_transport_credential", Healthy: true}, probeOnce(t, target), "%.20q", c.token)
	}
	for _, q := range e.seen() {
		assert.Equal(t, "/health", q.URL.Path)
	}
}

// Negative control: with http.ProxyFromEnvironment's answer dialled instead of the server's
// address in open, the proxy was asked.
func TestNoProxyFromTheEnvironment(t *testing.T) {
	proxy, e := record(t), record(t)
	for _, name := range []string{"HTTP_PROXY", "http_proxy", "HTTPS_PROXY", "ALL_PROXY"} {
		t.Setenv(name, proxy.URL)
	}
	t.Setenv("NO_PROXY", "")
	// The standard library never proxies loopback, so the server's name has to be another.
	p := New(Options{DialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
		if address == "engine.example:80" {
			address = e.url.Host
		}
		return (&net.Dialer{}).DialContext(ctx, network, address)
	}})
	r := p.Probe(t.Context(), want(&url.URL{Scheme: "http", Host: "engine.example"}).withIdentity())
	assert.Equal(t, IdentityPassed, r.Reason)
	assert.Empty(t, proxy.seen())
	assert.Len(t, e.seen(), 2)
}

func TestWhatIsSent(t *testing.T) {
	e := record(t)
	target := want(e.url).withIdentity()
	base := *e.url
	base.Path, base.RawQuery, base.Fragment = "/a%20/b/", "base=1", "f"
	base.RawPath = ""
	target.URL = &base
	target.Health.Path = "health?deep=1"
	require.Equal(t, IdentityPassed, New(Options{UserAgent: "ua/1"}).Probe(t.Context(), target).Reason)
	q := e.seen()
	require.Len(t, q, 2)
	assert.Equal(t, "/a%2520/b/health?deep=1", q[0].RequestURI)
	assert.Equal(t, "/a%2520/b/v1/models", q[1].RequestURI)
	assert.Equal(t, e.url.Host, q[0].Host)
	assert.Equal(t, http.Header{"User-Agent": {"ua/1"}, "Accept-Encoding": {"identity"}}, q[0].Header)
}

// Negative control: with the request repeated on a Location, the server was asked once more.
func TestRedirectIsNotFollowed(t *testing.T) {
	n := 0
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		n++
		http.Redirect(w, r, r.URL.Path, http.StatusFound)
	}))
	t.Cleanup(s.Close)
	u, err := url.Parse(s.URL)
	require.NoError(t, err)
	assert.Equal(t, "identity_http_302", probeOnce(t, want(u).withIdentity()).Reason)
	target := want(u)
	target.Health = Health{Path: "/health", StatusMin: 200, StatusMax: 299}
	assert.Equal(t, "health_http_302", probeOnce(t, target).Reason)
	assert.Equal(t, 3, n)
}

// Whatever a server says, the result is in the vocabulary and holds nothing of it.
//
// Negative control: with the error's text in place of its class in reasonFor, this failed.
func TestResultHoldsNothingOfTheServer(t *testing.T) {
	const mark = "XyZZy"
	var say string
	e := startEngine(t, func(p *peer, _ int) {
		for i := 0; p.asked() != nil; i++ {
			if i == 0 && !strings.HasPrefix(say, "!") {
				p.say(ok(mark))
				continue
			}
			p.say(strings.TrimPrefix(say, "!"))
			return
		}
	})
	base := *e.url
	base.Path = "/" + mark
	rapid.Check(t, func(t *rapid.T) {
		filler := rapid.OneOf(rapid.String(), rapid.SampledFrom([]string{"\r\n", `"`, "{", "0"}))
		body := mark + filler.Draw(t, "filler") + mark
		say = rapid.SampledFrom([]string{"", "!"}).Draw(t, "first or second answer") + rapid.SampledFrom([]string{
			body,
			"HTTP/1.1 " + body + "\r\n\r\n",
			"HTTP/1.1 200 OK\r\n" + body + "\r\n\r\n",
			"HTTP/1.1 200 OK\r\nTransfer-Encoding: " + body + "\r\n\r\n",
			"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + body,
			"HTTP/1.1 200 OK\r\nContent-Length: " + body + "\r\n\r\n",
			ok(body), ok(fmt.Sprintf(`[{"id":%q}]`, body)), ok(`{"` + mark + `":"` + body + `"}`),
		}).Draw(t, "answer")
		target := want(&base).withMetadata()
		target.Identity = &Identity{Path: "/" + mark, ID: "m1", Token: func(context.Context) (string, error) { return mark, nil }}
		r := New(Options{UserAgent: mark}).Probe(t.Context(), target)
		if !known(r.Reason) || strings.Contains(fmt.Sprintf("%+v", r), mark) || r.Metadata != nil && !r.Ready {
			guarantee.T(t).Errorf("%+v", r)
			guarantee.T(t).FailNow()
		}
	})
}
