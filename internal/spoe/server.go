package spoe

import (
	"context"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"tier-agent/internal/accept"
)

// Server answers HAProxy's stream processing engines on any number of listeners.
type Server struct {
	src      Source
	o        Options
	loop     *accept.Loop
	retired  atomic.Bool
	asked    atomic.Int64 // when the last question was answered, in Unix nanoseconds; 0 for none
	panics   accept.Throttle
	breaches accept.Throttle

	mu    sync.Mutex // protects what is below; nothing that blocks is called under it
	live  map[*conn]struct{}
	peers map[netip.Addr]int // no entry for 0
}

// NewServer returns a server that answers from src.
func NewServer(src Source, o Options) *Server {
	o = o.withDefaults()
	s := &Server{
		src: src, o: o, loop: accept.New("spoe", o.Logger),
		live: map[*conn]struct{}{}, peers: map[netip.Addr]int{},
	}
	s.loop.Failed = s.close
	return s
}

// Serve answers on ln and closes it. After ctx is cancelled or Shutdown is called
// every connection gets the answers to what it has sent, and an AGENT-DISCONNECT;
// Serve returns nil once all have ended: that takes 0.1 s with peers that read, and
// a few times WriteTimeout with one that does not.
// The end of one Serve's ctx ends the server. An accept error that will not pass
// is returned in the same way; on others it waits, 5 ms to 1 s, and goes on.
func (s *Server) Serve(ctx context.Context, ln net.Listener) error {
	stop := context.AfterFunc(ctx, s.close)
	defer stop()
	return s.loop.Serve(ctx, ln, s.start)
}

// Retire makes health checks fail from now on, and nothing else, so that HAProxy
// sends its requests to another agent before this one's connections close.
func (s *Server) Retire() { s.retired.Store(true) }

// Connections says how many there are now.
func (s *Server) Connections() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.live)
}

// Asked says when a question was last answered; the zero time where none was.
func (s *Server) Asked() time.Time {
	if at := s.asked.Load(); at != 0 {
		return time.Unix(0, at)
	}
	return time.Time{}
}

// Shutdown stops accepting, ends every connection as Serve says and, when ctx ends
// first, closes what is left and returns accept.ErrCut with the number. Afterwards
// no goroutine of the server is left.
func (s *Server) Shutdown(ctx context.Context) error {
	s.close()
	return s.loop.Shutdown(ctx, s.cut)
}

// Private

// start gives c a place and a goroutine.
func (s *Server) start(nc net.Conn, running *sync.WaitGroup) {
	c, goes := s.admit(nc)
	if goes != nil {
		close(goes.dropped)
		_ = goes.nc.Close()
	}
	if c == nil {
		_ = nc.Close()
		return
	}
	running.Go(func() {
		defer s.release(c)
		s.o.OnEnd(c.converse())
	})
}

// admit takes a place, if need be that of a connection that it returns to be
// closed. c is nil when the server is closing.
func (s *Server) admit(nc net.Conn) (c, goes *conn) {
	now := time.Now()
	c = newConn(s, nc, accept.Peer(nc.RemoteAddr()), now)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.loop.IsClosing() {
		return nil, nil
	}
	if s.peers[c.peer] >= s.o.MaxConnsPerPeer {
		goes = s.leastNeeded(func(other *conn) bool { return other.peer == c.peer })
	} else if len(s.live) >= s.o.MaxConns {
		goes = s.leastNeeded(func(*conn) bool { return true })
	}
	if goes != nil {
		s.forget(goes)
	}
	s.live[c] = struct{}{}
	s.peers[c.peer]++
	return c, goes
}

// leastNeeded is the oldest connection without a HELLO, else the one that has
// been silent longest. s.mu must be held.
func (s *Server) leastNeeded(among func(*conn) bool) (least *conn) {
	for c := range s.live {
		if among(c) && (least == nil || c.need() < least.need()) {
			least = c
		}
	}
	return least
}

// release closes before it gives the place back, so the caps hold for open files.
func (s *Server) release(c *conn) {
	_ = c.nc.Close()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.forget(c)
}

// forget gives a connection's place back, once. s.mu must be held.
func (s *Server) forget(c *conn) {
	if _, held := s.live[c]; !held {
		return
	}
	delete(s.live, c)
	if s.peers[c.peer]--; s.peers[c.peer] == 0 {
		delete(s.peers, c.peer)
	}
}

// close begins the end: nothing more is accepted, and every connection that waits
// for its peer looks up.
func (s *Server) close() {
	s.loop.Close()
	s.mu.Lock()
	defer s.mu.Unlock()
	for c := range s.live {
		_ = c.nc.SetReadDeadline(time.Now().Add(lastWords))
	}
}

// cut closes all live connections and says how many there were.
func (s *Server) cut() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	for c := range s.live {
		_ = c.nc.Close()
	}
	return len(s.live)
}
