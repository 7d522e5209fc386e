package admission

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"tier-agent/internal/runtimeapi"
	"tier-agent/test/guarantee"
)

// queueing has a request queue on gpu1 of hap2, a 3.2, which may let it loose.
func queueing(t *testing.T, change ...func(*Options, *runtimeapi.Options)) *lab {
	t.Helper()
	l := newLab(t, change...)
	for _, name := range []string{"llm/gpu1", "llm/gpu2"} {
		require.True(t, l.monitor.ProbeNow(t.Context(), name).Ready)
	}
	l.hap2.with(func() { l.hap2.queue["llm/gpu1"], l.hap2.maxconn["llm/gpu1"] = 1, 1 })
	return l
}

func patient(o *Options, _ *runtimeapi.Options)   { o.Queue = time.Minute }
func impatient(o *Options, _ *runtimeapi.Options) { o.Queue = time.Nanosecond }

// looked returns once a look at hap2's queues that began after the call is over,
// and the next one has begun.
func (l *lab) looked(t *testing.T) {
	t.Helper()
	looks := make(chan struct{})
	done := make(chan struct{})
	defer close(done)
	l.hap2.with(func() {
		l.hap2.arrived = func(line string) {
			if strings.Contains(line, "show stat") {
				select {
				case looks <- struct{}{}:
				case <-done:
				}
			}
		}
	})
	for range 2 {
		select {
		case <-looks:
		case <-time.After(30 * time.Second):
			t.Fatal("nobody looks at the queues")
		}
	}
	l.hap2.with(func() { l.hap2.arrived = func(string) {} })
}

// pausedNow asserts that no request is let in, and that HAProxy's checks, of servers
// and of the whole tier, hear what they have heard before.
func (l *lab) pausedNow(t *testing.T) {
	t.Helper()
	one, _ := l.model.Server([]byte("llm/gpu1"))
	assert.Equal(guarantee.T(t), []bool{false, true, true}, []bool{one.Admit, one.Quiesced, one.Up})
	whole, _ := l.model.Tier([]byte("llm"))
	assert.Equal(guarantee.T(t), []bool{false, true, true}, []bool{whole.Admit, whole.Quiesced, whole.Up})
	assert.True(guarantee.T(t), l.closed(t, llm))
}

// Control: with the look moved above shut in Quiesce, the tier admitted while it
// waited for the queue; with Close for Pause in shut, nothing waited for it.
func TestQuiesceShutsBeforeItWaitsForAQueueAndIsDownAfter(t *testing.T) {
	l := queueing(t, patient)
	before := l.generation(t, llm)
	ended := inBackground(func() Result { return l.quiesce(t, llm, "swap") })
	l.looked(t)
	l.pausedNow(t)
	assert.Equal(t, before, l.generation(t, llm), "the evidence is what the checks go by")
	assert.Empty(t, l.journal.with("set server"))
	assert.Empty(t, l.onDisk(t))
	for _, r := range []Result{l.readmit(t, llm), l.Drain(t.Context(), DrainRequest{Target: llm, Timeout: time.Minute})} {
		assert.Equal(t, CodeBusy, r.Code)
		assert.True(t, r.Quiesced)
		assert.Equal(t, "swap", r.Closure.Reason)
	}
	l.hap2.with(func() {
		l.hap2.queue["llm/gpu1"] = 0
		l.hap2.arrived = func(line string) {
			if one, _ := l.model.Server([]byte("llm/gpu1")); strings.Contains(line, "set server") {
				assert.False(t, one.Up, "at %q", line)
			}
		}
	})
	r := <-ended
	assert.Equal(t, Done, r.Outcome, r.Message)
	whole, _ := l.model.Tier([]byte("llm"))
	assert.False(t, whole.Up)
	assert.Equal(guarantee.T(t), bothDrained, l.states("llm/gpu1"))
	assert.Equal(t, Done, l.readmit(t, llm).Outcome)
}

