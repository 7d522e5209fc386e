package spoe

import (
	"net"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"tier-agent/internal/accept/accepttest"
)

// leave closes the client's end, as a peer does that has been told to go, and
// gives what ended the connection.
func leave(tb testing.TB, kinds *tally, stop func(), clients ...net.Conn) map[string]int {
	tb.Helper()
	for _, c := range clients {
		require.NoError(tb, c.Close())
	}
	stop()
	return kinds.all()
}

// Negative controls: with the deadline moved by each read, the HELLO that comes
// byte by byte was waited for; with no case for it in late, it was a
// frame_timeout or an idle one.
func TestHelloTimeout(t *testing.T) {
	for _, bytes := range []int{0, 1, 20} {
		synctest.Test(t, func(t *testing.T) {
			var kinds tally
			ln := accepttest.NewPipes()
			_, stop := serve(t, tiers, kinds.with(Options{}), ln)
			client, _ := ln.Dial("192.0.2.1")
			begin := time.Now()
			var writer sync.WaitGroup
			writer.Go(func() {
				for _, b := range greet()[:bytes] {
					if _, err := client.Write([]byte{b}); err != nil {
						return
					}
					time.Sleep(time.Second)
				}
			})
			out := readFrames(t, client, 1)
			assert.Equal(t, 3*time.Second, time.Since(begin))
			assert.Equal(t, statusTimeout, out[0].goodbye(t))
			assert.Equal(t, map[string]int{"hello_timeout": 1}, leave(t, &kinds, stop, client))
			writer.Wait()
		})
	}
}

// Silence is ended between once and twice its time, at the latest possible
// moment where nothing was ever asked.
//
// Negative controls: with the deadline left where it was while any time was left,
// peers were cut within seconds of an answer; with three times IdleTimeout for
// twice, after 30 min; with the write deadline set once, the answers after 9 min
// did not get out.
func TestIdleTimeout(t *testing.T) {
	const idle = 10 * time.Minute
	for _, asked := range [][]time.Duration{{}, {0}, {time.Minute}, {9 * time.Minute}, {11 * time.Minute}, {19 * time.Minute}, {9 * time.Minute, 9 * time.Minute, 9 * time.Minute}} {
		synctest.Test(t, func(t *testing.T) {
			var kinds tally
			ln := accepttest.NewPipes()
			_, stop := serve(t, tiers, kinds.with(Options{IdleTimeout: idle}), ln)
			client, _ := ln.Dial("192.0.2.1")
			send(t, client, greet())
			readFrames(t, client, 1)
			last := time.Now()
			for _, d := range asked {
				time.Sleep(d)
				send(t, client, askTier(1, "gold"))
				readFrames(t, client, 1)
				last = time.Now()
			}
			out := readFrames(t, client, 1)
			silence := time.Since(last)
			assert.GreaterOrEqual(t, silence, idle, "%v", asked)
			assert.LessOrEqual(t, silence, 2*idle, "%v", asked)
			assert.Equal(t, statusNormal, out[0].goodbye(t))
			assert.Equal(t, 1, leave(t, &kinds, stop, client)["idle_timeout"])
		})
	}
}

// A frame's time holds where it is longer than that of silence, and the other
// way round.
//
// Negative control: with the deadline left where it was while any time was left,
// silence was cut by the frame's.
func TestFrameAndIdleTimesAreIndependent(t *testing.T) {
	for _, o := range []Options{{IdleTimeout: 2 * time.Second, FrameTimeout: 3 * time.Second}, {IdleTimeout: time.Hour, FrameTimeout: time.Second}} {
		synctest.Test(t, func(t *testing.T) {
			var kinds tally
			ln := accepttest.NewPipes()
			_, stop := serve(t, tiers, kinds.with(o), ln)
			client, _ := ln.Dial("192.0.2.1")
			send(t, client, greet())
			readFrames(t, client, 1)
			one := askTier(1, "gold")
			send(t, client, one[:9])
			time.Sleep(o.FrameTimeout - 1)
			send(t, client, one[9:])
			readFrames(t, client, 1)
			last := time.Now()
			out := readFrames(t, client, 1)
			assert.GreaterOrEqual(t, time.Since(last), o.IdleTimeout)
			assert.LessOrEqual(t, time.Since(last), 2*o.IdleTimeout)
			assert.Equal(t, statusNormal, out[0].goodbye(t))
			assert.Equal(t, map[string]int{"admitted": 1, "idle_timeout": 1}, leave(t, &kinds, stop, client))
		})
	}
}

