package spoe

import (
	"context"
	"io"
	"net"
	"os"
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

// gated holds its first answer until release is closed.
type gated struct {
	table
	entered chan struct{} // of one place
	release chan struct{}
}

func (g gated) SPOEVerdict(tier, server []byte) (Verdict, bool) {
	select {
	case g.entered <- struct{}{}:
		<-g.release
	default:
	}
	return g.table.SPOEVerdict(tier, server)
}

// What the peer has sent before the end is answered, in order, and then it is
// told, whether the end is Shutdown's or that of Serve's context.
//
// Negative controls: with fill that reads nothing more once the server closes,
// the first frame alone was answered; without AfterFunc in Serve, its context
// ended nothing.
func TestEndAnswersWhatWasSent(t *testing.T) {
	for _, network := range []string{"tcp", "unix"} {
		for _, way := range []string{"Shutdown", "context"} {
			t.Run(network+", "+way, func(t *testing.T) {
				var kinds tally
				src := gated{tiers, make(chan struct{}, 1), make(chan struct{})}
				ln := listen(t, network)
				s := NewServer(src, kinds.with(Options{}))
				ctx, cancel := context.WithCancel(context.Background())
				defer cancel()
				served := make(chan error, 1)
				go func() { served <- s.Serve(ctx, ln) }()
				c := dial(t, ln)
				send(t, c, greet())
				readFrames(t, c, 1)
				send(t, c, asks(1, 1))
				<-src.entered
				send(t, c, asks(2, 7))
				end := cancel
				if way == "Shutdown" {
					end = func() { assert.NoError(t, s.Shutdown(context.Background())) }
				}
				ended := make(chan struct{})
				go func() {
					end()
					close(ended)
				}()
				<-s.loop.Closing()
				close(src.release)

				out := rest(t, c)
				require.Len(t, out, 9)
				for i, f := range out[:8] {
					assert.EqualValues(t, i+1, f.stream)
					assert.Equal(t, true, f.vars(t)["admit"])
				}
				assert.Equal(t, statusNormal, out[8].goodbye(t))
				require.NoError(t, c.Close())
				assert.NoError(t, <-served)
				<-ended
				assert.Equal(t, map[string]int{"admitted": 8, "stopped": 1}, kinds.all())
				_, err := net.Dial(network, ln.Addr().String())
				assert.Error(t, err, "nothing is accepted afterwards")
				assert.Zero(guarantee.T(t), s.Connections())
			})
		}
	}
}

// Each state that a peer may be in when the end comes, and how long that takes
// where the peer goes as it is told.
//
// Negative controls: without the deadlines that close sets, a silent peer kept
// the server for 20 min, and half a frame for 5 s.
func TestEndWhileWaiting(t *testing.T) {
	one := askTier(1, "gold")
	for name, tt := range map[string]struct {
		before [][]byte // each is one read
		answer int
	}{
		"nothing said":  {nil, 0},
		"half a HELLO":  {[][]byte{greet()[:9]}, 0},
		"idle":          {[][]byte{greet()}, 1},
		"after one":     {[][]byte{greet(), one}, 2},
		"half a NOTIFY": {[][]byte{greet(), one[:9]}, 1},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var kinds tally
				ln := accepttest.NewPipes()
				_, stop := serve(t, tiers, kinds.with(Options{}), ln)
				client, _ := ln.Dial("192.0.2.1")
				for i, b := range tt.before {
					send(t, client, b)
					if i < tt.answer {
						readFrames(t, client, 1)
					}
				}
				synctest.Wait()
				begin := time.Now()
				stopped := make(chan struct{})
				go func() { stop(); close(stopped) }()
				assert.Equal(t, statusNormal, readFrames(t, client, 1)[0].goodbye(t))
				require.NoError(t, client.Close())
				<-stopped
				assert.Equal(t, lastWords, time.Since(begin))
				assert.Equal(t, 1, kinds.all()["stopped"])
			})
		})
	}
}

