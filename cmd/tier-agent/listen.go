package main

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"os/user"
	"path/filepath"
	"strconv"
	"syscall"
	"time"

	"tier-agent/internal/config"
	"tier-agent/internal/owner"
)

// listeners are the daemon's doors.
type listeners struct {
	agent, http, admin net.Listener
	spoe               []net.Listener // none, or one of each kind
}

// listen binds all of them or none.
func listen(l config.Listen) (ls listeners, err error) {
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
		ln, err := listenUnix("listen.spoe.unix", l.SPOE.Unix)
		if err != nil {
			return ls, err
		}
		ls.spoe = append(ls.spoe, ln)
	}
	if ls.admin, err = listenUnix("listen.admin", l.Admin); err != nil {
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
// configuration.
func listenUnix(key string, a config.UnixSocket) (net.Listener, error) {
	if err := os.MkdirAll(filepath.Dir(a.Path), 0o755); err != nil {
		return nil, unmade(key, a.Path, err)
	}
	if err := clearStale(a.Path); err != nil {
		return nil, unmade(key, a.Path, err)
	}
	ln, err := bindPrivate(a.Path)
	if err != nil {
		return nil, unmade(key, filepath.Dir(a.Path), err)
	}
	if err := permit(key, a); err != nil {
		_ = ln.Close()
		return nil, err
	}
	return ln, nil
}

// unmade is the error of a socket that cannot be made. It names what is in the way, and
// whose that is where it is a matter of permission.
func unmade(key, path string, err error) error {
	if errors.Is(err, fs.ErrPermission) {
		return fmt.Errorf("%s: %w%s", key, err, owner.Hint(path))
	}
	return fmt.Errorf("%s: %w", key, err)
}

// bindPrivate makes the socket for its owner alone, so that there is no moment
// in which others may open it. The umask is the whole process's: nothing else
// makes a file while tier-agent binds.
func bindPrivate(path string) (net.Listener, error) {
	defer syscall.Umask(syscall.Umask(0o177))
	return net.Listen("unix", path)
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

func permit(key string, a config.UnixSocket) error {
	if a.Group != "" {
		gid, err := groupID(a.Group)
		if err != nil {
			return fmt.Errorf("%s.group: %w", key, err)
		}
		if err := os.Chown(a.Path, -1, gid); err != nil {
			return fmt.Errorf("%s.group %s: %w: tier-agent's user has to be a member of it", key, a.Group, err)
		}
	}
	if err := os.Chmod(a.Path, a.Mode); err != nil {
		return fmt.Errorf("%s.mode: %w", key, err)
	}
	return nil
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
