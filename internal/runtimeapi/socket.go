package runtimeapi

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
)

// ErrNoAccess comes beside ErrUnreachable where the socket cannot be opened for a reason
// that stays until somebody changes something: its owner or mode, or the path itself.
var ErrNoAccess = errors.New("it stays so until somebody changes that")

// Lasting reports whether an error does not pass by itself, so that to wait for that is
// of no use.
func Lasting(err error) bool { return errors.Is(err, ErrNoAccess) || errors.Is(err, ErrPermission) }

// closed says why a socket cannot be opened, with what an operator needs to change that.
// It returns nil where the failure may pass, as a refused connection does while HAProxy
// loads its configuration.
func (s Socket) closed(failure error) error {
	if s.Network != "unix" {
		return nil
	}
	info, err := os.Stat(s.Address)
	switch {
	case errors.Is(failure, fs.ErrPermission) && err != nil:
		return fmt.Errorf("%s, and tier-agent runs as %s: let it search that folder (%w)", unsearchable(s.Address), ourselves(), ErrNoAccess)
	case errors.Is(failure, fs.ErrPermission):
		return fmt.Errorf("the socket is %s, and tier-agent runs as %s, which may not write to it: give the socket a group of tier-agent's and mode 660 in HAProxy (`mode 660 group NAME` after its path), or tier-agent that group (%w)", owned(info), ourselves(), ErrNoAccess)
	case errors.Is(failure, syscall.ECONNREFUSED) && err == nil && info.Mode().Type() != fs.ModeSocket:
		return fmt.Errorf("that is no socket, mode %v: correct the path in tier-agent's configuration (%w)", info.Mode(), ErrNoAccess)
	case errors.Is(failure, syscall.ENOTDIR), errors.Is(failure, syscall.ELOOP), errors.Is(failure, syscall.ENAMETOOLONG), errors.Is(failure, syscall.EINVAL), errors.Is(failure, syscall.EPROTOTYPE):
		return fmt.Errorf("no socket of HAProxy's can be there: correct the path in tier-agent's configuration (%w)", ErrNoAccess)
	}
	return nil
}

// unsearchable names the folder in a path that lets nobody like us through.
func unsearchable(path string) string {
	for folder := filepath.Dir(path); ; folder = filepath.Dir(folder) {
		if info, err := os.Stat(folder); err == nil {
			return "the folder " + folder + " is " + owned(info)
		}
		if folder == filepath.Dir(folder) {
			return "the folder " + filepath.Dir(path) + " cannot be searched"
		}
	}
}

// owned says whose a file is, and its mode.
func owned(info fs.FileInfo) string {
	of, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return fmt.Sprintf("of mode %v", info.Mode())
	}
	return fmt.Sprintf("of user %s and group %s, mode %04o", userName(int(of.Uid)), groupName(int(of.Gid)), info.Mode().Perm())
}

// ourselves is who asks: user and groups.
func ourselves() string {
	groups, _ := os.Getgroups() // an error leaves the first one
	if gid := os.Getegid(); !slices.Contains(groups, gid) {
		groups = append([]int{gid}, groups...)
	}
	names := make([]string, len(groups))
	for n, gid := range groups {
		names[n] = groupName(gid)
	}
	return fmt.Sprintf("user %s, groups %s", userName(os.Geteuid()), strings.Join(names, ", "))
}

// userName is the name of a user with its id, or the id where nobody has it.
func userName(uid int) string {
	id := strconv.Itoa(uid)
	if u, err := user.LookupId(id); err == nil {
		return u.Username + "(" + id + ")"
	}
	return id
}

func groupName(gid int) string {
	id := strconv.Itoa(gid)
	if g, err := user.LookupGroupId(id); err == nil {
		return g.Name + "(" + id + ")"
	}
	return id
}

// unreachable says that no connection was made to a socket, and why. What package net
// says of our own end of it is left out.
func unreachable(to Socket, ended, err error) error {
	why := fmt.Errorf("%s: %w", to.Address, cause(err))
	switch closed := to.closed(err); {
	case ended != nil && !errors.Is(err, ended):
		return fmt.Errorf("%w: %w: %w", ErrUnreachable, why, ended)
	case errors.Is(err, syscall.EAGAIN):
		// A unix socket whose listen queue is full refuses instead of waiting.
		return fmt.Errorf("%w: %w (its listen queue is full: HAProxy is stopped, or all its CLI connections are taken)", ErrUnreachable, why)
	case closed != nil:
		return fmt.Errorf("%w: %w; %w", ErrUnreachable, why, closed)
	}
	return fmt.Errorf("%w: %w", ErrUnreachable, why)
}

// cause is what package net says of a failure, less the addresses: the instance is
// named already, and the local one, an ephemeral port, says nothing.
func cause(err error) error {
	if op, ok := errors.AsType[*net.OpError](err); ok && op.Err != nil {
		return op.Err
	}
	return err
}
