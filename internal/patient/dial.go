// Package patient does what the system may never come back from, and comes back itself.
package patient

import (
	"context"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"syscall"
)

// mostAtOnce bounds the connects to one path that are under way, or never come back.
const mostAtOnce = 128

var underWay = struct {
	mu sync.Mutex // protects of
	of map[string]int
}{of: map[string]int{}}

// Dial connects as net.Dialer does, and returns when ctx ends also where the path of a unix
// socket is on a mount that hangs: package net waits for the system there.
func Dial(ctx context.Context, network, address string) (net.Conn, error) {
	dialer := &net.Dialer{KeepAlive: -1} // what is dialled here lives for one exchange
	if network != "unix" {
		return dialer.DialContext(ctx, network, address)
	}
	failed := func(err error) error {
		return &net.OpError{Op: "dial", Net: network, Addr: &net.UnixAddr{Name: address, Net: network}, Err: err}
	}
	if !enter(address) {
		return nil, failed(fmt.Errorf("%w: %d connects have not come back, the path is on a mount that hangs", syscall.EBUSY, mostAtOnce))
	}
	var decided atomic.Bool // by whoever is first: the connection, or the end of ctx
	var conn net.Conn
	var err error
	done := make(chan struct{})
	go func() {
		c, failure := dialer.DialContext(context.WithoutCancel(ctx), network, address)
		leave(address)
		if decided.CompareAndSwap(false, true) {
			conn, err = c, failure
			close(done)
		} else if c != nil {
			_ = c.Close()
		}
	}()
	select {
	case <-done:
		return conn, err
	case <-ctx.Done():
	}
	if decided.CompareAndSwap(false, true) {
		return nil, failed(ctx.Err())
	}
	<-done
	return conn, err
}

func enter(address string) bool {
	underWay.mu.Lock()
	defer underWay.mu.Unlock()
	if underWay.of[address] >= mostAtOnce {
		return false
	}
	underWay.of[address]++
	return true
}

func leave(address string) {
	underWay.mu.Lock()
	defer underWay.mu.Unlock()
	if underWay.of[address]--; underWay.of[address] == 0 {
		delete(underWay.of, address)
	}
}
