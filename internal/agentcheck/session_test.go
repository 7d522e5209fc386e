package agentcheck

import (
	"bytes"
	"io"
	"log/slog"
	"net"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"tier-agent/internal/accept"
	"tier-agent/internal/accept/accepttest"
	"tier-agent/test/guarantee"
)

// Negative control: without WriteTimeout's deadline the bubble was deadlocked.
func TestPeerThatNeverReads(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var kinds tally
		ln := accepttest.NewPipes()
		_, stop := serve(t, oneReady, Options{WriteTimeout: 300 * time.Millisecond, OnAnswer: kinds.add}, ln)
		client, server := ln.Dial("192.0.2.1")
		begin := time.Now()
		_, err := io.WriteString(client, "be/s1\n")
		require.NoError(t, err)
		stop()
		assert.Equal(t, 300*time.Millisecond, time.Since(begin))
		assert.EqualValues(t, 1, server.Writes.Load())
		assert.Equal(t, map[string]int{KindWriteError: 1}, kinds.all())
	})
}

// A peer that sends on after its line is read for 100 ms and for 64 KiB, no
// longer. Negative controls: without linger's deadline the slow one was read to
// its 64 KiB; without its count, the fast one to the last byte.
func TestLingerEnds(t *testing.T) {
	for name, tt := range map[string]struct {
		every time.Duration
		most  int
	}{
		"slow": {accept.LingerTime/3 + 1, 2},
		"fast": {0, accept.LingerBytes},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ln := accepttest.NewPipes()
				_, stop := serve(t, oneReady, Options{}, ln)
				client, _ := ln.Dial("192.0.2.1")
				_, err := io.WriteString(client, "be/s1\nx")
				require.NoError(t, err)
				_, err = client.Read(make([]byte, 64))
				require.NoError(t, err)
				sent := -1
				for ; err == nil && sent < 2*accept.LingerBytes; sent++ {
					time.Sleep(tt.every)
					_, err = client.Write([]byte{'x'})
				}
				assert.Equal(t, tt.most, sent)
				require.NoError(t, client.Close())
				stop()
			})
		})
	}
}

func TestResetMidway(t *testing.T) {
	kinds := make(chan string, 1)
	_, addr := serveTCP(t, oneReady, Options{Silence: time.Hour, ReadTimeout: time.Hour, OnAnswer: func(k string) { kinds <- k }})
	for _, begun := range []string{"", "be/"} {
		c := dialTCP(t, addr)
		_, err := io.WriteString(c, begun)
		require.NoError(t, err)
		require.NoError(t, c.SetLinger(0))
		require.NoError(t, c.Close())
		assert.Equal(t, KindWriteError, <-kinds)
	}
	c := dialTCP(t, addr)
	_, err := io.WriteString(c, "be/s1\n")
	require.NoError(t, err)
	assert.Equal(t, KindUp, <-kinds, "the next poll is served")
}

// Negative controls: without recover in ask the test process died; without the
// 60 s there were three lines; with the value logged, "secret" was in them.
func TestPanicInSource(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		var kinds tally
		ln := accepttest.NewPipes()
		_, stop := serve(t, oneReady, Options{OnAnswer: kinds.add, Logger: slog.New(slog.NewTextHandler(&log, nil))}, ln)
		for range 3 {
			c, _ := ln.Dial("192.0.2.1")
			_, err := io.WriteString(c, "bad\n")
			require.NoError(t, err)
			got, err := io.ReadAll(c)
			require.NoError(t, err)
			assert.Equal(t, "down # internal_error\n", string(got))
		}
		assert.Equal(t, "up\n", ask(t, ln, "192.0.2.1"))
		stop()
		assert.Equal(t, map[string]int{KindPanic: 3, KindUp: 1}, kinds.all())
		assert.Equal(t, 1, strings.Count(log.String(), "level=ERROR"), "one line a minute")
		assert.NotContains(guarantee.T(t), log.String(), "secret")
	})
}

// The kinds that tests have seen are all there are.
func TestKinds(t *testing.T) {
	seen := map[string]bool{}
	for _, k := range Kinds() {
		assert.Regexp(t, `^[a-z_]+$`, k)
		assert.False(t, seen[k], k)
		seen[k] = true
	}
	for _, st := range []State{{}, {Ready: true}, {Quiesced: true}, {Quiesced: true, AdminWords: true}} {
		assert.True(t, seen[kindOf(st, true)])
	}
	assert.True(t, seen[kindOf(State{}, false)])
}

// Negative control: with nil for x.out in answer it was not.
func TestAnswerAllocatesNothing(t *testing.T) {
	s := NewServer(fixed{State{Reason: "probe_stale"}}, Options{})
	c := &memory{}
	x := &session{conn: c}
	allocs := testing.AllocsPerRun(100, func() { s.answer(x) })
	assert.Zero(t, allocs)
	assert.Equal(t, "down # probe_stale\n", string(c.last))
}

// memory is a connection that always asks for the same name.
type memory struct {
	net.Conn
	last []byte
}

func (c *memory) Read(b []byte) (int, error)       { return copy(b, "be/s1\n"), nil }
func (c *memory) Write(b []byte) (int, error)      { c.last = append(c.last[:0], b...); return len(b), nil }
func (c *memory) SetReadDeadline(time.Time) error  { return nil }
func (c *memory) SetWriteDeadline(time.Time) error { return nil }
