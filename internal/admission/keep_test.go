package admission

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"tier-agent/internal/probe"
	"tier-agent/test/guarantee"
)

// held is what status shows of others' holds, by HAProxy.
func (l *lab) held() map[string][]string {
	all := map[string][]string{}
	for _, o := range l.o.Watcher.Views() {
		if holds := holdTexts(l.Holds(o)); holds != nil {
			all[o.Instance] = holds
		}
	}
	return all
}

// holdTexts are holds as status shows them.
func holdTexts(holds []Hold) (all []string) {
	for _, hold := range holds {
		all = append(all, hold.String())
	}
	return all
}

func (l *lab) keepHold(t testing.TB) Result {
	t.Helper()
	return l.Readmit(t.Context(), ReadmitRequest{Target: llm, KeepHold: true})
}

// An operator's maintenance of one server, before, during and after a quiesce.
//
// Control: with the look at found taken out of Holds our own drains were shown as
// somebody's; with r.held left out of opening, --keep-hold was refused.
func TestG10_MaintenanceIsShownAndKeptBeforeDuringAndAfter(t *testing.T) {
	for _, when := range []string{"before", "during", "after"} {
		t.Run(when, func(t *testing.T) {
			l := newLab(t)
			l.watching(t)
			maintain := func(now string) {
				if now == when {
					l.hap2.operator("llm/gpu2", "maint")
					l.turn(t)
				}
			}
			shown := map[string][]string{"hap2": {"llm/gpu2 is maint(forced)"}}
			maintain("before")
			l.quiesced(t, llm)
			maintain("during")
			l.turn(t)
			if when == "after" {
				assert.Empty(t, l.held(), "what we have drained is ours")
				require.Equal(t, Done, l.readmit(t, llm).Outcome)
				maintain("after")
				assert.Equal(t, shown, l.held())
				l.turn(t)
				assert.Equal(guarantee.T(t), [2]string{"ready", "maint(forced)"}, l.states("llm/gpu2"))
				return
			}
			assert.Equal(t, shown, l.held())
			r := l.readmit(t, llm)
			assert.Equal(t, CodeHeld, r.Code, r.Message)
			l.shutBut(t, "maint(forced)")

			r = l.keepHold(t)
			assert.Equal(t, Done, r.Outcome, r.Message)
			assert.Contains(t, r.Message, "left as they were found: llm/gpu2 is maint(forced) on haproxy hap2")
			assert.Equal(t, bothReady, l.states("llm/gpu1"))
			assert.Equal(guarantee.T(t), [2]string{"ready", "maint(forced)"}, l.states("llm/gpu2"))
			assert.Equal(t, shown, l.held(), "a hold outlives the intent")

			l.quiesced(t, llm)
			require.Equal(t, Done, l.take(t, llm).Outcome)
			assert.Equal(t, bothReady, l.states("llm/gpu2"))
			assert.Empty(t, l.held())
		})
	}
}

// shutBut asserts that llm is closed, with gpu2 on hap2 as an operator has it.
func (l *lab) shutBut(t testing.TB, state string) {
	t.Helper()
	assert.True(guarantee.T(t), l.closed(t, llm))
	assert.Equal(guarantee.T(t), bothDrained, l.states("llm/gpu1"))
	assert.Equal(guarantee.T(t), [2]string{"drain(forced)", state}, l.states("llm/gpu2"))
}

// What the operator ends in HAProxy himself is ended, though the reconciler closes
// the server again at once, as the intent says.
//
// Control: with the second case left out of note, the readmit asked him to end the
// hold that he had ended.
func TestAHoldThatWasEndedIsOurs(t *testing.T) {
	for _, state := range []string{"drain", "maint"} {
		l := newLab(t)
		l.watching(t)
		l.hap2.operator("llm/gpu2", state)
		l.quiesced(t, llm)
		l.turn(t)
		require.Equal(t, CodeHeld, l.readmit(t, llm).Code)
		l.hap2.operator("llm/gpu2", "ready")
		l.turn(t)
		l.shut(t)
		assert.Empty(t, l.held(), state)
		r := l.readmit(t, llm)
		assert.Equal(t, Done, r.Outcome, r.Message)
	}
}

// A reload opens what it has forgotten. That ends nobody's hold.
//
// Control: with the process not compared in note, the readmit opened what an
// operator had in maintenance.
func TestG10_AReloadEndsNoHold(t *testing.T) {
	l := newLab(t)
	l.watching(t)
	l.hap2.operator("llm/gpu2", "maint")
	l.quiesced(t, llm)
	l.turn(t)
	l.hap2.reload()
	l.turn(t)
	l.shut(t)
	assert.Equal(guarantee.T(t), CodeHeld, l.readmit(t, llm).Code)
}

// The server that is held everywhere is ready and the other one is not.
//
// Control: with the held servers counted in verify, the readmit was done, and
// nothing of the tier served.
func TestG6_AHeldServersEvidenceOpensNoOther(t *testing.T) {
	l := newLab(t)
	l.hap1.operator("llm/gpu2", "maint")
	l.hap2.operator("llm/gpu2", "drain")
	l.quiesced(t, llm)
	l.prober.says("llm/gpu1", probe.Result{Reason: "health_http_503"})
	r := l.keepHold(t)
	assert.Equal(t, Refused, r.Outcome, r.Message)
	assert.Equal(t, CodeNotReady, r.Code)
	assert.Empty(guarantee.T(t), l.journal.with("set server"))
	l.prober.set("llm/gpu1", nil)
	r = l.keepHold(t)
	assert.Equal(t, Done, r.Outcome, r.Message)
	assert.Equal(t, bothReady, l.states("llm/gpu1"))
	assert.Equal(guarantee.T(t), [2]string{"maint(forced)", "drain(forced)"}, l.states("llm/gpu2"))
}

// Control: with the last case left out of holds, it went on to the probes, and the
// code did not tell.
func TestKeepHoldIsRefusedWhereAllIsHeld(t *testing.T) {
	l := newLab(t)
	for _, h := range l.haproxies() {
		h.operator("llm/gpu1", "maint")
		h.operator("llm/gpu2", "drain")
	}
	l.quiesced(t, llm)
	r := l.keepHold(t)
	assert.Equal(t, CodeHeld, r.Code)
	assert.Contains(t, r.Message, "--keep-hold leaves nothing to open")
	assert.True(guarantee.T(t), l.closed(t, llm))
}

// A hold that changes hands between the look and the opening is no longer the one
// that --keep-hold was said about.
//
// Control: with any hold left alone in opening, the readmit was done.
func TestG10_KeepHoldIsRefusedWhereTheHoldHasChanged(t *testing.T) {
	l := newLab(t)
	l.hap2.operator("llm/gpu2", "drain")
	l.quiesced(t, llm)
	entered, release := l.prober.hold("llm/gpu1")
	readmit := inBackground(func() Result { return l.keepHold(t) })
	<-entered
	l.hap2.operator("llm/gpu2", "maint")
	release <- passed
	r := <-readmit
	assert.Equal(t, CodeHeld, r.Code, r.Message)
	l.shutBut(t, "maint(forced)")
}
