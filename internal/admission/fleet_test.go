package admission

import (
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"tier-agent/internal/runtimeapi"
	"tier-agent/test/guarantee"
)

// Control: with back left out where everywhere failed in open, hap1 and hap3
// stayed open.
func TestReadmitClosesAgainTheTwoThatOpened(t *testing.T) {
	l := newLabOf(t, 3)
	l.quiesced(t, llm)
	l.hap2.fail(fault{action: refuse, on: "gpu2 state ready", text: "Permission denied"})
	r := l.readmit(t, llm)
	assert.Equal(t, Refused, r.Outcome, r.Message)
	assert.Equal(t, CodeHAProxy, r.Code)
	assert.Contains(t, r.Message, "haproxy hap2: ")
	for _, name := range []string{"hap1", "hap3"} {
		assert.Len(t, l.journal.with(name+" set server llm/gpu2 state ready"), 1, "it had opened")
	}
	l.drainedEverywhere(t, "llm/gpu1", "llm/gpu2")
	assert.True(guarantee.T(t), l.closed(t, llm))
	assert.Equal(t, Done, l.readmit(t, llm).Outcome)
}

// Control: with except left out of leaveOut, hap3 was waited for and the quiesce
// incomplete.
func TestWithoutAnInstanceThatIsGone(t *testing.T) {
	l := newLabOf(t, 3)
	l.watching(t)
	l.hap3.fail(fault{action: cut, times: -1})
	without := []string{"hap3"}
	r := l.Quiesce(t.Context(), QuiesceRequest{Target: llm, Reason: "swap", Who: "alice", Without: without})
	assert.Equal(t, Done, r.Outcome, r.Message)
	assert.Contains(t, r.Message, ", without hap3")
	assert.Equal(t, without, r.Without)
	assert.Equal(t, without, l.onDisk(t)[0].Without)
	assert.Equal(t, without, l.intentOf(t, llm).Without)

	r = l.drain(t, llm, nil)
	assert.Equal(t, Done, r.Outcome, r.Message)
	assert.Contains(t, r.Message, "of 2 HAProxies, without hap3")
	assert.Equal(t, CodeHAProxy, l.readmit(t, llm).Code, "to open past it has to be said, too")
	l.shut(t)
	l.journal.clear()
	r = l.Readmit(t.Context(), ReadmitRequest{Target: llm, Without: without})
	assert.Equal(t, Done, r.Outcome, r.Message)
	assert.Contains(t, r.Message, ", without hap3")
	assert.Empty(t, l.journal.with("hap3"))
	assert.Empty(t, l.onDisk(t))
}

// Control: with the check of names in the lane, as it once was, the readmit had
// been ended for a request that did nothing.
func TestWithoutTakesInstancesOfTheConfigurationOnlyAndLeavesOne(t *testing.T) {
	l := newLab(t)
	l.quiesced(t, llm)
	held := l.hap2.fail(fault{action: hold, on: "gpu1 state ready"})
	readmit := inBackground(func() Result { return l.readmit(t, llm) })
	<-held.met
	for _, names := range [][]string{{"hap9"}, {"hap1", "hap9"}, {""}, {"hap1", "hap2"}} {
		r := l.endingNothing(t, QuiesceRequest{Target: llm, Reason: "again", Without: names})
		assert.Equal(t, Refused, r.Outcome, "%v", names)
		assert.Equal(t, CodeInvalid, r.Code)
		assert.Contains(t, r.Message, "--without")
	}
	close(held.release)
	assert.Equal(t, Done, (<-readmit).Outcome, "nobody has ended it")
	r := l.Readmit(t.Context(), ReadmitRequest{Target: llm, Without: []string{"hap9"}})
	assert.Equal(t, CodeInvalid, r.Code)
}

// The instance was gone, and then taken out of the configuration.
//
// Control: with goWithout in Drain, as it once was, the drain was refused for a
// name that nobody had given it; without the look at what is left, it was done
// after three reads of nothing.
func TestDrainAfterTheInstanceHasLeftTheConfiguration(t *testing.T) {
	l := newLab(t)
	l.quiesced(t, llm)
	leave := func(names ...string) {
		r, _ := l.intents.store.Get(key(llm))
		r.Without = names
		_, err := l.intents.store.Put(r)
		require.NoError(t, err)
	}
	leave("hap9")
	assert.Equal(t, Done, l.drain(t, llm, nil).Outcome)
	leave("hap1", "hap2")
	r := l.drain(t, llm, nil)
	assert.Equal(guarantee.T(t), Refused, r.Outcome, r.Message)
	assert.Equal(t, CodeNoRuntimeAPI, r.Code)
}

// ready makes both of llm's servers serve.
func (l *lab) ready(t testing.TB) {
	t.Helper()
	for _, name := range []string{"llm/gpu1", "llm/gpu2"} {
		require.True(t, l.monitor.ProbeNow(t.Context(), name).Ready)
	}
}

// Control: with guard left out of check and shut, gpu2 was closed as the last one.
func TestTheLastServerIsNotQuiescedByItself(t *testing.T) {
	l := newLab(t)
	l.watching(t)
	l.ready(t)
	require.Equal(t, Done, l.quiesce(t, gpu1, "disk").Outcome)
	r := l.quiesce(t, gpu2, "disk")
	assert.Equal(t, Refused, r.Outcome)
	assert.Equal(t, CodeMinReady, r.Code)
	assert.Contains(t, r.Message, "0 servers of its tier would serve on haproxy hap1, and min_ready is 1")
	assert.False(t, l.closed(t, gpu2))
	assert.Empty(t, l.journal.with("gpu2 state"))
	assert.Len(t, l.onDisk(t), 1)
	assert.True(t, l.admits("llm/gpu2"), "its evidence stands")

	r = l.Quiesce(t.Context(), QuiesceRequest{Target: gpu2, Reason: "disk", Who: "bob", Force: true})
	assert.Equal(t, Done, r.Outcome, r.Message)
	assert.True(t, l.intentOf(t, gpu2).Forced)
	assert.True(t, l.onDisk(t)[1].Forced)
	assert.False(t, l.intentOf(t, gpu1).Forced)
	assert.Equal(t, Done, l.quiesce(t, gpu2, "again").Outcome, "what is closed may be closed again")
	assert.True(t, l.intentOf(t, gpu2).Forced, "it stays known")
}

