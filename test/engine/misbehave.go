package engine

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"time"
)

const (
	dripInterval   = time.Second
	headerInterval = 10 * time.Millisecond
	hugeSize       = 64 << 20
	hijackWrite    = 10 * time.Second // for one write; a reader that stops must not keep us
)

// misbehave takes the connection over, since net/http would not let a handler break the
// protocol. Every way ends when the client goes, or with Close.
func (e *Engine) misbehave(w http.ResponseWriter, r *http.Request, c call, answer answer) {
	good := &capture{header: w.Header().Clone()}
	if c.rule.Fault == Drip || c.rule.Fault == CutBody {
		answer(good, r, c)
	}
	conn, rw, err := http.NewResponseController(w).Hijack()
	if err != nil { // HTTP/2, or a recorder
		fail(w, http.StatusNotImplemented, "this connection cannot be taken over")
		return
	}
	defer conn.Close()
	raw := &rawConn{engine: e, conn: conn, rw: rw, gone: make(chan struct{})}
	go raw.watch()
	defer raw.unwatch()

	switch c.rule.Fault {
	case Drip:
		if !raw.write(good.head("Content-Length: %d\r\n\r\n", good.body.Len())) {
			return
		}
		for _, b := range good.body.Bytes() {
			if !raw.pause(c.rule.Interval, dripInterval) || !raw.write(string([]byte{b})) {
				return
			}
		}
	case EndlessHeaders:
		if !raw.write(good.head("")) {
			return
		}
		for n := 0; raw.write(fmt.Sprintf("X-More-%d: 1\r\n", n)); n++ {
			if !raw.pause(c.rule.Interval, headerInterval) {
				return
			}
		}
	case CutBody:
		raw.write(good.head("Content-Length: %d\r\n\r\n%s", 2*good.body.Len()+1, good.body.Bytes()))
	case HugeBody:
		raw.huge(good.head("Connection: close\r\n\r\n"), c.rule.Size)
	case Garbage:
		raw.write("\x16\x03\x01 this is not HTTP\r\n\r\n")
	case Reset:
		if tcp, ok := conn.(*net.TCPConn); ok {
			_ = tcp.SetLinger(0) // makes Close send RST
		}
	case NoAnswer, Hang:
	}
}

// rawConn is a hijacked connection.
type rawConn struct {
	engine *Engine
	conn   net.Conn
	rw     *bufio.ReadWriter
	gone   chan struct{} // closed when the peer has closed or reset
}

// watch notices a client that goes away between two writes: there is no request context
// to tell after a hijack.
func (c *rawConn) watch() {
	defer close(c.gone)
	_, _ = io.Copy(io.Discard, c.rw)
}

// unwatch waits for watch, so that no goroutine outlives the handler. The linger that
// Reset has set is kept, since only the reading is ended here.
func (c *rawConn) unwatch() {
	_ = c.conn.SetReadDeadline(time.Unix(1, 0))
	<-c.gone
}

func (c *rawConn) write(text string) bool {
	_ = c.conn.SetWriteDeadline(time.Now().Add(hijackWrite))
	_, err := io.WriteString(c.conn, text)
	return err == nil && !c.engine.closed()
}

func (c *rawConn) pause(d, fallback time.Duration) bool {
	if d == 0 {
		d = fallback
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-c.gone:
		return false
	case <-c.engine.done:
		return false
	}
}

// huge sends one JSON string, without a Content-Length that would give its size away.
func (c *rawConn) huge(head string, size int64) {
	if size == 0 {
		size = hugeSize
	}
	if !c.write(head + `{"status":"`) {
		return
	}
	block := strings.Repeat("x", 32<<10)
	for size > 0 {
		n := min(size, int64(len(block)))
		if !c.write(block[:n]) {
			return
		}
		size -= n
	}
	c.write(`"}`)
}

// capture takes the answer that a well behaved endpoint would give.
type capture struct {
	header http.Header
	status int
	body   bytes.Buffer
}

func (c *capture) Header() http.Header         { return c.header }
func (c *capture) WriteHeader(status int)      { c.status = status }
func (c *capture) Write(p []byte) (int, error) { return c.body.Write(p) }

// head is the status line and the header lines, then whatever is to follow them.
func (c *capture) head(format string, args ...any) string {
	var out strings.Builder
	status := max(c.status, http.StatusOK)
	fmt.Fprintf(&out, "HTTP/1.1 %d %s\r\n", status, http.StatusText(status))
	_ = c.header.Write(&out) // drops line ends in values; a Builder never fails
	fmt.Fprintf(&out, format, args...)
	return out.String()
}
