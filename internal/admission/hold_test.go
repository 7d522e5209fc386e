package admission

import (
	"context"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"tier-agent/internal/probe"
	"tier-agent/internal/tier"
	"tier-agent/test/guarantee"
)

func (l *lab) take(t testing.TB, target tier.Target) Result {
	t.Helper()
	return l.Readmit(t.Context(), ReadmitRequest{Target: target, TakeHold: true})
}

// Control: with holds taken out of Readmit and `held` out of opening, what the
// operator had done was undone.
func TestG10_ReadmitLeavesWhatSomebodyElseHolds(t *testing.T) {
	for name, c := range map[string]struct {
		before, during string // what the operator does, before the quiesce and after it
		was            string
	}{
		"drained before us":               {"drain", "", "drain(forced)"},
		"in maintenance before us":        {"maint", "", "maint(forced)"},
		"put in maintenance meanwhile":    {"", "maint", "maint(forced)"},
		"first the one, then the other":   {"maint", "drain", "drain(forced)"},
		"drained before, then maintained": {"drain", "maint", "maint(forced)"},
	} {
		t.Run(name, func(t *testing.T) {
			l := newLab(t)
			if c.before != "" {
				l.hap2.operator("llm/gpu2", c.before)
			}
			l.quiesced(t, llm)
			if c.during != "" {
				l.hap2.operator("llm/gpu2", c.during)
			}
			before := l.generation(t, llm)
			r := l.readmit(t, llm)
			assert.Equal(t, Refused, r.Outcome)
			assert.Equal(t, CodeHeld, r.Code)
			assert.Contains(t, r.Message, "llm/gpu2 is "+c.was+" on haproxy hap2")
			assert.Contains(t, r.Message, "--take-hold")
			assert.NotContains(t, r.Message, "gpu1", "that one is ours")
			assert.True(guarantee.T(t), l.closed(t, llm))
			assert.Equal(t, before, l.generation(t, llm))
			assert.Equal(guarantee.T(t), [2]string{"drain(forced)", c.was}, l.states("llm/gpu2"))
			assert.Empty(t, l.journal.with("set server", "probe"))

			r = l.take(t, llm)
			assert.Equal(t, Done, r.Outcome, r.Message)
			assert.Equal(t, bothReady, l.states("llm/gpu2"))
		})
	}
}

func TestReadmitGoesOnWhenTheOperatorHasEndedTheHold(t *testing.T) {
	l := newLab(t)
	l.hap2.operator("llm/gpu2", "drain")
	l.quiesced(t, llm)
	require.Equal(t, CodeHeld, l.readmit(t, llm).Code)
	l.hap2.operator("llm/gpu2", "ready")
	assert.Equal(t, Done, l.readmit(t, llm).Outcome)
}

// The hold comes while the probes run, after the first look.
//
// Control: with `held` taken out of opening, the maintenance was ended.
func TestG10_ReadmitMeetsAHoldThatCameWhileItProbed(t *testing.T) {
	l := newLab(t)
	l.quiesced(t, llm)
	l.prober.set("llm/gpu1", func(context.Context) probe.Result {
		l.hap1.operator("llm/gpu1", "maint")
		return passed
	})
	r := l.readmit(t, llm)
	assert.Equal(t, Refused, r.Outcome, r.Message)
	assert.Equal(t, CodeHeld, r.Code)
	assert.True(guarantee.T(t), l.closed(t, llm))
	assert.Equal(guarantee.T(t), [2]string{"maint(forced)", "drain(forced)"}, l.states("llm/gpu1"))
	assert.Equal(guarantee.T(t), bothDrained, l.states("llm/gpu2"))
}

// The hold comes between the read and the opening itself.
//
// Control: with the Restore taken out of visit.change, the maintenance was
// ended and the readmit done.
func TestG10_ReadmitPutsBackAHoldThatItMetTooLate(t *testing.T) {
	l := newLab(t)
	l.quiesced(t, llm)
	l.hap1.with(func() {
		l.hap1.arrived = func(line string) {
			if strings.Contains(line, "set server llm/gpu1 state ready") {
				l.hap1.operator("llm/gpu1", "maint")
			}
		}
	})
	r := l.readmit(t, llm)
	assert.Equal(t, CodeHeld, r.Code, r.Message)
	assert.True(guarantee.T(t), l.closed(t, llm))
	assert.Equal(guarantee.T(t), [2]string{"maint(forced)", "drain(forced)"}, l.states("llm/gpu1"))
}

