package admission

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"tier-agent/internal/runtimeapi"
	"tier-agent/test/guarantee"
)

// briefly is for what is never confirmed: a look or two, also on a busy machine.
func briefly(o *Options, _ *runtimeapi.Options) { o.Confirm = 500 * time.Millisecond }

// shut asserts that nothing of llm is open anywhere.
func (l *lab) shut(t testing.TB) {
	t.Helper()
	g := guarantee.T(t)
	assert.True(g, l.closed(t, llm))
	assert.Equal(g, bothDrained, l.states("llm/gpu1"))
	assert.Equal(g, bothDrained, l.states("llm/gpu2"))
	assert.False(g, l.admits("llm/gpu1"))
	assert.False(g, l.admits("llm/gpu2"))
}

// Control: with back left out where everywhere failed in open, hap1 stayed
// open; with the error of everywhere not looked at, the gate opened.
func TestReadmitClosesAgainWhenAHAProxyDoesNotOpen(t *testing.T) {
	for name, f := range map[string]fault{
		"refuses":          {action: refuse, text: "Permission denied"},
		"says yes, is not": {action: ignore},
	} {
		t.Run(name, func(t *testing.T) {
			l := newLab(t)
			l.quiesced(t, llm)
			f.on = "state ready"
			l.hap2.fail(f)
			r := l.readmit(t, llm)
			assert.Equal(t, Refused, r.Outcome, r.Message)
			assert.Equal(t, CodeHAProxy, r.Code)
			assert.Contains(t, r.Message, "llm is closed again: haproxy hap2: ")
			assert.True(t, r.Quiesced)
			assert.Equal(t, "swap", r.Closure.Reason)
			assert.Equal(t, "alice", r.Closure.Who)
			l.shut(t)
			assert.NotEmpty(t, l.journal.with("hap1 set server llm/gpu1 state ready"))
			assert.Empty(t, l.journal.with("hap2 set server llm/gpu2 state ready"), "no more is opened after a failure")
			assert.Empty(t, l.journal.with("show stat"))
			again := l.readmit(t, llm)
			assert.Equal(t, Done, again.Outcome, "what we closed again is ours: %s", again.Message)
		})
	}
}

// An opening whose outcome is unknown may be applied after everything else; a
// read that shows the server closed proves nothing.
//
// Control: with the look at ErrUncertain taken out of back, the result was a
// plain refusal, and then the server opened.
func TestReadmitTellsOfAnOpeningThatMayYetBeApplied(t *testing.T) {
	l := newLab(t, short)
	l.quiesced(t, llm)
	f := l.hap2.fail(fault{action: late, on: "gpu1 state ready"})
	r := l.readmit(t, llm)
	assert.Equal(t, Incomplete, r.Outcome, r.Message)
	assert.Equal(t, CodeHAProxy, r.Code)
	assert.Contains(t, r.Message, "an opening that was sent may yet be applied")
	assert.Contains(t, r.Message, "haproxy hap2: ")
	l.shut(t)
	close(f.release)
	<-f.acted
	require.Equal(t, "ready", l.hap2.state("llm/gpu1").String())
	assert.True(guarantee.T(t), l.closed(t, llm))
	assert.Equal(guarantee.T(t), "DOWN (agent)", l.hap2.status("llm/gpu1"), "the agent's answers hold it")
	assert.Equal(t, Done, l.quiesce(t, llm, "again").Outcome)
	l.shut(t)
}

func TestReadmitThatCannotCloseAgainSaysSo(t *testing.T) {
	l := newLab(t)
	l.quiesced(t, llm)
	l.hap1.fail(fault{action: cut, on: "state drain", times: -1})
	l.hap2.fail(fault{action: refuse, on: "state ready", text: "Permission denied"})
	r := l.readmit(t, llm)
	assert.Equal(t, Incomplete, r.Outcome)
	assert.Contains(t, r.Message, "closed again here, but not confirmed by every HAProxy (haproxy hap1: ")
	assert.True(guarantee.T(t), l.closed(t, llm))
	assert.False(guarantee.T(t), l.admits("llm/gpu1"))
}

// Control: with back left out where confirm failed in open, the tier stayed
// open.
func TestReadmitClosesAgainWhatNeverComesUp(t *testing.T) {
	l := newLab(t, briefly)
	l.quiesced(t, llm)
	l.hap2.with(func() { l.hap2.agent = func(name string) bool { return name != "llm/gpu2" && l.admits(name) } })
	r := l.readmit(t, llm)
	assert.Equal(t, Refused, r.Outcome)
	assert.Equal(t, CodeNotConfirmed, r.Code)
	assert.Contains(t, r.Message, "llm is closed again: after ")
	assert.Contains(t, r.Message, "haproxy hap2 shows llm/gpu2 as \"DOWN (agent)\"")
	l.shut(t)
}

func TestReadmitClosesAgainWhatCannotBeConfirmed(t *testing.T) {
	l := newLab(t, briefly)
	l.quiesced(t, llm)
	l.hap1.fail(fault{action: half, on: "show stat", times: -1})
	r := l.readmit(t, llm)
	assert.Equal(t, CodeNotConfirmed, r.Code)
	assert.Regexp(t, "haproxy hap1: at .*: incomplete answer", r.Message)
	l.shut(t)
}

