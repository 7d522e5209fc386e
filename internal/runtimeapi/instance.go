package runtimeapi

import (
	"context"
	"fmt"
	"net"
	"strings"
	"time"

	"tier-agent/internal/patient"
)

const (
	defaultTimeout   = 2 * time.Second
	defaultMaxAnswer = 16 << 20

	// maxExchanges leaves room for operators: HAProxy serves 10 CLI connections
	// in all by default, and the next one connects and hangs.
	maxExchanges = 4
)

// Options of an Instance. Zero values mean the defaults.
type Options struct {
	// Timeout bounds one exchange: waiting for a free connection, dialling,
	// writing and reading to the end. Default 2 s.
	Timeout time.Duration
	// MaxAnswer bounds the bytes of one answer. Default 16 MiB.
	MaxAnswer int64
	// Master is the master socket (`haproxy -W -S <address>`), through which the
	// old workers of a reload can be asked as well. Optional.
	Master Socket
	// Dial connects; it must return when its context ends. Default net.Dialer.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)
}

// Socket is where HAProxy listens: network "unix" or "tcp", and the address there.
type Socket struct{ Network, Address string }

// Instance is one HAProxy's Runtime API. It is safe for concurrent use and
// holds at most 4 connections at a time.
type Instance struct {
	name    string
	stats   Socket
	options Options
	slots   chan struct{} // one element per exchange under way, on either socket
}

// New returns the HAProxy whose stats socket is at address; network is "unix" or
// "tcp". A master socket will not do: it runs other commands and keeps connections
// open; it belongs into Options.Master. New connects to nothing yet. The name identifies the instance in errors.
func New(name, network, address string, o Options) *Instance {
	if o.Timeout <= 0 {
		o.Timeout = defaultTimeout
	}
	if o.MaxAnswer <= 0 {
		o.MaxAnswer = defaultMaxAnswer
	}
	if o.Dial == nil {
		o.Dial = patient.Dial
	}
	return &Instance{
		name: name, stats: Socket{network, address}, options: o,
		slots: make(chan struct{}, maxExchanges),
	}
}

// Name is the name given to New.
func (i *Instance) Name() string { return i.name }

// HasMaster reports whether a master socket is configured.
func (i *Instance) HasMaster() bool { return i.options.Master != Socket{} }

// Info asks which process answers. Errors: the kinds of this package.
func (i *Instance) Info(ctx context.Context) (Info, error) {
	answer, err := i.exchange(ctx, reading)
	return answer.info, i.wrap(err)
}

// Level is what this socket may do: "user", "operator" or "admin".
func (i *Instance) Level(ctx context.Context) (string, error) {
	answer, err := i.exchange(ctx, reading, "show cli level")
	if err != nil {
		return "", i.wrap(err)
	}
	return strings.TrimSpace(answer.texts[0]), nil
}

type pidKey struct{}

// ExpectPID makes every call with the returned context fail with ErrOtherProcess
// unless HAProxy's process id is pid. A mutation is preceded by an exchange of
// its own, so that it is not sent to another process that is already there. What
// goes to one worker through the master has that worker's process id instead.
func ExpectPID(ctx context.Context, pid int) context.Context {
	return context.WithValue(ctx, pidKey{}, pid)
}

// wrap adds the instance's name, once, where an error leaves the package.
func (i *Instance) wrap(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("haproxy %s: %w", i.name, err)
}
