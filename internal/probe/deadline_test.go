package probe

import (
	"bufio"
	"context"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
)

// toLoopback sends every dial to one address, whatever it was for.
func toLoopback(address string) func(context.Context, string, string) (net.Conn, error) {
	return func(ctx context.Context, network, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, network, address)
	}
}

// piped serves each dial with s over net.Pipe, after a time for the connection to be made.
// It has to be called in the bubble, whose end waits for the scripts to run out.
func piped(t *testing.T, s script, connect time.Duration) Options {
	n := 0
	var wg sync.WaitGroup
	t.Cleanup(wg.Wait)
	return Options{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		select {
		case <-time.After(connect):
		case <-ctx.Done():
			return nil, ctx.Err()
		}
		near, far := net.Pipe()
		i := n
		wg.Go(func() {
			defer far.Close()
			s(&peer{Conn: far, in: bufio.NewReader(far)}, i)
		})
		n++
		return near, nil
	}}
}

// trickle says start, then one byte a second for ever.
func trickle(start string) func(*peer) {
	return func(p *peer) {
		p.say(start)
		for {
			time.Sleep(time.Second)
			if _, err := p.Write([]byte("1")); err != nil {
				return
			}
		}
	}
}

func waits(d time.Duration, then func(*peer)) func(*peer) {
	return func(p *peer) {
		time.Sleep(d)
		then(p)
	}
}

var inBubble = &url.URL{Scheme: "http", Host: "engine.example"}

// The deadline is exact wherever it strikes, and one for everything: what one step used up the
// next does not get back.
//
// Negative controls: without SetDeadline and AfterFunc in open, the bubble of "silent" reported a
// deadlock; with a deadline of its own for identity, "adds up" passed after 4 s.
func TestDeadlineIsExact(t *testing.T) {
	const timeout = 3500 * time.Millisecond
	chunked := "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
	for _, c := range []struct {
		name    string
		connect time.Duration
		script  script
		https   bool
		healthy bool // it struck behind the health step
	}{
		{name: "connecting", connect: time.Hour, script: turn()},
		{name: "server that does not read", script: func(p *peer, _ int) { time.Sleep(time.Hour) }},
		{name: "silent", script: turn()},
		{name: "silent in TLS", script: func(p *peer, _ int) { p.silent() }, https: true},
		{name: "unread in TLS", script: func(p *peer, _ int) { time.Sleep(time.Hour) }, https: true},
		{name: "status line trickles", script: turn(trickle("HTTP/1.1 2"))},
		{name: "header trickles", script: turn(trickle("HTTP/1.1 200 OK\r\nX: "))},
		{name: "1xx trickle", script: turn(func(p *peer) {
			for range 10000 {
				p.say("HTTP/1.1 100 Continue\r\n\r\n")
				time.Sleep(time.Second)
			}
		})},
		{name: "health body trickles", script: turn(trickle("HTTP/1.1 200 OK\r\nContent-Length: 99\r\n\r\n"))},
		{name: "health chunk trickles", script: turn(trickle(chunked + "ff\r\n"))},
		{name: "trailer trickles", script: turn(trickle(chunked + "0\r\nX: "))},
		{name: "identity silent", healthy: true, script: turn(says(ok("")))},
		{name: "identity body trickles", healthy: true, script: turn(says(ok("")), trickle(chunked+"ff\r\n"))},
		{name: "metadata body trickles", healthy: true, script: turn(says(ok("")), says(ok(models)), trickle("HTTP/1.1 200 OK\r\n\r\n"))},
		{name: "adds up", healthy: true, connect: time.Second, script: turn(
			waits(time.Second, says(ok(""))), waits(time.Second, says(ok(models))), waits(time.Second, says(ok(info))))},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				target := want(&url.URL{Scheme: "http", Host: inBubble.Host}).withIdentity().withMetadata()
				target.Timeout = timeout
				if c.https {
					target.URL.Scheme = "https"
				}
				start := time.Now()
				r := New(piped(t, c.script, c.connect)).Probe(t.Context(), target)
				assert.Equal(t, timeout, time.Since(start))
				assert.Equal(t, Result{Reason: Timeout, Healthy: c.healthy}, r)
			})
		})
	}
}

