package probe

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"os"
	"syscall"
)

// fault is an error that has its class already, because the place where it arose knew it. The
// text of err stays inside the package: it may quote what the server sent.
type fault struct {
	class class
	err   error
}

func (f *fault) Error() string { return string(f.class) + ": " + f.err.Error() }
func (f *fault) Unwrap() error { return f.err }

// wrap gives err the class that its kind shows, or else the one that its place suggests.
func wrap(err error, fallback class) error {
	return &fault{class: classify(err, fallback), err: err}
}

// reasonFor turns the error that ended a step into its reason. The context is asked first: once
// it has ended, whatever else went wrong went wrong because of that.
func reasonFor(ctx context.Context, s step, err error) string {
	switch {
	case errors.Is(ctx.Err(), context.Canceled):
		return transport(s, classCanceled)
	// A connection's deadline can strike just before the context's timer does.
	case ctx.Err() != nil, errors.Is(err, os.ErrDeadlineExceeded), errors.Is(err, context.DeadlineExceeded):
		return Timeout
	}
	var f *fault
	if errors.As(err, &f) {
		return transport(s, f.class)
	}
	return transport(s, classOther)
}

func classify(err error, fallback class) class {
	var (
		lookup *net.DNSError
		op     *net.OpError
		record tls.RecordHeaderError
		errno  syscall.Errno
	)
	switch {
	case errors.As(err, &lookup):
		return classDNS
	case errors.Is(err, syscall.ECONNREFUSED), errors.Is(err, syscall.ENOENT): // a unix socket that is not there
		return classRefused
	case errors.Is(err, syscall.ECONNRESET), errors.Is(err, syscall.ECONNABORTED), errors.Is(err, syscall.EPIPE):
		return classReset
	case errors.Is(err, syscall.EHOSTUNREACH), errors.Is(err, syscall.ENETUNREACH), errors.Is(err, syscall.EHOSTDOWN),
		errors.Is(err, syscall.ENETDOWN), errors.Is(err, syscall.ETIMEDOUT):
		return classUnreachable
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, io.ErrClosedPipe):
		return classClosed
	case errors.As(err, &record):
		return classTLS
	// crypto/tls marks an alert only by the operation's name.
	case errors.As(err, &op) && (op.Op == "remote error" || op.Op == "local error"):
		return classTLS
	case errors.As(err, &errno):
		return classOther
	}
	return fallback
}
