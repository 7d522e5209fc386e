package main

import (
	"context"
	"fmt"
	"net"
	"slices"
	"time"

	"tier-agent/internal/agentcheck"
	"tier-agent/internal/agentcheck/agentbench"
)

const (
	pollers = 4
	// Short turns of each server in alternation: what else the machine does then
	// hits both. Longer, and the connections would fill its connection tracking.
	rounds  = 40
	oneTurn = 50 * time.Millisecond
)

// agentCheckTable compares our agent-check server with one that accepts, reads,
// writes and closes, under the same client.
func agentCheckTable() error {
	ours, stop, err := serveAgent()
	if err != nil {
		return err
	}
	defer stop()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	defer ln.Close()
	go agentbench.Bare(ln)

	var rates [2][]float64
	for range rounds {
		for n, addr := range []string{ours, ln.Addr().String()} {
			answers, err := agentbench.Run(addr, pollers, oneTurn)
			if err != nil {
				return err
			}
			rates[n] = append(rates[n], float64(answers)/oneTurn.Seconds())
		}
	}
	mine, bare := median(rates[0]), median(rates[1])
	ratios := make([]float64, rounds)
	for n := range ratios {
		ratios[n] = rates[0][n] / rates[1][n]
	}
	return table(fmt.Sprintf("agent-check, %d pollers, a new connection each, median of %d pairs of turns", pollers, rounds), [][]string{
		{"", "answers/s", "ratio"},
		{"tier-agent", fmt.Sprintf("%.0f", mine), fmt.Sprintf("%.2f", median(ratios))},
		{"bare accept-read-write-close", fmt.Sprintf("%.0f", bare), "1.00"},
	})
}

func median(of []float64) float64 {
	sorted := slices.Sorted(slices.Values(of))
	return (sorted[(len(sorted)-1)/2] + sorted[len(sorted)/2]) / 2
}

// alwaysUp is a source that costs nothing.
type alwaysUp struct{}

func (alwaysUp) AgentState([]byte) (agentcheck.State, bool) {
	return agentcheck.State{Ready: true, Weight: 100}, true
}

func (alwaysUp) Continues([]byte) bool { return false }

func serveAgent() (addr string, stop func(), err error) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", nil, err
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- agentcheck.NewServer(alwaysUp{}, agentcheck.Options{}).Serve(ctx, ln) }()
	return ln.Addr().String(), func() { cancel(); <-ended }, nil
}