// Control: with Release taken out of queues, and the deferred one out of Quiesce,
// the tier stayed closed, and nothing was left that would have opened it.
func TestQuiesceThatWouldLetAQueueLooseOpensAgain(t *testing.T) {
	l := queueing(t, impatient)
	before := l.generation(t, llm)
	r := l.quiesce(t, llm, "swap")
	assert.Equal(t, Refused, r.Outcome)
	assert.Equal(t, CodeQueue, r.Code)
	assert.Contains(t, r.Message, "llm is open again, as it was found: draining it may release")
	assert.Contains(t, r.Message, "(llm/gpu1 has 0 running and 1 queued on haproxy hap2, maxconn 1)")
	assert.False(t, r.Quiesced)
	assert.Nil(t, r.Closure)
	assert.True(t, l.admits("llm/gpu1"))
	assert.Equal(t, before, l.generation(t, llm))
	assert.Empty(t, l.journal.with("set server"))
	assert.Empty(t, l.onDisk(t))

	r = l.Quiesce(t.Context(), QuiesceRequest{Target: llm, Reason: "swap", AcceptQueueRelease: true})
	assert.Equal(t, Done, r.Outcome, r.Message)
	assert.Equal(t, []string{"hap2 show stat llm 6 -1"}, l.journal.with("hap2 show stat"), "not looked at where it is accepted")
	assert.Equal(t, Done, l.quiesce(t, llm, "again").Outcome, "what is closed has nothing to let loose any more")
	assert.Equal(t, "swap", l.intentOf(t, llm).Reason)
}

// One operator waits for a queue when another one takes it into account.
//
// Control: with Settled taken out of queues, the first one waited on.
func TestAQuiesceDoesNotWaitForAQueueThatAnotherHasAccepted(t *testing.T) {
	l := queueing(t, patient)
	first := inBackground(func() Result { return l.quiesce(t, llm, "swap") })
	l.looked(t)
	r := l.Quiesce(t.Context(), QuiesceRequest{Target: llm, Reason: "other", Who: "bob", AcceptQueueRelease: true})
	assert.Equal(t, Done, r.Outcome, r.Message)
	assert.Contains(t, r.Message, `already, by alice for "swap"`)
	r = <-first
	assert.Equal(t, Done, r.Outcome, r.Message)
	assert.True(guarantee.T(t), l.closed(t, llm))
}

// Of two that wait for the same queue, the one that gives up opens nothing that
// the other one holds.
//
// Control: with release storing nil whoever else pauses the gate, the tier admitted.
func TestAQuiesceThatIsRefusedLeavesWhatAnotherHolds(t *testing.T) {
	l := queueing(t, patient)
	waits := inBackground(func() Result {
		return l.Quiesce(t.Context(), QuiesceRequest{Target: llm, Reason: "other", Who: "bob"})
	})
	l.looked(t)
	l.o.Queue = time.Nanosecond // the one that waits has read it
	r := l.quiesce(t, llm, "swap")
	assert.Equal(t, CodeQueue, r.Code)
	assert.Contains(t, r.Message, "llm is left to another quiesce of it, by bob: draining")
	assert.True(t, r.Quiesced)
	l.pausedNow(t)
	l.hap2.with(func() { l.hap2.queue["llm/gpu1"] = 0 })
	r = <-waits
	assert.Equal(t, Done, r.Outcome, r.Message)
	assert.Equal(t, "llm is quiesced and drained in HAProxy", r.Message)
}

// Control: with what was shown last left out of queued, a look that failed counted
// as an empty queue, and the server was drained.
func TestAQueueThatCannotBeReadAnyMoreIsStillThere(t *testing.T) {
	l := queueing(t, patient)
	ended := inBackground(func() Result { return l.quiesce(t, llm, "swap") })
	l.looked(t)
	l.hap2.fail(fault{action: cut, on: "show stat", times: 3})
	l.looked(t)
	l.looked(t)
	l.pausedNow(t)
	assert.Empty(t, l.journal.with("set server"))
	l.hap2.with(func() { l.hap2.queue["llm/gpu1"] = 0 })
	assert.Equal(t, Done, (<-ended).Outcome)
}

// Control: with the pause taken out of the guard's count, by Up in place of Admit in
// tooFew, the second of two servers went the same way, and the tier stood empty.
func TestAQueueOfOneServerTouchesNoOther(t *testing.T) {
	l := queueing(t, patient)
	ended := inBackground(func() Result { return l.quiesce(t, gpu1, "disk") })
	l.looked(t)
	assert.False(guarantee.T(t), l.admits("llm/gpu1"))
	assert.True(t, l.admits("llm/gpu2"))
	whole, _ := l.model.Tier([]byte("llm"))
	assert.Equal(t, []bool{true, false, true}, []bool{whole.Admit, whole.Quiesced, whole.Up})
	assert.Equal(t, CodeMinReady, l.quiesce(t, gpu2, "disk").Code, "what is paused counts as gone")
	l.hap2.with(func() { l.hap2.queue["llm/gpu1"] = 0 })
	assert.Equal(t, Done, (<-ended).Outcome)
}
