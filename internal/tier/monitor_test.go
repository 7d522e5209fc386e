package tier

import (
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"tier-agent/internal/fence"
	"tier-agent/internal/probe"
	"tier-agent/test/guarantee"
)

// proberFunc is a prober of the test's own; the real one needs real sockets,
// which do not block durably in a synctest bubble.
type proberFunc func(context.Context, probe.Target) probe.Result

func (f proberFunc) Probe(ctx context.Context, t probe.Target) probe.Result { return f(ctx, t) }

// Exercise passes: tests of it have a prober with two answers.
func (f proberFunc) Exercise(context.Context, probe.Target) probe.Result {
	return probe.Result{Ready: true, Reason: probe.ExercisePassed}
}

func passing(context.Context, probe.Target) probe.Result {
	return probe.Result{Ready: true, Reason: "identity_passed"}
}

// run starts a monitor in the bubble and ends it with the test.
func run(t *testing.T, m *Model, p proberFunc, ended func(Probed)) (*Monitor, context.CancelFunc) {
	t.Helper()
	mon := NewMonitor(m, p, ended, slog.New(slog.DiscardHandler))
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- mon.Run(ctx) }()
	return mon, func() {
		cancel()
		assert.NoError(t, <-done)
	}
}

func TestMonitorKeepsEvidenceFresh(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newModel(t)
		var mu sync.Mutex
		starts := map[string][]time.Time{}
		mon, stop := run(t, m, passing, func(p Probed) {
			mu.Lock()
			defer mu.Unlock()
			starts[p.Server] = append(starts[p.Server], p.Verdict.Started)
		})
		defer stop()
		<-mon.FirstRound()
		time.Sleep(10*time.Second + time.Millisecond)
		synctest.Wait()
		assert.True(t, tierOf(t, m, "heavy").Admit)
		mu.Lock()
		defer mu.Unlock()
		for name, times := range starts {
			require.Len(t, times, 11, name)
			for n := 1; n < len(times); n++ {
				assert.Equal(t, time.Second, times[n].Sub(times[n-1]), "%s, probe %d", name, n)
			}
		}
	})
}

// Control: with `age > s.maxAge` taken out of the fence's judge, the stale yes
// stood for ever.
func TestG5_AWedgedMonitorLeavesNoStaleYes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newModel(t)
		release := make(chan struct{})
		var probes atomic.Int32
		wedged := func(context.Context, probe.Target) probe.Result {
			if probes.Add(1) > 4 { // the first round is answered
				<-release // deaf even to its own deadline
			}
			return probe.Result{Ready: true, Reason: "identity_passed"}
		}
		mon, stop := run(t, m, wedged, nil)
		defer stop()
		defer close(release)
		<-mon.FirstRound()
		assert.True(t, serverOf(t, m, "fast/f1").Admit)
		time.Sleep(5*time.Second + time.Millisecond)
		a := serverOf(t, m, "fast/f1")
		assert.False(guarantee.T(t), a.Admit)
		assert.Equal(t, fence.ReasonStale, a.Reason)
	})
}

// Control: with the probes of one tier run by one goroutine, the others were
// never probed.
func TestR009_AHungServerDelaysNoOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		specs := specs()
		specs[0].Servers[0].Target.MaxBody = 1 // marks the server that hangs
		m, err := New(specs, time.Now)
		require.NoError(t, err)
		release := make(chan struct{})
		mon, stop := run(t, m, func(ctx context.Context, target probe.Target) probe.Result {
			if target.MaxBody == 1 {
				<-release
			}
			return passing(ctx, target)
		}, nil)
		defer stop()
		defer close(release)
		time.Sleep(20 * time.Second)
		assert.False(guarantee.T(t), serverOf(t, m, "heavy/h1").Admit)
		for _, name := range []string{"heavy/h2", "heavy/h3", "fast/f1"} {
			assert.True(t, serverOf(t, m, name).Admit, name)
		}
		select {
		case <-mon.FirstRound():
			t.Error("the first round has not ended: a probe is still out")
		default:
		}
	})
}

