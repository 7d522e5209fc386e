package runtimeapi

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"net"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/iotest"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// Negative control: without `err = fmt.Errorf("%w (%w)", err, ErrUncertain)` in
// exchange the mutation half fails.
func TestExchangeFailures(t *testing.T) {
	half := infoText(7) + stateText(0) + infoText(7)[:40]
	for _, tc := range []struct {
		name   string
		handle func(net.Conn, string)
		want   error
		text   string
	}{
		{"accepts and never answers", hang, ErrTimeout, "all its CLI connections may be taken (10"},
		{"answers half, then hangs", func(c net.Conn, l string) { say(half)(c, l); hang(c, l) }, ErrTimeout, "bytes so far"},
		{"drips without end", drip, ErrTimeout, "bytes so far"},
		{"closes at once", say(""), ErrIncomplete, "closed without a word"},
		{"answers half, then closes", say(half), ErrIncomplete, "sentinel"},
		{"answers the success of a mutation only", say("\n"), ErrIncomplete, "0 of"},
		{"resets", reset, ErrIncomplete, ""},
		{"floods without end", flood, ErrTooLarge, "more than 65536 bytes"},
		{"is a master socket", say("Unknown command: 'show', but maybe\n"), ErrIncomplete, "Unknown command: 'show'"},
		{"answers more after the sentinel", func(c net.Conn, l string) {
			obey(7, map[string]string{"show servers state llm": stateText(0)})(c, l)
			say("surplus\n")(c, l)
		}, ErrMalformed, `after the last sentinel comes "surplus"`},
	} {
		for _, network := range []string{"unix", "tcp"} {
			t.Run(tc.name+" on "+network, func(t *testing.T) {
				t.Parallel()
				o := Options{Timeout: time.Minute, MaxAnswer: 64 << 10}
				if tc.want == ErrTimeout {
					o.Timeout = time.Second // enough for the command to be sent in it
				}
				i := serve(t, network, tc.handle).instance(o)

				state, err := i.Servers(t.Context(), "llm")
				require.ErrorIs(t, err, tc.want)
				assert.ErrorContains(t, err, "haproxy hap1: ")
				assert.ErrorContains(t, err, tc.text)
				assert.NotErrorIs(t, err, ErrUncertain, "a read changes nothing")
				assert.Zero(t, state, "nothing partial")
				assert.Equal(t, tc.want == ErrTimeout, errors.Is(err, context.DeadlineExceeded))

				change, err := i.SetState(t.Context(), "llm", "gpu4", StateDrain)
				require.ErrorIs(t, err, tc.want)
				assert.ErrorIs(t, err, ErrUncertain)
				assert.ErrorContains(t, err, "may still be applied later")
				assert.Zero(t, change)
			})
		}
	}
}

// drip keeps a connection busy for longer than any exchange may last.
func drip(conn net.Conn, _ string) {
	for {
		if _, err := io.WriteString(conn, "x"); err != nil {
			return
		}
		time.Sleep(time.Millisecond)
	}
}

func flood(conn net.Conn, _ string) {
	block := strings.Repeat("x", 4096)
	for {
		if _, err := io.WriteString(conn, block); err != nil {
			return
		}
	}
}

// reset ends the connection with a RST on TCP; a unix socket knows none and ends
// as if closed.
func reset(conn net.Conn, _ string) {
	if tcp, ok := conn.(*net.TCPConn); ok {
		_ = tcp.SetLinger(0)
	}
}

// Negative control: without the LimitReader in roundTrip all of it is read.
func TestAnswerIsReadNoFurtherThanItsBound(t *testing.T) {
	var flood counted
	i := New("hap1", "tcp", "x", Options{MaxAnswer: 4096, Dial: func(context.Context, string, string) (net.Conn, error) {
		return &spoken{answer: io.LimitReader(&flood, 8<<20)}, nil
	}})
	_, err := i.Info(t.Context())
	require.ErrorIs(t, err, ErrTooLarge)
	assert.EqualValues(t, 4097, flood)
}

// counted is a reader without end that knows how much was taken from it.
type counted int

func (c *counted) Read(p []byte) (int, error) {
	*c += counted(len(p))
	return len(p), nil
}

// Negative control: taking a read error in roundTrip for the end of the answer, as
// a client may well do, makes this a success.
func TestAnswerThatEndsInAResetIsNone(t *testing.T) {
	whole := golden(t, "3.2", "drain")
	i := New("hap1", "tcp", "x", Options{Dial: func(context.Context, string, string) (net.Conn, error) {
		return &spoken{answer: io.MultiReader(strings.NewReader(whole), iotest.ErrReader(syscall.ECONNRESET))}, nil
	}})
	_, err := i.SetState(t.Context(), "llm", "gpu4", StateDrain)
	require.ErrorIs(t, err, ErrIncomplete)
	assert.ErrorIs(t, err, syscall.ECONNRESET)
	assert.ErrorIs(t, err, ErrUncertain)
}

