package main

import (
	"context"
	"fmt"
	"math"
	"runtime"
	"slices"
	"time"

	"tier-agent/test/spoeload"
)

// Short turns, as for agent-check: a round is over before the machine has changed.
const (
	spoeRounds  = 15
	spoeWarmup  = 20 * time.Millisecond
	spoeMeasure = 100 * time.Millisecond
)

// spoeTable compares our SPOE agent with the library's own and with one that
// does the least, under the same load generator.
func spoeTable() error {
	agents, stop, err := serveSPOE()
	if err != nil {
		return err
	}
	defer stop()
	rows := [][]string{{
		"", "connections x depth", "library, frames/s", "tier-agent", "bare agent",
		"tier-agent/library", "wanted", "library, p99", "tier-agent", "bare agent",
	}}
	for _, cell := range []struct {
		network      string
		conns, depth int
		wanted       string
	}{
		{"tcp", 1, 1, "0.95"}, {"tcp", 1, 20, "1.8"}, {"tcp", 16, 1, "0.95"}, {"tcp", 16, 20, "8"},
		{"unix", 1, 1, "0.95"}, {"unix", 1, 20, "1.3"}, {"unix", 16, 1, "0.95"}, {"unix", 16, 20, "5"},
	} {
		turns, err := alternate(spoeRounds, len(agents), func(n int) (spoeload.Result, error) {
			r, err := spoeload.Run(context.Background(), spoeload.Load{
				Network: cell.network, Addr: agents[n].addr[cell.network],
				Conns: cell.conns, Depth: cell.depth, Tiers: spoeTiers,
				Warmup: spoeWarmup, Measure: spoeMeasure,
			})
			if err != nil {
				err = fmt.Errorf("%s, %s, %d x %d: %w", agents[n].name, cell.network, cell.conns, cell.depth, err)
			}
			return r, err
		})
		if err != nil {
			return err
		}
		row := []string{cell.network, fmt.Sprintf("%d x %d", cell.conns, cell.depth)}
		row = append(row, turns.each(perSecond)...)
		row = append(row, turns.ratio(ours, library), ">= "+cell.wanted)
		rows = append(rows, append(row, turns.each(p99)...))
	}
	return table(fmt.Sprintf("SPOE, median of %d rounds of %v for each agent; p99 wanted no worse than the library's",
		spoeRounds, spoeMeasure), rows)
}

// turns are the results of what was measured side by side, and of its rounds.
type turns [][]spoeload.Result

// alternate measures n things, one after the other in each round, and in the
// opposite order in every other one: what the machine does besides hits them alike.
func alternate(rounds, n int, turn func(int) (spoeload.Result, error)) (turns, error) {
	all := make(turns, n)
	for round := range rounds {
		for i := range n {
			if round%2 == 1 {
				i = n - 1 - i
			}
			runtime.GC() // nobody pays for the garbage of the turn before
			r, err := turn(i)
			if err != nil {
				return nil, err
			}
			all[i] = append(all[i], r)
		}
	}
	return all, nil
}

// ratio is the median of the rounds' ratios and, in brackets, the ranks between
// which the true median lies 19 times out of 20 (normal approximation to the sign
// test): on a busy machine it says what the ratio is worth.
func (t turns) ratio(a, b int) string {
	ratios := make([]float64, len(t[a]))
	for round := range ratios {
		ratios[round] = t[a][round].PerSecond / t[b][round].PerSecond
	}
	slices.Sort(ratios)
	n := float64(len(ratios))
	low := max(0, int(n/2-0.98*math.Sqrt(n))-1)
	return fmt.Sprintf("%.2f (%.2f-%.2f)", median(ratios), ratios[low], ratios[len(ratios)-1-low])
}

// each gives one figure of the medians.
func (t turns) each(figure func(spoeload.Result) string) []string {
	var cells []string
	for _, of := range t {
		cells = append(cells, figure(spoeload.Median(of)))
	}
	return cells
}

func perSecond(r spoeload.Result) string { return fmt.Sprintf("%.0f", r.PerSecond) }
func p50(r spoeload.Result) string       { return r.P50.Round(time.Microsecond).String() }
func p99(r spoeload.Result) string       { return r.P99.Round(time.Microsecond).String() }
