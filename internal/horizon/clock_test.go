package horizon

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
)

// Control: with `age >= 0 &&` put before the comparison in Judge, a row from the
// future was aged, and the daemon ready.
func TestAClockThatStepsBackFailsTowardsNotReady(t *testing.T) {
	for _, back := range []time.Duration{time.Nanosecond, time.Minute, horizon, horizon + 1, 41 * day, 200 * 365 * day} {
		t.Run(back.String(), func(t *testing.T) {
			h, c := newHorizon()
			breaks(h, []string{"dead"}, serving("live"))
			c.step(-back)
			assert.Equal(t, ReasonFailing, h.Judge().Reason, "its change is in the future: it is live")
			c.step(back + horizon)
			assert.Equal(t, ReasonFailing, h.Judge().Reason)
			c.step(time.Nanosecond)
			assert.True(t, h.Judge().Ready, "the clock has caught up")
		})
	}
}

// A row that has aged out gets its veto back where the clock no longer says that
// it has; an unchanged row keeps a stamp from the future also through a
// publication.
func TestAClockThatStepsBackUnderAnAgedRow(t *testing.T) {
	h, c := newHorizon()
	breaks(h, []string{"dead"}, serving("live"))
	c.step(2 * horizon)
	assert.True(t, h.Judge().Ready)
	c.step(-horizon)
	assert.Equal(t, ReasonFailing, h.Judge().Reason)
	c.step(-2 * horizon)
	h.Publish([]Row{serving("live"), broken("dead")})
	assert.Equal(t, ReasonFailing, h.Judge().Reason)
	c.step(3*horizon + 1)
	assert.True(t, h.Judge().Ready)
}

// Control: with either of the two taken alone, one of the cases was aged too
// soon.
func TestTheYoungerOfTwoClocksCounts(t *testing.T) {
	for name, tc := range map[string]struct{ mono, wall, age time.Duration }{
		"both agree":                {time.Second, time.Second, time.Second},
		"the wall was set forward":  {time.Second, day, time.Second},
		"the machine was suspended": {time.Second, time.Hour, time.Second},
		"the wall was set back":     {41 * day, -time.Hour, -time.Hour},
		"monotonic says before":     {-1, time.Second, -1},
	} {
		t.Run(name, func(t *testing.T) { assert.Equal(t, tc.age, idle(tc.mono, tc.wall)) })
	}
}

// Control: with staleAfter <= 0 taken out of Judge, every row was aged at once
// and a tier could break without turning anything red.
func TestAHorizonOfNoLengthLetsNoRowAge(t *testing.T) {
	for _, staleAfter := range []time.Duration{0, -1, -time.Hour} {
		c := &clock{t: time.Unix(1_800_000_000, 0)}
		h := New(staleAfter, c.now)
		breaks(h, []string{"dead"}, serving("live"))
		for range 3 {
			assert.Equal(t, Verdict{Reason: ReasonFailing, Failing: []Failing{{"dead", "probe_timeout"}}}, h.Judge(), staleAfter)
			c.step(41 * day)
		}
	}
}

// Control: with the rows dropped in SetStaleAfter, nothing was left to serve.
func TestAnotherHorizonKeepsTheStamps(t *testing.T) {
	h, c := newHorizon()
	breaks(h, []string{"dead"}, serving("live"))
	c.step(10 * time.Minute)
	assert.Equal(t, ReasonFailing, h.Judge().Reason)
	h.SetStaleAfter(5 * time.Minute)
	assert.Equal(t, ready(Stale{"dead", "probe_timeout", 600}), h.Judge())
	h.SetStaleAfter(time.Hour)
	assert.Equal(t, ReasonFailing, h.Judge().Reason, "judged at read time")
}

// No timer takes part: nobody runs while the age passes.
func TestNoTimerIsNeeded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := New(horizon, time.Now)
		breaks(h, []string{"dead"}, serving("live"))
		time.Sleep(horizon)
		assert.False(t, h.Judge().Ready)
		time.Sleep(time.Nanosecond)
		assert.True(t, h.Judge().Ready)
	})
}
