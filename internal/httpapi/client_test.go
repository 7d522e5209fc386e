package httpapi

import (
	"context"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"tier-agent/internal/admission"
	"tier-agent/internal/tier"
	"tier-agent/test/guarantee"
	"tier-agent/test/socketdir"
)

// For what the kernel or another process does by itself.
const deadline, tick = 10 * time.Second, 5 * time.Millisecond

// says accepts connections at path, and says text to each once it has heard
// something.
func says(t testing.TB, path, text string) {
	t.Helper()
	ln, err := net.Listen("unix", path)
	require.NoError(t, err)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for {
			conn, err := ln.Accept()
			if err != nil {
				return
			}
			_, _ = conn.Read(make([]byte, 4096))
			_, _ = io.WriteString(conn, text)
			_ = conn.Close()
		}
	}()
	t.Cleanup(func() {
		_ = ln.Close()
		<-ended
	})
}

// An operator has to know from the text alone what to look at.
func TestClientErrors(t *testing.T) {
	folder := socketdir.New(t)
	at := func(name string) string { return filepath.Join(folder, name) }
	const ok = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
	const progress = `{"progress":{"seconds":1}}` + "\n"

	require.NoError(t, os.WriteFile(at("file"), nil, 0o600))
	ln, err := net.Listen("unix", at("dead"))
	require.NoError(t, err)
	ln.(*net.UnixListener).SetUnlinkOnClose(false)
	require.NoError(t, ln.Close())
	says(t, at("before"), "")
	says(t, at("middle"), ok+"1b\r\n"+progress+"\r\n")
	says(t, at("half"), ok+"1b\r\n"+progress[:9])
	says(t, at("without"), ok+"1b\r\n"+progress+"\r\n0\r\n\r\n")
	says(t, at("haproxy"), "Unknown command: 'POST'. Please enter one of the following commands only\n")
	says(t, at("other"), "HTTP/1.1 404 Not Found\r\nContent-Length: 4\r\n\r\nlost")
	says(t, at("page"), "HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\n<html>")
	says(t, at("strict"), "HTTP/1.1 400 Bad Request\r\nContent-Length: 19\r\n\r\n"+`{"error":"no good"}`)
	says(t, at("full"), "HTTP/1.1 503 Service Unavailable\r\nContent-Length: 16\r\n\r\n"+`{"error":"full"}`)

	for name, want := range map[string]string{
		"none":                   "there is no admin socket at PATH: is tier-agent running, and is this the path in its configuration?",
		"dead":                   "nobody answers at PATH: tier-agent is not running",
		"file":                   "PATH is no socket: is this the path in tier-agent's configuration?",
		".":                      "PATH is no socket: is this the path in tier-agent's configuration?",
		"file/below":             "the admin socket PATH cannot be opened: connect: not a directory",
		strings.Repeat("x", 200): "PATH cannot be a socket: give an absolute path of at most 107 bytes",
		"before":                 "at PATH: tier-agent closed the connection unread: nothing was begun",
		"middle":                 "at PATH: tier-agent went away before it had answered",
		"half":                   "at PATH: tier-agent went away before it had answered",
		"without":                "at PATH: tier-agent went away before it had answered",
		"haproxy":                "what answers at PATH does not speak as tier-agent does: ",
		"other":                  "tier-agent answered 404 Not Found",
		"page":                   "what answers at PATH does not speak as tier-agent does: ",
		"strict":                 "not a command: no good",
		"full":                   "full",
	} {
		_, err := NewClient(at(name)).Run(t.Context(), admission.VerbQuiesce, Command{Tier: "heavy"}, nil)
		require.Error(t, err, name)
		want = strings.ReplaceAll(want, "PATH", at(name))
		if strings.HasSuffix(want, ": ") {
			assert.Contains(t, err.Error(), want, name)
		} else {
			assert.EqualError(t, err, want, name)
		}
		assert.NotContains(guarantee.T(t), err.Error(), "http://", name)
	}
	_, err = NewClient(at("before")).Status(t.Context())
	assert.ErrorIs(t, err, ErrUnread)
	_, err = NewClient(at("page")).Status(t.Context())
	assert.ErrorContains(t, err, "does not speak as tier-agent does")
	_, err = NewClient(at("strict")).Run(t.Context(), admission.VerbQuiesce, Command{}, nil)
	assert.ErrorIs(t, err, ErrBadCommand)
}

