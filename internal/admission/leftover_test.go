package admission

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"tier-agent/internal/observe"
	"tier-agent/internal/runtimeapi"
	"tier-agent/test/guarantee"
)

// reloadedInTheMiddle is a lab in which the first HAProxy was being reloaded while
// llm was readmitted: its new process comes up with the drains of before.
func reloadedInTheMiddle(t *testing.T) *lab {
	t.Helper()
	l := newLab(t)
	l.watching(t)
	l.quiesced(t, llm)
	l.turn(t)
	drains := map[string]runtimeapi.AdminState{"llm/gpu1": l.hap1.state("llm/gpu1"), "llm/gpu2": l.hap1.state("llm/gpu2")}
	require.Equal(t, runtimeapi.ForcedDrain, drains["llm/gpu1"])
	r := l.readmit(t, llm)
	require.Equal(t, Done, r.Outcome, r.Message)
	require.Equal(t, bothReady, l.states("llm/gpu1"))
	l.hap1.reload()
	l.hap1.with(func() {
		for name, state := range drains {
			l.hap1.admin[name] = state
		}
	})
	return l
}

// A drain of ours that a reload brings back after its readmit is taken off: it is
// nobody's hold, and nobody else would.
//
// Control: with adopt taken out of Reconcile both servers stayed drained, and were
// shown as held.
func TestADrainFromBeforeAReadmitIsTakenOff(t *testing.T) {
	l := reloadedInTheMiddle(t)
	l.turn(t)
	assert.Equal(t, bothReady, l.states("llm/gpu1"))
	assert.Equal(t, bothReady, l.states("llm/gpu2"))
	assert.Len(t, l.leftovers, 2, "those of the other one, which may yet be replaced")
	// From then on it is somebody's again.
	l.hap1.operator("llm/gpu1", "drain")
	l.turn(t)
	assert.Equal(guarantee.T(t), [2]string{"drain(forced)", "ready"}, l.states("llm/gpu1"))
}

// What is not exactly that is left alone.
//
// Control: with the comparison with ForcedDrain taken out of adopt and reopen,
// somebody's maintenance was ended.
func TestOnlyOurDrainFromBeforeIsTakenOff(t *testing.T) {
	l := reloadedInTheMiddle(t)
	l.hap1.operator("llm/gpu1", "maint")
	l.turn(t)
	assert.Equal(guarantee.T(t), [2]string{"maint(forced)", "ready"}, l.states("llm/gpu1"), "somebody's maintenance")
	assert.Equal(t, bothReady, l.states("llm/gpu2"))

	l = reloadedInTheMiddle(t)
	require.Equal(t, Done, l.quiesce(t, gpu1, "again").Outcome)
	l.turn(t)
	assert.Equal(guarantee.T(t), [2]string{"drain(forced)", "drain(forced)"}, l.states("llm/gpu1"), "quiesced again")
	assert.Equal(t, bothReady, l.states("llm/gpu2"))
}

// A process that was started after the file had no row any more shows somebody
// else's drain; the one that was opened shows what has been done to it since.
//
// Control: without the look at its start in left, the later one was taken for ours.
func TestWhoseDrainAProcessShows(t *testing.T) {
	l := newLab(t)
	l.watching(t)
	l.quiesced(t, llm)
	require.Equal(t, Done, l.readmit(t, llm).Outcome)
	require.Len(t, l.leftovers, 4)
	opened := l.leftovers[place{"hap1", "llm/gpu1"}]
	now := opened.until
	shows := func(pid int, after, uptime time.Duration) int {
		return len(l.left(observe.View{Instance: "hap1", At: now.Add(after), Info: runtimeapi.Info{PID: pid, Uptime: uptime}}))
	}
	assert.Zero(guarantee.T(t), shows(opened.pid, time.Second, time.Hour), "the process that was opened")
	assert.Equal(t, 2, shows(7, 3*time.Second, 3*time.Second), "started while the readmit ran")
	assert.Equal(t, 2, shows(7, 2*time.Second, time.Second), "it may have been")
	assert.Zero(guarantee.T(t), shows(7, 3*time.Second, time.Second), "started later")
	assert.Zero(t, shows(7, 3*time.Second, 3*time.Second), "and then nothing is left over")
	assert.Len(t, l.leftovers, 2, "of the other one")
}
