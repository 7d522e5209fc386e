package admission

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"tier-agent/internal/fence"
	"tier-agent/internal/runtimeapi"
	"tier-agent/internal/tier"
	"tier-agent/test/guarantee"
)

// inBackground runs a transition; the channel brings its result.
func inBackground[T any](run func() T) <-chan T {
	ended := make(chan T, 1)
	go func() { ended <- run() }()
	return ended
}

// Control: with against returning nil, the readmit opened what the drain was
// waiting for.
func TestReadmitAndDrainAreRefusedDuringADrain(t *testing.T) {
	l := newLab(t)
	l.quiesced(t, llm)
	before := l.generation(t, llm)
	r := l.drain(t, llm, each(func(read int, _ Progress) {
		if read > 1 {
			return
		}
		for _, r := range []Result{l.readmit(t, llm), l.readmit(t, gpu1), l.drain(t, llm, nil)} {
			assert.Equal(t, Refused, r.Outcome)
			assert.Equal(t, CodeBusy, r.Code)
			assert.Equal(t, "a drain of llm is running; nothing was changed", r.Message)
		}
		assert.True(guarantee.T(t), l.closed(t, llm))
		assert.Equal(t, before, l.generation(t, llm))
		assert.Empty(guarantee.T(t), l.journal.with("probe", "set server"))
	}))
	assert.Equal(t, Done, r.Outcome)
	assert.Equal(t, Done, l.readmit(t, llm).Outcome)
}

func TestQuiesceRunsBesideADrain(t *testing.T) {
	l := newLab(t)
	l.quiesced(t, gpu1)
	r := l.drain(t, gpu1, each(func(read int, _ Progress) {
		if read == 1 {
			assert.Equal(t, Done, l.quiesce(t, llm, "swap").Outcome)
			assert.Equal(guarantee.T(t), bothDrained, l.states("llm/gpu2"))
		}
	}))
	assert.Equal(t, Done, r.Outcome, "the drain goes on")
	assert.True(guarantee.T(t), l.closed(t, llm))
}

// A quiesce that began beside a drain outlives it. Until it has ended no readmit
// may begin: what it still sends would close servers behind an open gate.
//
// Control: with a quiesce beside a drain not kept in the lane, the readmit was
// done and gpu1 drained after it.
func TestReadmitIsRefusedWhileAQuiesceStillCloses(t *testing.T) {
	l := newLab(t)
	l.quiesced(t, llm)
	f := l.hap2.fail(fault{action: hold, on: "gpu1 state drain"})
	var quiesce <-chan Result
	ctx, cancel := context.WithCancel(t.Context())
	r := l.Drain(ctx, DrainRequest{Target: llm, Timeout: time.Minute, Progress: func(Progress) {
		l.hap2.operator("llm/gpu1", "ready")
		quiesce = inBackground(func() Result { return l.quiesce(t, llm, "again") })
		<-f.met
		cancel()
	}})
	require.Equal(t, CodeStopped, r.Code)
	r = l.readmit(t, llm)
	assert.Equal(t, CodeBusy, r.Code)
	assert.Equal(t, "a quiesce of llm is running; nothing was changed", r.Message)
	close(f.release)
	assert.Equal(t, Done, (<-quiesce).Outcome)
	l.shut(t)
	assert.Equal(t, Done, l.readmit(t, llm).Outcome)
}

// One server's quiesce waits for a HAProxy; the whole tier's is neither refused
// nor kept waiting by it.
//
// Control: with a quiesce refused while another runs, the tier stayed open.
func TestQuiesceIsNotHeldUpByAQuiesce(t *testing.T) {
	l := newLab(t)
	f := l.hap2.fail(fault{action: hold, on: "gpu1 state drain"})
	one := inBackground(func() Result { return l.quiesce(t, gpu1, "disk") })
	<-f.met
	r := l.quiesce(t, llm, "swap")
	assert.Equal(t, Done, r.Outcome, r.Message)
	l.shut(t)
	close(f.release)
	assert.Equal(t, Done, (<-one).Outcome)
	require.Equal(t, Done, l.readmit(t, llm).Outcome)
	assert.Equal(t, Done, l.readmit(t, gpu1).Outcome, "nobody else's drain was found")
}

