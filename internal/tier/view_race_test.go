package tier

import (
	"context"
	"fmt"
	"log/slog"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"tier-agent/internal/probe"
	"tier-agent/test/guarantee"
)

// at is a configuration in which the engine of heavy/h1 has this number, and
// fast is there or not.
func at(n int64) []Spec {
	all := []Spec{{
		Name: "heavy", MinReady: 1, Interval: 50 * time.Millisecond, MaxAge: time.Minute,
		Servers: []ServerSpec{{
			Backend: "heavy", Name: "h1", Subject: strconv.FormatInt(n, 10), Weight: int(n),
			Target: probe.Target{MaxBody: n},
		}},
	}}
	if n%3 != 0 {
		all = append(all, Spec{Name: "fast", MinReady: 1, Interval: 50 * time.Millisecond, MaxAge: time.Minute,
			Servers: []ServerSpec{{Backend: "fast", Name: "f1", Subject: "f1", Target: probe.Target{MaxBody: -1}}}})
	}
	return all
}

// The address is edited again and again while probes run, readers read and
// others invalidate. Once a Replace has returned no reader is told what a probe
// of an earlier address saw, and an answer's weight and evidence are of one view.
//
// Controls: with about always true an earlier engine was published after its
// address had been replaced; with m.view.Load() == v taken out of Server, weight
// and evidence were seen to be of two views.
func TestStress_NoReaderSeesTheOldAddressAfterAReplacement(t *testing.T) {
	m, err := New(at(1), time.Now)
	require.NoError(t, err)
	prober := proberFunc(func(_ context.Context, target probe.Target) probe.Result {
		return probe.Result{Ready: true, Reason: strconv.FormatInt(target.MaxBody, 10)}
	})
	mon := NewMonitor(m, prober, nil, slog.New(slog.DiscardHandler))
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	ended := make(chan error, 1)
	go func() { ended <- mon.Run(ctx) }()

	var replaced atomic.Int64 // the number of the last Replace that has returned
	replaced.Store(1)
	stop := make(chan struct{})
	var wg sync.WaitGroup
	spawn := func(loop func()) {
		wg.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
					loop()
				}
			}
		})
	}
	engine := func(reason string) int64 {
		n, err := strconv.ParseInt(reason, 10, 64)
		if err != nil {
			return -1 // pending, invalidated
		}
		return n
	}
	fresh := func(floor int64, ready bool, reason string) {
		if n := engine(reason); ready && n >= 0 && n < floor {
			guarantee.T(t).Errorf("engine %d is told after the replacement to %d", n, floor)
		}
	}
	spawn(func() {
		floor := replaced.Load()
		a, _ := m.Server([]byte("heavy/h1"))
		fresh(floor, a.Ready, a.Reason)
		if a.Ready && int64(a.Weight) != engine(a.Reason) {
			t.Errorf("weight %d with the evidence of %s", a.Weight, a.Reason)
		}
	})
	spawn(func() {
		floor := replaced.Load()
		a, _ := m.Tier([]byte("heavy"))
		fresh(floor, a.Ready, a.Reason)
		for _, st := range m.Status() {
			if st.Name == "heavy" {
				fresh(floor, st.Servers[0].Answer.Ready, st.Servers[0].Evidence)
			}
		}
	})
	for range 2 {
		spawn(func() {
			floor := replaced.Load()
			v := mon.ProbeNow(ctx, "heavy/h1")
			fresh(floor, v.Ready, v.Reason)
		})
	}
	spawn(func() { _, _ = m.Invalidate(heavy); time.Sleep(time.Microsecond) })
	spawn(func() {
		_, _ = m.Close(Target{Tier: "fast"}, Closure{Reason: "swap"})
		if gen, err := m.Generation(Target{Tier: "fast"}); err == nil {
			_ = m.Open(Target{Tier: "fast"}, gen)
		}
		mon.Suspend([]string{"fast/f1"})()
		_ = m.Changes(at(1))
	})
	spawn(func() { mon.Follow(); time.Sleep(10 * time.Microsecond) })

	for n := int64(2); n < 800; n++ {
		require.NoError(t, m.Replace(at(n)))
		replaced.Store(n)
		mon.Follow()
	}
	close(stop)
	wg.Wait()
	<-mon.Follow()
	cancel()
	require.NoError(t, <-ended)
	assert.Zero(t, m.fence.Outstanding("heavy/h1"))
	assert.Equal(t, fmt.Sprint(m.view.Load().servers["heavy/h1"].spec.Weight), "799")
}
