package spoeload

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"time"
)

// HTTPLoad is one turn of GET requests on kept connections, one out on each. It
// is for a server whose answers are the same to the byte.
type HTTPLoad struct {
	Network, Addr   string
	Conns           int
	Warmup, Measure time.Duration
}

const httpRequest = "GET / HTTP/1.1\r\nHost: bench\r\n\r\n"

// RunHTTP puts the load on the server. It fails at the first answer that is not
// 200, or not the first one's equal.
func RunHTTP(ctx context.Context, l HTTPLoad) (Result, error) {
	if l.Conns < 1 {
		return Result{}, errors.New("spoeload: no connection")
	}
	return turn(ctx, l.Network, l.Addr, l.Conns, l.Warmup, l.Measure, func(c net.Conn) (looper, error) {
		want, err := firstAnswer(c)
		return httpSession{c, want}, err
	})
}

type httpSession struct {
	conn net.Conn
	want []byte
}

// firstAnswer asks once and returns the answer's bytes, which must be a 200.
func firstAnswer(c net.Conn) ([]byte, error) {
	if _, err := io.WriteString(c, httpRequest); err != nil {
		return nil, err
	}
	var seen bytes.Buffer
	res, err := http.ReadResponse(bufio.NewReader(io.TeeReader(c, &seen)), nil)
	if err != nil {
		return nil, err
	}
	defer res.Body.Close()
	if _, err := io.Copy(io.Discard, res.Body); err != nil {
		return nil, err
	}
	if res.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("%w: status %s", ErrAnswer, res.Status)
	}
	return seen.Bytes(), nil
}

func (s httpSession) loop(t *tally) error {
	request, got := []byte(httpRequest), make([]byte, len(s.want))
	for sent := t.clock.now(); sent < t.clock.until; sent = t.clock.now() {
		if _, err := s.conn.Write(request); err != nil {
			return err
		}
		if n, err := io.ReadFull(s.conn, got); err != nil {
			return fmt.Errorf("%w: %q: %w", ErrAnswer, got[:n], err)
		}
		if !bytes.Equal(got, s.want) {
			return fmt.Errorf("%w: %q, not %q", ErrAnswer, got, s.want)
		}
		t.note(sent, t.clock.now())
	}
	return nil
}