// HAProxy has the servers up, and at that moment gpu1 is no longer ready.
//
// Control: with the last loop taken out of open, the readmit was done.
func TestReadmitClosesAgainWhenTheEvidenceIsLost(t *testing.T) {
	l := newLab(t)
	l.quiesced(t, llm)
	l.hap2.with(func() {
		l.hap2.agent = func(string) bool { return true }
		l.hap2.arrived = func(line string) {
			if strings.Contains(line, "show stat") {
				l.prober.says("llm/gpu1", notReady)
				l.monitor.ProbeNow(t.Context(), "llm/gpu1")
			}
		}
	})
	l.hap1.with(func() { l.hap1.agent = func(string) bool { return true } })
	r := l.readmit(t, llm)
	assert.Equal(t, Refused, r.Outcome)
	assert.Equal(t, CodeNotReady, r.Code)
	assert.Contains(t, r.Message, "llm/gpu1 is no longer ready: health_http_503")
	l.shut(t)
}

// The evidence is lost while HAProxy is opened: the agent says down at once, and
// no server that the model does not admit is ever confirmed.
func TestReadmitClosesAgainWhenTheEvidenceIsLostBeforeItIsUp(t *testing.T) {
	l := newLab(t, briefly)
	l.quiesced(t, llm)
	l.hap1.with(func() {
		l.hap1.arrived = func(line string) {
			if strings.Contains(line, "gpu2 state ready") {
				l.prober.says("llm/gpu1", notReady)
				l.monitor.ProbeNow(t.Context(), "llm/gpu1")
			}
		}
	})
	r := l.readmit(t, llm)
	assert.Equal(t, CodeNotConfirmed, r.Code, r.Message)
	l.shut(t)
}

func TestReadmitStaysQuiescedWhenHAProxyCannotBeRead(t *testing.T) {
	l := newLab(t)
	l.quiesced(t, llm)
	before := l.generation(t, llm)
	l.hap1.fail(fault{action: cut, on: "show servers state"})
	r := l.readmit(t, llm)
	assert.Equal(t, Refused, r.Outcome)
	assert.Equal(t, CodeHAProxy, r.Code)
	assert.Contains(t, r.Message, "llm stays quiesced: haproxy hap1: ")
	assert.Equal(t, before, l.generation(t, llm))
	assert.Empty(t, l.journal.with("probe", "set server"))
	l.shut(t)
}

func TestReadmitGoesOnWhenItsCallerHasGone(t *testing.T) {
	l := newLab(t)
	l.quiesced(t, llm)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	assert.Equal(t, Done, l.Readmit(ctx, ReadmitRequest{Target: llm}).Outcome)
	assert.Equal(t, Done, l.Quiesce(ctx, QuiesceRequest{Target: llm, Reason: "swap"}).Outcome)
	l.shut(t)
}

func TestServersAreReadmittedOneByOne(t *testing.T) {
	l := newLab(t)
	l.quiesced(t, gpu1)
	l.prober.says("llm/gpu2", notReady) // nobody asks
	r := l.readmit(t, gpu1)
	assert.Equal(t, Done, r.Outcome, r.Message)
	assert.Equal(t, "llm (llm/gpu1) is open again: 1 server of 1 ready", r.Message)
	assert.Len(t, r.Evidence, 1)
	assert.Empty(t, l.journal.with("gpu2 state", "probe llm/gpu2"))
	assert.True(t, l.admits("llm/gpu1"))

	l.quiesced(t, gpu1)
	l.quiesced(t, llm)
	r = l.readmit(t, gpu1)
	assert.Equal(t, Refused, r.Outcome)
	assert.Equal(t, CodeTierQuiesced, r.Code)
	assert.True(guarantee.T(t), l.closed(t, gpu1))
	r = l.readmit(t, gpu2)
	assert.Equal(t, CodeNotQuiesced, r.Code)
}

// Control: without openAlone, the tier was refused for want of a ready server
// and each server because its tier was quiesced, for ever.
func TestATierWhoseServersAreAllQuiescedIsNotLocked(t *testing.T) {
	l := newLab(t)
	l.quiesced(t, gpu1)
	l.quiesced(t, gpu2)
	l.quiesced(t, llm)
	require.Equal(t, CodeTierQuiesced, l.readmit(t, gpu1).Code)
	r := l.readmit(t, llm)
	assert.Equal(t, Done, r.Outcome, r.Message)
	assert.Contains(t, r.Message, "admits nothing")
	assert.Empty(t, l.journal.with("set server", "probe"))
	assert.Equal(guarantee.T(t), bothDrained, l.states("llm/gpu1"))
	assert.False(guarantee.T(t), l.admits("llm/gpu1"))
	a, _ := l.model.Tier([]byte("llm"))
	assert.False(guarantee.T(t), a.Admit)

	assert.Equal(t, Done, l.readmit(t, gpu1).Outcome)
	assert.Equal(t, Done, l.readmit(t, gpu2).Outcome)
	assert.True(t, l.admits("llm/gpu1"))
	assert.Equal(t, bothReady, l.states("llm/gpu2"))
}

func TestEveryTransitionIsToldOnce(t *testing.T) {
	var told atomic.Int32
	l := newLab(t, func(o *Options, _ *runtimeapi.Options) { o.Ended = func(Result) { told.Add(1) } })
	l.quiesce(t, llm, "swap")
	l.drain(t, llm, nil)
	l.readmit(t, llm)
	l.readmit(t, llm) // refused
	assert.EqualValues(t, 4, told.Load())
}
