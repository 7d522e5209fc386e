package agentcheck

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"os"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"tier-agent/internal/accept"
	"tier-agent/internal/accept/accepttest"
	"tier-agent/test/guarantee"
)

// Negative control: without AfterFunc Serve never returned.
func TestServeEndsWithItsContext(t *testing.T) {
	ln := listenLoopback(t)
	ctx, cancel := context.WithCancel(context.Background())
	s := NewServer(oneReady, Options{})
	served := make(chan error, 1)
	go func() { served <- s.Serve(ctx, ln) }()
	require.Equal(t, "up\n", poll(t, ln.Addr().String(), "be/s1\n"))
	cancel()
	assert.NoError(t, <-served)
	_, err := net.Dial("tcp", ln.Addr().String())
	assert.ErrorIs(t, err, syscall.ECONNREFUSED)
}

func TestServeAfterShutdown(t *testing.T) {
	s := NewServer(oneReady, Options{})
	require.NoError(t, s.Shutdown(context.Background()))
	require.NoError(t, s.Shutdown(context.Background()))
	ln := listenLoopback(t)
	assert.NoError(t, s.Serve(context.Background(), ln))
	_, err := ln.Accept()
	assert.ErrorIs(t, err, net.ErrClosed)
}

// A real socket shows what pipes cannot: that no file or goroutine is left. The
// last poll's answer proves that all peers before it in the queue have slots.
// Negative control: without cut in Shutdown it never returned; without
// running.Wait in Serve, sessions were live after the return.
func TestShutdownCutsSilentPeers(t *testing.T) {
	const silent = 500
	var kinds tally
	ln := listenLoopback(t)
	s := NewServer(oneReady, Options{Silence: time.Hour, ReadTimeout: time.Hour, MaxConnsPerPeer: 2 * silent, OnAnswer: kinds.add})
	served := make(chan error, 1)
	go func() { served <- s.Serve(context.Background(), ln) }()
	for range silent {
		dialTCP(t, ln.Addr().String())
	}
	require.Equal(t, "up\n", poll(t, ln.Addr().String(), "be/s1\n"))

	over, cancel := context.WithCancel(context.Background())
	cancel()
	err := s.Shutdown(over)
	assert.ErrorIs(t, err, accept.ErrCut)
	assert.ErrorIs(t, err, context.Canceled)
	assert.NoError(t, <-served)
	assert.Zero(guarantee.T(t), s.live)
	assert.Empty(guarantee.T(t), s.peers)
	assert.Equal(t, map[string]int{KindUp: 1, KindWriteError: silent}, kinds.all())
}

// Negative control: with cut called at once, the answer did not come.
func TestShutdownLetsAnswersFinish(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ln := accepttest.NewPipes()
		_, stop := serve(t, oneReady, Options{}, ln)
		client, _ := ln.Dial("192.0.2.1")
		_, err := io.WriteString(client, "be/")
		require.NoError(t, err)
		go func() {
			time.Sleep(40 * time.Millisecond)
			_, _ = io.WriteString(client, "s1\n")
		}()
		got := make(chan []byte)
		go func() { b, _ := io.ReadAll(client); got <- b }()
		go stop()
		assert.Equal(t, "up\n", string(<-got))
	})
}

// What a silent peer that does not read either costs: one slot, for Silence and
// WriteTimeout. Negative control: without SetWriteDeadline the bubble was
// deadlocked.
func TestSilentPeersEndByThemselves(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var kinds tally
		ln := accepttest.NewPipes()
		s, stop := serve(t, oneReady, Options{MaxConnsPerPeer: 500, OnAnswer: kinds.add}, ln)
		begin := time.Now()
		for range 500 {
			ln.Dial("192.0.2.1")
		}
		synctest.Wait()
		s.mu.Lock()
		assert.Equal(t, 500, s.live.n)
		s.mu.Unlock()
		stop()
		assert.Equal(t, 1090*time.Millisecond, time.Since(begin))
		assert.Equal(t, map[string]int{KindWriteError: 500}, kinds.all())
	})
}

