package agentcheck

import (
	"cmp"
	"fmt"
	"net"
	"net/netip"
	"runtime"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	"tier-agent/internal/accept"
)

// session is one connection and the slot it holds. It is pooled, so that an
// answer allocates nothing but what package net does.
type session struct {
	conn  net.Conn
	peer  netip.Addr
	began time.Time
	heard atomic.Bool // a byte has come
	in    [bufferSize]byte
	out   [len("down # ") + maxReason + 1]byte // the longest line

	// Server.mu protects what is below.
	links   [2]link // its neighbours in the two queues
	dropped string  // the kind of its end, where a newcomer has taken its slot
}

// start gives c a slot and a goroutine. Where there is none, the session that
// has dawdled longest ends for it: a queue of newcomers, or their refusal, would
// let a few silent peers starve every poll.
func (s *Server) start(c net.Conn, running *sync.WaitGroup) {
	x, dawdler := s.admit(c)
	if x == nil {
		_ = c.Close()
		return
	}
	if dawdler != nil {
		_ = dawdler.Close()
		// Those that were accepted a moment ago get to read what they were sent,
		// before more newcomers count them as silent.
		runtime.Gosched()
	}
	running.Add(1)
	go func() {
		defer running.Done()
		defer s.release(x)
		s.answer(x)
	}()
}

// admit takes a slot, if need be from a session whose connection it returns to
// be closed. x is nil when the server is closing.
func (s *Server) admit(c net.Conn) (x *session, dawdler net.Conn) {
	peer, now := accept.Peer(c.RemoteAddr()), time.Now()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.loop.IsClosing() {
		return nil, nil
	}
	if of := s.peers[peer]; of.n >= s.o.MaxConnsPerPeer {
		dawdler = s.drop(of.dawdler(ofPeer, now), KindRejectedPeer)
	} else if s.live.n >= s.o.MaxConns {
		dawdler = s.drop(s.live.dawdler(ofAll, now), KindRejectedCap)
	}
	x = s.pool.Get().(*session)
	x.conn, x.peer, x.began, x.dropped = c, peer, now, ""
	x.heard.Store(false)
	s.live.push(ofAll, x)
	of := s.peers[peer]
	of.push(ofPeer, x)
	s.peers[peer] = of
	return x, dawdler
}

// drop takes a session's slot away. It ends when its connection is closed.
// s.mu must be held.
func (s *Server) drop(x *session, kind string) net.Conn {
	x.dropped = kind
	s.forget(x)
	return x.conn
}

// forget takes a session out of the queues. s.mu must be held.
func (s *Server) forget(x *session) {
	s.live.remove(ofAll, x)
	of := s.peers[x.peer]
	if of.remove(ofPeer, x); of.n == 0 {
		delete(s.peers, x.peer)
		return
	}
	s.peers[x.peer] = of
}

// release closes before it gives the slot back, so the caps hold for open files.
func (s *Server) release(x *session) {
	_ = x.conn.Close()

	s.mu.Lock()
	if x.dropped == "" {
		s.forget(x)
	}
	s.mu.Unlock()

	x.conn = nil
	s.pool.Put(x)
}

// unwritten is the kind of a session whose answer did not get out.
func (s *Server) unwritten(x *session) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return cmp.Or(x.dropped, KindWriteError)
}

// answer reads one name and writes one line.
func (s *Server) answer(x *session) {
	name, more, kind := readName(x.conn, &x.heard, x.in[:], s.o, s.continues)
	var line []byte
	if kind == "" {
		line, kind = s.ask(x.out[:0], name)
	} else {
		line = appendDown(x.out[:0], refusal(kind, len(name) > 0))
	}
	_ = x.conn.SetWriteDeadline(time.Now().Add(s.o.WriteTimeout))
	if _, err := x.conn.Write(line); err != nil {
		s.o.OnAnswer(s.unwritten(x))
		return
	}
	s.o.OnAnswer(kind)
	if more {
		accept.Linger(x.conn, x.in[:])
	}
}

// ask turns the source's state into a line. A panic there is that poll's answer.
func (s *Server) ask(dst, name []byte) (line []byte, kind string) {
	defer func() {
		if v := recover(); v != nil {
			s.logPanic(v)
			line, kind = appendDown(dst, ReasonInternal), KindPanic
		}
	}()
	st, known := s.src.AgentState(name)
	return AppendReply(dst, st, known), kindOf(st, known)
}

// continues asks the source. A panic there is answered like a name without an end.
func (s *Server) continues(begun []byte) (yes bool) {
	defer func() {
		if v := recover(); v != nil {
			s.logPanic(v)
			yes = true
		}
	}()
	return s.src.Continues(begun)
}

// refusal is the reason for a poll that has no name.
func refusal(kind string, begun bool) string {
	switch {
	case kind == KindEmpty, kind == KindReadTimeout && !begun:
		return ReasonNoAgentSend
	case kind == KindReadTimeout:
		return ReasonReadTimeout
	}
	return ReasonBadRequest
}

// logPanic writes at most one line a minute, since each poll may panic, and not
// the value itself, since it may hold what the source has read.
func (s *Server) logPanic(v any) {
	if s.panics.Allow() {
		s.o.Logger.Error("agent-check source panicked", "type", fmt.Sprintf("%T", v), "stack", string(debug.Stack()))
	}
}
