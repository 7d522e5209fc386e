package probe

import (
	"bufio"
	"context"
	"io"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	if serveBenchmark() {
		return
	}
	goleak.VerifyTestMain(m)
}

// engine is a hostile server on loopback: each connection runs its script in a goroutine.
type engine struct {
	url   *url.URL
	mu    sync.Mutex
	conns []net.Conn // guarded by mu
	done  chan struct{}
}

// script is what an engine does with its n-th connection, counted from 0. It is closed after.
type script func(c *peer, n int)

// peer is the engine's end of a connection.
type peer struct {
	net.Conn
	in   *bufio.Reader
	done <-chan struct{} // closed when the test is over
}

func startEngine(t testing.TB, s script) *engine {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	return serveScript(t, l, s)
}

func serveScript(t testing.TB, l net.Listener, s script) *engine {
	e := &engine{url: &url.URL{Scheme: "http", Host: l.Addr().String()}, done: make(chan struct{})}
	var wg sync.WaitGroup
	wg.Go(func() {
		for n := 0; ; n++ {
			c, err := l.Accept()
			if err != nil {
				return
			}
			e.mu.Lock()
			e.conns = append(e.conns, c)
			e.mu.Unlock()
			wg.Go(func() {
				defer c.Close()
				s(&peer{Conn: c, in: bufio.NewReader(c), done: e.done}, n)
			})
		}
	})
	t.Cleanup(func() {
		close(e.done)
		_ = l.Close()
		e.mu.Lock()
		for _, c := range e.conns {
			_ = c.Close()
		}
		e.mu.Unlock()
		wg.Wait()
	})
	return e
}

func (e *engine) connections() int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return len(e.conns)
}

// asked reads one request to its end, nil when the probe has gone.
func (p *peer) asked() *http.Request {
	r, err := http.ReadRequest(p.in)
	if err != nil {
		return nil
	}
	if _, err := io.Copy(io.Discard, r.Body); err != nil {
		return nil
	}
	return r
}

func (p *peer) say(parts ...string) { _, _ = p.Write([]byte(strings.Join(parts, ""))) }

// reset ends the connection with RST.
func (p *peer) reset() {
	_ = p.Conn.(*net.TCPConn).SetLinger(0)
	_ = p.Close()
}

// silent waits until the probe has gone.
func (p *peer) silent() {
	for {
		if _, err := p.in.ReadByte(); err != nil {
			return
		}
	}
}

const crlf = "\r\n"

// ok is a whole answer with a length.
func ok(body string) string { return reply("200 OK", body) }

func reply(status, body string) string {
	return "HTTP/1.1 " + status + crlf + "Content-Length: " + strconv.Itoa(len(body)) + crlf + crlf + body
}

// turn makes a script of one action per request on one connection, then waits for the probe to go.
func turn(actions ...func(p *peer)) script {
	return func(p *peer, _ int) {
		for _, a := range actions {
			if p.asked() == nil {
				return
			}
			a(p)
		}
		p.silent()
	}
}

func says(parts ...string) func(*peer) { return func(p *peer) { p.say(parts...) } }

// shuts ends the connection by FIN after saying something.
func shuts(parts ...string) func(*peer) {
	return func(p *peer) {
		p.say(parts...)
		_ = p.Conn.(*net.TCPConn).CloseWrite()
	}
}

func resets(p *peer) { p.reset() }

// want is the target that most tests use.
func want(u *url.URL) Target {
	return Target{URL: u, Health: Health{Path: "/health"}, Timeout: 10 * time.Second, MaxBody: 4096}
}

func (t Target) withIdentity() Target {
	t.Identity = &Identity{Path: "/v1/models", ID: "m1"}
	return t
}

func (t Target) withMetadata() Target {
	t.Metadata = &Metadata{Path: "/info", Fields: map[string]any{"model.size": int64(2)}}
	return t
}

func (t Target) withExercise() Target {
	t.Exercise = &Exercise{Body: []byte(chat), Timeout: 10 * time.Second}
	return t
}

const (
	chat       = `{"model":"m1","max_tokens":4,"messages":[{"role":"user","content":"hi"}]}`
	completion = `{"object":"chat.completion","choices":[{"index":0,"message":{"role":"assistant","content":"Hi"}}]}`

	models = `{"object":"list","data":[{"id":"m0"},{"id":"m1"}]}`
	info   = `{"model":{"size":2.0}}`
)

func probeOnce(t testing.TB, target Target) Result {
	t.Helper()
	return lookOnce(t, target, New(Options{}).Probe)
}

func exerciseOnce(t testing.TB, target Target) Result {
	t.Helper()
	return lookOnce(t, target, New(Options{}).Exercise)
}

func lookOnce(t testing.TB, target Target, look func(context.Context, Target) Result) Result {
	t.Helper()
	start := time.Now()
	r := look(t.Context(), target)
	assert.True(t, known(r.Reason), "reason %q is not in the vocabulary", r.Reason)
	assert.Equal(t, r.Ready, strings.HasSuffix(r.Reason, "_passed"), r.Reason)
	// Not a speed test: the deadline of most tests is far off, and must not be what ended them.
	if r.Reason != Timeout {
		assert.Less(t, time.Since(start), target.Timeout)
	}
	return anywhere(r)
}

// anywhere is a result without the address that was reached, which differs with each run.
func anywhere(r Result) Result {
	r.Reached = netip.AddrPort{}
	return r
}

// known says whether a reason is one of Reasons, with a real status for "<code>".
func known(reason string) bool {
	if i := strings.Index(reason, "_http_"); i >= 0 {
		code := reason[i+len("_http_"):]
		if len(code) != 3 || code < "100" || code > "999" || strings.Trim(code, "0123456789") != "" {
			return false
		}
		reason = reason[:i] + "_http_<code>"
	}
	return slices.Contains(Reasons(), reason)
}
