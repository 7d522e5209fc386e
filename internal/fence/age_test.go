package fence

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"

	"tier-agent/test/guarantee"
)

// Control: with `age > s.rules.maxAge` taken out of weigh, evidence stayed ready for
// ever.
func TestG5_EvidenceOlderThanItsMaximumAgeIsNone(t *testing.T) {
	f, c := newFence(t)
	publish(t, f, h1, ready("one"))
	c.step(maxAge)
	assert.True(t, f.Current(h1).Ready, "the maximum age itself is still fresh")
	c.step(time.Nanosecond)
	v := f.Current(h1)
	assert.False(guarantee.T(t), v.Ready)
	assert.Equal(t, ReasonStale, v.Reason)
	assert.Nil(t, v.Metadata)
	assert.True(t, v.HasEvidence(), "an operator still sees how old it is")
	assert.Equal(t, maxAge+time.Nanosecond, v.Age)
}

// Control: with `!ok ||` taken out of weigh, evidence from the future was
// ready.
func TestG5_AClockThatStepsBackFailsClosed(t *testing.T) {
	f, c := newFence(t)
	publish(t, f, h1, ready("one"))
	c.step(-time.Nanosecond)
	assert.Equal(t, ReasonStale, f.Current(h1).Reason)
	assert.False(guarantee.T(t), f.Current(h1).Ready)
	c.step(time.Nanosecond)
	assert.True(t, f.Current(h1).Ready, "judged at read time, never latched")
}

// Control: with age counted from e.ended, the slow probe's evidence was fresh.
func TestG5_AProbeSlowerThanTheMaximumAgeIsStaleAtBirth(t *testing.T) {
	f, c := newFence(t)
	v := f.Check(h1, func(*Ticket) Observation {
		c.step(maxAge + time.Second)
		return ready("slow")
	})
	assert.False(guarantee.T(t), v.Ready)
	assert.Equal(t, ReasonStale, v.Reason)
}

// No timer takes part: nobody runs while the age passes.
func TestG5_NoTimerIsNeeded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := New(time.Now)
		assert.NoError(t, f.Replace(members()))
		publish(t, f, h1, ready("one"))
		time.Sleep(maxAge)
		assert.True(t, f.Current(h1).Ready)
		time.Sleep(time.Nanosecond)
		assert.Equal(guarantee.T(t), ReasonStale, f.Current(h1).Reason)
	})
}

// Control: with max(mono, wall) replaced by mono, a suspended machine's
// evidence was fresh; with `wall >= 0` taken out, a wall clock set back was not
// seen.
func TestTheWorseOfTwoClocksCounts(t *testing.T) {
	for name, tc := range map[string]struct {
		mono, wall, age time.Duration
		ok              bool
	}{
		"both agree":                {time.Second, time.Second, time.Second, true},
		"the machine was suspended": {time.Second, time.Hour, time.Hour, true},
		"the wall was set back":     {time.Second, -time.Hour, time.Second, false},
		"monotonic says before":     {-1, time.Second, time.Second, false},
	} {
		t.Run(name, func(t *testing.T) {
			age, ok := worse(tc.mono, tc.wall)
			assert.Equal(t, tc.ok, ok)
			assert.Equal(t, tc.age, age)
		})
	}
}
