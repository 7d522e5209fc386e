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

// exercised is fast with an exercise once a minute.
func exercised(change ...func(*Spec)) []Spec {
	all := specs()[1:]
	all[0].Exercise = &Exercise{Interval: time.Minute, MaxAge: 130 * time.Second, Timeout: 10 * time.Second, Subject: "chat"}
	for _, c := range change {
		c(&all[0])
	}
	return all
}

// engine answers the two kinds of probe by itself.
type engine struct {
	down, unloaded atomic.Bool
	hang           atomic.Pointer[chan struct{}] // exercises wait for it
	asked          atomic.Int32                  // exercises
	out, most      atomic.Int32                  // exercises at once
}

func (e *engine) Probe(context.Context, probe.Target) probe.Result {
	if e.down.Load() {
		return probe.Result{Reason: "health_transport_refused"}
	}
	return probe.Result{Ready: true, Reason: probe.IdentityPassed, Metadata: map[string]string{"a": "b"}}
}

func (e *engine) Exercise(ctx context.Context, _ probe.Target) probe.Result {
	e.asked.Add(1)
	e.most.Store(max(e.most.Load(), e.out.Add(1)))
	defer e.out.Add(-1)
	if wait := e.hang.Load(); wait != nil {
		<-*wait
	}
	switch {
	case e.down.Load():
		return probe.Result{Reason: "exercise_transport_refused"}
	case e.unloaded.Load():
		return probe.Result{Reason: probe.ExerciseEmpty}
	}
	return probe.Result{Ready: true, Reason: probe.ExercisePassed}
}

// hold makes exercises wait until the returned function is called.
func (e *engine) hold() (release func()) {
	wait := make(chan struct{})
	e.hang.Store(&wait)
	return sync.OnceFunc(func() { e.hang.Store(nil); close(wait) })
}

// bubble runs f with a monitor of exercised servers, after its first round.
func bubble(t *testing.T, f func(t *testing.T, m *Model, mon *Monitor, e *engine, l *heard), change ...func(*Spec)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		m, err := New(exercised(change...), time.Now)
		require.NoError(t, err)
		var e engine
		var l heard
		mon := NewMonitor(m, &e, l.told, slog.New(slog.DiscardHandler))
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- mon.Run(ctx) }()
		defer func() { cancel(); assert.NoError(t, <-ended) }()
		<-mon.FirstRound()
		synctest.Wait()
		f(t, m, mon, &e, &l)
	})
}

