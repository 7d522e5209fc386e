package admission

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"tier-agent/internal/tier"
	"tier-agent/test/guarantee"
)

func (l *lab) quiesceOrNot(t testing.TB, target tier.Target) Result {
	t.Helper()
	return l.Quiesce(t.Context(), QuiesceRequest{Target: target, Reason: "swap", Who: "alice", Rollback: true, Force: true})
}

// all are a server's states on each HAProxy.
func (l *lab) all(name string) []string {
	var states []string
	for _, h := range l.haproxies() {
		states = append(states, h.state(name).String())
	}
	return states
}

// Control: with `before&forced != 0` taken out of rollBack, what had been drained
// before was opened; with the Open left out, the tier stayed closed.
func TestRollbackRestoresWhatWasFound(t *testing.T) {
	for name, f := range map[string]fault{
		"refused":     {action: refuse, on: "gpu2 state drain", text: "Permission denied"},
		"unreachable": {action: cut, times: -1},
	} {
		t.Run(name, func(t *testing.T) {
			l := newLabOf(t, 3)
			l.watching(t)
			l.hap1.operator("llm/gpu1", "maint")
			l.hap2.operator("llm/gpu2", "drain")
			require.True(t, l.monitor.ProbeNow(t.Context(), "llm/gpu1").Ready)
			l.hap3.fail(f)
			r := l.quiesceOrNot(t, llm)
			assert.Equal(t, Refused, r.Outcome, r.Message)
			assert.Equal(t, CodeRolledBack, r.Code)
			assert.Contains(t, r.Message, "haproxy hap3: ")
			assert.NotContains(t, r.Message, "\n")
			assert.False(t, r.Quiesced)
			assert.False(t, l.closed(t, llm))
			assert.Equal(guarantee.T(t), []string{"maint(forced)", "ready", "ready"}, l.all("llm/gpu1"))
			assert.Equal(guarantee.T(t), []string{"ready", "drain(forced)", "ready"}, l.all("llm/gpu2"))
			assert.Empty(t, l.onDisk(t))
			assert.False(guarantee.T(t), l.admits("llm/gpu1"), "open, and the evidence from before is gone")
			l.hap3.heal()
			l.turn(t)
			assert.Equal(t, "ready", l.hap3.state("llm/gpu1").String(), "nothing closes it again")
		})
	}
}

func TestWhatIsConfirmedIsNotRolledBack(t *testing.T) {
	l := newLabOf(t, 3)
	assert.Equal(t, Done, l.quiesceOrNot(t, llm).Outcome)
	l.shut(t)
	l.hap3.fail(fault{action: cut, times: -1})
	r := l.quiesceOrNot(t, llm)
	assert.Equal(t, Incomplete, r.Outcome)
	assert.Equal(t, CodeHAProxy, r.Code)
	l.shut(t)
}

// An operator who asks the same of the same second has not closed it.
//
// Control: with first told by comparing closures, as it once was, the tier that
// somebody else had closed was opened.
func TestOnlyWhoClosedItRollsBack(t *testing.T) {
	l := newLab(t)
	_, err := l.model.Close(llm, tier.Closure{Reason: "swap", Who: "alice", Since: time.Now().UTC().Truncate(time.Second)})
	require.NoError(t, err)
	l.hap2.fail(fault{action: cut, times: -1})
	assert.Equal(t, Incomplete, l.quiesceOrNot(t, llm).Outcome)
	assert.True(guarantee.T(t), l.closed(t, llm))
}

// Control: without readmitted in rollBack, gpu1 was opened under its own intent;
// without the look at the tier, under its tier's.
func TestRollbackOpensNothingThatAnotherIntentWantsClosed(t *testing.T) {
	l := newLab(t)
	l.quiesced(t, gpu1)
	l.hap2.fail(fault{action: refuse, on: "gpu2 state drain", text: "Permission denied"})
	assert.Equal(t, CodeRolledBack, l.quiesceOrNot(t, llm).Code)
	assert.Equal(guarantee.T(t), bothDrained, l.states("llm/gpu1"))
	assert.Equal(t, bothReady, l.states("llm/gpu2"))
	assert.Empty(guarantee.T(t), l.journal.with("gpu1 state ready"))

	l = newLab(t)
	l.quiesced(t, llm)
	l.hap2.operator("llm/gpu1", "ready")
	l.hap2.fail(fault{action: refuse, on: "gpu1 state drain", text: "Permission denied"})
	assert.Equal(t, CodeRolledBack, l.quiesceOrNot(t, gpu1).Code)
	assert.Empty(guarantee.T(t), l.journal.with("gpu1 state ready"))
	assert.Equal(guarantee.T(t), "drain(forced)", l.hap1.state("llm/gpu1").String())
	assert.False(t, l.closed(t, gpu1))
	assert.True(guarantee.T(t), l.closed(t, llm))
}

// The second operator's quiesce is confirmed while the first one's still waits
// for hap2, which then refuses.
//
// Control: with alone always true, the tier was opened that the second operator
// had been told is closed.
func TestRollbackIsRefusedWhenSomebodyElseReliesOnIt(t *testing.T) {
	l := newLab(t)
	held := l.hap2.fail(fault{action: hold, on: "gpu1 state drain"})
	l.hap2.fail(fault{action: refuse, on: "gpu2 state drain", text: "Permission denied"})
	first := inBackground(func() Result { return l.quiesceOrNot(t, llm) })
	<-held.met
	l.hap2.operator("llm/gpu2", "drain") // so that the second one meets no fault
	require.Equal(t, Done, l.quiesce(t, llm, "mine").Outcome)
	close(held.release)
	r := <-first
	assert.Equal(t, Incomplete, r.Outcome, r.Message)
	assert.Contains(t, r.Message, "another command of its tier has come to rely on that")
	l.shut(t)
	assert.Empty(guarantee.T(t), l.journal.with("state ready"))
	assert.Len(guarantee.T(t), l.onDisk(t), 1)
}

// Control: with opens not set in alone, the quiesce was done while the rollback
// went on to open.
func TestG6_QuiesceEndsARollback(t *testing.T) {
	l := newLab(t)
	l.hap2.fail(fault{action: refuse, on: "gpu2 state drain", text: "Permission denied"})
	held := l.hap1.fail(fault{action: hold, on: "gpu2 state ready"})
	rollback := inBackground(func() Result { return l.quiesceOrNot(t, llm) })
	<-held.met
	told := l.whenTold(llm)
	quiesce := inBackground(func() Result { return l.quiesce(t, llm, "mine") })
	soon(t, "the rollback is told to end", func() bool { return told.Load() })
	close(held.release)
	r := <-rollback
	assert.Equal(t, CodeSuperseded, r.Code, r.Message)
	q := <-quiesce
	assert.Equal(t, Done, q.Outcome, q.Message)
	l.shut(t)
	assert.Equal(t, Done, l.readmit(t, llm).Outcome)
}
