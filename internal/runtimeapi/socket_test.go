package runtimeapi

import (
	"context"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"tier-agent/internal/owner"
	"tier-agent/test/socketdir"
)

// denied is a dialler of a user who may not write to the socket, or not search its folder.
func denied(context.Context, string, string) (net.Conn, error) {
	return nil, &net.OpError{Op: "dial", Net: "unix", Err: os.NewSyscallError("connect", syscall.EACCES)}
}

// What does not pass by itself says so, with all that is needed to change it. What passes
// when HAProxy has started, or has loaded its configuration, does not.
//
// Control: with ErrNoAccess left out, none of them was lasting.
func TestASocketThatCannotBeOpenedSaysWhatToChange(t *testing.T) {
	dir := socketdir.New(t)
	at := func(name string) string { return filepath.Join(dir, name) }
	ln, err := net.Listen("unix", at("theirs"))
	require.NoError(t, err)
	t.Cleanup(func() { _ = ln.Close() })
	require.NoError(t, os.Chmod(at("theirs"), 0o640))
	require.NoError(t, os.WriteFile(at("file"), nil, 0o600))
	datagrams, err := net.ListenPacket("unixgram", at("datagrams"))
	require.NoError(t, err)
	t.Cleanup(func() { _ = datagrams.Close() })
	us := owner.User(uint32(os.Geteuid()))
	for name, tc := range map[string]struct {
		address string
		dial    func(context.Context, string, string) (net.Conn, error)
		want    []string
	}{
		"not let in":           {at("theirs"), denied, []string{at("theirs"), "permission denied", "belongs to " + us, "mode 0640", "this is " + us, "let its group in by its mode"}},
		"not let in by folder": {at("hidden/further/socket"), denied, []string{"permission denied", dir + " belongs to " + us, "this is " + us}},
		"no socket":            {at("file"), nil, []string{at("file"), "correct the path"}},
		"no folder":            {at("file/socket"), nil, []string{at("file/socket"), "not a directory", "correct the path"}},
		"another kind":         {at("datagrams"), nil, []string{"protocol wrong type", "correct the path"}},
		"too long":             {at(strings.Repeat("x", 120)), nil, []string{"invalid argument", "correct the path"}},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := New("hap1", "unix", tc.address, Options{Dial: tc.dial}).Info(t.Context())
			require.ErrorIs(t, err, ErrUnreachable)
			assert.True(t, Lasting(err), "%v", err)
			for _, text := range tc.want {
				assert.ErrorContains(t, err, text)
			}
		})
	}
	for name, address := range map[string]string{"gone": at("gone"), "nobody listens": at("left")} {
		if name == "nobody listens" {
			left, err := net.ListenUnix("unix", &net.UnixAddr{Name: address, Net: "unix"})
			require.NoError(t, err)
			left.SetUnlinkOnClose(false)
			require.NoError(t, left.Close())
		}
		_, err := New("hap1", "unix", address, Options{}).Info(t.Context())
		require.ErrorIs(t, err, ErrUnreachable, name)
		assert.False(t, Lasting(err), "%v", err)
	}
	_, err = New("hap1", "tcp", "127.0.0.1:1", Options{Dial: denied}).Info(t.Context())
	assert.False(t, Lasting(err), "a firewall may be on its way")
}
