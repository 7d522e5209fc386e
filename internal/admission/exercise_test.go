package admission

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"tier-agent/internal/fence"
	"tier-agent/internal/probe"
	"tier-agent/internal/runtimeapi"
	"tier-agent/internal/tier"
	"tier-agent/test/guarantee"
)

// exercised is a lab whose tier llm is exercised, by nobody but a readmit: no
// monitor runs.
func exercised(t testing.TB, timeout time.Duration, change ...func(*Options, *runtimeapi.Options)) *lab {
	t.Helper()
	return newLabWith(t, &tier.Exercise{Interval: time.Hour, MaxAge: 4 * time.Hour, Timeout: timeout}, 2, change...)
}

var empty = probe.Result{Reason: probe.ExerciseEmpty}

// Control: with the exercises taken out of run.probe, the readmit was done in the
// refused cases as well, and put back when HAProxy never came up.
func TestG6_ReadmitRunsTheExerciseAndRequiresIt(t *testing.T) {
	l := exercised(t, time.Minute, func(o *Options, _ *runtimeapi.Options) { o.Confirm = 5 * time.Second })
	l.quiesced(t, llm)
	before := l.generation(t, llm)
	l.prober.set("exercise llm/gpu2", func(context.Context) probe.Result {
		assert.NotEqual(t, before, l.generation(t, llm), "invalidated before it is exercised")
		return empty
	})
	r := l.readmit(t, llm)
	assert.Equal(t, Refused, r.Outcome)
	assert.Equal(t, CodeNotReady, r.Code)
	assert.Equal(t, "llm stays quiesced: 1 of 2 servers are ready (llm/gpu2: exercise_empty)", r.Message)
	assert.Equal(t, "identity_passed", r.Evidence[0].Reason)
	assert.Empty(guarantee.T(t), l.journal.with("set server"), "HAProxy is not touched")
	assert.True(guarantee.T(t), l.closed(t, llm))

	l.prober.set("exercise llm/gpu2", nil)
	l.prober.says("llm/gpu1", notReady)
	r = l.readmit(t, llm)
	assert.Equal(t, "llm stays quiesced: 1 of 2 servers are ready (llm/gpu1: health_http_503)", r.Message)

	l.prober.set("llm/gpu1", nil)
	l.journal.clear()
	r = l.readmit(t, llm)
	require.Equal(t, Done, r.Outcome, r.Message)
	assert.True(t, l.admits("llm/gpu1"))
	assert.Len(t, l.journal.with("exercise llm/gpu1"), 1)
	order := l.journal.with("exercise ", "probe ")
	require.Len(t, order, 4)
	assert.ElementsMatch(t, []string{"exercise llm/gpu1", "exercise llm/gpu2"}, order[:2])

	l.quiesced(t, gpu1)
	l.prober.says("exercise llm/gpu1", empty)
	assert.Equal(guarantee.T(t), CodeNotReady, l.readmit(t, gpu1).Code)
	l.quiesced(t, chat)
	require.Equal(t, Done, l.readmit(t, chat).Outcome)
	assert.Empty(t, l.journal.with("exercise chat"), "no other tier has one")
}

// The server's own evidence is of the second generation, that of the exercise of
// the first.
//
// Control: with the generations compared no more in alsoExercised, HAProxy was
// opened, and the tier stood open until nothing came up.
func TestG1_ReadmitJoinsNoTwoGenerations(t *testing.T) {
	for name, target := range map[string]tier.Target{"tier": llm, "server": gpu2, "everything": {}} {
		t.Run(name, func(t *testing.T) {
			l := exercised(t, time.Minute, briefly)
			l.quiesced(t, llm)
			var done bool
			l.prober.set("exercise llm/gpu1", func(context.Context) probe.Result {
				soon(t, "that of gpu2 counts", func() bool { return len(l.journal.with("exercise llm/gpu2")) == 1 && l.monitorIdle("llm/gpu2") })
				done = l.Invalidate(target).Outcome == Done
				return probe.Result{Ready: true, Reason: probe.ExercisePassed}
			})
			r := l.readmit(t, llm)
			require.True(t, done)
			assert.Equal(t, Refused, r.Outcome)
			assert.Equal(t, fence.ReasonInvalidated, r.Code)
			assert.Contains(t, r.Message, "llm/gpu2: probe_invalidated")
			assert.Empty(guarantee.T(t), l.journal.with("set server"))
			assert.True(guarantee.T(t), l.closed(t, llm))
		})
	}
}

// monitorIdle reports whether no probe of the server is out.
func (l *lab) monitorIdle(name string) bool {
	select {
	case <-l.monitor.WhenIdle(name):
		return true
	default:
		return false
	}
}

// An exercise takes its time, and one is often out. It is waited for, but not
// beyond the time that it may take.
//
// Control: with exerciseTimeout taken out of verify, the first readmit was refused.
func TestReadmitWaitsForAnOldExercise(t *testing.T) {
	l := exercised(t, time.Minute, func(o *Options, _ *runtimeapi.Options) { o.Settle = time.Nanosecond })
	entered, release := l.prober.hold("exercise llm/gpu2")
	old := inBackground(func() fence.Verdict { return l.monitor.ExerciseNow(t.Context(), "llm/gpu2") })
	<-entered
	l.quiesced(t, llm)
	before := l.generation(t, llm)
	readmit := inBackground(func() Result { return l.readmit(t, llm) })
	soon(t, "the readmit invalidates", func() bool { return l.generation(t, llm) != before })
	l.prober.set("exercise llm/gpu2", nil)
	release <- probe.Result{Ready: true, Reason: probe.ExercisePassed}
	assert.Equal(guarantee.T(t), fence.ReasonInvalidated, (<-old).Reason)
	r := <-readmit
	assert.Equal(t, Done, r.Outcome, r.Message)

	l = exercised(t, time.Nanosecond, func(o *Options, _ *runtimeapi.Options) { o.Settle = time.Nanosecond })
	entered, release = l.prober.hold("exercise llm/gpu2")
	old = inBackground(func() fence.Verdict { return l.monitor.ExerciseNow(t.Context(), "llm/gpu2") })
	<-entered
	l.quiesced(t, llm)
	assert.Equal(guarantee.T(t), CodePending, l.readmit(t, llm).Code)
	release <- empty
	<-old
}

// A quiesce, and the end of tier-agent, do not wait for a completion.
func TestAQuiesceEndsAReadmitsExercise(t *testing.T) {
	l := exercised(t, time.Hour)
	l.quiesced(t, llm)
	entered, _ := l.prober.hold("exercise llm/gpu2")
	readmit := inBackground(func() Result { return l.readmit(t, llm) })
	<-entered
	q := l.Quiesce(t.Context(), QuiesceRequest{Target: llm, Reason: "no", Who: "alice", Force: true})
	assert.Equal(t, Done, q.Outcome, q.Message)
	assert.Equal(t, CodeSuperseded, (<-readmit).Code)
	assert.True(guarantee.T(t), l.closed(t, llm))
}