// Control: with cause returning what it is given, the messages had the address of
// the socket twice, and our own end of the connection; without at they had no address.
func TestAFailureNamesItsSocketOnce(t *testing.T) {
	for _, network := range []string{"unix", "tcp"} {
		f := serve(t, network, hang)
		gone := map[string]string{"unix": f.address + "x", "tcp": "127.0.0.1:1"}[network]
		errno := map[string]syscall.Errno{"unix": syscall.ENOENT, "tcp": syscall.ECONNREFUSED}[network]
		i := New("hap1", network, gone, Options{})
		_, err := i.Info(t.Context())
		assert.EqualError(t, err, "haproxy hap1: at "+gone+": haproxy is unreachable: connect: "+errno.Error())
		assert.ErrorIs(t, err, errno)
		assert.False(t, Lasting(err), "it may pass: HAProxy may be starting")
		i = New("hap1", network, f.address, Options{Master: Socket{network, gone}})
		_, err = i.Workers(t.Context())
		assert.EqualError(t, err, "haproxy hap1: master at "+gone+": haproxy is unreachable: connect: "+errno.Error())

		ended, cancel := context.WithDeadline(t.Context(), time.Unix(1, 0))
		defer cancel()
		failed := &net.OpError{Op: "dial", Net: network, Err: os.ErrDeadlineExceeded}
		assert.EqualError(t, unreachable(ended, Socket{}, failed), "haproxy is unreachable: i/o timeout: context deadline exceeded")
		assert.ErrorIs(t, unreachable(ended, Socket{}, failed), context.DeadlineExceeded)
	}
	lost := &net.OpError{
		Op: "read", Net: "tcp", Source: &net.TCPAddr{Port: 54321}, Addr: &net.TCPAddr{Port: 9999},
		Err: os.NewSyscallError("read", syscall.ECONNRESET),
	}
	_, err := New("hap1", "tcp", "x", Options{Dial: func(context.Context, string, string) (net.Conn, error) {
		return &spoken{answer: iotest.ErrReader(lost)}, nil
	}}).Info(t.Context())
	assert.EqualError(t, err, "haproxy hap1: at x: incomplete answer: reading, 0 bytes so far: read: connection reset by peer")
	assert.ErrorIs(t, err, syscall.ECONNRESET)
}

// The kernel refuses a root process nothing: package owner has a process that is refused.
//
// Control: with the case left out of unreachable, nothing said whose the socket is.
func TestASocketThatMayNotBeOpenedSaysWhoseItIs(t *testing.T) {
	stats, master := serve(t, "unix", hang).address, serve(t, "unix", hang).address
	i := New("hap1", "unix", stats, Options{Master: Socket{"unix", master}, Dial: func(context.Context, string, string) (net.Conn, error) {
		return nil, &net.OpError{Op: "dial", Net: "unix", Err: os.NewSyscallError("connect", syscall.EACCES)}
	}})
	_, err := i.Info(t.Context())
	assert.ErrorContains(t, err, "haproxy hap1: at "+stats+": haproxy is unreachable: connect: permission denied ("+stats+" belongs to ")
	require.ErrorIs(t, err, fs.ErrPermission)
	_, err = i.Workers(t.Context())
	assert.ErrorContains(t, err, "haproxy hap1: master at "+master+": haproxy is unreachable: connect: permission denied ("+master+" belongs to ")
}

func TestUnreachable(t *testing.T) {
	for _, network := range []string{"unix", "tcp"} {
		f := serve(t, network, hang)
		gone := map[string]string{"unix": f.address + "x", "tcp": "127.0.0.1:1"}[network]
		_, err := New("hap1", network, gone, Options{}).SetState(t.Context(), "llm", "gpu4", StateDrain)
		require.ErrorIs(t, err, ErrUnreachable)
		assert.NotErrorIs(t, err, ErrUncertain, "nothing was sent")
	}
	full := New("hap1", "unix", "/x", Options{Dial: func(context.Context, string, string) (net.Conn, error) {
		return nil, syscall.EAGAIN
	}})
	_, err := full.Info(t.Context())
	require.ErrorIs(t, err, ErrUnreachable)
	assert.ErrorContains(t, err, "listen queue is full")
}

// A dialler that is not as good as its word. Negative control: without the check
// of ctx after Dial the mutation is sent after its caller gave up.
func TestNothingIsSentAfterTheEnd(t *testing.T) {
	c := &spoken{answer: strings.NewReader("")}
	ctx, cancel := context.WithCancel(t.Context())
	i := New("hap1", "unix", "x", Options{Dial: func(context.Context, string, string) (net.Conn, error) {
		cancel()
		return c, nil
	}})
	_, err := i.SetState(ctx, "llm", "gpu4", StateDrain)
	require.ErrorIs(t, err, context.Canceled)
	assert.NotErrorIs(t, err, ErrUncertain)
	assert.Empty(t, c.sent.String())
}

// Negative control: without the AfterFunc in roundTrip the call never returns.
func TestTimeoutIsExact(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		i, dialled := piped(t, Options{})
		started := time.Now()
		_, err := i.Info(t.Context())
		require.ErrorIs(t, err, ErrTimeout)
		assert.ErrorIs(t, err, context.DeadlineExceeded)
		assert.Equal(t, 2*time.Second, time.Since(started))
		assert.EqualValues(t, 1, dialled.Load(), "no retry")
	})
}

func TestDialEndsWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		i := New("hap1", "tcp", "x", Options{Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
			<-ctx.Done()
			return nil, errors.New("dial failed")
		}})
		started := time.Now()
		_, err := i.Info(t.Context())
		require.ErrorIs(t, err, ErrUnreachable)
		assert.ErrorIs(t, err, context.DeadlineExceeded)
		assert.Equal(t, 2*time.Second, time.Since(started))
	})
}

func TestCallerGivesUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		i, _ := piped(t, Options{})
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(time.Second, cancel)
		started := time.Now()
		_, err := i.SetState(ctx, "llm", "gpu4", StateDrain)
		require.ErrorIs(t, err, context.Canceled)
		assert.NotErrorIs(t, err, ErrTimeout)
		assert.ErrorIs(t, err, ErrUncertain)
		assert.Equal(t, time.Second, time.Since(started))
	})
}

// Negative control: with maxExchanges 5 the first count is 5; without the
// ctx.Done case in roundTrip the waiting call outlives its context.
func TestAtMostFourExchanges(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		i, dialled := piped(t, Options{Timeout: 10 * time.Second})
		ctx, cancel := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		for range 4 {
			wg.Go(func() { _, _ = i.Info(ctx) })
		}
		synctest.Wait()
		waiting, giveUp := context.WithTimeout(t.Context(), time.Second)
		defer giveUp()
		started := time.Now()
		_, err := i.SetState(waiting, "llm", "gpu4", StateDrain)
		require.ErrorIs(t, err, ErrTimeout)
		assert.ErrorContains(t, err, "waiting behind 4 exchanges")
		assert.NotErrorIs(t, err, ErrUncertain, "nothing was sent")
		assert.Equal(t, time.Second, time.Since(started))
		assert.EqualValues(t, 4, dialled.Load())

		wg.Go(func() { _, _ = i.Info(ctx) })
		synctest.Wait()
		assert.EqualValues(t, 4, dialled.Load())
		cancel()
		wg.Wait()
		// The fifth may have got a connection that was given back before its own end.
		ended := dialled.Load()
		_, err = i.Info(t.Context())
		assert.ErrorIs(t, err, ErrTimeout, "the connections are free again")
		assert.Equal(t, ended+1, dialled.Load())
	})
}

// piped is an instance whose connections swallow everything and never answer.
func piped(t *testing.T, o Options) (*Instance, *atomic.Int64) {
	var dialled atomic.Int64
	o.Dial = func(context.Context, string, string) (net.Conn, error) {
		dialled.Add(1)
		near, far := net.Pipe()
		go func() { _, _ = io.Copy(io.Discard, far); _ = far.Close() }()
		return near, nil
	}
	return New("hap1", "unix", "x", o), &dialled
}

// Negative control: closing the connection, or only its writing side, before
// ReadAll in roundTrip fails this; so does a second line in frame.
func TestOneLineReadToTheEnd(t *testing.T) {
	var conns []*spoken
	var early bool
	i := New("hap1", "unix", "x", Options{Dial: func(context.Context, string, string) (net.Conn, error) {
		c := &spoken{
			answer:  strings.NewReader(infoText(7) + stateText(0) + infoText(7) + "\n" + infoText(7) + stateText(8) + infoText(7)),
			onClose: func(sawEOF bool) { early = early || !sawEOF },
		}
		conns = append(conns, c)
		return c, nil
	}})
	_, err := i.SetState(t.Context(), "llm", "gpu4", StateDrain)
	require.NoError(t, err)
	require.Len(t, conns, 1)
	assert.Equal(t, "show info;show servers state llm;show info;set server llm/gpu4 state drain;"+
		"show info;show servers state llm;show info\n", conns[0].sent.String())
	assert.False(t, early)
}

func TestCommandIsBounded(t *testing.T) {
	f := serve(t, "unix", hang)
	_, err := f.instance(Options{}).exchange(t.Context(), reading, strings.Repeat("x", maxCommand))
	require.ErrorIs(t, err, ErrTooLarge)
	assert.Zero(t, f.accepted.Load())
}

// Negative control: without the comparison of process ids in framed the read succeeds.
func TestOtherProcess(t *testing.T) {
	mixed := answering(infoText(7) + stateText(0) + infoText(8))
	_, err := mixed.Servers(t.Context(), "llm")
	require.ErrorIs(t, err, ErrOtherProcess)
	assert.ErrorContains(t, err, "process 7 before, 8 after")

	f := serve(t, "unix", obey(7, map[string]string{"show servers state llm": stateText(8), "set server llm/gpu4 state drain": "\n"}))
	i := f.instance(Options{})
	_, err = i.Servers(ExpectPID(t.Context(), 7), "llm")
	require.NoError(t, err)
	_, err = i.Servers(ExpectPID(t.Context(), 6), "llm")
	require.ErrorIs(t, err, ErrOtherProcess)
	assert.ErrorContains(t, err, "expected process 6, 7 answered")
}
