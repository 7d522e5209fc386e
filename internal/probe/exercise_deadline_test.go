package probe

import (
	"context"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
)

// An exercise has a deadline of its own, which is exact wherever it strikes, and which the probe's
// does not move.
//
// Negative controls: with t.Timeout in place of t.Exercise.Timeout in Exercise, all rows failed;
// without SetDeadline and AfterFunc in open, the bubble of "silent" reported a deadlock.
func TestDeadlineOfAnExercise(t *testing.T) {
	const timeout = 3500 * time.Millisecond
	for _, c := range []struct {
		name    string
		connect time.Duration
		script  script
		https   bool
		token   func(context.Context) (string, error)
	}{
		{name: "connecting", connect: time.Hour, script: turn()},
		{name: "server that does not read", script: func(p *peer, _ int) { time.Sleep(time.Hour) }},
		{name: "server that reads half", script: func(p *peer, _ int) {
			_, _ = p.in.Peek(16)
			time.Sleep(time.Hour)
		}},
		{name: "silent", script: turn()},
		{name: "silent in TLS", script: func(p *peer, _ int) { p.silent() }, https: true},
		{name: "header trickles", script: turn(trickle("HTTP/1.1 200 OK\r\nX: "))},
		{name: "body trickles", script: turn(trickle("HTTP/1.1 200 OK\r\nContent-Length: 99\r\n\r\n"))},
		{name: "chunk trickles", script: turn(trickle("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nff\r\n"))},
		{name: "body without end trickles", script: turn(trickle("HTTP/1.1 200 OK\r\n\r\n"))},
		{name: "too slow a completion", connect: time.Second, script: turn(waits(3*time.Second, says(ok(completion))))},
		{name: "token", script: turn(), token: func(ctx context.Context) (string, error) { <-ctx.Done(); return "t", nil }},
	} {
		for _, probes := range []time.Duration{time.Second, time.Minute} {
			t.Run(c.name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					u := *inBubble
					if c.https {
						u.Scheme = "https"
					}
					target := want(&u).withExercise()
					target.Timeout, target.Exercise.Timeout, target.Exercise.Token = probes, timeout, c.token
					start := time.Now()
					r := New(piped(t, c.script, c.connect)).Exercise(t.Context(), target)
					assert.Equal(t, timeout, time.Since(start))
					assert.Equal(t, Result{Reason: Timeout}, r)
					if c.token != nil {
						time.Sleep(time.Hour) // the source is left to itself, and ends here
					}
				})
			})
		}
	}
	synctest.Test(t, func(t *testing.T) {
		target := want(inBubble).withExercise()
		target.Timeout, target.Exercise.Timeout = time.Second, timeout
		r := New(piped(t, turn(waits(3*time.Second, says(ok(completion)))), 0)).Exercise(t.Context(), target)
		assert.Equal(t, ExercisePassed, r.Reason, "slower than a probe may be")
		target.Exercise.Timeout = 0
		assert.Equal(t, Result{Reason: Timeout}, New(Options{}).Exercise(t.Context(), target))
	})
}

// The connection is shut at the end, whichever end it is: that is how an engine can tell that
// nobody waits for its completion any longer.
//
// Negative control: without hangUp in look, the bubble reported a deadlock.
func TestEndOfAnExerciseReachesTheServer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		gone := make(chan time.Time, 1)
		script := turn(func(p *peer) {
			p.silent()
			gone <- time.Now()
		})
		start := time.Now()
		target := want(inBubble).withExercise()
		target.Exercise.Timeout = time.Second
		assert.Equal(t, Timeout, New(piped(t, script, 0)).Exercise(t.Context(), target).Reason)
		assert.Equal(t, time.Second, (<-gone).Sub(start))

		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(time.Second/2, cancel)
		start = time.Now()
		assert.Equal(t, "exercise_transport_canceled", New(piped(t, script, 0)).Exercise(ctx, target).Reason)
		assert.Equal(t, time.Second/2, (<-gone).Sub(start))
	})
}

// Negative control: without the look at the context after judge in document, the empty answer was
// judged; without the one at the end of look as well, the good one passed.
func TestCompletionJudgedTooLate(t *testing.T) {
	for _, body := range []string{completion, `{"choices":[],"id":"Hi"}`} {
		ctx, cancel := context.WithCancel(t.Context())
		o := piped(t, turn(says(ok(body))), 0)
		dial := o.DialContext
		o.DialContext = func(ctx context.Context, network, address string) (net.Conn, error) {
			conn, err := dial(ctx, network, address)
			return cancelling{Conn: conn, mark: "Hi", cancel: cancel}, err
		}
		assert.Equal(t, Result{Reason: "exercise_transport_canceled"}, New(o).Exercise(ctx, want(inBubble).withExercise()))
		assert.Error(t, ctx.Err())
	}
}