func TestATiersOwnQuiesceNeedsNoForce(t *testing.T) {
	l := newLab(t)
	l.watching(t)
	l.ready(t)
	require.Equal(t, Done, l.quiesce(t, llm, "swap").Outcome)
	assert.False(t, l.intentOf(t, llm).Forced)
}

// Serving is counted on each HAProxy. gpu2 is drained on hap2 by an operator.
//
// Control: with the views left out of tooFew, gpu1 was closed where it was the
// last; with the look at the target's own state left out, it could not be closed
// where it served no more.
func TestMinReadyHoldsOnEveryHAProxy(t *testing.T) {
	l := newLab(t)
	l.ready(t)
	l.hap2.operator("llm/gpu2", "drain")
	w := l.watching(t)
	r := l.quiesce(t, gpu1, "disk")
	assert.Equal(t, CodeMinReady, r.Code, r.Message)
	assert.Contains(t, r.Message, "on haproxy hap2")

	r = l.Quiesce(t.Context(), QuiesceRequest{Target: gpu1, Reason: "disk", Without: []string{"hap2"}})
	assert.Equal(t, Done, r.Outcome, "where that one is gone it serves nobody: %s", r.Message)
	require.Equal(t, Done, l.readmit(t, gpu1).Outcome)
	l.ready(t)

	l.hap2.operator("llm/gpu1", "maint")
	w.Look(t.Context())
	assert.Equal(t, Done, l.quiesce(t, gpu1, "disk").Outcome, "on hap2 it serves no more, on hap1 another does")
}

func TestAServerThatDoesNotServeMayBeQuiesced(t *testing.T) {
	l := newLab(t)
	l.watching(t)
	require.True(t, l.monitor.ProbeNow(t.Context(), "llm/gpu2").Ready)
	assert.Equal(t, Done, l.quiesce(t, gpu1, "disk").Outcome, "it has no evidence")
	assert.Equal(t, CodeMinReady, l.quiesce(t, gpu2, "disk").Code)
}

// Where no HAProxy is configured the model alone is counted.
//
// Control: with the look at the set taken out of tooFew, the last server went.
func TestMinReadyHoldsWithoutAHAProxy(t *testing.T) {
	l := newLab(t)
	l.o.HAProxy = runtimeapi.NewSet()
	l.watching(t)
	l.ready(t)
	require.Equal(t, Done, l.quiesce(t, gpu1, "disk").Outcome)
	r := l.quiesce(t, gpu2, "disk")
	assert.Equal(t, CodeMinReady, r.Code)
	assert.Contains(t, r.Message, "would serve at all")
}

// gpu1's quiesce is stopped where it has counted all but its last server; gpu2's
// comes then.
//
// Control: with shutting not locked in shut, nothing was counted under it.
func TestOfTwoWhoTakeTheLastServersOneWins(t *testing.T) {
	l := newLab(t)
	l.watching(t)
	l.ready(t)
	counting, release := make(chan struct{}), make(chan struct{})
	var judged atomic.Int32
	lane := l.lane("llm")
	l.clock.stop(func() {
		if lane.shutting.TryLock() {
			lane.shutting.Unlock()
		} else if judged.Add(1) == 3 { // the target's own, and each of the tier's two
			close(counting)
			<-release
		}
	})
	one := inBackground(func() Result { return l.quiesce(t, gpu1, "disk") })
	select {
	case <-counting:
	case r := <-one:
		require.Fail(t, "it did not count and close in one step", r.Message)
	}
	other := inBackground(func() Result { return l.quiesce(t, gpu2, "disk") })
	close(release)
	first, second := <-one, <-other
	codes := map[string]int{first.Code: 1}
	codes[second.Code]++
	assert.Equal(t, map[string]int{CodeOK: 1, CodeMinReady: 1}, codes, "%s; %s", first.Message, second.Message)
	assert.NotEqual(t, l.closed(t, gpu1), l.closed(t, gpu2))
}

// Control: with check left out of do, the readmit was ended by a quiesce that was
// refused.
func TestAQuiesceThatIsRefusedEndsNoReadmit(t *testing.T) {
	l := newLab(t)
	l.watching(t)
	l.ready(t)
	l.quiesced(t, gpu1)
	held := l.hap2.fail(fault{action: hold, on: "gpu1 state ready"})
	readmit := inBackground(func() Result { return l.readmit(t, gpu1) })
	<-held.met
	assert.Equal(t, CodeMinReady, l.endingNothing(t, QuiesceRequest{Target: gpu2, Reason: "disk"}).Code)
	close(held.release)
	assert.Equal(t, Done, (<-readmit).Outcome)
}

// endingNothing asserts that a quiesce has ended without telling what runs to.
func (l *lab) endingNothing(t testing.TB, q QuiesceRequest) Result {
	t.Helper()
	told := l.whenTold(q.Target)
	ended := inBackground(func() Result { return l.Quiesce(t.Context(), q) })
	var r Result
	soon(t, "it is refused, or ends what runs", func() bool {
		select {
		case r = <-ended:
			return true
		default:
			return told.Load()
		}
	})
	require.False(t, told.Load(), "the readmit was ended")
	return r
}
