package fence

import (
	"runtime"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"tier-agent/test/guarantee"
)

// loops runs n goroutines around each loop that it is given, until end. Each gives
// way to the others: where there is one processor, who waits for one of them at every
// step would wait for the time slice of each of the rest.
func loops() (spawn func(n int, loop func()), end func()) {
	stop := make(chan struct{})
	var wg sync.WaitGroup
	spawn = func(n int, loop func()) {
		for range n {
			wg.Go(func() {
				for {
					select {
					case <-stop:
						return
					default:
						loop()
						runtime.Gosched()
					}
				}
			})
		}
	}
	return spawn, func() { close(stop); wg.Wait() }
}

// An engine is replaced again and again while probes run. Each observation
// carries the engine's number as it was when the probe looked; once a swap's
// invalidation has returned, no reader may see an earlier number.
//
// Controls: with `t.gen != s.generation()` taken out of complete and evidence
// stamped with the generation at its end (judge would catch the ticket's own),
// an old engine was seen after its swap; with mu no longer taken in Complete,
// the race detector spoke.
func TestStress_NoReaderSeesTheOldEngineAfterASwap(t *testing.T) {
	f := New(time.Now)
	require.NoError(t, f.Replace(members()))
	var engine atomic.Int64 // the number that a probe sees
	var swapped atomic.Int64
	spawn, end := loops()
	look := func(*Ticket) Observation { return ready(strconv.FormatInt(engine.Load(), 10)) }
	seen := func(floor int64, v Verdict) {
		if !v.Ready {
			return
		}
		n, err := strconv.ParseInt(v.Metadata["id"], 10, 64)
		if err != nil || n < floor {
			guarantee.T(t).Errorf("engine %s is published after the swap to %d", v.Metadata["id"], floor)
		}
	}
	spawn(2, func() { floor := swapped.Load(); seen(floor, f.Check(h1, look)) })
	spawn(2, func() { floor := swapped.Load(); seen(floor, f.ProbeNow(h1, look)) })
	spawn(2, func() { floor := swapped.Load(); seen(floor, f.Current(h1)) })
	spawn(1, func() { f.InvalidateServer(h2); f.ProbeNow(f1, look) })
	spawn(1, func() { assert.NoError(t, f.Replace(members())) })

	for n := range int64(600) {
		engine.Store(n)
		switch n % 3 {
		case 0:
			f.InvalidateServer(h1)
		case 1:
			f.InvalidateTier("heavy")
		case 2:
			f.InvalidateAll()
		}
		swapped.Store(n)
	}
	end()
	assert.Zero(t, f.Outstanding(h1))
}

// An engine is replaced again and again and nobody is told. Once the completion
// of a probe that saw a new one has returned, no reader may see an earlier one,
// whatever fall would let stand.
//
// Control: with the advance of the epoch taken out of restarted, what a slower
// probe had seen of an earlier engine was published after it.
func TestStress_NoReaderSeesTheOldEngineAfterARestartWasSeen(t *testing.T) {
	f, _ := counting(t, 1, 3)
	var engine, seen atomic.Int64
	spawn, end := loops()
	probe := func(direct bool) {
		var n int64
		look := func(*Ticket) Observation {
			n = engine.Load()
			runtime.Gosched() // the answer is under way
			id := strconv.FormatInt(n, 10)
			return as(ready(id), id)
		}
		var v Verdict
		if direct {
			v = f.ProbeNow(h1, look)
		} else {
			v = f.Check(h1, look)
		}
		if v.Restarted || direct && v.Ready {
			for old := seen.Load(); old < n && !seen.CompareAndSwap(old, n); old = seen.Load() {
			}
		}
	}
	spawn(2, func() { probe(false) })
	spawn(3, func() { probe(true) })
	var reads, readies atomic.Int64
	spawn(2, func() {
		floor := seen.Load()
		v := f.Current(h1)
		reads.Add(1)
		if !v.Ready {
			return
		}
		readies.Add(1)
		if n, err := strconv.ParseInt(v.Metadata["id"], 10, 64); err != nil || n < floor {
			guarantee.T(t).Errorf("engine %s is published after %d has been seen", v.Metadata["id"], floor)
		}
	})
	for range 500 {
		n := engine.Add(1)
		for seen.Load() < n { // or probes would hardly ever meet a restart
			runtime.Gosched()
		}
	}
	end()
	assert.NotZero(t, readies.Load(), "of %d reads", reads.Load())
}