func TestG1_AProbeHeldAcrossAnInvalidationIsDiscardedAndTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, err := New(specs()[1:], time.Now)
		require.NoError(t, err)
		entered, release := make(chan struct{}), make(chan struct{})
		told := make(chan Probed, 1)
		_, stop := run(t, m, func(ctx context.Context, target probe.Target) probe.Result {
			entered <- struct{}{}
			<-release
			return passing(ctx, target)
		}, func(p Probed) { told <- p })
		<-entered
		_, err = m.Invalidate(Target{Tier: "fast"})
		require.NoError(t, err)
		release <- struct{}{}
		p := <-told
		assert.Equal(guarantee.T(t), fence.ReasonInvalidated, p.Verdict.Reason)
		assert.Equal(t, "identity_passed", p.Observed)
		assert.False(guarantee.T(t), serverOf(t, m, "fast/f1").Admit)

		<-entered // the next one counts
		release <- struct{}{}
		assert.True(t, (<-told).Verdict.Ready)
		assert.True(t, serverOf(t, m, "fast/f1").Admit)
		stop()
	})
}

// Control: with suspended kept on the tier, its other servers were not probed
// either, and grew stale.
func TestSuspendedServersAreNotProbed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newModel(t)
		var suspended, others atomic.Int32
		mon, stop := run(t, m, passing, func(p Probed) {
			if p.Server == "heavy/h1" {
				suspended.Add(1)
			} else {
				others.Add(1)
			}
		})
		defer stop()
		<-mon.FirstRound()
		synctest.Wait()
		resume := mon.Suspend([]string{"heavy/h1", "none/such"})
		time.Sleep(3*time.Second + time.Millisecond)
		assert.EqualValues(t, 1, suspended.Load(), "the first round only")
		assert.EqualValues(t, 12, others.Load(), "the rest of its tier goes on")
		resume()
		resume() // once is enough, twice does no harm
		time.Sleep(time.Second)
		assert.EqualValues(t, 2, suspended.Load())
	})
}

// Control: with the check of ctx.Err taken out of probe, the last verdict of a
// healthy server was "canceled", and a restart took it out of rotation.
func TestG9_ProbesThatTheEndCutsShortSayNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newModel(t)
		mon, stop := run(t, m, func(ctx context.Context, target probe.Target) probe.Result {
			select {
			case <-ctx.Done():
				return probe.Result{Reason: "health_transport_canceled"}
			case <-time.After(100 * time.Millisecond):
				return passing(ctx, target)
			}
		}, nil)
		<-mon.FirstRound()
		time.Sleep(950 * time.Millisecond) // the second round is out
		synctest.Wait()
		require.NotZero(t, m.fence.Outstanding("fast/f1"))
		stop()
		assert.True(guarantee.T(t), serverOf(t, m, "fast/f1").Admit)
		assert.Zero(t, m.fence.Outstanding("fast/f1"))
	})
}

func TestAPanickingProberIsNotReadyAndGoesOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newModel(t)
		var broken atomic.Bool
		broken.Store(true)
		mon, stop := run(t, m, func(ctx context.Context, target probe.Target) probe.Result {
			if broken.Load() {
				panic("bug in a prober")
			}
			return passing(ctx, target)
		}, nil)
		defer stop()
		<-mon.FirstRound()
		assert.Equal(t, "probe_failed", serverOf(t, m, "fast/f1").Reason)
		broken.Store(false)
		time.Sleep(time.Second)
		synctest.Wait()
		assert.True(t, serverOf(t, m, "fast/f1").Admit)
	})
}

func TestShortenNeverLengthens(t *testing.T) {
	assert.Equal(t, time.Second, shorten(time.Second, 0.1, 0))
	assert.Equal(t, 950*time.Millisecond, shorten(time.Second, 0.1, 0.5))
	assert.Equal(t, time.Second, shorten(time.Second, 0, 0.99))
}

func TestMissedProbesAreNotMadeUpFor(t *testing.T) {
	t0 := time.Unix(1_800_000_000, 0)
	assert.Equal(t, t0.Add(time.Second), nextAfter(t0, t0.Add(time.Millisecond), time.Second))
	late := t0.Add(5 * time.Second)
	assert.Equal(t, late, nextAfter(t0, late, time.Second))
}

func TestWhatRepeatsIsSaidOnceAMinute(t *testing.T) {
	var r repeated
	now := time.Now()
	more, say := r.say(now)
	assert.True(t, say)
	assert.Zero(t, more)
	for range 7 {
		_, say = r.say(now.Add(sayEvery - 1))
		assert.False(t, say)
	}
	more, say = r.say(now.Add(sayEvery))
	assert.True(t, say)
	assert.Equal(t, 7, more)
}
