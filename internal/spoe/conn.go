package spoe

import (
	"fmt"
	"net"
	"net/netip"
	"runtime/debug"
	"sync/atomic"
	"time"

	"github.com/negasus/haproxy-spoe-go/message"

	"tier-agent/internal/accept"
)

const (
	// readSize is what a connection begins with; it grows to the largest frame that
	// comes, a NOTIFY with a tier's name has less than 100 bytes.
	readSize = 4 << 10

	// flushAt bounds the answers that wait for the end of their batch. HAProxy's
	// batches are far below.
	flushAt = 32 << 10

	// lastWords is how long a connection is read, once the server closes, for what
	// its peer sends: the end is told with the answers to that, in one write. HAProxy
	// fails what it has asked when it hears of the end, so told at another moment it
	// cost 3.0 a request in one of four stops under load.
	lastWords = 100 * time.Millisecond
)

// conn is one connection. Its goroutine has it for itself but for what is atomic,
// and the close of dropped.
type conn struct {
	srv  *Server
	nc   net.Conn
	peer netip.Addr
	came time.Time

	greeted atomic.Bool   // its HELLO has come
	heard   atomic.Int64  // when it last sent something, in Unix nanoseconds
	dropped chan struct{} // closed when its place has gone to a newcomer

	in         []byte // what has been read; in[at:end] has not been looked at
	at, end    int
	out        []byte // answers that have not been written
	counts     [kindsOfAnswer]int
	asked      [maxAsked]question
	learned    int       // questions so far; the oldest of asked goes for the next
	once       question  // one that is too long to be remembered
	most       int       // largest frame that may come
	wrote      time.Time // when what was read last was answered; zero where nothing was
	readUntil  time.Time // the deadlines that are set
	writeUntil time.Time
	frameUntil time.Time // of the frame that has begun; zero where none has
	closeUntil time.Time // of what is read once the server closes
	last       bool      // what was read last is all there was, and the server closes

	encoder encoder
	all     message.Messages
}

func newConn(s *Server, nc net.Conn, peer netip.Addr, now time.Time) *conn {
	c := &conn{
		srv: s, nc: nc, peer: peer, came: now, most: helloSize, dropped: make(chan struct{}),
		encoder: encoder{retryAfter: int((s.o.RetryAfter-1)/time.Second) + 1, heads: map[Verdict][]byte{}},
	}
	c.heard.Store(now.UnixNano())
	return c
}

// need orders the connections of which one has to go.
func (c *conn) need() int64 {
	const unproven = -1 << 62
	if !c.greeted.Load() {
		return unproven + c.came.UnixNano()
	}
	return c.heard.Load()
}

// converse runs the connection and says how it ended.
func (c *conn) converse() (end Kind) {
	defer func() {
		if v := recover(); v != nil {
			c.srv.panicked(v)
			end = c.disconnect(statusUnknown, "internal error", Failed)
		}
		select {
		case <-c.dropped:
			end = Dropped
		default:
		}
	}()
	if end, over := c.introduce(); over {
		return end
	}
	for {
		f, more, wrong := c.next()
		switch {
		case wrong != 0:
			return c.violate(wrong)
		case !more:
			if c.last && c.at == c.end {
				return c.disconnect(statusNormal, "", Stopped)
			}
			if !c.flush() {
				return WriteError
			}
			if end, over := c.fill(); over {
				return end
			}
		case f.kind == notify:
			if !c.answer(f) {
				return c.violate(statusInvalid)
			}
			if len(c.out) >= flushAt && !c.flush() {
				return WriteError
			}
		case f.kind == haproxyDisconnect:
			return c.disconnect(statusNormal, "", Closed)
		default: // a second HELLO, an agent's frame, a fragment, an unknown type
			return c.violate(statusInvalid)
		}
	}
}

// introduce takes the HELLO and answers it.
func (c *conn) introduce() (end Kind, over bool) {
	f, more, wrong := c.next()
	for !more && wrong == 0 {
		if end, over := c.fill(); over {
			return end, true
		}
		f, more, wrong = c.next()
	}
	var h hello
	if wrong == 0 {
		h, wrong = parseHello(f)
	}
	if wrong != 0 {
		return c.violate(wrong), true
	}
	c.greeted.Store(true)
	if h.healthCheck && !c.srv.healthy() {
		return c.disconnect(statusResource, "not ready", NotReady), true
	}
	if !c.awaitReady() {
		return c.disconnect(statusResource, "not ready", c.unready()), true
	}
	c.most = int(min(h.maxFrameSize, uint64(c.srv.o.MaxFrameSize)))
	c.out = appendHello(c.out, c.most)
	if !c.flush() {
		return WriteError, true
	}
	if h.healthCheck {
		accept.Linger(c.nc, c.in)
		return HealthCheck, true
	}
	return 0, false
}

// awaitReady waits for Ready, until the HELLO's time is over.
func (c *conn) awaitReady() bool {
	select {
	case <-c.srv.o.Ready:
		return true
	default:
	}
	late := time.NewTimer(time.Until(c.came.Add(c.srv.o.HelloTimeout)))
	defer late.Stop()
	select {
	case <-c.srv.o.Ready:
		return true
	case <-late.C:
	case <-c.dropped:
	case <-c.srv.loop.Closing():
	}
	return false
}

func (c *conn) unready() Kind {
	if c.srv.loop.IsClosing() {
		return Stopped
	}
	return NotReady
}

// next takes the next whole frame from what has been read.
func (c *conn) next() (f frame, more bool, wrong status) {
	need, wrong := whole(c.in[c.at:c.end], c.most)
	if wrong != 0 || need > c.end-c.at {
		return f, false, wrong
	}
	b := c.in[c.at+lengthSize : c.at+need]
	c.at += need
	c.frameUntil = time.Time{}
	f, wrong = parseFrame(b)
	return f, wrong == 0, wrong
}

// violate ends the connection of a peer that has broken the protocol.
func (c *conn) violate(wrong status) Kind {
	v := violations[wrong]
	if c.srv.breaches.Allow() {
		c.srv.o.Logger.Warn("a SPOE peer has broken the protocol", "peer", c.nc.RemoteAddr().String(), "problem", v.text)
	}
	return c.disconnect(wrong, v.text, v.kind)
}

// disconnect writes the answers that wait and an AGENT-DISCONNECT, in one write,
// and sees that a close does not overtake them.
func (c *conn) disconnect(code status, text string, end Kind) Kind {
	c.out = appendDisconnect(c.out, code, text)
	if !c.flush() {
		return end
	}
	accept.Linger(c.nc, c.in)
	return end
}

// panicked logs where, and not the value itself, which may hold what the source
// has read.
func (s *Server) panicked(v any) {
	if s.panics.Allow() {
		s.o.Logger.Error("spoe: a request's answer panicked", "type", fmt.Sprintf("%T", v), "stack", string(debug.Stack()))
	}
}

// healthy is what a health check is told.
func (s *Server) healthy() bool {
	select {
	case <-s.o.Ready:
		return !s.retired.Load() && !s.loop.IsClosing()
	default:
		return false
	}
}
