package agentcheck

import (
	"context"
	"net"
	"net/netip"
	"sync"

	"tier-agent/internal/accept"
)

// Server answers polls on any number of listeners.
type Server struct {
	src    Source
	o      Options
	loop   *accept.Loop
	pool   sync.Pool // *session
	panics accept.Throttle

	mu    sync.Mutex           // protects what is below; nothing that blocks is called under it
	live  queue                // of all peers
	peers map[netip.Addr]queue // of each peer; no entry for an empty one, so it holds at most MaxConns
}

// NewServer returns a server that answers from src.
func NewServer(src Source, o Options) *Server {
	o = o.withDefaults()
	return &Server{
		src:   src,
		o:     o,
		loop:  accept.New("agent-check", o.Logger),
		pool:  sync.Pool{New: func() any { return new(session) }},
		peers: map[netip.Addr]queue{},
	}
}

// Serve answers on ln and closes it. It returns nil after ctx is cancelled or
// Shutdown is called, once the connections it took have ended, which takes no
// longer than a slot may be held. An accept error that will not pass is returned
// in the same way; on others it waits, 5 ms to 1 s, and goes on.
//
// A listener with keep-alive off (net.ListenConfig.KeepAlive below 0) saves four
// system calls for each poll.
func (s *Server) Serve(ctx context.Context, ln net.Listener) error {
	return s.loop.Serve(ctx, ln, s.start)
}

// Shutdown stops accepting, lets running answers finish and, when ctx ends
// first, closes what is left and returns accept.ErrCut with the number.
// Afterwards no goroutine of the server is left.
func (s *Server) Shutdown(ctx context.Context) error { return s.loop.Shutdown(ctx, s.cut) }

// Private

// cut closes all live connections and says how many there were.
func (s *Server) cut() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	for x := s.live.oldest; x != nil; x = x.links[ofAll].newer {
		_ = x.conn.Close()
	}
	return s.live.n
}
