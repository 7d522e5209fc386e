// Package spoeload is a load generator for SPOE agents, and for HAProxy in front
// of one: a closed loop, with a fixed number of requests out at any time.
//
// Invariant: an answer counts only when it is the right one. Each is held to the
// ids of a request that is out, and a turn in which one is not right fails.
//
// It shares the machine with what it measures, so its own cost is small and the
// same for every agent: requests are encoded once and only their ids change, one
// goroutine serves a connection, what one read brings is answered by one write,
// and an answer costs no allocation.
package spoeload

import (
	"context"
	"errors"
	"net"
	"time"

	"golang.org/x/sync/errgroup"
)

// Load is one turn of load on one agent.
type Load struct {
	Network, Addr string
	Conns         int           // connections
	Depth         int           // frames in flight on each, 1 to maxDepth
	Warmup        time.Duration // before what is measured
	Measure       time.Duration
	Tiers         []string // what the frames ask about, in turn
}

const maxDepth = 1000

// patience is for a connection, and for an answer after the end of a turn.
const patience = 5 * time.Second

// Run puts the load on the agent and returns when every frame has been answered.
// It fails at the first answer that is not right.
func Run(ctx context.Context, l Load) (Result, error) {
	if l.Conns < 1 || l.Depth < 1 || l.Depth > maxDepth || len(l.Tiers) == 0 {
		return Result{}, errors.New("spoeload: no connection, no tier, or a depth out of bounds")
	}
	return turn(ctx, l.Network, l.Addr, l.Conns, l.Warmup, l.Measure, func(c net.Conn) (looper, error) {
		s := newSession(c, l)
		return s, s.hello()
	})
}

// looper is one connection's closed loop.
type looper interface {
	// loop ends when the turn has and all that was asked has been answered.
	loop(*tally) error
}

// turn opens the connections, readies each and starts them at one moment.
func turn(ctx context.Context, network, addr string, conns int, warmup, measure time.Duration, ready func(net.Conn) (looper, error)) (Result, error) {
	all := make([]looper, conns)
	tallies := make([]tally, conns)
	open := make([]net.Conn, conns)
	dialer := net.Dialer{Timeout: patience}
	for i := range conns {
		c, err := dialer.DialContext(ctx, network, addr)
		if err != nil {
			return Result{}, err
		}
		defer c.Close()
		open[i] = c
		if err := c.SetDeadline(time.Now().Add(patience)); err != nil {
			return Result{}, err
		}
		if all[i], err = ready(c); err != nil {
			return Result{}, err
		}
	}
	w := window{start: time.Now(), from: warmup, until: warmup + measure}
	g, ctx := errgroup.WithContext(ctx)
	for i, c := range open {
		tallies[i].clock = w
		g.Go(func() error {
			if err := c.SetDeadline(w.start.Add(w.until + patience)); err != nil {
				return err
			}
			// A turn that fails on one connection is over on all.
			defer context.AfterFunc(ctx, func() { _ = c.SetDeadline(time.Unix(1, 0)) })()
			return all[i].loop(&tallies[i])
		})
	}
	if err := g.Wait(); err != nil {
		return Result{}, err
	}
	return sum(tallies), nil
}
