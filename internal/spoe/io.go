package spoe

import (
	"errors"
	"os"
	"time"
)

// fill reads once more. over is set where the connection is to end; what it had
// to be told, it has been.
func (c *conn) fill() (end Kind, over bool) {
	c.makeRoom()
	now := c.wrote // a moment ago, where what the last read brought has been answered
	if c.wrote = (time.Time{}); now.IsZero() {
		now = time.Now()
	}
	c.setReadDeadline(now)
	n, err := c.nc.Read(c.in[c.end:])
	if n > 0 {
		c.end += n
		c.last = c.srv.loop.IsClosing() && c.end < len(c.in)
		return 0, false
	}
	switch {
	case err == nil:
		return 0, false
	case errors.Is(err, os.ErrDeadlineExceeded):
		return c.late()
	default: // the end of the file, a reset, our own close
		return Closed, true
	}
}

// late says what a read that has waited too long means.
func (c *conn) late() (end Kind, over bool) {
	switch {
	case c.srv.loop.IsClosing():
		return c.disconnect(statusNormal, "", Stopped), true
	case !c.greeted.Load():
		return c.disconnect(statusTimeout, "no HELLO in time", HelloTimeout), true
	case c.at < c.end:
		return c.disconnect(statusTimeout, "a frame did not end in time", FrameTimeout), true
	}
	return c.disconnect(statusNormal, "idle", IdleTimeout), true
}

// makeRoom moves what has not been looked at to the front, and grows the buffer
// where a frame needs that.
func (c *conn) makeRoom() {
	need, _ := whole(c.in[c.at:c.end], c.most)
	c.forget()
	c.end = copy(c.in, c.in[c.at:c.end])
	c.at = 0
	if need = max(need, readSize); need > len(c.in) {
		grown := make([]byte, need)
		copy(grown, c.in[:c.end])
		c.in = grown
	}
}

// setReadDeadline costs a system timer each time, so an idle one is set for twice
// its time and moved only when less than once is left.
func (c *conn) setReadDeadline(now time.Time) {
	o := &c.srv.o
	var until time.Time
	switch {
	case c.srv.loop.IsClosing():
		until = c.lastWords()
	case !c.greeted.Load():
		until = c.came.Add(o.HelloTimeout)
	case c.end > 0: // a frame has begun
		if c.frameUntil.IsZero() {
			c.frameUntil = now.Add(o.FrameTimeout)
		}
		until = c.frameUntil
	default:
		if left := c.readUntil.Sub(now); left >= o.IdleTimeout && left <= 2*o.IdleTimeout {
			return
		}
		until = now.Add(2 * o.IdleTimeout)
	}
	c.readUntil = until
	_ = c.nc.SetReadDeadline(until)
	if c.srv.loop.IsClosing() { // meanwhile, and close has set its own before
		_ = c.nc.SetReadDeadline(c.lastWords())
	}
}

// lastWords is the deadline of a connection that is to end.
func (c *conn) lastWords() time.Time {
	if c.closeUntil.IsZero() {
		c.closeUntil = time.Now().Add(lastWords)
	}
	return c.closeUntil
}

// flush writes what waits, and counts it.
func (c *conn) flush() bool {
	if len(c.out) == 0 {
		return true
	}
	now := time.Now()
	c.wrote = now
	c.heard.Store(now.UnixNano())
	if c.writeUntil.Sub(now) < c.srv.o.WriteTimeout {
		c.writeUntil = now.Add(2 * c.srv.o.WriteTimeout)
		_ = c.nc.SetWriteDeadline(c.writeUntil)
	}
	_, err := c.nc.Write(c.out)
	c.forget() // it may have taken its time
	c.out = c.out[:0]
	for kind, n := range c.counts {
		if n > 0 {
			c.srv.asked.Store(now.UnixNano())
			c.srv.o.OnAnswers(Kind(kind), n)
		}
	}
	c.counts = [kindsOfAnswer]int{}
	return err == nil
}
