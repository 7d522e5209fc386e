package runtimeapi

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"syscall"

	"tier-agent/internal/owner"
)

// ErrNoAccess comes beside ErrUnreachable where the socket cannot be opened for a reason
// that stays until somebody changes something: its owner or mode, or the path itself.
var ErrNoAccess = errors.New("it stays so until somebody changes that")

// Lasting reports whether an error does not pass by itself, so that to wait for that is
// of no use.
func Lasting(err error) bool { return errors.Is(err, ErrNoAccess) || errors.Is(err, ErrPermission) }

// unreachable says that no connection was made to a socket, and why, with what an operator
// needs to change that.
func unreachable(ctx context.Context, to Socket, err error) error {
	why := fmt.Errorf("%w: %w", ErrUnreachable, cause(err))
	switch ended := ctx.Err(); {
	case ended != nil && !errors.Is(err, ended):
		return fmt.Errorf("%w: %w", why, ended)
	case to.Network != "unix":
		return why
	case errors.Is(err, syscall.EAGAIN):
		// A unix socket whose listen queue is full refuses instead of waiting.
		return fmt.Errorf("%w (its listen queue is full: HAProxy is stopped, or all its CLI connections are taken)", why)
	case errors.Is(err, fs.ErrPermission):
		return fmt.Errorf("%w%s; %w", why, owner.Hint(to.Address), ErrNoAccess)
	case to.noSocket(err):
		return fmt.Errorf("%w: no socket of HAProxy's can be there, correct the path in tier-agent's configuration; %w", why, ErrNoAccess)
	}
	return why
}

// noSocket reports whether the path can never be a socket of HAProxy's. One that is gone, or
// refuses, may be: HAProxy is starting.
func (s Socket) noSocket(failure error) bool {
	for _, never := range []error{syscall.ENOTDIR, syscall.ELOOP, syscall.ENAMETOOLONG, syscall.EINVAL, syscall.EPROTOTYPE} {
		if errors.Is(failure, never) {
			return true
		}
	}
	if !errors.Is(failure, syscall.ECONNREFUSED) {
		return false
	}
	info, err := os.Stat(s.Address)
	return err == nil && info.Mode().Type() != fs.ModeSocket
}

// cause is what package net says of a failure, less the addresses: at names the socket,
// and our own end, an ephemeral port, says nothing.
func cause(err error) error {
	if op, ok := errors.AsType[*net.OpError](err); ok && op.Err != nil {
		return op.Err
	}
	return err
}
