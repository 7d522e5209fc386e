// Package accepttest has connections in memory for the tests of servers that
// accept: in a synctest bubble real sockets do not block durably.
package accepttest

import (
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
)

// Pipes is a listener in memory.
type Pipes struct {
	conns chan net.Conn
	done  chan struct{}
	once  sync.Once
}

// NewPipes returns an open listener.
func NewPipes() *Pipes {
	return &Pipes{conns: make(chan net.Conn), done: make(chan struct{})}
}

// Accept waits for a Dial, and fails with net.ErrClosed after Close.
func (l *Pipes) Accept() (net.Conn, error) {
	select {
	case c := <-l.conns:
		return c, nil
	case <-l.done:
		return nil, net.ErrClosed
	}
}

// Close may be called more than once.
func (l *Pipes) Close() error {
	l.once.Do(func() { close(l.done) })
	return nil
}

// Addr is the zero address.
func (l *Pipes) Addr() net.Addr { return &net.TCPAddr{} }

// Dial connects from ip once Accept takes it, and returns both ends.
func (l *Pipes) Dial(ip string) (client net.Conn, server *End) {
	near, far := net.Pipe()
	server = &End{Conn: far, From: net.TCPAddrFromAddrPort(netip.AddrPortFrom(netip.MustParseAddr(ip), 1))}
	l.conns <- server
	return near, server
}

// End is a server's end of a pipe. It counts what the server does with it.
type End struct {
	net.Conn
	From          net.Addr
	Reads, Writes atomic.Int32
}

// RemoteAddr is From.
func (c *End) RemoteAddr() net.Addr { return c.From }

// Read counts, and reads.
func (c *End) Read(b []byte) (int, error) {
	c.Reads.Add(1)
	return c.Conn.Read(b)
}

// Write counts, and writes.
func (c *End) Write(b []byte) (int, error) {
	c.Writes.Add(1)
	return c.Conn.Write(b)
}
