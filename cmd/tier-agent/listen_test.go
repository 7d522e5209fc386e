package main

import (
	"bytes"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"tier-agent/internal/config"
	"tier-agent/test/guarantee"
	"tier-agent/test/lab"
	"tier-agent/test/socketdir"
)

// anywhere lets the system choose the ports, and has the socket in a folder of
// the test's own.
func anywhere(t testing.TB) config.Listen {
	t.Helper()
	return config.Listen{
		AgentCheck: "127.0.0.1:0", HTTP: "127.0.0.1:0",
		Admin: config.UnixSocket{Path: filepath.Join(socketdir.New(t), "admin.sock"), Mode: 0o660},
	}
}

// taken is an address that somebody else listens on.
func taken(t testing.TB) string {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { _ = ln.Close() })
	return ln.Addr().String()
}

// An address that is taken is told under its name in the configuration, and
// leaves nothing bound.
//
// Control: without ls.close in listen, the addresses stayed taken.
func TestTakenAddresses(t *testing.T) {
	one, two := anywhere(t), anywhere(t)
	gate := anywhere(t)
	one.AgentCheck = taken(t)
	two.HTTP = taken(t)
	gate.SPOE.Address = taken(t)
	for key, l := range map[string]config.Listen{"agent_check": one, "http": two, "spoe.address": gate} {
		address := map[string]string{"agent_check": l.AgentCheck, "http": l.HTTP, "spoe.address": l.SPOE.Address}[key]
		_, err := listen(l, slog.New(slog.DiscardHandler))
		assert.EqualError(t, err, "listen."+key+": listen tcp "+address+": bind: address already in use")
		assert.NoFileExists(t, l.Admin.Path)
	}
	three := anywhere(t)
	// Nobody else is given these while they are not listened on.
	free, err := lab.FreePorts()
	require.NoError(t, err)
	at := func(port int) string { return fmt.Sprintf("127.0.0.1:%d", port) }
	three.AgentCheck, three.HTTP, three.SPOE.Address = at(free.AgentCheck), at(free.HTTP), at(free.SPOE)
	require.NoError(t, os.WriteFile(three.Admin.Path, []byte("precious"), 0o600))
	_, err = listen(three, slog.New(slog.DiscardHandler))
	assert.EqualError(t, err, "listen.admin: "+three.Admin.Path+" exists and is no socket; remove it or name another path")
	assert.FileExists(t, three.Admin.Path)
	require.NoError(t, os.Remove(three.Admin.Path))
	ls, err := listen(three, slog.New(slog.DiscardHandler))
	require.NoError(t, err, "the ports were given back")
	ls.close()
	assert.NoFileExists(t, three.Admin.Path)
}

// Where others may write the folder they may put a socket of theirs in ours' place: the one
// that takes commands is not made there, and of the gate's a warning says so.
//
// Control: with private returning nil, both were made without a word.
func TestAFolderThatOthersMayWrite(t *testing.T) {
	l := anywhere(t)
	dir := filepath.Dir(l.Admin.Path)
	require.NoError(t, os.Chmod(dir, 0o777))
	_, err := listen(l, slog.New(slog.DiscardHandler))
	assert.EqualError(t, err, "listen.admin: others may write folder "+dir+" (mode 0777): take that right from them, with chmod go-w")
	assert.NoFileExists(t, l.Admin.Path)
	require.NoError(t, os.Chmod(dir, 0o777|fs.ModeSticky))
	ls, err := listen(l, slog.New(slog.DiscardHandler))
	require.NoError(t, err, "as /tmp is: there they may not")
	ls.close()

	l = anywhere(t)
	folder := socketdir.New(t)
	require.NoError(t, os.Chmod(folder, 0o777))
	l.SPOE.Unix = config.UnixSocket{Path: filepath.Join(folder, "gate.sock"), Mode: 0o640}
	var log bytes.Buffer
	ls, err = listen(l, slog.New(slog.NewTextHandler(&log, nil)))
	require.NoError(t, err)
	defer ls.close()
	assert.Contains(t, log.String(), "the gate's socket is not safe from others")
}

// Somebody puts a link in the socket's place, again and again, while it is made: what the
// link leads to stays as it is.
//
// Control: with the socket made, and its mode set, at its path, the file could be read.
func TestASocketIsMadeThroughNoLink(t *testing.T) {
	dir := socketdir.New(t)
	path, secret := filepath.Join(dir, "gate.sock"), filepath.Join(dir, "secret")
	require.NoError(t, os.WriteFile(secret, []byte("s3cret"), 0o600))
	ended, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		for {
			select {
			case <-ended:
				return
			default:
				_ = os.Remove(path)
				_ = os.Symlink(secret, path)
			}
		}
	}()
	for range 300 {
		if ln, _, err := bind(config.UnixSocket{Path: path, Mode: 0o666}); err == nil {
			require.NoError(t, ln.Close())
		}
	}
	close(ended)
	<-done
	info, err := os.Stat(secret)
	require.NoError(t, err)
	assert.Equal(guarantee.T(t), fs.FileMode(0o600), info.Mode())
}