// Negative control: without the IsClosing check in admit it was read.
func TestConnectionAcceptedWhileClosing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, far := net.Pipe()
		late := &accepttest.End{Conn: far}
		calls, closed := 0, make(chan struct{})
		ln := &fakeListener{closed: closed, accept: func() (net.Conn, error) {
			if calls++; calls == 1 {
				<-closed
				return late, nil
			}
			return nil, net.ErrClosed
		}}
		_, stop := serve(t, oneReady, Options{}, ln)
		synctest.Wait()
		stop()
		assert.Zero(t, late.Reads.Load())
		_, err := far.Write([]byte{'x'})
		assert.ErrorIs(t, err, io.ErrClosedPipe)
	})
}

// The waits double from 5 ms to 1 s: eight of them before 1.275 s, then one a
// second. Negative controls: without pause it reached the listener's limit at
// once; with the wait not doubled, within the ten seconds.
func TestAcceptErrorsDoNotSpin(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var calls atomic.Int32
		var log bytes.Buffer
		client, far := net.Pipe()
		conns := make(chan net.Conn, 1)
		ln := &fakeListener{closed: make(chan struct{}), accept: func() (net.Conn, error) {
			select {
			case c := <-conns:
				return c, nil
			default:
			}
			if calls.Add(1) > 1000 {
				return nil, net.ErrClosed
			}
			return nil, &net.OpError{Op: "accept", Err: os.NewSyscallError("accept4", syscall.EMFILE)}
		}}
		_, stop := serve(t, oneReady, Options{Logger: slog.New(slog.NewTextHandler(&log, nil))}, ln)
		time.Sleep(10 * time.Second)
		synctest.Wait()
		assert.EqualValues(t, 8+9, calls.Load())
		assert.Equal(t, 1, strings.Count(log.String(), "\n"))

		conns <- far
		_, err := io.WriteString(client, "be/s1\n")
		require.NoError(t, err)
		got, err := io.ReadAll(client)
		require.NoError(t, err)
		assert.Equal(t, "up\n", string(got))
		stop()
	})
}

// Negative control: without the passes case Serve never returned.
func TestAcceptErrorsThatWillNotPass(t *testing.T) {
	for _, cause := range []error{net.ErrClosed, os.NewSyscallError("accept4", syscall.EINVAL), errors.New("other")} {
		ln := &fakeListener{closed: make(chan struct{}), accept: func() (net.Conn, error) { return nil, cause }}
		assert.ErrorIs(t, NewServer(oneReady, Options{}).Serve(context.Background(), ln), cause)
	}
}

func TestTwoListeners(t *testing.T) {
	s, addr := serveTCP(t, oneReady, Options{})
	ln := listenLoopback(t)
	served := make(chan error, 1)
	go func() { served <- s.Serve(context.Background(), ln) }()
	assert.Equal(t, "up\n", poll(t, ln.Addr().String(), "be/s1\n"))
	assert.Equal(t, "up\n", poll(t, addr, "be/s1\n"))
	assert.NoError(t, s.Shutdown(context.Background()))
	assert.NoError(t, <-served)
}

// ask is one poll from ip through pipes.
func ask(tb testing.TB, ln *accepttest.Pipes, ip string) string {
	tb.Helper()
	c, _ := ln.Dial(ip)
	_, err := io.WriteString(c, "be/s1\n")
	require.NoError(tb, err)
	got, err := io.ReadAll(c)
	require.NoError(tb, err)
	return string(got)
}

// fakeListener accepts what a function says.
type fakeListener struct {
	accept func() (net.Conn, error)
	closed chan struct{}
}

func (l *fakeListener) Accept() (net.Conn, error) { return l.accept() }
func (l *fakeListener) Addr() net.Addr            { return &net.TCPAddr{} }

func (l *fakeListener) Close() error {
	select {
	case <-l.closed:
	default:
		close(l.closed)
	}
	return nil
}
