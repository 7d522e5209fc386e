package spoe

import (
	"net"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// A peer that has said all that it has to say is answered all the same.
//
// Negative control: with what waits not written before the next read, no ACK came.
func TestHalfClose(t *testing.T) {
	for _, network := range []string{"tcp", "unix"} {
		t.Run(network, func(t *testing.T) {
			var kinds tally
			ln := listen(t, network)
			_, stop := serve(t, tiers, kinds.with(Options{}), ln)
			c := dial(t, ln)
			send(t, c, greet(), asks(1, 8))
			require.NoError(t, c.(interface{ CloseWrite() error }).CloseWrite())
			out := rest(t, c)
			require.Len(t, out, 9)
			assert.EqualValues(t, 101, out[0].kind)
			for i, f := range out[1:] {
				assert.EqualValues(t, i+1, f.stream)
				assert.Equal(t, true, f.vars(t)["admit"])
			}
			stop()
			assert.Equal(t, map[string]int{"admitted": 8, "closed": 1}, kinds.all())
		})
	}
}

// HAProxy resets a connection that it has no more use for, from 3.1 on.
//
// Negative control: with Closed for the end of the file alone and WriteError for
// the rest in fill, each was a write_error.
func TestReset(t *testing.T) {
	ends := make(chan Kind, 1)
	_, ln := serveTCP(t, tiers, Options{OnEnd: func(k Kind) { ends <- k }})
	for _, begun := range [][]byte{nil, greet()[:9], greet(), slices.Concat(greet(), asks(1, 1)), slices.Concat(greet(), asks(1, 1)[:9])} {
		c := dial(t, ln)
		send(t, c, begun)
		if len(begun) >= len(greet()) {
			readFrames(t, c, 1)
		}
		if len(begun) >= len(greet())+len(asks(1, 1)) {
			readFrames(t, c, 1)
		}
		require.NoError(t, c.(*net.TCPConn).SetLinger(0))
		require.NoError(t, c.Close())
		assert.Equal(t, Closed, <-ends)
	}
}

// What the peer sends after it has broken the protocol does not cost it the
// reason.
//
// Negative control: with Linger taken out of disconnect, the read ended in
// "connection reset by peer" before or after the frame.
func TestUnreadBytesDoNotKillTheReason(t *testing.T) {
	for _, network := range []string{"tcp", "unix"} {
		ln := listen(t, network)
		_, stop := serve(t, tiers, Options{}, ln)
		for range 20 {
			c := dial(t, ln)
			send(t, c, greet(), asks(1, 3), greet(), make([]byte, 20_000))
			out := rest(t, c)
			require.Len(t, out, 5)
			assert.Equal(t, statusInvalid, out[4].goodbye(t))
			require.NoError(t, c.Close())
		}
		stop()
	}
}

// A real socket each for a listener of each kind, of one server.
func TestTwoListeners(t *testing.T) {
	s, ln := serveTCP(t, tiers, Options{})
	other := listen(t, "unix")
	served := make(chan error, 1)
	go func() { served <- s.Serve(t.Context(), other) }()
	for _, ln := range []net.Listener{ln, other} {
		c := dial(t, ln)
		send(t, c, greet(), asks(1, 1))
		assert.Equal(t, true, readFrames(t, c, 2)[1].vars(t)["admit"])
	}
	assert.NoError(t, s.Shutdown(t.Context()))
	assert.NoError(t, <-served)
}
