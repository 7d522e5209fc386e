package httpapi

import (
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"os/user"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"tier-agent/internal/admission"
	"tier-agent/test/socketdir"
)

// startAdmin serves the admin API on a real unix socket and returns its path.
func startAdmin(t testing.TB, c *controller) string {
	t.Helper()
	path := filepath.Join(socketdir.New(t), "admin.sock")
	ln, err := net.Listen("unix", path)
	require.NoError(t, err)
	startServe(t, AdminListener(ln, 0), c.admin(), silent)
	return path
}

// The caller is whom the kernel says, whatever the command says.
func TestWhoIsTheKernelsWord(t *testing.T) {
	c := new(controller)
	client := NewClient(startAdmin(t, c))
	_, err := client.Run(t.Context(), admission.VerbQuiesce, Command{Tier: "heavy", Reason: "swap"}, nil)
	require.NoError(t, err)
	_, err = client.Run(t.Context(), admission.VerbReadmit, Command{Tier: "heavy"}, nil)
	require.NoError(t, err)
	want := fmt.Sprintf("uid(%d)", os.Getuid())
	if me, err := user.LookupId(fmt.Sprint(os.Getuid())); err == nil {
		want = fmt.Sprintf("%s(%d)", me.Username, os.Getuid())
	}
	seen := c.requests()
	require.Len(t, seen, 2)
	assert.Equal(t, want, seen[0].(admission.QuiesceRequest).Who)
	assert.Equal(t, want, seen[1].(admission.ReadmitRequest).Who)
}

// With as many commands under way as it takes the next one is told so, while
// status is still answered, and a place that is given back serves again.
//
// Controls: with leave taken out of Close, the last part was refused for ever;
// without mostKept in keep, the quiesce ran.
func TestCommandsAreCapped(t *testing.T) {
	running := make(chan struct{}, maxCommands)
	c := &controller{onDrain: func(ctx context.Context, d admission.DrainRequest) admission.Result {
		running <- struct{}{}
		<-ctx.Done()
		return drained(d, admission.Refused)
	}}
	path := startAdmin(t, c)
	ended := make(chan error, maxCommands)
	var leave context.CancelFunc
	for range maxCommands {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		leave = cancel
		go func() {
			_, err := NewClient(path).Run(ctx, admission.VerbDrain, drainHeavy, nil)
			ended <- err
		}()
	}
	for range maxCommands {
		<-running
	}
	quiesce := func() error {
		_, err := NewClient(path).Run(t.Context(), admission.VerbQuiesce, Command{Tier: "heavy", Reason: "swap"}, nil)
		return err
	}
	for range 20 {
		require.EqualError(t, quiesce(), "tier-agent has 64 commands under way, as many as it takes; try again when one has ended")
		_, err := NewClient(path).Status(t.Context())
		require.NoError(t, err)
	}
	assert.Empty(t, c.requests(), "a refused command does nothing")

	leave()
	require.ErrorIs(t, <-ended, context.Canceled)
	// The server finds out by itself that the client has left.
	require.Eventually(t, func() bool { return quiesce() == nil }, deadline, tick)
}

// Whoever only holds connections of the admin socket open, silent or in the
// middle of a command, keeps no operator out of it, and cuts no drain.
//
// Control: with the newcomer closed in the place of the oldest, the quiesce was
// told "closed unread"; without keepPlace the drain was cut.
func TestIdlePeersKeepNobodyFromAQuiesce(t *testing.T) {
	running, release := make(chan struct{}), make(chan struct{})
	c := &controller{onDrain: func(_ context.Context, d admission.DrainRequest) admission.Result {
		close(running)
		<-release
		return drained(d, admission.Done)
	}}
	path := startAdmin(t, c)
	ended := make(chan error, 1)
	go func() {
		_, err := NewClient(path).Run(t.Context(), admission.VerbDrain, drainHeavy, nil)
		ended <- err
	}()
	<-running
	for _, text := range []string{"", "POST /api/v1/quiesce HTTP/1.1\r\nHost: x\r\nContent-Length: 32\r\n\r\n{"} {
		for range maxAdminConns {
			conn, err := net.Dial("unix", path)
			require.NoError(t, err)
			t.Cleanup(func() { _ = conn.Close() })
			_, err = io.WriteString(conn, text)
			require.NoError(t, err)
		}
		_, err := NewClient(path).Run(t.Context(), admission.VerbQuiesce, Command{Tier: "heavy", Reason: "swap"}, nil)
		require.NoError(t, err)
	}
	close(release)
	assert.NoError(t, <-ended)
}