// A peer that goes on sending hears of the end together with the answer to what it
// has sent, in one write: HAProxy fails whatever it has asked when it hears of the
// end, and right then that is nothing.
//
// Negative control: with late's disconnect alone the end came 0.1 s later, in a
// write of its own.
func TestEndGoesWithTheLastAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var kinds tally
		ln := accepttest.NewPipes()
		_, stop := serve(t, tiers, kinds.with(Options{}), ln)
		client, _ := ln.Dial("192.0.2.1")
		send(t, client, greet())
		readFrames(t, client, 1)
		stopped := make(chan struct{})
		go func() { stop(); close(stopped) }()
		time.Sleep(lastWords / 2)
		send(t, client, asks(1, 2))
		b := make([]byte, 4<<10)
		n, err := client.Read(b)
		require.NoError(t, err)
		out := split(t, b[:n])
		require.Len(t, out, 3, "in one write")
		assert.EqualValues(t, 2, out[1].stream)
		assert.Equal(t, statusNormal, out[2].goodbye(t))
		require.NoError(t, client.Close())
		<-stopped
		assert.Equal(t, map[string]int{"admitted": 2, "stopped": 1}, kinds.all())
	})
}

// Negative control: without cut in Shutdown it waited for WriteTimeout.
func TestShutdownCuts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var kinds tally
		ln := accepttest.NewPipes()
		s := NewServer(tiers, kinds.with(Options{WriteTimeout: time.Hour}))
		served := make(chan error, 1)
		go func() { served <- s.Serve(context.Background(), ln) }()
		for range 2 { // that do not read
			client, _ := ln.Dial("192.0.2.1")
			send(t, client, greet())
		}
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		begin := time.Now()
		err := s.Shutdown(ctx)
		assert.Equal(t, time.Minute, time.Since(begin))
		assert.ErrorIs(t, err, accept.ErrCut)
		assert.ErrorIs(t, err, context.DeadlineExceeded)
		assert.ErrorContains(t, err, "spoe: connections cut: 2:")
		assert.NoError(t, <-served)
		assert.Zero(guarantee.T(t), s.Connections())
		assert.Empty(guarantee.T(t), s.peers)
		assert.Equal(t, map[string]int{"write_error": 2}, kinds.all())
	})
}

func TestServeAfterShutdown(t *testing.T) {
	s := NewServer(tiers, Options{})
	require.NoError(t, s.Shutdown(context.Background()))
	require.NoError(t, s.Shutdown(context.Background()))
	ln := listen(t, "tcp")
	assert.NoError(t, s.Serve(context.Background(), ln))
	_, err := ln.Accept()
	assert.ErrorIs(t, err, net.ErrClosed)
}

// scripted is a listener that accepts what a function says.
type scripted struct{ accept func() (net.Conn, error) }

func (l *scripted) Accept() (net.Conn, error) { return l.accept() }
func (l *scripted) Addr() net.Addr            { return &net.TCPAddr{} }
func (l *scripted) Close() error              { return nil }

// Negative control: without the IsClosing check in admit it was read.
func TestConnectionAcceptedWhileClosing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, far := net.Pipe()
		late := &accepttest.End{Conn: far, From: &net.TCPAddr{}}
		calls := 0
		closing := make(chan struct{})
		ln := &scripted{func() (net.Conn, error) {
			if calls++; calls == 1 {
				<-closing
				return late, nil
			}
			return nil, net.ErrClosed
		}}
		s, stop := serve(t, tiers, Options{}, ln)
		go func() {
			<-s.loop.Closing()
			close(closing)
		}()
		synctest.Wait()
		stop()
		assert.Zero(t, late.Reads.Load())
		_, err := far.Write([]byte{'x'})
		assert.ErrorIs(t, err, io.ErrClosedPipe)
	})
}

// A listener that is broken ends the server's connections too: Serve returns the
// error while somebody can still act on it.
//
// Negative control: without Loop.Failed it returned after 20 min, with the last
// connection's silence.
func TestAcceptErrorThatWillNotPass(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cause := os.NewSyscallError("accept4", syscall.EINVAL)
		near, far := net.Pipe()
		calls := 0
		ln := &scripted{func() (net.Conn, error) {
			if calls++; calls == 1 {
				return &accepttest.End{Conn: far, From: &net.TCPAddr{}}, nil
			}
			return nil, cause
		}}
		s := NewServer(tiers, Options{})
		served := make(chan error, 1)
		begin := time.Now()
		go func() { served <- s.Serve(context.Background(), ln) }()
		send(t, near, greet())
		out := rest(t, near)
		assert.ErrorIs(t, <-served, cause)
		assert.LessOrEqual(t, time.Since(begin), time.Second)
		assert.Equal(t, statusNormal, out[len(out)-1].goodbye(t))
	})
}
