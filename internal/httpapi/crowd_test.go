package httpapi

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// ask is a check as HAProxy makes it: one connection, one request. It returns
// the status code, or what went wrong.
func ask(address string) (int, error) {
	conn, err := net.Dial("tcp", address)
	if err != nil {
		return 0, err
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(deadline)); err != nil {
		return 0, err
	}
	if _, err := fmt.Fprint(conn, "GET /readyz/heavy HTTP/1.1\r\nHost: x\r\n\r\n"); err != nil {
		return 0, err
	}
	res, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		return 0, err
	}
	return res.StatusCode, res.Body.Close()
}

// A check gets its answer while silent connections, three times as many as there
// are places, are held and come again. They may be in the middle of a header, or
// owe a body.
//
// Control: with a wait for a place put in the place of admit's leave, a check had
// no answer in 10 s where the others owe a body, and took seconds elsewhere.
func TestSilentConnectionsStarveNoCheck(t *testing.T) {
	for name, text := range map[string]string{
		"say nothing":   "",
		"half a header": "GET /livez HTTP/1.1\r\nHost:",
		"owe a body":    "GET /livez HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\n",
	} {
		t.Run(name, func(t *testing.T) {
			ln, err := net.Listen("tcp", "127.0.0.1:0")
			require.NoError(t, err)
			startServe(t, Limit(ln, 0), everything().readOnly().Handler(), silent)
			held, n := make([]net.Conn, 3*maxConns), 0
			hold := func(more int) {
				for range more {
					at := n % len(held)
					if n++; held[at] != nil {
						_ = held[at].Close()
					}
					held[at], err = net.Dial("tcp", ln.Addr().String())
					require.NoError(t, err)
					_, _ = io.WriteString(held[at], text) // fails where it is closed by now
				}
			}
			hold(len(held))
			defer func() {
				for _, c := range held {
					_ = c.Close()
				}
			}()
			for range 50 {
				hold(50)
				code, err := ask(ln.Addr().String())
				require.NoError(t, err)
				require.Equal(t, http.StatusOK, code)
			}
		})
	}
}

// The oldest goes, but not one that keeps its place; a place is given back once.
//
// Controls: with Back in the place of Front, the second went; with keeps not
// looked at in leave, the crowd never had room again.
func TestCrowd(t *testing.T) {
	ln := newPipes()
	defer ln.Close()
	c := newCrowd(ln, 3, 2)
	come := func() *guest {
		go func() { _, _ = ln.dial() }()
		conn, err := c.Accept()
		require.NoError(t, err)
		return conn.(*guest)
	}
	closed := func(g *guest) bool { return g.SetDeadline(time.Time{}) != nil }
	first, second, third := come(), come(), come()
	require.True(t, first.keep())
	fourth := come()
	assert.True(t, closed(second))
	assert.False(t, second.keep(), "its place is taken")
	for _, g := range []*guest{first, third, fourth} {
		assert.False(t, closed(g))
	}
	require.True(t, third.keep())
	assert.False(t, fourth.keep(), "two keep theirs")
	fifth := come()
	assert.True(t, closed(fourth))
	require.NoError(t, first.Close())
	require.NoError(t, first.Close())
	require.NoError(t, fourth.Close())
	assert.True(t, fifth.keep())
	assert.False(t, closed(come()))
	assert.Equal(t, 2, c.kept)
	assert.Equal(t, 1, c.queue.Len())
}

// In a flood of newcomers each has its tenure to be answered in.
//
// Control: without Sleep in Accept it was none.
func TestTenure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ln := newPipes()
		c := newCrowd(ln, 2, 0)
		began := time.Now()
		var conns []net.Conn
		for range 6 {
			go func() { _, _ = ln.dial() }()
			conn, err := c.Accept()
			require.NoError(t, err)
			conns = append(conns, conn)
		}
		assert.Equal(t, 2*tenure, time.Since(began), "two places, given away twice")
		for _, conn := range conns {
			_ = conn.Close()
		}
	})
}
