// Package accept takes connections for a server that has a goroutine for each,
// and ends with all of them gone.
package accept

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"syscall"
	"time"
)

const (
	minBackoff = 5 * time.Millisecond
	maxBackoff = time.Second
)

// ErrCut means that Shutdown's context ended before the last connection did.
var ErrCut = errors.New("connections cut")

// Loop accepts on any number of listeners.
type Loop struct {
	// Failed, where it is set before the first Serve, is called after an accept error
	// that will not pass, so that the connections end that Serve waits for.
	Failed func()

	what    string
	log     *slog.Logger
	serves  sync.WaitGroup // one for each Serve; grows only under mu and before closing is closed
	closing chan struct{}  // closed once, under mu

	mu        sync.Mutex // protects what is below and the close of closing; nothing that blocks is called under it
	listeners map[net.Listener]struct{}
}

// New returns a Loop for the server that is named in its errors and logs.
func New(server string, log *slog.Logger) *Loop {
	return &Loop{what: server, log: log, closing: make(chan struct{}), listeners: map[net.Listener]struct{}{}}
}

// Serve accepts on ln, gives each connection to start, and closes ln. start adds
// to running for each goroutine that it begins, and returns at once.
//
// It returns nil after ctx is cancelled or Shutdown is called, once running is
// done. An accept error that will not pass is returned in the same way; on others
// it waits, 5 ms to 1 s, and goes on.
func (l *Loop) Serve(ctx context.Context, ln net.Listener, start func(c net.Conn, running *sync.WaitGroup)) error {
	if !l.enter(ln) {
		return nil
	}
	defer l.leave(ln)
	stop := context.AfterFunc(ctx, func() { _ = ln.Close() })
	defer stop()

	var running sync.WaitGroup
	err := l.accept(ctx, ln, func(c net.Conn) { start(c, &running) })
	if err != nil && l.Failed != nil {
		l.Failed()
	}
	running.Wait()
	return err
}

// Close stops accepting.
func (l *Loop) Close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.IsClosing() {
		close(l.closing)
	}
	for ln := range l.listeners {
		_ = ln.Close()
	}
}

// Shutdown stops accepting and waits for every Serve to end. When ctx ends first
// it calls cut, which is to close what is left and say how many that were, and
// returns ErrCut with that number unless it is 0.
func (l *Loop) Shutdown(ctx context.Context, cut func() int) error {
	l.Close()
	ended := make(chan struct{})
	go func() {
		l.serves.Wait()
		close(ended)
	}()
	select {
	case <-ended:
		return nil
	case <-ctx.Done():
	}
	n := cut()
	<-ended
	if n == 0 {
		return nil
	}
	return fmt.Errorf("%s: %w: %d: %w", l.what, ErrCut, n, ctx.Err())
}

// Closing is closed when Close or Shutdown begins.
func (l *Loop) Closing() <-chan struct{} { return l.closing }

// IsClosing reports whether Close or Shutdown has begun.
func (l *Loop) IsClosing() bool {
	select {
	case <-l.closing:
		return true
	default:
		return false
	}
}

// Private

func (l *Loop) accept(ctx context.Context, ln net.Listener, start func(net.Conn)) error {
	backoff := time.Duration(0)
	for {
		c, err := ln.Accept()
		switch {
		case err == nil:
			backoff = 0
			start(c)
		case ctx.Err() != nil || l.IsClosing():
			return nil
		case !passes(err):
			return fmt.Errorf("%s: accept on %s: %w", l.what, ln.Addr(), err)
		default:
			if backoff == 0 { // once for each run of errors: the same line every second helps nobody
				l.log.Warn(l.what+" accept failed, retrying", "addr", ln.Addr().String(), "error", err)
			}
			backoff = min(max(2*backoff, minBackoff), maxBackoff)
			l.pause(ctx, backoff)
		}
	}
}

// passes says whether an accept error is about one connection or about a lack
// that may end (EMFILE, ENOBUFS), and not about the listener itself.
func passes(err error) bool {
	var errno syscall.Errno
	if !errors.As(err, &errno) {
		return false
	}
	switch errno {
	case syscall.EBADF, syscall.EINVAL, syscall.ENOTSOCK, syscall.EOPNOTSUPP:
		return false
	}
	return true
}

func (l *Loop) pause(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	case <-l.closing:
	}
}

// enter registers a Serve, unless the loop is closing: then ln is closed.
func (l *Loop) enter(ln net.Listener) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.IsClosing() {
		_ = ln.Close()
		return false
	}
	l.listeners[ln] = struct{}{}
	l.serves.Add(1)
	return true
}

func (l *Loop) leave(ln net.Listener) {
	_ = ln.Close()
	l.mu.Lock()
	delete(l.listeners, ln)
	l.mu.Unlock()
	l.serves.Done()
}
