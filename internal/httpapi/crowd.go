package httpapi

import (
	"cmp"
	"container/list"
	"net"
	"sync"
	"time"
)

// maxConns bounds the connections of a read-only listener. HAProxy's checks are
// short; more than this at once is somebody else's doing.
const maxConns = 1024

// Limit caps the connections of a read-only listener. A newcomer takes the place
// of the oldest: an answer takes microseconds, so that one is waiting for its
// peer, and a check that has to wait its turn behind such peers, in the listen
// queue, closes a healthy tier.
// most is how many; 0 stands for 1,024.
func Limit(ln net.Listener, most int) net.Listener { return newCrowd(ln, cmp.Or(most, maxConns), 0) }

// tenure is how long every connection has at least, which is ample for a check,
// also while a flood of them comes in. At 1,024 places it holds up no flood that
// the system could deliver.
const tenure = 20 * time.Millisecond

// crowd is a listener that holds so many connections at once and never lets a
// newcomer wait: the oldest that keeps no place has to go for it.
type crowd struct {
	net.Listener
	most, mostKept int

	mu    sync.Mutex // protects what is below, and the guests' fields that say so
	queue list.List  // *guest that keep no place, oldest first
	kept  int
}

// mostKept is how many guests may keep their place; it must be below most.
func newCrowd(ln net.Listener, most, mostKept int) *crowd {
	return &crowd{Listener: ln, most: most, mostKept: mostKept}
}

// Accept closes the oldest guest where there is no room.
func (c *crowd) Accept() (net.Conn, error) {
	conn, err := c.Listener.Accept()
	if err != nil {
		return nil, err
	}
	g := &guest{Conn: conn, crowd: c, came: time.Now()}
	if goes := c.admit(g); goes != nil {
		time.Sleep(tenure - g.came.Sub(goes.came))
		_ = goes.Close()
	}
	return g, nil
}

// admit gives g a place and returns the guest that has to be closed for it.
func (c *crowd) admit(g *guest) (goes *guest) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.queue.Len()+c.kept >= c.most {
		goes = c.queue.Front().Value.(*guest)
		goes.leave()
	}
	g.place = c.queue.PushBack(g)
	return goes
}

// guest is a connection of a crowd.
type guest struct {
	net.Conn
	crowd *crowd
	came  time.Time
	// crowd.mu protects these.
	place *list.Element // in the queue, nil once it has left it
	keeps bool
}

// Close may be called twice, which net/http does.
func (g *guest) Close() error {
	err := g.Conn.Close()
	g.crowd.mu.Lock()
	defer g.crowd.mu.Unlock()
	g.leave()
	return err
}

// keep makes sure that no newcomer takes the place of g, until it is closed. It
// reports false where too many keep theirs, or one has taken it already.
func (g *guest) keep() bool {
	g.crowd.mu.Lock()
	defer g.crowd.mu.Unlock()
	if g.place == nil || g.crowd.kept >= g.crowd.mostKept {
		return false
	}
	g.leave()
	g.keeps = true
	g.crowd.kept++
	return true
}

// leave gives the place back, if g has one. crowd.mu must be held.
func (g *guest) leave() {
	switch {
	case g.place != nil:
		g.crowd.queue.Remove(g.place)
		g.place = nil
	case g.keeps:
		g.keeps = false
		g.crowd.kept--
	}
}
