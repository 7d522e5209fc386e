package main

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"os/user"
	"path/filepath"
	"strconv"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"tier-agent/internal/config"
	"tier-agent/internal/owner"
)

// listeners are the daemon's doors.
type listeners struct {
	agent, http, admin net.Listener
	spoe               []net.Listener // none, or one of each kind
}

// listen binds all of them or none.
func listen(l config.Listen, log *slog.Logger) (ls listeners, err error) {
	defer func() {
		if err != nil {
			ls.close()
		}
	}()
	if ls.agent, err = net.Listen("tcp", l.AgentCheck); err != nil {
		return ls, fmt.Errorf("listen.agent_check: %w", err)
	}
	if ls.http, err = net.Listen("tcp", l.HTTP); err != nil {
		return ls, fmt.Errorf("listen.http: %w", err)
	}
	if l.SPOE.Address != "" {
		ln, err := net.Listen("tcp", l.SPOE.Address)
		if err != nil {
			return ls, fmt.Errorf("listen.spoe.address: %w", err)
		}
		ls.spoe = append(ls.spoe, ln)
	}
	if l.SPOE.Unix.Path != "" {
		ln, err := listenUnix("listen.spoe.unix", l.SPOE.Unix, func(err error) error {
			log.Warn("the gate's socket is not safe from others", "error", err)
			return nil
		})
		if err != nil {
			return ls, err
		}
		ls.spoe = append(ls.spoe, ln)
	}
	if ls.admin, err = listenUnix("listen.admin", l.Admin, func(err error) error { return err }); err != nil {
		return ls, err
	}
	return ls, nil
}

func (ls listeners) close() {
	for _, ln := range append([]net.Listener{ls.agent, ls.http, ls.admin}, ls.spoe...) {
		if ln != nil {
			_ = ln.Close() // closed already where its server ran
		}
	}
}

// listenUnix makes a socket with its final permissions. key is its place in the
// configuration. Whoever may write its folder can put another socket in its place: foreign
// is what comes of that, an error or a remark.
func listenUnix(key string, a config.UnixSocket, foreign func(error) error) (net.Listener, error) {
	dir := filepath.Dir(a.Path)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, unmade(key, a.Path, err)
	}
	if err := private(dir); err != nil {
		if err := foreign(fmt.Errorf("%s: %w", key, err)); err != nil {
			return nil, err
		}
	}
	if err := clearStale(a.Path); err != nil {
		return nil, unmade(key, a.Path, err)
	}
	ln, at, err := bind(a)
	if err != nil {
		return nil, unmade(key+at, dir, err)
	}
	return ln, nil
}

// private is an error where somebody else may put files into the folder, or take ours away.
func private(dir string) error {
	info, err := os.Stat(dir)
	if err != nil {
		return err
	}
	stat, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return nil
	}
	mode := info.Mode()
	switch {
	case stat.Uid != 0 && int(stat.Uid) != os.Geteuid():
		return fmt.Errorf("folder %s belongs to another user (uid %d): make it tier-agent's own", dir, stat.Uid)
	case mode.Perm()&0o022 != 0 && mode&fs.ModeSticky == 0:
		return fmt.Errorf("others may write folder %s (mode %#o): take that right from them, with chmod go-w", dir, mode.Perm())
	}
	return nil
}

// socket is a listener whose file is at path, and goes with it.
type socket struct {
	net.Listener
	path string
	file os.FileInfo
}

// Close removes the file, unless another one has come to its place.
func (s *socket) Close() error {
	removed := make(chan struct{})
	go func() {
		defer close(removed)
		if now, err := os.Lstat(s.path); err == nil && os.SameFile(s.file, now) {
			_ = os.Remove(s.path)
		}
	}()
	select {
	case <-removed:
	case <-time.After(time.Second): // its folder hangs, and a stop does not
	}
	return s.Listener.Close()
}

// Addr is where the socket is.
func (s *socket) Addr() net.Addr { return &net.UnixAddr{Name: s.path, Net: "unix"} }

// bind makes the socket in a folder that nobody else may open, by that folder's handle, and
// gives it its group and mode there. Then it is moved to its path. So there is no moment in
// which others may open it, and nothing that is done to it follows a link. With an error, at
// is the key of a that it is about.
func bind(a config.UnixSocket) (_ net.Listener, at string, err error) {
	dir, err := os.MkdirTemp(filepath.Dir(a.Path), ".tier-agent-")
	if err != nil {
		return nil, "", err
	}
	defer os.RemoveAll(dir)
	handle, err := os.OpenFile(dir, os.O_RDONLY|syscall.O_DIRECTORY|syscall.O_NOFOLLOW, 0)
	if err != nil {
		return nil, "", err
	}
	defer handle.Close()
	if err = private(fmt.Sprintf("/proc/self/fd/%d", handle.Fd())); err != nil {
		return nil, "", err
	}
	const name = "s"
	made := fmt.Sprintf("/proc/self/fd/%d/%s", handle.Fd(), name)
	ln, err := net.Listen("unix", made)
	if err != nil {
		return nil, "", err
	}
	ln.(*net.UnixListener).SetUnlinkOnClose(false)
	defer func() {
		if err != nil {
			_ = ln.Close()
		}
	}()
	if at, err = permit(made, a); err != nil {
		return nil, at, err
	}
	info, err := os.Lstat(made)
	if err != nil {
		return nil, "", err
	}
	if err = unix.Renameat(int(handle.Fd()), name, unix.AT_FDCWD, a.Path); err != nil {
		return nil, "", &fs.PathError{Op: "rename", Path: a.Path, Err: err}
	}
	return &socket{Listener: ln, path: a.Path, file: info}, "", nil
}

// unmade is the error of a socket that cannot be made. It names what is in the way, and
// whose that is where it is a matter of permission.
func unmade(key, path string, err error) error {
	if errors.Is(err, fs.ErrPermission) {
		return fmt.Errorf("%s: %w%s", key, err, owner.Hint(path))
	}
	return fmt.Errorf("%s: %w", key, err)
}

// clearStale removes the socket file that a killed tier-agent has left, and
// refuses where a living one answers.
func clearStale(path string) error {
	info, err := os.Lstat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	if info.Mode().Type() != fs.ModeSocket {
		return fmt.Errorf("%s exists and is no socket; remove it or name another path", path)
	}
	c, err := net.DialTimeout("unix", path, time.Second)
	if err == nil {
		_ = c.Close()
		return fmt.Errorf("something answers at %s already: is tier-agent running?", path)
	}
	if !errors.Is(err, syscall.ECONNREFUSED) {
		return err
	}
	return os.Remove(path)
}

// permit gives the socket at path the group and the mode that a says. With an error, at is
// the key of a that it is about.
func permit(path string, a config.UnixSocket) (at string, err error) {
	if a.Group != "" {
		gid, err := groupID(a.Group)
		if err != nil {
			return ".group", err
		}
		if err := os.Chown(path, -1, gid); err != nil {
			return ".group", fmt.Errorf("%s: %w: tier-agent's user has to be a member of it", a.Group, err)
		}
	}
	if err := os.Chmod(path, a.Mode); err != nil {
		return ".mode", err
	}
	return "", nil
}

func groupID(name string) (int, error) {
	if gid, err := strconv.Atoi(name); err == nil {
		return gid, nil
	}
	g, err := user.LookupGroup(name)
	var unknown user.UnknownGroupError
	if errors.As(err, &unknown) {
		return 0, fmt.Errorf("unknown group %s", name)
	}
	if err != nil {
		return 0, err
	}
	return strconv.Atoi(g.Gid)
}
