package spoeload

import (
	"net"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"tier-agent/test/socketdir"
)

// listen serves Bare on the network until the test ends. Each connection goes
// through wrap, nil for none.
func listen(tb testing.TB, network string, wrap func(net.Conn) net.Conn) string {
	tb.Helper()
	addr := "127.0.0.1:0"
	if network == "unix" {
		addr = filepath.Join(socketdir.New(tb), "s")
	}
	ln, err := net.Listen(network, addr)
	require.NoError(tb, err)
	var serving sync.WaitGroup
	serving.Go(func() { Bare(wrapped{ln, wrap}) })
	tb.Cleanup(func() { _ = ln.Close(); serving.Wait() })
	return ln.Addr().String()
}

type wrapped struct {
	net.Listener
	wrap func(net.Conn) net.Conn
}

func (w wrapped) Accept() (net.Conn, error) {
	c, err := w.Listener.Accept()
	if err == nil && w.wrap != nil {
		c = w.wrap(c)
	}
	return c, err
}

// counted counts the bytes that come from the client.
type counted struct {
	net.Conn
	read *atomic.Int64
}

func (c counted) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	c.read.Add(int64(n))
	return n, err
}

// tampered changes what the agent writes from its second write on: the first is
// its HELLO, which hello changes.
type tampered struct {
	net.Conn
	hello, acks func([]byte) []byte
	writes      int
}

func (c *tampered) Write(b []byte) (int, error) {
	with := c.acks
	if c.writes++; c.writes == 1 {
		with = c.hello
	}
	out := append([]byte(nil), b...)
	if with != nil {
		out = with(out)
	}
	if out == nil {
		return 0, c.Conn.Close()
	}
	_, err := c.Conn.Write(out)
	return len(b), err
}