// pass lets time go by, and everything happen that belongs to it.
func pass(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

func TestAServerIsExercisedAtItsOwnInterval(t *testing.T) {
	bubble(t, func(t *testing.T, m *Model, _ *Monitor, e *engine, l *heard) {
		require.EqualValues(t, 1, e.asked.Load(), "the first is part of the first round")
		a := serverOf(t, m, "fast/f1")
		assert.True(t, a.Admit)
		assert.Equal(t, probe.IdentityPassed, a.Reason)
		pass(5*time.Minute + time.Millisecond)
		assert.EqualValues(t, 6, e.asked.Load())
		assert.EqualValues(guarantee.T(t), 1, e.most.Load())
		a = serverOf(t, m, "fast/f1")
		assert.True(t, a.Admit)
		assert.Less(t, a.Age, time.Second, "the age is that of the probe")
		var starts []time.Time
		for _, p := range l.since(0) {
			if p.Exercise {
				assert.Equal(t, "fast/f1", p.Server)
				starts = append(starts, p.Verdict.Started)
			}
		}
		require.Len(t, starts, 6)
		for n := range starts[1:] {
			assert.Equal(t, time.Minute, starts[n+1].Sub(starts[n]))
		}
	})
}

// Control: with Together's second verdict left out of evidence, the server was
// admitted with an exercise that had failed, and with none.
func TestAServerIsReadyWhereBothKindsAre(t *testing.T) {
	bubble(t, func(t *testing.T, m *Model, _ *Monitor, e *engine, _ *heard) {
		e.unloaded.Store(true)
		pass(time.Minute)
		a := serverOf(t, m, "fast/f1")
		assert.False(t, a.Ready)
		assert.False(guarantee.T(t), a.Admit)
		assert.Equal(t, probe.ExerciseEmpty, a.Reason)
		assert.Equal(t, StateDegraded, a.State)
		gen, err := m.Generation(Target{Tier: "fast", Server: "fast/f1"})
		require.NoError(t, err)
		assert.Equal(t, gen, a.Generation)
		assert.False(guarantee.T(t), tierOf(t, m, "fast").Admit)
		status := m.Status()[0].Servers[0]
		assert.Equal(t, probe.ExerciseEmpty, status.Evidence)
		assert.Nil(t, status.Metadata)

		e.down.Store(true)
		pass(time.Second)
		assert.Equal(t, "health_transport_refused", serverOf(t, m, "fast/f1").Reason, "its own reason comes first")
		e.down.Store(false)
		e.unloaded.Store(false)
		pass(time.Second)
		assert.True(t, serverOf(t, m, "fast/f1").Admit, "an engine that comes back is exercised at once")
	})
}

// An exercise that hangs is stale evidence in the end, and never two at once.
//
// Control: with MaxAge of the exercise's member an hour, the stale yes stood.
func TestG5_AnExerciseThatHangsLeavesNoStaleYes(t *testing.T) {
	bubble(t, func(t *testing.T, m *Model, _ *Monitor, e *engine, _ *heard) {
		release := e.hold()
		defer release()
		pass(130 * time.Second)
		require.True(t, serverOf(t, m, "fast/f1").Admit)
		pass(time.Second)
		a := serverOf(t, m, "fast/f1")
		assert.False(guarantee.T(t), a.Admit)
		assert.Equal(t, fence.ReasonStale, a.Reason)
		assert.Equal(t, StateStale, a.State)
		pass(5 * time.Minute)
		assert.EqualValues(guarantee.T(t), 1, e.most.Load(), "G3")
		assert.EqualValues(t, 2, e.asked.Load())
		release()
		pass(time.Second)
		assert.True(t, serverOf(t, m, "fast/f1").Admit)
	})
}

// Control: without hasten, the server was out for the rest of the minute.
func TestG1_AnInvalidationVoidsBothAndIsMadeUpForAtOnce(t *testing.T) {
	for name, target := range map[string]Target{"server": {Tier: "fast", Server: "fast/f1"}, "tier": {Tier: "fast"}, "everything": {}} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, m *Model, _ *Monitor, e *engine, _ *heard) {
				pass(time.Minute - time.Second/2)
				release := e.hold()
				defer release()
				pass(time.Second)
				require.True(t, serverOf(t, m, "fast/f1").Admit)
				_, err := m.Invalidate(target) // while an exercise is out
				require.NoError(t, err)
				assert.Equal(guarantee.T(t), fence.ReasonPending, serverOf(t, m, "fast/f1").Reason)
				pass(10 * time.Second)
				a := serverOf(t, m, "fast/f1")
				assert.Equal(guarantee.T(t), fence.ReasonPending, a.Reason, "its own evidence is back, that of the exercise is not")
				assert.EqualValues(t, 2, e.asked.Load())
				release()
				synctest.Wait()
				assert.True(t, serverOf(t, m, "fast/f1").Admit)
				assert.EqualValues(t, 3, e.asked.Load(), "the one that was out counts for nothing")
				pass(30 * time.Second)
				assert.EqualValues(t, 3, e.asked.Load(), "one is enough")
			})
		})
	}
}

// Control: with check not asking whether the server is suspended where it is an
// exercise, it was exercised every second.
func TestSuspendCoversTheExercise(t *testing.T) {
	bubble(t, func(t *testing.T, m *Model, mon *Monitor, e *engine, _ *heard) {
		resume := mon.Suspend([]string{"fast/f1"})
		_, err := m.Invalidate(Target{})
		require.NoError(t, err)
		pass(3 * time.Minute)
		assert.EqualValues(t, 1, e.asked.Load())
		assert.True(t, mon.ExerciseNow(t.Context(), "fast/f1").Ready)
		assert.True(t, mon.ProbeNow(t.Context(), "fast/f1").Ready)
		assert.True(t, serverOf(t, m, "fast/f1").Admit)
		resume()
		pass(3 * time.Minute)
		assert.EqualValues(t, 5, e.asked.Load())
	})
}