// Negative control: without AfterFunc in open, the cancelled probe ran on to its own deadline.
func TestCallersContextEndsTheProbe(t *testing.T) {
	healthy := turn(says(ok("")))
	for _, c := range []struct {
		name    string
		connect time.Duration
		script  script
		want    string
	}{
		{"connecting", time.Hour, healthy, "health_transport_canceled"},
		{"health", 0, turn(trickle("HTTP/1.1 200 OK\r\n\r\n")), "health_transport_canceled"},
		{"identity", 0, healthy, "identity_transport_canceled"},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithCancel(t.Context())
				time.AfterFunc(1500*time.Millisecond, cancel)
				start := time.Now()
				r := New(piped(t, c.script, c.connect)).Probe(ctx, want(inBubble).withIdentity())
				assert.Equal(t, 1500*time.Millisecond, time.Since(start))
				assert.Equal(t, Result{Reason: c.want, Healthy: c.name == "identity"}, r)
			})
		})
	}
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		start := time.Now()
		assert.Equal(t, Result{Reason: Timeout}, New(piped(t, turn(), 0)).Probe(ctx, want(inBubble)))
		assert.Equal(t, time.Second, time.Since(start), "the caller's deadline is a deadline")
		cancel()
		<-ctx.Done()
	})
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	assert.Equal(t, Result{Reason: "health_transport_canceled"}, New(Options{}).Probe(ctx, want(inBubble)))
	late := want(inBubble)
	late.Timeout = 0
	assert.Equal(t, Result{Reason: Timeout}, New(Options{}).Probe(t.Context(), late))
}

// cancelling ends the caller's context as soon as the mark has been read.
type cancelling struct {
	net.Conn
	mark   string
	cancel func()
}

func (c cancelling) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if strings.Contains(string(b[:n]), c.mark) {
		c.cancel()
	}
	return n, err
}

// An answer that is whole, but judged after the end, counts for nothing: neither for nor against.
//
// Negative controls: without the look at the context after match in document, the second row read
// as malformed; without the one at the end of look, the first passed.
func TestAnswerJudgedTooLate(t *testing.T) {
	healthy := turn(says(ok("fine")), says(ok(`[{"id":"m2"}]`)))
	for _, c := range []struct {
		mark, want string
		target     Target
	}{
		{"fine", "health_transport_canceled", want(inBubble)},
		{"m2", "identity_transport_canceled", want(inBubble).withIdentity()},
	} {
		ctx, cancel := context.WithCancel(t.Context())
		o := piped(t, healthy, 0)
		dial := o.DialContext
		o.DialContext = func(ctx context.Context, network, address string) (net.Conn, error) {
			conn, err := dial(ctx, network, address)
			return cancelling{Conn: conn, mark: c.mark, cancel: cancel}, err
		}
		assert.Equal(t, Result{Reason: c.want, Healthy: c.mark == "m2"}, New(o).Probe(ctx, c.target))
		assert.Error(t, ctx.Err())
	}
}

// Negative control: with context.Background for the source, the bubble was deadlocked.
func TestTokenSourceEndsWithTheProbe(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		target := want(inBubble).withIdentity()
		target.Timeout = 2 * time.Second
		target.Identity.Token = func(ctx context.Context) (string, error) { <-ctx.Done(); return "t", nil }
		start := time.Now()
		r := New(piped(t, turn(says(ok("")), says(ok(models))), 0)).Probe(t.Context(), target)
		assert.Equal(t, 2*time.Second, time.Since(start))
		assert.Equal(t, Result{Reason: Timeout, Healthy: true}, r)
	})
}

// A server that reads nothing more does not hold up the end of a TLS probe that has passed its
// deadline: crypto/tls gives its last alert five seconds.
//
// Negative control: with the plain connection in place of fixedDeadline, "unread" took 5 s more.
func TestTLSAlertKeepsTheDeadline(t *testing.T) {
	cert := newCertificate(t)
	synctest.Test(t, func(t *testing.T) {
		target := want(&url.URL{Scheme: "https", Host: inBubble.Host})
		target.Timeout = time.Second
		serve := func(p *peer, _ int) {
			c := cert.server(p)
			if _, err := http.ReadRequest(bufio.NewReader(c)); err != nil {
				return
			}
			_, _ = c.Write([]byte("HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n"))
			time.Sleep(time.Hour)
		}
		o := piped(t, serve, 0)
		o.TLS = cert.client()
		start := time.Now()
		assert.Equal(t, Result{Reason: Timeout}, New(o).Probe(t.Context(), target))
		assert.Equal(t, time.Second, time.Since(start))
	})
}
