// Package agentbench measures agent-check answers as HAProxy takes them: a new
// connection for each poll.
//
// Invariant: the client is the same for every server, and a poll counts only
// when a whole line has come.
package agentbench

import (
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"time"
)

// Name is what the client asks for.
const Name = "bench/server1"

// Line is what Bare answers.
const Line = "up\n"

const (
	pollTimeout = 5 * time.Second
	maxReply    = 1024
)

// ErrLine means that a server's answer was not one LF-terminated line.
var ErrLine = errors.New("agentbench: no complete line")

// Run polls addr from clients goroutines for d: connect, write the name, read
// the line, close. It returns the number of answers, and the first error, which
// stops the client that met it.
func Run(addr string, clients int, d time.Duration) (answers int, err error) {
	var (
		wg     sync.WaitGroup
		counts = make([]int, clients)
		errs   = make([]error, clients)
		end    = time.Now().Add(d)
	)
	for i := range clients {
		wg.Go(func() {
			buf := make([]byte, maxReply)
			for time.Now().Before(end) {
				if errs[i] = Poll(addr, buf); errs[i] != nil {
					return
				}
				counts[i]++
			}
		})
	}
	wg.Wait()
	for _, n := range counts {
		answers += n
	}
	return answers, errors.Join(errs...)
}

// Poll is one poll. buf bounds the reply.
func Poll(addr string, buf []byte) error {
	c, err := net.DialTimeout("tcp", addr, pollTimeout)
	if err != nil {
		return err
	}
	defer c.Close()
	// A reset leaves no TIME_WAIT behind. Tens of thousands of them a second fill
	// the machine's connection tracking, and then everybody's connects hang.
	_ = c.(*net.TCPConn).SetLinger(0)
	_ = c.SetDeadline(time.Now().Add(pollTimeout))
	if _, err := io.WriteString(c, Name+"\n"); err != nil {
		return err
	}
	for n := 0; n < len(buf); {
		m, err := c.Read(buf[n:])
		n += m
		if n > 0 && buf[n-1] == '\n' {
			return nil
		}
		if err != nil {
			return fmt.Errorf("%w: %q: %w", ErrLine, buf[:n], err)
		}
	}
	return fmt.Errorf("%w: %d bytes", ErrLine, len(buf))
}

// Bare is the least that a server can do: accept, read once, write, close. It
// has no deadline, no cap and no state, and returns when ln is closed.
func Bare(ln net.Listener) {
	for {
		c, err := ln.Accept()
		if err != nil {
			return
		}
		go func() {
			defer c.Close()
			var buf [maxReply]byte
			if _, err := c.Read(buf[:]); err == nil {
				_, _ = io.WriteString(c, Line)
			}
		}()
	}
}
