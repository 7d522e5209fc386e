package admission

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"tier-agent/internal/runtimeapi"
	"tier-agent/internal/tier"
	"tier-agent/test/guarantee"
)

func (l *lab) release(t testing.TB, target tier.Target) Result {
	t.Helper()
	return l.Readmit(t.Context(), ReadmitRequest{Target: target, Who: "bob", WhenReady: true})
}

// A server that is not ready, and is not to be, can be readmitted by nobody. Its quiesce
// ends all the same; HAProxy is told down until it is ready, and not asked twice.
//
// Controls: without the invalidation in release, evidence from before opened it; without
// the drop of the intent, the reconciler drained it again.
func TestReleaseLeavesAServerToItsEvidence(t *testing.T) {
	for _, target := range []tier.Target{gpu1, llm} {
		l := newLab(t)
		l.watching(t)
		l.ready(t)
		l.quiesced(t, target)
		l.monitor.ProbeNow(t.Context(), "llm/gpu1") // passes: evidence from before the release
		l.prober.says("llm/gpu1", notReady)
		require.Equal(t, CodeNotReady, l.readmit(t, target).Code)
		l.prober.says("llm/gpu1", passed)
		require.True(t, l.monitor.ProbeNow(t.Context(), "llm/gpu1").Ready)
		l.prober.says("llm/gpu1", notReady)
		r := l.release(t, target)
		assert.Equal(t, Done, r.Outcome, r.Message)
		assert.False(t, r.Quiesced)
		assert.Contains(t, r.Message, "left to its evidence")
		assert.Empty(t, l.onDisk(t))
		assert.Equal(t, bothReady, l.states("llm/gpu1"))
		assert.False(guarantee.T(t), l.admits("llm/gpu1"), "evidence from before is void")
		l.monitor.ProbeNow(t.Context(), "llm/gpu1")
		l.turn(t)
		assert.Equal(t, bothReady, l.states("llm/gpu1"), "nobody drains it again")
		assert.False(guarantee.T(t), l.admits("llm/gpu1"))
		l.prober.says("llm/gpu1", passed)
		l.monitor.ProbeNow(t.Context(), "llm/gpu1")
		assert.True(t, l.admits("llm/gpu1"), "it is ready now")
	}
}

// The drain is taken off when HAProxy has heard, everywhere, that the server is down.
//
// Control: with heardDown left out, hap2 had the server up when the drain went.
func TestReleaseWaitsUntilHAProxyHasHeardThatItIsDown(t *testing.T) {
	l := newLab(t)
	l.quiesced(t, gpu1)
	looks := 0
	l.hap2.with(func() {
		l.hap2.agent = func(string) bool { return looks < 3 } // what it was told before the quiesce
		l.hap2.arrived = func(line string) {
			l.hap2.with(func() {
				if strings.Contains(line, "show stat") {
					looks++
				}
				if strings.Contains(line, "gpu1 state ready") {
					assert.GreaterOrEqual(guarantee.T(t), looks, 3+confirmations-1)
				}
			})
		}
	})
	r := l.release(t, gpu1)
	assert.Equal(t, Done, r.Outcome, r.Message)
	assert.Len(t, l.journal.with("hap2 set server llm/gpu1 state ready"), 1)

	l = newLab(t, briefly)
	l.quiesced(t, gpu1)
	l.hap2.with(func() { l.hap2.agent = func(string) bool { return true } })
	r = l.release(t, gpu1)
	assert.Equal(t, CodeNotConfirmed, r.Code, r.Message)
	assert.Contains(t, r.Message, "haproxy hap2 has llm/gpu1 up by its agent-check, and not asked since")
	assert.Equal(t, bothDrained, l.states("llm/gpu1"))
	assert.True(t, l.closed(t, gpu1))
}