func TestAdminSocketPermissions(t *testing.T) {
	old := syscall.Umask(0o022)
	defer syscall.Umask(old)
	for _, mode := range []os.FileMode{0o660, 0o600, 0o620} {
		l := anywhere(t)
		l.Admin.Path = filepath.Join(filepath.Dir(l.Admin.Path), "made", "for", "it", "admin.sock")
		l.Admin.Mode, l.Admin.Group = mode, "12345"
		if os.Getuid() != 0 {
			l.Admin.Group = ""
		}
		ls, err := listen(l, slog.New(slog.DiscardHandler))
		require.NoError(t, err)
		info, err := os.Stat(l.Admin.Path)
		require.NoError(t, err)
		assert.Equal(t, mode|fs.ModeSocket, info.Mode())
		if l.Admin.Group != "" {
			assert.Equal(t, uint32(12345), info.Sys().(*syscall.Stat_t).Gid)
		}
		folder, err := os.Stat(filepath.Dir(l.Admin.Path))
		require.NoError(t, err)
		assert.Equal(t, os.FileMode(0o755), folder.Mode().Perm())
		ls.close()
	}
	l := anywhere(t)
	l.SPOE.Unix = config.UnixSocket{Path: filepath.Join(socketdir.New(t), "gate.sock"), Mode: 0o640}
	ls, err := listen(l, slog.New(slog.DiscardHandler))
	require.NoError(t, err)
	defer ls.close()
	info, err := os.Stat(l.SPOE.Unix.Path)
	require.NoError(t, err)
	assert.Equal(t, 0o640|fs.ModeSocket, info.Mode())
	assert.Equal(t, 0o022, syscall.Umask(0o022), "the process's own umask is as it was")
}

func TestAdminSocketWithAnUnknownGroup(t *testing.T) {
	l := anywhere(t)
	l.Admin.Group = "no-such-group"
	_, err := listen(l, slog.New(slog.DiscardHandler))
	assert.EqualError(t, err, "listen.admin.group: unknown group no-such-group")
	assert.NoFileExists(t, l.Admin.Path)
}

func TestAdminSocketWhereNoFolderCanBe(t *testing.T) {
	l := anywhere(t)
	l.Admin.Path = "/proc/tier-agent/admin.sock"
	_, err := listen(l, slog.New(slog.DiscardHandler))
	assert.EqualError(t, err, "listen.admin: mkdir /proc/tier-agent: no such file or directory")
}

// The kernel refuses a root process nothing: package owner has a process that is refused.
func TestASocketThatMayNotBeMadeSaysWhy(t *testing.T) {
	folder := socketdir.New(t)
	refused := &fs.PathError{Op: "mkdir", Path: "/x", Err: syscall.EACCES}
	assert.ErrorContains(t, unmade("listen.admin", folder, refused), "listen.admin: mkdir /x: permission denied ("+folder+" belongs to ")
	assert.EqualError(t, unmade("listen.admin", folder, syscall.EROFS), "listen.admin: read-only file system")
}

// What a killed tier-agent has left is replaced, what lives is left alone.
//
// Control: without the dial in clearStale, the second tier-agent took the
// socket away from the first.
func TestStaleAndLivingSockets(t *testing.T) {
	l := anywhere(t)
	dead, err := net.Listen("unix", l.Admin.Path)
	require.NoError(t, err)
	dead.(*net.UnixListener).SetUnlinkOnClose(false)
	require.NoError(t, dead.Close())
	require.FileExists(t, l.Admin.Path)

	first, err := listen(l, slog.New(slog.DiscardHandler))
	require.NoError(t, err)
	defer first.close()
	_, err = listen(l, slog.New(slog.DiscardHandler))
	assert.EqualError(t, err, "listen.admin: something answers at "+l.Admin.Path+" already: is tier-agent running?")
	conn, err := net.Dial("unix", l.Admin.Path)
	require.NoError(t, err, "the first one's socket is still there")
	require.NoError(t, conn.Close())
}

// A link is not followed to somebody else's socket.
func TestAdminSocketIsNoLink(t *testing.T) {
	l := anywhere(t)
	require.NoError(t, os.Symlink("/nonexistent", l.Admin.Path))
	_, err := listen(l, slog.New(slog.DiscardHandler))
	assert.EqualError(t, err, "listen.admin: "+l.Admin.Path+" exists and is no socket; remove it or name another path")
}