// A peer that does not read costs its place for twice WriteTimeout at most.
//
// Negative controls: without SetWriteDeadline the bubble was deadlocked; with the
// deadline set once, the second write had half a second.
func TestPeerThatDoesNotRead(t *testing.T) {
	for _, greeted := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			var kinds tally
			ends := make(chan Kind, 1)
			ln := accepttest.NewPipes()
			_, stop := serve(t, tiers, Options{WriteTimeout: time.Second, OnAnswers: kinds.answers, OnEnd: func(k Kind) { ends <- k }}, ln)
			client, _ := ln.Dial("192.0.2.1")
			send(t, client, greet())
			var want map[string]int
			if greeted {
				readFrames(t, client, 1)
				time.Sleep(1500 * time.Millisecond)
				send(t, client, asks(1, 3))
				want = map[string]int{"admitted": 3}
			}
			begin := time.Now()
			assert.Equal(t, WriteError, <-ends)
			assert.GreaterOrEqual(t, time.Since(begin), time.Second)
			assert.LessOrEqual(t, time.Since(begin), 2*time.Second)
			assert.Equal(t, want, leave(t, &kinds, stop, client))
		})
	}
}

// Before Ready a HELLO waits, for HelloTimeout at most, and a health check fails
// at once, so that HAProxy does not take the agent into use yet.
//
// Negative controls: without awaitReady the first was answered at once; without
// its timer the bubble was deadlocked; without healthy the health check waited
// too.
func TestBeforeReady(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var kinds tally
		open := make(chan struct{})
		ln := accepttest.NewPipes()
		_, stop := serve(t, tiers, kinds.with(Options{Ready: open}), ln)
		begin := time.Now()

		early, _ := ln.Dial("192.0.2.1")
		send(t, early, greet())
		out := readFrames(t, early, 1)
		assert.Equal(t, 3*time.Second, time.Since(begin))
		assert.Equal(t, statusResource, out[0].goodbye(t))

		check, _ := ln.Dial("192.0.2.1")
		send(t, check, spopCheck())
		out = readFrames(t, check, 1)
		assert.Equal(t, 3*time.Second, time.Since(begin))
		assert.Equal(t, statusResource, out[0].goodbye(t))

		waits, _ := ln.Dial("192.0.2.1")
		send(t, waits, greet())
		go func() {
			time.Sleep(2 * time.Second)
			close(open)
		}()
		out = readFrames(t, waits, 1)
		assert.Equal(t, 5*time.Second, time.Since(begin))
		assert.EqualValues(t, 101, out[0].kind)
		send(t, waits, asks(1, 1))
		assert.Equal(t, true, readFrames(t, waits, 1)[0].vars(t)["admit"])

		again, _ := ln.Dial("192.0.2.1")
		send(t, again, spopCheck())
		assert.EqualValues(t, 101, readFrames(t, again, 1)[0].kind)
		assert.Equal(t, map[string]int{"not_ready": 2, "health_check": 1, "admitted": 1, "closed": 1}, leave(t, &kinds, stop, early, check, waits, again))
	})
}

// The end of the server ends the wait for Ready.
//
// Negative control: without Closing in awaitReady it took 3 s.
func TestShutdownBeforeReady(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var kinds tally
		ln := accepttest.NewPipes()
		_, stop := serve(t, tiers, kinds.with(Options{Ready: make(chan struct{})}), ln)
		client, _ := ln.Dial("192.0.2.1")
		send(t, client, greet())
		synctest.Wait()
		begin := time.Now()
		go stop()
		assert.Equal(t, statusResource, readFrames(t, client, 1)[0].goodbye(t))
		assert.Zero(t, time.Since(begin))
		require.NoError(t, client.Close())
		synctest.Wait()
		assert.Equal(t, map[string]int{"stopped": 1}, kinds.all())
	})
}

// Negative control: with retired asked in introduce for every HELLO, the new
// connection was refused; not asked in healthy, the health check passed.
func TestRetire(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var kinds tally
		ln := accepttest.NewPipes()
		s, stop := serve(t, tiers, kinds.with(Options{}), ln)
		old, _ := ln.Dial("192.0.2.1")
		send(t, old, greet())
		readFrames(t, old, 1)
		s.Retire()
		check, _ := ln.Dial("192.0.2.1")
		send(t, check, spopCheck())
		assert.Equal(t, statusResource, readFrames(t, check, 1)[0].goodbye(t))
		fresh, _ := ln.Dial("192.0.2.1")
		send(t, fresh, greet())
		assert.EqualValues(t, 101, readFrames(t, fresh, 1)[0].kind)
		for _, c := range []net.Conn{old, fresh} {
			send(t, c, askTier(1, "gold"))
			assert.Equal(t, true, readFrames(t, c, 1)[0].vars(t)["admit"])
		}
		assert.Equal(t, map[string]int{"not_ready": 1, "admitted": 2, "closed": 2}, leave(t, &kinds, stop, old, check, fresh))
	})
}