// The kernel asks a root process for no permission, so what it says to others
// is put in its place.
func TestClientWithoutPermission(t *testing.T) {
	c := NewClient("/run/x.sock")
	err := c.explain(&net.OpError{Op: "dial", Net: "unix", Err: os.NewSyscallError("connect", syscall.EACCES)})
	assert.ErrorContains(t, err, "the admin socket /run/x.sock may not be opened by this user (/run belongs to root(0), group root(0), with mode 0755, and this is ")
	assert.ErrorContains(t, err, "): its group is listen.admin.group in tier-agent's configuration")
	// EAGAIN is a listen queue that is full.
	err = c.explain(&net.OpError{Op: "dial", Net: "unix", Err: os.NewSyscallError("connect", syscall.EAGAIN)})
	assert.EqualError(t, err, "the admin socket /run/x.sock cannot be opened: connect: resource temporarily unavailable")
}

func TestClientGivesUpWithItsContext(t *testing.T) {
	path := filepath.Join(t.TempDir(), "mute")
	ln, err := net.Listen("unix", path) // its queue takes the connection, nobody answers
	require.NoError(t, err)
	defer ln.Close()
	ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
	defer cancel()
	_, err = NewClient(path).Status(ctx)
	assert.Equal(t, context.DeadlineExceeded, err)
	_, err = NewClient(path).Run(ctx, admission.VerbQuiesce, Command{Tier: "heavy"}, nil)
	assert.ErrorIs(t, err, ErrNotAccepted)
	assert.ErrorIs(t, err, context.DeadlineExceeded)
}

// A caller whose command is not accepted hears of it after 10 s, once, and goes
// on waiting; one whose command is accepted hears nothing, however long it takes.
//
// Controls: with inTime called at the end of Run, or the header's Flush taken
// out of command, the accepted drain was late too.
func TestLate(t *testing.T) {
	for name, tt := range map[string]struct {
		queued time.Duration // before tier-agent reads the command
		want   []time.Duration
	}{
		"accepted at once": {0, nil},
		"accepted in time": {9 * time.Second, nil},
		"accepted late":    {time.Minute, []time.Duration{10 * time.Second}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := &controller{onDrain: func(_ context.Context, d admission.DrainRequest) admission.Result {
					time.Sleep(2 * time.Minute)
					return drained(d, admission.Done)
				}}
				ln, began := newPipes(), time.Now()
				time.AfterFunc(tt.queued, func() { startServe(t, ln, c.admin(), silent) })
				client := ln.client()
				var late []time.Duration
				client.Late = func() { late = append(late, time.Since(began)) }
				r, err := client.Run(t.Context(), admission.VerbDrain, drainHeavy, nil)
				require.NoError(t, err)
				assert.Equal(t, admission.Done, r.Outcome)
				assert.Equal(t, tt.want, late)
			})
		})
	}
}

// Whoever has gone by the time tier-agent accepts was told that nothing was
// begun; so nothing is.
//
// Control: with the return after Flush taken out of command, the quiesce ran.
func TestACommandWhoseCallerHasGoneIsNotBegun(t *testing.T) {
	c := new(controller)
	path := filepath.Join(socketdir.New(t), "admin.sock")
	ln, err := net.Listen("unix", path)
	require.NoError(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	_, err = NewClient(path).Run(ctx, admission.VerbQuiesce, Command{Tier: "heavy", Reason: "swap"}, nil)
	require.ErrorIs(t, err, ErrNotAccepted)
	startServe(t, AdminListener(ln, 0), c.admin(), silent)
	// It stands in the queue before this one.
	_, err = NewClient(path).Run(t.Context(), admission.VerbInvalidate, Command{Tier: "light"}, nil)
	require.NoError(t, err)
	assert.Equal(t, []any{tier.Target{Tier: "light"}}, c.requests())
}