// Wherever a readmit is when a quiesce comes: it ends, and the tier ends closed.
//
// Control: with the cancel taken out of enter, the readmit was never told; with
// the opening under ctx in open, it was cut off and its outcome unknown.
func TestG6_QuiesceEndsAReadmit(t *testing.T) {
	// Each stage makes the readmit stop somewhere; reached waits for that, and
	// goOn lets go what does not end with the readmit.
	type stage func(t *testing.T, l *lab) (reached, goOn func())
	atLine := func(on string) stage {
		return func(_ *testing.T, l *lab) (func(), func()) {
			f := l.hap2.fail(fault{action: hold, on: on})
			return func() { <-f.met }, func() { close(f.release) }
		}
	}
	for name, arrange := range map[string]stage{
		"while it looks for holds": atLine("show servers state"),
		"while it waits for an old probe": func(t *testing.T, l *lab) (func(), func()) {
			entered, release := l.prober.hold("llm/gpu1")
			old := make(chan fence.Verdict, 1)
			go func() { old <- l.monitor.ProbeNow(t.Context(), "llm/gpu1") }()
			<-entered
			before := l.generation(t, llm)
			reached := func() {
				soon(t, "the readmit invalidates", func() bool { return l.generation(t, llm) != before })
			}
			return reached, func() { release <- passed; <-old }
		},
		"while it probes": func(_ *testing.T, l *lab) (func(), func()) {
			entered, _ := l.prober.hold("llm/gpu1")
			return func() { <-entered }, func() {}
		},
		"while it opens HAProxy": atLine("gpu1 state ready"),
		"while it confirms": func(_ *testing.T, l *lab) (func(), func()) {
			open := make(chan struct{})
			once := sync.OnceFunc(func() { close(open) })
			l.hap2.with(func() {
				l.hap2.agent = func(name string) bool {
					if l.admits(name) {
						once()
					}
					return false
				}
			})
			return func() { <-open }, func() {}
		},
	} {
		t.Run(name, func(t *testing.T) {
			l := newLab(t)
			l.quiesced(t, llm)
			reached, goOn := arrange(t, l)
			readmit := inBackground(func() Result { return l.readmit(t, llm) })
			reached()
			told := l.whenTold(llm)
			quiesce := inBackground(func() Result {
				return l.Quiesce(t.Context(), QuiesceRequest{Target: llm, Reason: "again", Who: "carol"})
			})
			soon(t, "the readmit is told to end", func() bool { return told.Load() })
			goOn()
			r := <-readmit
			assert.Equal(t, Refused, r.Outcome, r.Message)
			assert.Equal(t, CodeSuperseded, r.Code, r.Message)
			assert.Contains(t, r.Message, "a quiesce came in between")
			q := <-quiesce
			assert.Equal(t, Done, q.Outcome)
			assert.Equal(t, "swap", q.Closure.Reason, "the first one stands")
			l.shut(t)
		})
	}
}

// whenTold becomes true when the transition that runs is told to end.
func (l *lab) whenTold(target tier.Target) *atomic.Bool {
	told := new(atomic.Bool)
	lane := l.lane(target.Tier)
	lane.mu.Lock()
	defer lane.mu.Unlock()
	running := lane.running[0]
	cancel := running.cancel
	running.cancel = func(cause error) { cancel(cause); told.Store(true) }
	return told
}

// A drain of one tier is held, in its wait and in a HAProxy that does not answer
// it, and the other tier goes through a whole turn meanwhile.
//
// Control: with one lane for all tiers, chat was refused as busy.
func TestADrainOfOneTierDelaysNothingOfAnother(t *testing.T) {
	l := newLab(t)
	l.quiesced(t, llm)
	turn := func() {
		assert.Equal(t, Done, l.quiesce(t, chat, "swap").Outcome)
		assert.Equal(t, Done, l.drain(t, chat, nil).Outcome)
		assert.Equal(t, Done, l.readmit(t, chat).Outcome)
	}
	f := l.hap1.fail(fault{action: hold, on: "show stat -1"})
	drain := inBackground(func() Result {
		return l.drain(t, llm, each(func(read int, _ Progress) {
			if read == 1 {
				turn()
			}
		}))
	})
	<-f.met
	turn()
	close(f.release)
	assert.Equal(t, Done, (<-drain).Outcome)
	l.shut(t)
	assert.Equal(t, bothReady, l.states("chat/a1"))
}

// Two operators, a drain and an invalidation at once. What is left behind is
// judged at the end: closed when it was closed last, and nobody's but ours.
func TestOperatorsAtOnceLeaveNothingHalfOpen(t *testing.T) {
	l := newLab(t, func(o *Options, _ *runtimeapi.Options) { o.Confirm = 5 * time.Second })
	var all sync.WaitGroup
	for _, target := range []tier.Target{llm, llm, gpu1} {
		all.Go(func() {
			for range 15 {
				q := l.quiesce(t, target, "swap")
				assert.Equal(t, Done, q.Outcome, q.Message)
				assert.True(guarantee.T(t), q.Quiesced)
				r := l.readmit(t, target)
				if r.Outcome != Done {
					assert.Contains(t, []string{
						CodeBusy, CodeSuperseded, CodeNotQuiesced, CodeTierQuiesced, CodeMoved, CodeNotConfirmed,
						fence.ReasonInvalidated, fence.ReasonSuperseded, CodeNotReady,
					}, r.Code, r.Message)
				}
			}
		})
	}
	all.Go(func() {
		for range 15 {
			l.Drain(t.Context(), DrainRequest{Target: llm, Timeout: 5 * time.Millisecond})
			l.Invalidate(llm)
		}
	})
	all.Wait()
	for _, target := range []tier.Target{gpu1, llm} {
		require.Equal(t, Done, l.quiesce(t, target, "last").Outcome)
	}
	// A readmit that was ended may have sent a command that HAProxy applies when it
	// comes to it, after the drain. That is for the reconciler to mend.
	l.watching(t)
	l.turn(t)
	l.shut(t)
	assert.True(guarantee.T(t), l.closed(t, gpu1))
	r := l.readmit(t, llm)
	assert.Equal(t, Done, r.Outcome, r.Message)
	r = l.readmit(t, gpu1)
	assert.Equal(t, Done, r.Outcome, r.Message)
	assert.Equal(t, bothReady, l.states("llm/gpu1"))
	assert.Empty(t, l.lane("llm").running)
}

