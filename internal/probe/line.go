package probe

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"math"
	"net"
	"net/http"
	"sync"
	"time"
)

// maxHead bounds the status line and header of an answer, together with all interim (1xx)
// answers before it, in bytes.
const maxHead = 32 << 10

var (
	errHeadTooLong = errors.New("answer's header is too long")
	errNotHTTP     = errors.New("answer is not HTTP/1")
	errUnasked     = errors.New("bytes before the request")
)

var readers = sync.Pool{New: func() any { return bufio.NewReaderSize(nil, 4<<10) }}

// line is a connection that belongs to one probe. The deadline of the probe's context lies on
// it from the start, so no read or write has to be given one.
type line struct {
	conn net.Conn
	in   *bufio.Reader
	stop func() bool
	left int64 // bytes that may still be read: counts down within a head, without bound in a body
	err  error // first error of conn, which the HTTP parser above may replace by one of its own
}

// open connects, and shakes hands if the target is https. Errors are faults.
func (r *run) open() (*line, error) {
	p, ctx, u := r.prober, r.ctx, r.target.URL
	conn, err := r.connect()
	if err != nil {
		return nil, wrap(err, classOther)
	}
	if at, ok := ctx.Deadline(); ok {
		_ = conn.SetDeadline(at)
	}
	raw := conn
	// The deadline above does not know that the caller gave up.
	stop := context.AfterFunc(ctx, func() { _ = raw.SetDeadline(time.Unix(1, 0)) })
	if u.Scheme == "https" {
		config := p.tls
		if config.ServerName == "" {
			config = config.Clone()
			config.ServerName = u.Hostname()
		}
		secure := tls.Client(fixedDeadline{raw}, config)
		if err := secure.Handshake(); err != nil {
			stop()
			_ = raw.Close()
			return nil, wrap(err, classTLS)
		}
		conn = secure
	}
	l := &line{conn: conn, stop: stop}
	l.in = readers.Get().(*bufio.Reader)
	l.in.Reset(l)
	return l, nil
}

// exchange sends one request and reads the head of its answer, past interim ones. Errors are
// faults.
func (l *line) exchange(request *http.Request) (*http.Response, error) {
	// A server that answers before it is asked would choose which step its answer counts for.
	if l.in.Buffered() > 0 {
		return nil, wrap(errUnasked, classProtocol)
	}
	var out bytes.Buffer
	if err := request.Write(&out); err != nil {
		return nil, wrap(err, classOther)
	}
	if _, err := l.conn.Write(out.Bytes()); err != nil {
		return nil, wrap(err, classOther)
	}
	l.left = maxHead
	for {
		// Something else than HTTP may never end its line; five bytes tell.
		if start, err := l.in.Peek(5); err != nil {
			return nil, l.broken(err)
		} else if string(start) != "HTTP/" {
			return nil, wrap(errNotHTTP, classProtocol)
		}
		answer, err := http.ReadResponse(l.in, request)
		if err != nil {
			return nil, l.broken(err)
		}
		if answer.ProtoMajor != 1 || answer.StatusCode < 100 {
			return nil, wrap(errNotHTTP, classProtocol)
		}
		if answer.StatusCode >= 200 || answer.StatusCode == http.StatusSwitchingProtocols {
			l.left = math.MaxInt64
			return answer, nil
		}
	}
}

// broken classes an error of the HTTP parser by what the connection said, if it said something.
func (l *line) broken(err error) error {
	if l.err != nil {
		err = l.err
	}
	return wrap(err, classProtocol)
}

// Read is conn's, within the bound on the head.
func (l *line) Read(b []byte) (int, error) {
	if l.left <= 0 {
		return 0, errHeadTooLong
	}
	n, err := l.conn.Read(b[:min(int64(len(b)), l.left)])
	l.left -= int64(n)
	if err != nil && l.err == nil {
		l.err = err
	}
	return n, err
}

func (l *line) close() {
	l.stop()
	_ = l.conn.Close()
	l.in.Reset(nil)
	readers.Put(l.in)
	l.in = nil
}

// fixedDeadline keeps crypto/tls from moving the deadline: closing, it would allow itself five
// seconds for its last alert.
type fixedDeadline struct{ net.Conn }

func (fixedDeadline) SetWriteDeadline(time.Time) error { return nil }
