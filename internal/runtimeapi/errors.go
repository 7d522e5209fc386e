package runtimeapi

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"unicode"
	"unicode/utf8"
)

// The kinds of failure. Each error of this package is one of them (or the
// context's own), wrapped with the instance's name and the datum.
var (
	// ErrUnreachable: no connection was made, nothing was sent.
	ErrUnreachable = errors.New("haproxy is unreachable")
	// ErrTimeout: the time of the exchange ran out. context.DeadlineExceeded is
	// wrapped as well.
	ErrTimeout = errors.New("haproxy did not answer in time")
	// ErrIncomplete: the connection ended before the sentinel.
	ErrIncomplete = errors.New("incomplete answer")
	// ErrTooLarge: the answer exceeds Options.MaxAnswer, or a command its 8 KiB.
	ErrTooLarge = errors.New("too large")
	// ErrMalformed: the whole answer came, in a form that is not understood.
	ErrMalformed = errors.New("answer not understood")
	// ErrRefused: HAProxy answered a command with a text, which is included.
	ErrRefused = errors.New("haproxy refused")
	// ErrPermission: the socket's level is too low for the command.
	ErrPermission = errors.New("permission denied by haproxy")
	// ErrNoSuchServer: HAProxy knows no such server, or no such backend.
	ErrNoSuchServer = errors.New("no such server")
	// ErrNotApplied: the mutation was answered as done, the state read back differs.
	ErrNotApplied = errors.New("not applied")
	// ErrInvalidName: a name that may not reach a socket; nothing was sent.
	ErrInvalidName = errors.New("invalid name")
	// ErrOtherProcess: another HAProxy process answered than before, or than expected.
	ErrOtherProcess = errors.New("another haproxy process")
	// ErrUncertain comes beside another kind when a mutation was sent and its
	// outcome is unknown. It is never repeated here. A 3.2 that was stopped meanwhile
	// applies it when it wakes, and not always before it serves the next exchange:
	// in 4 of 10 runs a read right after still showed the old state. 2.6 and 3.0
	// dropped it, the connection being closed, in 10 of 10 (measured).
	ErrUncertain = errors.New("its outcome is unknown, it may still be applied later")
	// ErrNoMaster: Options.Master is not set, so old workers cannot be asked.
	ErrNoMaster = errors.New("no master socket is configured")
	// ErrWorkerGone: the worker could not be read, and the master lists it no longer.
	ErrWorkerGone = errors.New("the worker has ended")
	// ErrPanicked: the function given to Each panicked, or left without returning.
	ErrPanicked = errors.New("function did not return")
)

// maxText bounds what an error quotes of HAProxy's answer, in bytes.
const maxText = 200

// severity is what `severity-output` of a stats socket puts before an error.
var severity = regexp.MustCompile(`^\[[0-9a-z]+\]: `)

// refusal turns the text that HAProxy gave instead of an answer into an error.
// The texts are the same on 2.6, 3.0 and 3.2 (testdata).
func refusal(text string) error {
	text = severity.ReplaceAllString(clean(text), "")
	switch text {
	case "":
		return fmt.Errorf("%w: an empty line", ErrMalformed)
	case "Permission denied":
		return fmt.Errorf("%w: the stats socket needs `level admin`", ErrPermission)
	case "No such server.", "No such backend.", "Can't find backend.", "No such proxy.":
		return fmt.Errorf("%w: %q", ErrNoSuchServer, text)
	}
	return fmt.Errorf("%w: %q", ErrRefused, text)
}

// refused is refusal for a change. Where the socket's level is too low it names the socket.
func (i *Instance) refused(text string) error {
	err := refusal(text)
	if errors.Is(err, ErrPermission) {
		return i.at(i.stats, err)
	}
	return err
}

// gaveUp tells why ctx ended what was under way. ctx must have ended.
func gaveUp(ctx context.Context, doing string) error {
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return fmt.Errorf("%w: %s: %w", ErrTimeout, doing, ctx.Err())
	}
	return fmt.Errorf("%s: %w", doing, ctx.Err())
}

// clean makes bytes from outside fit for a log line: printable, on one line, at
// most maxText bytes of valid UTF-8.
func clean(text string) string {
	// Four times the room: what is stripped below must not cost what is kept,
	// and a hostile megabyte must not be walked.
	text = text[:min(len(text), 4*maxText)]
	text = strings.Map(func(r rune) rune {
		switch {
		case r == utf8.RuneError:
			return -1
		case unicode.IsPrint(r):
			return r
		case unicode.IsSpace(r):
			return ' '
		}
		return -1
	}, text)
	text = strings.TrimSpace(text)
	cut := min(len(text), maxText)
	for cut > 0 && cut < len(text) && !utf8.RuneStart(text[cut]) {
		cut--
	}
	return text[:cut]
}
