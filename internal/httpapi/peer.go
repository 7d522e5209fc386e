package httpapi

import (
	"cmp"
	"context"
	"net"

	"golang.org/x/sys/unix"

	"tier-agent/internal/owner"
)

// maxCommands bounds the commands under way, long drains included. One more is
// told that there are too many.
const maxCommands = 64

// maxAdminConns bounds the connections of the admin socket. Those without a
// command under way make room for newcomers, so that nobody who only holds them
// open keeps an operator from a quiesce.
const maxAdminConns = 2 * maxCommands

// AdminListener caps the admin socket's connections and notes whose they are.
// It has to be unix, for the peer's credentials. most is how many, half of them with a command
// under way; 0 stands for 128.
func AdminListener(ln net.Listener, most int) net.Listener {
	most = cmp.Or(most, maxAdminConns)
	return newCrowd(ln, most, most/2)
}

type peerKey struct{}

func withPeer(ctx context.Context, c net.Conn) context.Context {
	if g, ok := c.(*guest); ok {
		return context.WithValue(ctx, peerKey{}, g)
	}
	return ctx
}

// who names the caller of a request on the admin socket.
func who(ctx context.Context) string {
	if g, ok := ctx.Value(peerKey{}).(*guest); ok {
		return cmp.Or(peerOf(g.Conn), "unknown")
	}
	return "unknown"
}

// keepPlace is for a command that is about to begin: its connection is not
// closed for another's any more. It reports false where it may not begin.
func keepPlace(ctx context.Context) bool {
	g, ok := ctx.Value(peerKey{}).(*guest)
	return !ok || g.keep()
}

// peerOf names the process at the other end by the kernel's word (unix(7),
// SO_PEERCRED), not by the peer's: "alice(1000)", or "uid(1000)" where the
// system has no name for it.
func peerOf(c net.Conn) string {
	u, ok := c.(*net.UnixConn)
	if !ok {
		return ""
	}
	raw, err := u.SyscallConn()
	if err != nil {
		return ""
	}
	var cred *unix.Ucred
	if ctl := raw.Control(func(fd uintptr) {
		cred, err = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED)
	}); ctl != nil || err != nil {
		return ""
	}
	return owner.User(cred.Uid)
}
