package httpapi

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"tier-agent/internal/admission"
)

// A peer that is slow is cut off when its time is over, to the second.
//
// Controls: with ReadHeaderTimeout, ReadTimeout, WriteTimeout or the end of
// keep-alive taken out, its row took another time or never ended.
func TestSlowPeersAreCutOff(t *testing.T) {
	for _, c := range []struct {
		name string
		send string
		read bool // the answer
		want time.Duration
	}{
		{"says nothing", "", false, time.Second},
		{"half a header", "GET /livez HTTP/1.1\r\nHost:", false, time.Second},
		{"half a body", "POST /api/v1/quiesce HTTP/1.1\r\nHost: x\r\nContent-Length: 32\r\n\r\n{", false, 10 * time.Second},
		{"idle after an answer", "GET /livez HTTP/1.1\r\nHost: x\r\n\r\n", true, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ln := newPipes()
				startServe(t, ln, new(controller).admin(), silent)
				conn, err := ln.dial()
				require.NoError(t, err)
				defer conn.Close()
				began := time.Now()
				_, err = io.WriteString(conn, c.send)
				require.NoError(t, err)
				in := bufio.NewReader(conn)
				if c.read {
					res, err := http.ReadResponse(in, nil)
					require.NoError(t, err)
					_, err = io.Copy(io.Discard, res.Body)
					require.NoError(t, err)
				}
				_, _ = io.Copy(io.Discard, in) // a refusal may come first
				assert.Equal(t, c.want, time.Since(began))
			})
		})
	}
	t.Run("does not read its answer", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			ln := newPipes()
			startServe(t, ln, everything().readOnly().Handler(), silent)
			conn, err := ln.dial()
			require.NoError(t, err)
			defer conn.Close()
			_, err = io.WriteString(conn, "GET /livez HTTP/1.1\r\nHost: x\r\n\r\n")
			require.NoError(t, err)
			time.Sleep(11 * time.Second)
			_, err = conn.Read(make([]byte, 1))
			assert.ErrorIs(t, err, io.EOF)
		})
	})
}

// Control: without MaxHeaderBytes the larger one was 200.
func TestLargeHeadersAreRefused(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	startServe(t, Limit(ln, 0), everything().readOnly().Handler(), silent)
	// net/http reads 4 KiB more than it is told before it gives up.
	for size, want := range map[int]int{8 << 10: 200, 24 << 10: 431} {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+ln.Addr().String()+"/readyz", nil)
		require.NoError(t, err)
		req.Header.Set("X-Filler", strings.Repeat("x", size))
		client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
		res, err := client.Do(req)
		require.NoError(t, err)
		require.NoError(t, res.Body.Close())
		assert.Equal(t, want, res.StatusCode, "%d bytes", size)
	}
}

// At the end a drain is ended, its client is told, and a quiesce is let finish.
//
// Controls: with context.Background() in BaseContext, the drain held the end up
// for the whole grace and was cut; with Close in Shutdown's place, neither
// client had an answer.
func TestTheEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		running := make(chan struct{}, 2)
		c := &controller{
			onDrain: func(ctx context.Context, d admission.DrainRequest) admission.Result {
				running <- struct{}{}
				<-ctx.Done()
				return drained(d, admission.Refused)
			},
			onQuiesce: func(ctx context.Context, q admission.QuiesceRequest) admission.Result {
				running <- struct{}{}
				time.Sleep(7 * time.Second)
				return result(admission.VerbQuiesce, q.Target)
			},
		}
		ln, log := newPipes(), new(record)
		s := startServe(t, ln, c.admin(), log.logger())
		type answer struct {
			r   admission.Result
			err error
			at  time.Time
		}
		answers := map[admission.Verb]chan answer{}
		for verb, cmd := range map[admission.Verb]Command{admission.VerbDrain: drainHeavy, admission.VerbQuiesce: {Tier: "heavy", Reason: "swap"}} {
			answered := make(chan answer, 1)
			answers[verb] = answered
			go func() {
				r, err := ln.client().Run(context.Background(), verb, cmd, nil)
				answered <- answer{r, err, time.Now()}
			}()
		}
		<-running
		<-running
		began := time.Now()
		s.stop()
		d := <-answers[admission.VerbDrain]
		require.NoError(t, d.err)
		assert.Equal(t, admission.Refused, d.r.Outcome)
		assert.Zero(t, d.at.Sub(began))
		q := <-answers[admission.VerbQuiesce]
		require.NoError(t, q.err)
		assert.Equal(t, admission.Done, q.r.Outcome)
		assert.Equal(t, 7*time.Second, q.at.Sub(began))
		assert.NoError(t, <-s.err)
		assert.NotContains(t, log.String(), "cut")
		_, err := ln.dial()
		assert.Error(t, err)
	})
}

// What does not end in its grace is cut, so that the process ends.
//
// Control: without Close after Shutdown the connection stayed, and Serve's end
// told nobody.
func TestTheEndHasALimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began, release := make(chan struct{}), make(chan struct{})
		c := &controller{onQuiesce: func(_ context.Context, q admission.QuiesceRequest) admission.Result {
			close(began)
			<-release
			return result(admission.VerbQuiesce, q.Target)
		}}
		ln, log := newPipes(), new(record)
		s := startServe(t, ln, c.admin(), log.logger())
		answered := make(chan error, 1)
		go func() {
			_, err := ln.client().Run(context.Background(), admission.VerbQuiesce, Command{Tier: "heavy", Reason: "swap"}, nil)
			answered <- err
		}()
		<-began
		stopped := time.Now()
		s.stop()
		assert.NoError(t, <-s.err)
		assert.Equal(t, 15*time.Second, time.Since(stopped))
		assert.ErrorIs(t, <-answered, ErrGone)
		assert.Contains(t, log.String(), "have been cut")
		close(release)
	})
}

// broken is a listener that fails once it has given what it had.
type broken struct {
	*pipes
	fail chan struct{}
}

var errBroken = errors.New("the listener broke")

func (b broken) Accept() (net.Conn, error) {
	select {
	case c := <-b.conns:
		return c, nil
	case <-b.fail:
		return nil, errBroken
	}
}

// A listener that fails ends its Serve in the same way, with its error.
func TestABrokenListenerEndsServe(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		running := make(chan struct{})
		c := &controller{onDrain: func(ctx context.Context, d admission.DrainRequest) admission.Result {
			close(running)
			<-ctx.Done()
			return drained(d, admission.Refused)
		}}
		ln := broken{newPipes(), make(chan struct{})}
		s := startServe(t, ln, c.admin(), silent)
		answered := make(chan error, 1)
		go func() {
			_, err := ln.client().Run(context.Background(), admission.VerbDrain, drainHeavy, nil)
			answered <- err
		}()
		<-running
		close(ln.fail)
		assert.ErrorIs(t, <-s.err, errBroken)
		assert.NoError(t, <-answered)
	})
}