// The engine loads for 40 s and never says so.
func TestAnEngineThatLoadsIsInitializing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, err := New(exercised(func(s *Spec) { s.StartWindow = 2 * time.Minute }), time.Now)
		require.NoError(t, err)
		var e engine
		e.unloaded.Store(true)
		mon := NewMonitor(m, &e, nil, slog.New(slog.DiscardHandler))
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- mon.Run(ctx) }()
		defer func() { cancel(); assert.NoError(t, <-ended) }()
		pass(40 * time.Second)
		assert.Equal(t, StateInitializing, serverOf(t, m, "fast/f1").State)
		e.unloaded.Store(false)
		pass(30 * time.Second)
		assert.Equal(t, StateReady, serverOf(t, m, "fast/f1").State)
		e.unloaded.Store(true)
		pass(time.Minute)
		assert.Equal(t, StateDegraded, serverOf(t, m, "fast/f1").State, "it was ready once")
	})
}

// Control: with exercises always alike in probedAlike, no change of one was
// followed before its interval was over.
func TestFollowTakesExercisesOnAndOff(t *testing.T) {
	bubble(t, func(t *testing.T, m *Model, mon *Monitor, e *engine, _ *heard) {
		own := m.fence.Current("fast/f1")
		follow := func(change func(*Spec)) {
			require.NoError(t, m.Replace(exercised(change)))
			<-mon.Follow()
			synctest.Wait()
		}
		follow(func(s *Spec) { s.Exercise.Subject = "another" })
		assert.EqualValues(t, 2, e.asked.Load())
		assert.True(t, serverOf(t, m, "fast/f1").Admit)
		assert.Equal(t, own.Issue, m.fence.Current("fast/f1").Issue, "its own evidence stays")
		follow(func(s *Spec) { s.Exercise.Interval = 20 * time.Second })
		assert.EqualValues(t, 3, e.asked.Load())
		pass(time.Minute)
		assert.EqualValues(t, 6, e.asked.Load())

		e.unloaded.Store(true)
		pass(20 * time.Second)
		require.False(t, serverOf(t, m, "fast/f1").Admit)
		follow(func(s *Spec) { s.Exercise = nil })
		assert.True(t, serverOf(t, m, "fast/f1").Admit)
		assert.Equal(t, fence.ReasonUnknown, mon.ExerciseNow(t.Context(), "fast/f1").Reason)
		asked := e.asked.Load()
		pass(5 * time.Minute)
		assert.Equal(t, asked, e.asked.Load())

		follow(func(*Spec) {})
		assert.Equal(t, asked+1, e.asked.Load())
		assert.False(guarantee.T(t), serverOf(t, m, "fast/f1").Admit)
		e.unloaded.Store(false)
		pass(time.Minute)
		assert.True(t, serverOf(t, m, "fast/f1").Admit)
	})
}

// Control: with the presence of an exercise left out of probedAlike, the watcher
// from before knew of none to hasten.
func TestAWatcherLearnsOfANewExercise(t *testing.T) {
	bubble(t, func(t *testing.T, m *Model, mon *Monitor, e *engine, _ *heard) {
		require.Zero(t, e.asked.Load())
		require.True(t, serverOf(t, m, "fast/f1").Admit)
		require.NoError(t, m.Replace(exercised()))
		assert.False(guarantee.T(t), serverOf(t, m, "fast/f1").Admit)
		<-mon.Follow()
		assert.True(t, serverOf(t, m, "fast/f1").Admit)
		_, err := m.Invalidate(Target{})
		require.NoError(t, err)
		pass(time.Second)
		assert.True(t, serverOf(t, m, "fast/f1").Admit)
	}, func(s *Spec) { s.Exercise = nil })
}
