package runtimeapi

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"time"
)

// maxCommand bounds one command line. HAProxy 2.6 hangs on one above about
// 15 kB and loses one of its CLI connections for good (measured).
const maxCommand = 8 << 10

type purpose bool

const (
	reading  purpose = false
	mutating purpose = true
)

// exchange runs commands on one connection to the stats socket and returns what
// each of them answered, from one process. It fails whole: there is no partial
// answer.
func (i *Instance) exchange(ctx context.Context, why purpose, commands ...string) (answer, error) {
	pid, _ := ctx.Value(pidKey{}).(int)
	return i.framed(ctx, i.stats, frame(commands), len(commands), why, pid)
}

// exchangeWith is exchange with one worker, through the master. It only reads.
func (i *Instance) exchangeWith(ctx context.Context, pid int, commands ...string) (answer, error) {
	return i.framed(ctx, i.options.Master, masterFrame(pid, commands), len(commands), reading, pid)
}

// framed sends line, a frame of so many commands. Unless pid is 0 no other
// process's answer is taken.
func (i *Instance) framed(ctx context.Context, to Socket, line string, commands int, why purpose, pid int) (answer, error) {
	if len(line) > maxCommand {
		return answer{}, fmt.Errorf("%w: command of %d bytes, at most %d", ErrTooLarge, len(line), maxCommand)
	}
	ctx, cancel := context.WithTimeout(ctx, i.options.Timeout)
	defer cancel()

	text, sent, err := i.roundTrip(ctx, to, line, opening)
	var a answer
	if err == nil {
		a, err = unframe(text, commands)
	}
	if err == nil && pid != 0 && pid != a.info.PID {
		err = fmt.Errorf("%w: expected process %d, %d answered", ErrOtherProcess, pid, a.info.PID)
	}
	if err != nil {
		if sent && why == mutating {
			err = fmt.Errorf("%w (%w)", err, ErrUncertain)
		}
		return answer{}, i.at(to, err)
	}
	return a, nil
}

// at names the socket that an error is about.
func (i *Instance) at(s Socket, err error) error {
	if s == i.options.Master {
		return fmt.Errorf("master at %s: %w", s.Address, err)
	}
	return fmt.Errorf("at %s: %w", s.Address, err)
}

// roundTrip writes line and reads to the end of the stream, or of the first line
// where that does not begin with opening: no answer can come of it any more, and
// a master of 3.0 or 3.2 that has written an error of its own drops the rest of
// the line, `quit` included, and keeps the connection open (measured). sent tells
// whether HAProxy may have got any of the line.
func (i *Instance) roundTrip(ctx context.Context, to Socket, line, opening string) (text string, sent bool, err error) {
	select {
	case i.slots <- struct{}{}:
		defer func() { <-i.slots }()
	case <-ctx.Done():
	}
	// Asked again: when both were possible, select took either.
	if ctx.Err() != nil {
		return "", false, gaveUp(ctx, fmt.Sprintf("waiting behind %d exchanges under way", maxExchanges))
	}
	conn, err := i.options.Dial(ctx, to.Network, to.Address)
	if err != nil {
		return "", false, unreachable(ctx, to, err)
	}
	defer conn.Close()
	if ctx.Err() != nil {
		return "", false, gaveUp(ctx, "connected too late to send anything")
	}
	// A deadline in the past wakes a blocked Read or Write at once, whether the
	// time ran out or the caller gave up.
	defer context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })()

	if _, err := io.WriteString(conn, line); err != nil {
		return "", true, i.broken(ctx, "writing", err)
	}
	raw, err := readAnswer(io.LimitReader(conn, i.options.MaxAnswer+1), opening)
	if int64(len(raw)) > i.options.MaxAnswer {
		return "", true, fmt.Errorf("%w: answer of more than %d bytes", ErrTooLarge, i.options.MaxAnswer)
	}
	if err != nil {
		return "", true, i.broken(ctx, fmt.Sprintf("reading, %d bytes so far", len(raw)), err)
	}
	return string(raw), true, nil
}

func readAnswer(r io.Reader, opening string) ([]byte, error) {
	buffered := bufio.NewReader(r)
	if start, err := buffered.Peek(len(opening)); err != nil || string(start) == opening {
		return io.ReadAll(buffered)
	}
	line, err := buffered.ReadBytes('\n')
	if err == io.EOF {
		err = nil
	}
	return line, err
}

// broken names the failure of a connection that was there.
func (i *Instance) broken(ctx context.Context, doing string, err error) error {
	if ctx.Err() == nil {
		return fmt.Errorf("%w: %s: %w", ErrIncomplete, doing, cause(err))
	}
	return gaveUp(ctx, doing+"; HAProxy may be stopped or busy, or all its CLI connections"+
		" may be taken (10 unless `stats maxconn` says otherwise)")
}
