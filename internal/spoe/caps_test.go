package spoe

import (
	"errors"
	"net"
	"os"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"tier-agent/internal/accept/accepttest"
	"tier-agent/test/guarantee"
)

// gone says whether the server has closed the connection.
func gone(tb testing.TB, c net.Conn) bool {
	tb.Helper()
	if c.SetReadDeadline(time.Now().Add(time.Millisecond)) != nil {
		return true
	}
	defer func() { _ = c.SetReadDeadline(time.Time{}) }()
	n, err := c.Read(make([]byte, 1))
	assert.Zero(tb, n, "nothing is said to who is dropped")
	return !errors.Is(err, os.ErrDeadlineExceeded)
}

// Who goes for a newcomer: the oldest without a HELLO, else the one that has been
// silent longest, of the newcomer's address where that is at its cap and of all
// otherwise.
//
// Negative controls: with greeted left out of need, the one that had said nothing
// stayed; with came for heard, or heard not stored, the one that asked later went
// in place of the silent one; with the peers case taken out of admit, nobody went
// for one of the same address; with "among" ignored, another address's did;
// without Unmap, the mapped address was another peer; with the MaxConns case
// taken out, nobody went; with forget taken out of release, or the delete of an
// address at 0, places were kept.
func TestWhoIsDropped(t *testing.T) {
	const silent, greeted, asked = 0, 1, 2
	type peer struct {
		ip  string
		has int
	}
	for name, tt := range map[string]struct {
		o     Options
		peers []peer // in the order in which they come; they ask in the same
		from  string
		want  int // which goes; -1: nobody
	}{
		"said nothing":          {Options{MaxConns: 3}, []peer{{"192.0.2.1", greeted}, {"192.0.2.2", silent}, {"192.0.2.3", silent}}, "192.0.2.9", 1},
		"silent longest":        {Options{MaxConns: 3}, []peer{{"192.0.2.1", asked}, {"192.0.2.2", greeted}, {"192.0.2.3", asked}}, "192.0.2.9", 1},
		"the oldest that asked": {Options{MaxConns: 2}, []peer{{"192.0.2.1", asked}, {"192.0.2.2", asked}}, "192.0.2.9", 0},
		"of its own address":    {Options{MaxConnsPerPeer: 2}, []peer{{"192.0.2.2", silent}, {"192.0.2.1", greeted}, {"192.0.2.1", asked}}, "192.0.2.1", 1},
		"mapped":                {Options{MaxConnsPerPeer: 2}, []peer{{"192.0.2.2", silent}, {"::ffff:192.0.2.1", greeted}, {"192.0.2.1", asked}}, "::ffff:192.0.2.1", 1},
		"room for another":      {Options{MaxConnsPerPeer: 2, MaxConns: 9}, []peer{{"192.0.2.1", silent}, {"192.0.2.1", silent}}, "192.0.2.2", -1},
		"room":                  {Options{MaxConns: 3}, []peer{{"192.0.2.1", silent}, {"192.0.2.1", silent}}, "192.0.2.1", -1},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var kinds tally
				ln := accepttest.NewPipes()
				tt.o.HelloTimeout = time.Hour
				s, stop := serve(t, tiers, kinds.with(tt.o), ln)
				var clients []net.Conn
				for _, p := range tt.peers {
					c, _ := ln.Dial(p.ip)
					clients = append(clients, c)
					if p.has >= greeted {
						send(t, c, greet())
						readFrames(t, c, 1)
					}
					time.Sleep(time.Second)
				}
				for i, p := range tt.peers {
					if p.has == asked {
						send(t, clients[i], asks(1, 1))
						readFrames(t, clients[i], 1)
						time.Sleep(time.Second)
					}
				}
				fresh, _ := ln.Dial(tt.from)
				send(t, fresh, greet())
				readFrames(t, fresh, 1)
				synctest.Wait()
				for i, c := range clients {
					assert.Equal(t, i == tt.want, gone(t, c), "connection %d", i)
				}
				want := len(clients) + 1
				if tt.want >= 0 {
					want--
					assert.Equal(t, 1, kinds.all()["dropped"])
				}
				assert.Equal(t, want, s.Connections())
				for _, c := range append(clients, fresh) {
					require.NoError(t, c.Close())
				}
				synctest.Wait()
				assert.Zero(guarantee.T(t), s.Connections(), "each place is given back")
				assert.Empty(guarantee.T(t), s.peers)
				stop()
				assert.Equal(t, want, kinds.all()["closed"])
			})
		})
	}
}

// Those that are dropped before Ready leave no goroutine behind until HelloTimeout.
//
// Negative control: without dropped in awaitReady, none had ended.
func TestDroppedBeforeReady(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var kinds tally
		ln := accepttest.NewPipes()
		s, stop := serve(t, tiers, kinds.with(Options{Ready: make(chan struct{}), MaxConns: 2, HelloTimeout: time.Hour}), ln)
		var clients []net.Conn
		for range 10 {
			c, _ := ln.Dial("192.0.2.1")
			send(t, c, greet())
			synctest.Wait()
			clients = append(clients, c)
		}
		assert.Equal(guarantee.T(t), 2, s.Connections())
		assert.Equal(t, map[string]int{"dropped": 8}, kinds.all())
		for _, c := range clients {
			require.NoError(t, c.Close())
		}
		stop()
	})
}

// All peers of a unix socket are one.
func TestCapOfAUnixSocket(t *testing.T) {
	ends := make(chan Kind, 3)
	ln := listen(t, "unix")
	s, stop := serve(t, tiers, Options{MaxConnsPerPeer: 2, OnEnd: func(k Kind) { ends <- k }}, ln)
	for range 3 {
		c := dial(t, ln)
		send(t, c, greet())
		readFrames(t, c, 1)
	}
	assert.Equal(t, Dropped, <-ends)
	assert.Equal(t, 2, s.Connections())
	stop()
}