// Each of two servers of one tier goes through a whole turn while the other is drained.
//
// Control: with overlaps always true, everything but the quiesce was refused as busy.
func TestDisjointTargetsOfATierRunSideBySide(t *testing.T) {
	l := newLab(t)
	l.quiesced(t, gpu1)
	turns := 0
	r := l.drain(t, gpu1, each(func(read int, _ Progress) {
		if read > 1 {
			return
		}
		q := l.Quiesce(t.Context(), QuiesceRequest{Target: gpu2, Reason: "swap", Who: "bob", Force: true})
		assert.Equal(t, Done, q.Outcome, q.Message)
		d := l.drain(t, gpu2, nil)
		assert.Equal(t, Done, d.Outcome, d.Message)
		assert.Equal(t, CodeBusy, l.drain(t, gpu1, nil).Code)
		assert.Equal(t, CodeBusy, l.drain(t, llm, nil).Code, "it has both servers")
		assert.Equal(t, bothDrained, l.states("llm/gpu2"))
		r := l.readmit(t, gpu2)
		assert.Equal(t, Done, r.Outcome, r.Message)
		assert.Equal(t, bothReady, l.states("llm/gpu2"))
		assert.True(t, l.closed(t, gpu1))
		turns++
	}))
	assert.Equal(t, Done, r.Outcome, r.Message)
	assert.Equal(t, 1, turns)
	assert.Equal(t, bothDrained, l.states("llm/gpu1"))
	assert.Empty(t, l.lane("llm").waiting)
}

// A readmit of gpu2 has its gate open, and HAProxy does not show the server up yet: it
// may be closed again. A quiesce of gpu1 does not count on it, and does not end it. One
// of the tier ends it.
//
// Controls: with opening always false, gpu1 was quiesced, and with gpu2 closed again the
// tier had nobody left; with overlaps always true, the quiesce of gpu1 ended the readmit.
func TestTheGuardCountsNoServerThatIsBeingReadmitted(t *testing.T) {
	l := newLab(t)
	l.ready(t)
	require.Equal(t, Done, l.quiesce(t, gpu2, "swap").Outcome)
	confirming := make(chan struct{})
	once := sync.OnceFunc(func() { close(confirming) })
	l.hap2.with(func() {
		l.hap2.agent = func(name string) bool {
			if name == "llm/gpu2" && l.admits(name) {
				once()
			}
			return false
		}
	})
	readmit := inBackground(func() Result { return l.readmit(t, gpu2) })
	<-confirming
	require.True(t, l.admits("llm/gpu2"))
	r := l.endingNothing(t, QuiesceRequest{Target: gpu1, Reason: "disk"})
	assert.Equal(t, CodeMinReady, r.Code, r.Message)
	assert.Equal(t, Done, l.quiesce(t, llm, "all").Outcome)
	assert.Equal(t, CodeSuperseded, (<-readmit).Code)
	l.shut(t)
}

// A rollback of gpu1's quiesce opens gpu1, though gpu2 was quiesced after it; not so where
// a later quiesce covers gpu1 itself.
//
// Control: with relied set for every quiesce of the tier, gpu1 stayed closed.
func TestAQuiesceOfAnotherServerDoesNotRelyOnARollback(t *testing.T) {
	l := newLab(t)
	held := l.hap2.fail(fault{action: hold, on: "gpu1 state drain"})
	l.hap1.fail(fault{action: refuse, on: "gpu1 state drain", text: "Permission denied"})
	first := inBackground(func() Result { return l.quiesceOrNot(t, gpu1) })
	<-held.met
	q := l.Quiesce(t.Context(), QuiesceRequest{Target: gpu2, Reason: "swap", Who: "bob", Force: true})
	require.Equal(t, Done, q.Outcome, q.Message)
	close(held.release)
	r := <-first
	assert.Equal(t, CodeRolledBack, r.Code, r.Message)
	assert.Equal(t, bothReady, l.states("llm/gpu1"))
	assert.Equal(t, bothDrained, l.states("llm/gpu2"))
}