// The quiesce never reached hap2; whoever drained the server there, it was not
// tier-agent.
//
// Control: with `!ours` taken out of held, that drain was undone.
func TestG10_ADrainThatWasNeverOursIsAHold(t *testing.T) {
	l := newLab(t)
	l.hap2.operator("llm/gpu2", "drain")
	l.hap2.fail(fault{action: cut, times: -1})
	require.Equal(t, Incomplete, l.quiesce(t, llm, "swap").Outcome)
	l.hap2.heal()
	assert.Equal(t, CodeHeld, l.readmit(t, llm).Code)
	assert.Equal(guarantee.T(t), "drain(forced)", l.hap2.state("llm/gpu2").String())
}

// A drain of ours that HAProxy applied late is found by the second quiesce, and
// is ours all the same.
//
// Control: with note called after SetState instead of before it, the readmit
// was refused as held.
func TestADrainThatWasAppliedLateIsOurs(t *testing.T) {
	l := newLab(t, short)
	f := l.hap2.fail(fault{action: late, on: "gpu1 state drain"})
	require.Equal(t, Incomplete, l.quiesce(t, llm, "swap").Outcome)
	close(f.release)
	<-f.acted
	l.quiesced(t, llm)
	r := l.readmit(t, llm)
	assert.Equal(t, Done, r.Outcome, r.Message)
}

// Control: with the look at the other intents taken out of note, gpu1 was
// refused as held by somebody else.
func TestADrainOfTheTierIsNobodyElsesForItsServer(t *testing.T) {
	l := newLab(t)
	l.quiesced(t, llm)
	l.quiesced(t, gpu1)
	require.Equal(t, Done, l.readmit(t, llm).Outcome)
	assert.Equal(guarantee.T(t), bothDrained, l.states("llm/gpu1"), "quiesced on its own account")
	assert.Equal(t, bothReady, l.states("llm/gpu2"))
	r := l.readmit(t, gpu1)
	assert.Equal(t, Done, r.Outcome, r.Message)
	assert.Equal(t, bothReady, l.states("llm/gpu1"))
}

// Control: with maint taken out of close, the server that had been disabled
// was left in drain, where persistent clients reach it.
func TestG10_AReadmitThatTookAHoldAndFailedPutsItBack(t *testing.T) {
	l := newLab(t)
	l.hap1.operator("llm/gpu1", "maint")
	l.quiesced(t, llm)
	l.hap2.fail(fault{action: refuse, on: "gpu2 state ready", text: "Permission denied"})
	r := l.take(t, llm)
	assert.Equal(t, Refused, r.Outcome, r.Message)
	assert.Equal(t, CodeHAProxy, r.Code)
	assert.Equal(guarantee.T(t), [2]string{"maint(forced)", "drain(forced)"}, l.states("llm/gpu1"))
	assert.True(guarantee.T(t), l.closed(t, llm))
}

// Control: with the call of correct taken out of close, the readmit opened what
// the operator had drained.
func TestG10_ADrainByHandRightBeforeOursIsAHold(t *testing.T) {
	l := newLab(t)
	f := l.hap1.fail(fault{action: hold, on: "gpu1 state drain"})
	done := inBackground(func() Result { return l.quiesce(t, llm, "swap") })
	<-f.met
	l.hap1.operator("llm/gpu1", "drain")
	close(f.release)
	require.Equal(t, Done, (<-done).Outcome)
	r := l.readmit(t, llm)
	assert.Equal(guarantee.T(t), CodeHeld, r.Code, r.Message)
	assert.Contains(t, r.Message, "llm/gpu1 is drain(forced) on haproxy hap1")
	assert.NotContains(t, r.Message, "hap2")
}

// Two operators close the same at once. The first has read gpu1 open when the
// second one drains it and is done.
//
// Control: with the closings counted only while they run, the drain was taken for
// a hold, and the readmit refused.
func TestADrainByAnotherQuiesceRightBeforeOursIsOurs(t *testing.T) {
	l := newLab(t)
	f := l.hap1.fail(fault{action: hold, on: "show servers state llm"})
	first := inBackground(func() Result { return l.quiesce(t, llm, "swap") })
	<-f.met
	// hap1 has shown the first one its servers open, and it has noted that.
	read := l.hap1.fail(fault{action: hold, on: "gpu1 state drain"})
	close(f.release)
	<-read.met
	require.Equal(t, Done, l.quiesce(t, llm, "again").Outcome)
	close(read.release)
	require.Equal(t, Done, (<-first).Outcome)
	r := l.readmit(t, llm)
	assert.Equal(t, Done, r.Outcome, r.Message)
}
