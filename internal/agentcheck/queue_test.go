package agentcheck

import (
	"io"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"tier-agent/internal/accept/accepttest"
	"tier-agent/test/guarantee"
)

// dropped says whether the server has closed the connection unanswered.
func dropped(tb testing.TB, client net.Conn) bool {
	tb.Helper()
	_ = client.SetReadDeadline(time.Now().Add(time.Millisecond)) // fails where it is dropped
	got, err := io.ReadAll(client)
	assert.Empty(tb, got)
	return err == nil
}

// A peer at its cap loses its own oldest connection that is silent, and nobody
// else does.
//
// Negative controls: without the peers case in admit the first was not dropped;
// without Unmap the mapped ones were another peer; without the delete of an
// empty queue, stop found entries; with release not forgetting, it found the
// sessions of those that had left.
func TestCapOfOnePeer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var kinds tally
		ln := accepttest.NewPipes()
		s, stop := serve(t, oneReady, Options{MaxConnsPerPeer: 2, OnAnswer: kinds.add}, ln)
		other, _ := ln.Dial("192.0.2.2")
		first, _ := ln.Dial("192.0.2.1")
		second, _ := ln.Dial("::ffff:192.0.2.1")
		assert.Equal(t, "up\n", ask(t, ln, "192.0.2.2"), "another peer has room")
		assert.False(t, dropped(t, first))
		third, _ := ln.Dial("::ffff:192.0.2.1")
		synctest.Wait()
		assert.True(t, dropped(t, first))
		assert.False(t, dropped(t, second))
		assert.Equal(t, "up\n", ask(t, ln, "192.0.2.1"), "the newcomer is served")
		assert.True(t, dropped(t, second))
		assert.False(t, dropped(t, third))
		assert.False(t, dropped(t, other))
		require.NoError(t, third.Close())
		require.NoError(t, other.Close())
		synctest.Wait()
		assert.Empty(guarantee.T(t), s.peers)
		stop()
		assert.Equal(t, map[string]int{KindRejectedPeer: 2, KindUp: 2, KindWriteError: 2}, kinds.all())
	})
}

// Negative control: without the MaxConns case in admit the first was not
// dropped.
func TestCapOfAllPeers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var kinds tally
		ln := accepttest.NewPipes()
		_, stop := serve(t, oneReady, Options{MaxConns: 2, OnAnswer: kinds.add}, ln)
		first, _ := ln.Dial("192.0.2.1")
		second, _ := ln.Dial("192.0.2.2")
		assert.Equal(t, "up\n", ask(t, ln, "192.0.2.3"))
		assert.True(t, dropped(t, first))
		assert.False(t, dropped(t, second))
		require.NoError(t, second.Close())
		stop()
		assert.Equal(t, map[string]int{KindRejectedCap: 1, KindUp: 1, KindWriteError: 1}, kinds.all())
	})
}

// Who is dropped: not a poll that has begun its name, though it is older, unless
// it has had more than a poll needs, or the other has only just come; of several
// that have begun, the oldest.
//
// Negative controls: with the heard case taken out of dawdler, "begun" was
// dropped in place of "silent"; with the age case taken out, "late" was not
// dropped and "silent" was; without tenure, the one that had just come was; with
// nil for its last return, the test panicked.
func TestWhoIsDropped(t *testing.T) {
	for name, tt := range map[string]struct {
		sent []string // by each connection, the oldest first
		wait time.Duration
		want int // which of them is dropped
	}{
		"silent":       {[]string{"", ""}, tenure, 0},
		"begun":        {[]string{"be/", ""}, tenure, 1},
		"late":         {[]string{"be/", ""}, 2 * patience, 0},
		"all have":     {[]string{"be/", "be/"}, tenure, 0},
		"just come":    {[]string{"be/", ""}, 0, 0},
		"silent, late": {[]string{"", "be/"}, 2 * patience, 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ln := accepttest.NewPipes()
				_, stop := serve(t, oneReady, Options{MaxConnsPerPeer: 2, Silence: time.Hour, ReadTimeout: time.Hour}, ln)
				var clients []net.Conn
				for _, text := range tt.sent {
					c, _ := ln.Dial("192.0.2.1")
					clients = append(clients, c)
					if text != "" { // a pipe hands on an empty write too
						_, err := io.WriteString(c, text)
						require.NoError(t, err)
					}
				}
				for range 3 { // a byte keeps those alive that have begun
					time.Sleep((tt.wait + 2) / 3)
					for i, c := range clients {
						if tt.wait > tenure && tt.sent[i] != "" {
							_, err := io.WriteString(c, "s")
							require.NoError(t, err)
						}
					}
				}
				synctest.Wait()
				assert.Equal(t, "up\n", ask(t, ln, "192.0.2.1"))
				for i, c := range clients {
					assert.Equal(t, i == tt.want, dropped(t, c), "connection %d", i)
					require.NoError(t, c.Close())
				}
				stop()
			})
		})
	}
}

// Connections that say nothing, or never end a name, starve no poll of the same
// address, however many they are and though they come again.
//
// Negative control: with the newcomer refused in place of the dawdler, the first
// poll was.
func TestDawdlersStarveNoPoll(t *testing.T) {
	for _, text := range []string{"", "be/"} {
		_, addr := serveTCP(t, oneReady, Options{})
		held, n := make([]*net.TCPConn, 600), 0
		hold := func(more int) {
			for range more {
				at := n % len(held)
				if n++; held[at] != nil {
					_ = held[at].Close()
				}
				held[at] = dialTCP(t, addr)
				_, _ = io.WriteString(held[at], text) // fails where it is closed by now
			}
		}
		hold(len(held))
		for range 50 {
			hold(20)
			require.Equal(t, "up\n", poll(t, addr, "be/s1\n"))
		}
	}
}