// Nothing would keep a server closed of which HAProxy does not ask; what somebody else has
// closed stays so.
//
// Controls: with asks always true, the server was opened without evidence; without holds,
// somebody's maintenance was ended.
func TestReleaseIsRefusedWhereNothingKeepsTheServerClosed(t *testing.T) {
	l := newLab(t)
	l.hap2.with(func() { l.hap2.unasked["llm/gpu1"] = true })
	l.quiesced(t, gpu1)
	r := l.release(t, gpu1)
	assert.Equal(guarantee.T(t), CodeUnguarded, r.Code, r.Message)
	assert.Contains(t, r.Message, "haproxy hap2 has llm/gpu1 without an agent-check that is enabled")
	assert.Equal(t, bothDrained, l.states("llm/gpu1"))
	assert.Len(t, l.onDisk(t), 1)

	l = newLab(t)
	l.hap2.operator("llm/gpu1", "maint")
	l.quiesced(t, gpu1)
	assert.Equal(t, CodeHeld, l.release(t, gpu1).Code)
	l.quiesced(t, llm)
	assert.Equal(t, CodeTierQuiesced, l.release(t, gpu1).Code)
	assert.Equal(t, CodeNotQuiesced, l.release(t, gpu2).Code)
	require.Equal(t, Done, l.readmit(t, llm).Outcome)
	r = l.Readmit(t.Context(), ReadmitRequest{Target: gpu1, WhenReady: true, KeepHold: true})
	assert.Equal(t, Done, r.Outcome, r.Message)
	assert.Contains(t, r.Message, "left as they were found: llm/gpu1 is maint(forced) on haproxy hap2")
	assert.Equal(t, [2]string{"ready", "maint(forced)"}, l.states("llm/gpu1"))
}

// A quiesce ends a release, wherever it is.
func TestG6_QuiesceEndsARelease(t *testing.T) {
	for _, on := range []string{"show stat", "gpu1 state ready"} {
		l := newLab(t)
		l.quiesced(t, llm)
		f := l.hap2.fail(fault{action: hold, on: on})
		release := inBackground(func() Result { return l.release(t, llm) })
		<-f.met
		told := l.whenTold(llm)
		quiesce := inBackground(func() Result { return l.quiesce(t, llm, "mine") })
		soon(t, "the release is told to end", func() bool { return told.Load() })
		close(f.release)
		assert.Equal(t, CodeSuperseded, (<-release).Code)
		assert.Equal(t, Done, (<-quiesce).Outcome)
		l.shut(t)
		assert.Len(t, l.onDisk(t), 1)
	}
}

// A worker that was starting during the release comes up with the drain of before. That
// goes when there is evidence: a new worker has its servers up until they are checked.
//
// Control: with Admit not looked at in adopt, it went before.
func TestADrainFromBeforeAReleaseStaysUntilThereIsEvidence(t *testing.T) {
	l := newLab(t)
	l.watching(t)
	l.quiesced(t, gpu1)
	l.turn(t)
	l.prober.says("llm/gpu1", notReady)
	require.Equal(t, Done, l.release(t, gpu1).Outcome)
	l.hap1.reload()
	l.hap1.with(func() { l.hap1.admin["llm/gpu1"] = runtimeapi.ForcedDrain })
	l.monitor.ProbeNow(t.Context(), "llm/gpu1")
	l.turn(t)
	assert.Equal(guarantee.T(t), "drain(forced)", l.hap1.state("llm/gpu1").String())
	l.prober.says("llm/gpu1", passed)
	l.monitor.ProbeNow(t.Context(), "llm/gpu1")
	l.turn(t)
	assert.Equal(t, bothReady, l.states("llm/gpu1"))
}

// A member is in maintenance again, as its slot has started, and opened on evidence.
//
// Controls: with slotted always false, the slot was opened without evidence; without
// asNewcomers, its maintenance was somebody's hold.
func TestReleaseOfAMemberIsOpenedOnEvidence(t *testing.T) {
	p := newPool(t)
	p.serving(t, hostA)
	p.turn(t)
	p.quiesced(t, slot1)
	p.prober.says(hostA+"/", wrongModel)
	r := p.release(t, slot1)
	require.Equal(t, Done, r.Outcome, r.Message)
	p.is(t, "gpu/s1", asStarted)
	p.monitor.ProbeNow(t.Context(), "gpu/s1")
	p.turn(t)
	p.is(t, "gpu/s1", asStarted)
	p.prober.says(hostA+"/", passed)
	p.prove(t, "gpu/s1")
	p.is(t, "gpu/s1", asOpened)
}

// Control: with the wait not bounded, the first went on.
func TestReleaseGivesUpWhereHAProxyCannotBeRead(t *testing.T) {
	l := newLab(t, func(o *Options, _ *runtimeapi.Options) { o.Confirm = 200 * time.Millisecond })
	l.quiesced(t, gpu1)
	l.hap1.fail(fault{action: cut, on: "show stat", times: -1})
	r := l.release(t, gpu1)
	assert.Equal(t, CodeNotConfirmed, r.Code, r.Message)
	assert.Regexp(t, "haproxy hap1: at .*: incomplete answer", r.Message)
	l.heldClosed(t)
}

func (l *lab) heldClosed(t testing.TB) {
	t.Helper()
	assert.Equal(t, bothDrained, l.states("llm/gpu1"))
	assert.True(t, l.closed(t, gpu1))
}
