package httpapi

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"tier-agent/internal/admission"
	"tier-agent/test/guarantee"
)

func decode(t testing.TB, text string, into any) {
	t.Helper()
	require.NoError(t, json.Unmarshal([]byte(text), into), text)
}

var drainHeavy = Command{Tier: "heavy", Timeout: "10m"}

// drained is the result of a drain that has ended as told.
func drained(d admission.DrainRequest, o admission.Outcome) admission.Result {
	return admission.Result{Verb: admission.VerbDrain, Target: d.Target, Outcome: o, Message: "as told"}
}

// Each event is out before the next happens: the drain goes on only when the
// client has told it that it has seen the last one.
//
// Control: with Flush taken out of send the test hung, everything in a buffer.
func TestProgressArrivesBeforeTheResult(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		seen := make(chan struct{})
		c := &controller{onDrain: func(_ context.Context, d admission.DrainRequest) admission.Result {
			for n := range 3 {
				d.Progress(admission.Progress{Seconds: float64(n)})
				<-seen
			}
			return drained(d, admission.Done)
		}}
		ln := newPipes()
		startServe(t, ln, c.admin(), silent)
		var got []float64
		r, err := ln.client().Run(t.Context(), admission.VerbDrain, drainHeavy, func(p admission.Progress) {
			got = append(got, p.Seconds)
			seen <- struct{}{}
		})
		require.NoError(t, err)
		assert.Equal(t, admission.Done, r.Outcome)
		assert.Equal(t, []float64{0, 1, 2}, got)
	})
}

// A drain lasts as long as its own timeout says, through every timeout of the
// server, whether or not it has anything to say meanwhile.
//
// Controls: without SetWriteDeadline in send the result did not get out; with
// r.Context() bounded by the server's ReadTimeout, the drain was ended at 10 s.
func TestADrainIsNotCut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &controller{onDrain: func(ctx context.Context, d admission.DrainRequest) admission.Result {
			select {
			case <-time.After(d.Timeout):
				return drained(d, admission.TimedOut)
			case <-ctx.Done():
				return drained(d, admission.Refused)
			}
		}}
		ln := newPipes()
		startServe(t, ln, c.admin(), silent)
		began := time.Now()
		r, err := ln.client().Run(t.Context(), admission.VerbDrain, drainHeavy, nil)
		require.NoError(t, err)
		assert.Equal(t, admission.TimedOut, r.Outcome)
		assert.Equal(t, 10*time.Minute, time.Since(began))
	})
}

// Control: with context.Background() in the place of r.Context() in command, the drain went on
// until its own timeout.
func TestAClientThatLeavesEndsItsDrain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		var lasted time.Duration
		c := &controller{onDrain: func(ctx context.Context, d admission.DrainRequest) admission.Result {
			d.Progress(admission.Progress{})
			select {
			case <-ctx.Done():
			case <-time.After(d.Timeout):
			}
			lasted = time.Since(began)
			return drained(d, admission.Refused)
		}}
		ln := newPipes()
		startServe(t, ln, c.admin(), silent)
		ctx, leave := context.WithCancel(t.Context())
		time.AfterFunc(time.Minute, leave)
		_, err := ln.client().Run(ctx, admission.VerbDrain, drainHeavy, nil)
		require.ErrorIs(t, err, context.Canceled)
		synctest.Wait()
		assert.Equal(t, time.Minute, lasted)
	})
}

// A peer that stops reading, such as a client that was suspended, must not hold
// a tier's drain for ever: a write that does not get out ends it.
//
// Control: without SetWriteDeadline in send the drain outlived its timeout.
func TestAPeerThatDoesNotReadEndsItsDrain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began, ended := time.Now(), make(chan time.Duration, 1)
		c := &controller{onDrain: func(ctx context.Context, d admission.DrainRequest) admission.Result {
			for ctx.Err() == nil && time.Since(began) < d.Timeout {
				d.Progress(admission.Progress{})
				time.Sleep(time.Second)
			}
			ended <- time.Since(began)
			return drained(d, admission.Refused)
		}}
		ln := newPipes()
		startServe(t, ln, c.admin(), silent)
		conn, err := ln.dial()
		require.NoError(t, err)
		defer conn.Close()
		body := `{"tier":"heavy","timeout":"10m"}`
		_, err = io.WriteString(conn, "POST /api/v1/drain HTTP/1.1\r\nHost: x\r\nContent-Length: 32\r\n\r\n"+body)
		require.NoError(t, err)
		_, err = http.ReadResponse(bufio.NewReader(conn), nil) // it is accepted
		require.NoError(t, err)
		assert.Equal(t, 11*time.Second, <-ended, "the first write ends at 10 s, the drain at its next look")
	})
}

// Controls: without recovered the client was told that tier-agent had gone
// away, and the log had the panic's value; with it, the process lives either way.
func TestAPanicIsAnAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &controller{
			onQuiesce: func(context.Context, admission.QuiesceRequest) admission.Result { panic("hunter2") },
			onDrain: func(_ context.Context, d admission.DrainRequest) admission.Result {
				d.Progress(admission.Progress{Seconds: 1})
				panic(errors.New("hunter2"))
			},
		}
		ln, log := newPipes(), new(record)
		startServe(t, ln, c.admin(), log.logger())
		_, err := ln.client().Run(t.Context(), admission.VerbQuiesce, Command{Tier: "heavy", Reason: "swap"}, nil)
		assert.EqualError(t, err, "tier-agent failed inside; its log says where")
		var told int
		_, err = ln.client().Run(t.Context(), admission.VerbDrain, drainHeavy, func(admission.Progress) { told++ })
		assert.EqualError(t, err, "tier-agent failed inside; its log says where")
		assert.Equal(t, 1, told)
		_, err = ln.client().Status(t.Context())
		assert.NoError(t, err)
		assert.NotContains(guarantee.T(t), log.String(), "hunter2")
		assert.Equal(t, 2, strings.Count(log.String(), `"level":"ERROR"`))
		assert.Contains(t, log.String(), "TestAPanicIsAnAnswer", "the trace")
	})
}

// The stream by its bytes: one JSON object a line, each with one key.
func TestStreamOnTheWire(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &controller{onDrain: func(_ context.Context, d admission.DrainRequest) admission.Result {
			d.Progress(admission.Progress{Seconds: 0.5, HAProxy: []admission.InstanceLoad{{Instance: "edge", Streams: 2}}})
			return drained(d, admission.Done)
		}}
		ln := newPipes()
		startServe(t, ln, c.admin(), silent)
		conn, err := ln.dial()
		require.NoError(t, err)
		defer conn.Close()
		_, err = io.WriteString(conn, "POST /api/v1/drain HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: 32\r\n\r\n"+`{"tier":"heavy","timeout":"10m"}`)
		require.NoError(t, err)
		res, err := http.ReadResponse(bufio.NewReader(conn), nil)
		require.NoError(t, err)
		all, err := io.ReadAll(res.Body)
		require.NoError(t, err)
		require.NoError(t, res.Body.Close())
		golden(t, "stream.ndjson", all)
	})
}
