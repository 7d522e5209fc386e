package probe

import (
	"cmp"
	"context"
	"errors"
	"net"
	"net/url"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// Every reason, each from a server that earns it. The steps before the one under test pass; an
// exercise has none.
//
// Negative controls: without the check of StatusMin and StatusMax in health, the health_http rows
// passed; without the 200..299 check in document, the identity_http and metadata_http rows did;
// with MaxBody in place of MaxBody+1 in document, the chunked and undeclared oversized rows read
// as malformed; without ECONNRESET in classify, the reset rows read as other; without l.err in
// broken, closed and reset in the header read as protocol; without the look at the first five
// bytes in exchange, the bound in line.Read, the one on the code or the one on ContentLength,
// their rows waited for their deadline.
func TestReasons(t *testing.T) {
	big := strings.Repeat(" ", 4096)
	// head is an answer whose status line and header take n bytes.
	head := func(n int) string {
		const start, end = "HTTP/1.1 200 OK\r\nContent-Length: 0\r\nX: ", "\r\n\r\n"
		return start + strings.Repeat("a", n-len(start)-len(end)) + end
	}
	type row struct {
		name   string
		script script
		want   string
	}
	health := []row{
		{"passed", turn(says(ok("fine"))), HealthPassed},
		{"no content", turn(says("HTTP/1.1 204 No Content\r\n\r\n")), HealthPassed},
		{"after 1xx", turn(says("HTTP/1.1 102 Wait\r\n\r\nHTTP/1.1 103 Hint\r\n\r\n", ok(""))), HealthPassed},
		{"redirect passes", turn(says("HTTP/1.1 302 Found\r\nLocation: /health\r\nContent-Length: 0\r\n\r\n")), HealthPassed},
		{"long body ignored", turn(says("HTTP/1.1 200 OK\r\nContent-Length: 9999999\r\n\r\n", big, "x")), HealthPassed},
		{"http 1.0", turn(shuts("HTTP/1.0 200 OK\r\n\r\nfine")), HealthPassed},
		{"status", turn(says(reply("503 Nope", ""))), "health_http_503"},
		{"status 999", turn(says(reply("999 Huh", ""))), "health_http_999"},
		{"switching", turn(says("HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: Upgrade\r\n\r\n")), "health_http_101"},
		{"status 099", turn(says(reply("099 Huh", ""))), "health_transport_protocol"},
		{"status +99", turn(says(reply("+99 Huh", ""))), "health_transport_protocol"},
		{"status 1000", turn(says(reply("1000 Huh", ""))), "health_transport_protocol"},
		{"http 2", turn(says("HTTP/2.0 200 OK\r\nContent-Length: 0\r\n\r\n")), "health_transport_protocol"},
		{"reset at accept", func(p *peer, _ int) { p.reset() }, "health_transport_reset"},
		{"reset after request", turn(resets), "health_transport_reset"},
		{"reset in header", turn(func(p *peer) { p.say("HTTP/1.1 200 OK\r\nX"); p.reset() }), "health_transport_reset"},
		{"reset in body", turn(func(p *peer) { p.say("HTTP/1.1 200 OK\r\n\r\nfine"); p.reset() }), "health_transport_reset"},
		{"closed after request", turn(shuts()), "health_transport_closed"},
		{"closed in status line", turn(shuts("HTTP/1.1 20")), "health_transport_closed"},
		{"closed in header", turn(shuts("HTTP/1.1 200 OK\r\nContent-Le")), "health_transport_closed"},
		{"closed in body", turn(shuts("HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nfine")), "health_transport_closed"},
		{"closed in chunk", turn(shuts("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n8\r\nfine")), "health_transport_closed"},
		{"closed in trailer", turn(shuts("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nfine\r\n0\r\nX: y")), "health_transport_closed"},
		{"closed after 1xx", turn(shuts("HTTP/1.1 100 Continue\r\n\r\n")), "health_transport_closed"},
		{"greeting", func(p *peer, _ int) { p.say("SSH-2.0-x\r\n"); p.silent() }, "health_transport_protocol"},
		{"garbage without end", turn(says("\x00\x01\x02\xff\xfe\xfd")), "health_transport_protocol"},
		{"nearly http", turn(says("HTTP/x.y 200 OK\r\n\r\n")), "health_transport_protocol"},
		{"header line without colon", turn(says("HTTP/1.1 200 OK\r\nnothing\r\n\r\n")), "health_transport_protocol"},
		{"longest head", turn(says(head(maxHead))), HealthPassed},
		{"head one byte longer", turn(says(head(maxHead + 1))), "health_transport_protocol"},
		{"heads together longer", turn(says("HTTP/1.1 100 Continue\r\n\r\n", head(maxHead-20))), "health_transport_protocol"},
		{"huge header line", turn(says("HTTP/1.1 200 OK\r\nX: ", strings.Repeat("a", 40<<10), "\r\n\r\n")), "health_transport_protocol"},
		{"huge status line", turn(says("HTTP/1.1 200 ", strings.Repeat("a", 40<<10), "\r\n\r\n")), "health_transport_protocol"},
		{"endless header", turn(flood("HTTP/1.1 200 OK\r\n", "X: y\r\n")), "health_transport_protocol"},
		{"endless 1xx", turn(flood("", "HTTP/1.1 100 Continue\r\n\r\n")), "health_transport_protocol"},
		{"bad chunk size", turn(says("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\nfine\r\n0\r\n\r\n")), "health_transport_protocol"},
		{"chunk size overflow", turn(says("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nfffffffffffffffff\r\nfine\r\n")), "health_transport_protocol"},
		{"two lengths", turn(says("HTTP/1.1 200 OK\r\nContent-Length: 4\r\nContent-Length: 5\r\n\r\nfine")), "health_transport_protocol"},
		{"negative length", turn(says("HTTP/1.1 200 OK\r\nContent-Length: -4\r\n\r\nfine")), "health_transport_protocol"},
		{"unknown coding", turn(says("HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip\r\n\r\nfine")), "health_transport_protocol"},
	}
	for _, c := range health {
		t.Run("health "+c.name, func(t *testing.T) {
			assert.Equal(t, c.want, probeOnce(t, want(startEngine(t, c.script).url)).Reason)
		})
	}

	documents := []row{
		{"another shape", turn(says(ok("[1]"))), "_malformed"},
		{"http 302", turn(says("HTTP/1.1 302 Found\r\nLocation: /health\r\nContent-Length: 0\r\n\r\n")), "_http_302"},
		{"http 401", turn(says(reply("401 No", models))), "_http_401"},
		{"http 300", turn(says(reply("300 Many", models))), "_http_300"},
		{"oversized declared", turn(says("HTTP/1.1 200 OK\r\nContent-Length: 4097\r\n\r\n")), "_oversized"},
		{"oversized chunked", turn(says("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1001\r\n", big, " \r\n0\r\n\r\n")), "_oversized"},
		{"oversized undeclared", turn(says("HTTP/1.1 200 OK\r\n\r\n", big, " ")), "_oversized"},
		{"largest", turn(says(ok(big))), "_malformed"},
		{"empty", turn(says(ok(""))), "_malformed"},
		{"no content", turn(says("HTTP/1.1 204 No Content\r\n\r\n")), "_malformed"},
		{"gzip bomb", turn(says("HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: 4\r\n\r\n\x1f\x8b\x08\x00")), "_malformed"},
		{"length too short", turn(says("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n", models)), "_malformed"},
		{"reset", turn(resets), "_transport_reset"},
		{"closed unannounced", turn(shuts()), "_transport_closed"},
		{"length too long", turn(shuts("HTTP/1.1 200 OK\r\nContent-Length: 999\r\n\r\n", models)), "_transport_closed"},
		{"closed in chunk", turn(shuts("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n999\r\n", models)), "_transport_closed"},
		{"garbage", turn(says("garbage")), "_transport_protocol"},
		{"bad chunk", turn(says("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n-1\r\n", models)), "_transport_protocol"},
	}
	// No document at all is malformed, but an empty answer to an exercise.
	exercised := map[string]string{"largest": "_empty", "empty": "_empty", "no content": "_empty"}
	for _, c := range documents {
		t.Run("identity "+c.name, func(t *testing.T) {
			e := startEngine(t, after(1, c.script))
			assert.Equal(t, "identity"+c.want, probeOnce(t, want(e.url).withIdentity()).Reason)
		})
		t.Run("metadata "+c.name, func(t *testing.T) {
			e := startEngine(t, after(2, c.script))
			assert.Equal(t, "metadata"+c.want, probeOnce(t, want(e.url).withIdentity().withMetadata()).Reason)
		})
		t.Run("exercise "+c.name, func(t *testing.T) {
			e := startEngine(t, c.script)
			assert.Equal(t, "exercise"+cmp.Or(exercised[c.name], c.want), exerciseOnce(t, want(e.url).withExercise()).Reason)
		})
	}

	t.Run("identity passed", func(t *testing.T) {
		e := startEngine(t, turn(says(ok("")), says(ok(models))))
		assert.Equal(t, Result{Ready: true, Reason: IdentityPassed, Healthy: true}, probeOnce(t, want(e.url).withIdentity()))
	})
	t.Run("identity mismatch", func(t *testing.T) {
		e := startEngine(t, turn(says(ok("")), says(ok(`[{"id":"M1"}]`))))
		assert.Equal(t, IdentityMismatch, probeOnce(t, want(e.url).withIdentity()).Reason)
	})
	t.Run("metadata passed", func(t *testing.T) {
		e := startEngine(t, turn(says(ok("")), says(ok(models)), says(ok(info))))
		assert.Equal(t, Result{Ready: true, Reason: MetadataPassed, Healthy: true, Metadata: map[string]string{"model.size": "2"}},
			probeOnce(t, want(e.url).withIdentity().withMetadata()))
	})
	t.Run("metadata passed without identity", func(t *testing.T) {
		e := startEngine(t, turn(says(ok("")), says(ok(info))))
		assert.Equal(t, MetadataPassed, probeOnce(t, want(e.url).withMetadata()).Reason)
	})
	t.Run("metadata mismatch", func(t *testing.T) {
		e := startEngine(t, turn(says(ok("")), says(ok(`{"model":{"size":3}}`))))
		assert.Equal(t, Result{Reason: MetadataMismatch, Healthy: true}, probeOnce(t, want(e.url).withMetadata()))
	})
}

// after answers the first n requests as they should be, then runs s on the same connection.
func after(n int, s script) script {
	return func(p *peer, i int) {
		for _, body := range []string{"", models}[:n] {
			if p.asked() == nil {
				return
			}
			p.say(ok(body))
		}
		s(p, i)
	}
}

// flood says start once and then again for ever.
func flood(start, again string) func(*peer) {
	return func(p *peer) {
		p.say(start)
		for {
			if _, err := p.Write([]byte(strings.Repeat(again, 100))); err != nil {
				return
			}
		}
	}
}

func TestReasonsOfTheDial(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	require.NoError(t, l.Close())
	refused := want(&url.URL{Scheme: "http", Host: l.Addr().String()})
	assert.Equal(t, "health_transport_refused", probeOnce(t, refused).Reason)

	for _, c := range []struct {
		err  error
		want string
	}{
		{&net.DNSError{Err: "no such host", Name: "secret.example", IsNotFound: true}, "health_transport_dns"},
		{&net.DNSError{Err: "i/o timeout", IsTimeout: true}, "health_transport_dns"},
		{&net.OpError{Op: "dial", Err: syscall.EHOSTUNREACH}, "health_transport_unreachable"},
		{&net.OpError{Op: "dial", Err: syscall.ENETUNREACH}, "health_transport_unreachable"},
		{&net.OpError{Op: "dial", Err: syscall.ETIMEDOUT}, "health_transport_unreachable"},
		{&net.OpError{Op: "dial", Err: syscall.EMFILE}, "health_transport_other"},
		{errors.New("secret"), "health_transport_other"},
		{context.DeadlineExceeded, Timeout},
	} {
		p := New(Options{DialContext: func(context.Context, string, string) (net.Conn, error) { return nil, c.err }})
		assert.Equal(t, Result{Reason: c.want}, p.Probe(t.Context(), refused), "%v", c.err)
	}
	for _, u := range []*url.URL{nil, {}, {Scheme: "http"}, {Scheme: "ftp", Host: "h"}, {Scheme: "http", Host: ":80"}} {
		assert.Equal(t, Result{Reason: "health_transport_other"}, probeOnce(t, want(u)), "%v", u)
	}
}

// Negative control: without recover in look, and then without the one in token, this test died.
func TestPanicsCostOneProbe(t *testing.T) {
	p := New(Options{DialContext: func(context.Context, string, string) (net.Conn, error) { panic("dial") }})
	target := want(&url.URL{Scheme: "http", Host: "h"})
	assert.Equal(t, Result{Reason: "health_transport_other"}, p.Probe(t.Context(), target))
	//lint:ignore SA1012 a nil context is the caller's mistake that is under test
	assert.Equal(t, Result{Reason: "health_transport_other"}, p.Probe(nil, target))

	target = want(startEngine(t, turn(says(ok("")))).url).withIdentity()
	target.Identity.Token = func(context.Context) (string, error) { panic("token") }
	assert.Equal(t, "identity_transport_credential", probeOnce(t, target).Reason)
}
