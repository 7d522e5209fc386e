package tier

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"tier-agent/test/guarantee"

	"tier-agent/internal/fence"
)

// The weight that an engine gives itself never leaves its bounds, and never is 0.
//
// Control: without the floor 0, -5 and 0.4 were no weights that take traffic; without
// the ceiling 1000 was one that HAProxy makes 256 of.
func TestMeasuredWeights(t *testing.T) {
	for text, want := range map[string]int{
		"50": 50, "1": 1, "100": 100, "0": 1, "-5": 1, "0.4": 1, "49.6": 50, "1000": 100, "1e300": 100, "Inf": 100, "-Inf": 1,
		"": 80, "NaN": 80, "many": 80, `"50"`: 80, "true": 80,
	} {
		assert.Equal(t, want, measured(text, 80), text)
	}
}

// A ramp grows from the floor to the whole over its time, of the servers that it
// was started for, and a clock that steps back does not end it.
//
// Control: with StartRamp storing nothing all weights were whole at once; without
// the floor the first one was 0.
func TestRamp(t *testing.T) {
	now := time.Now()
	m, err := New([]Spec{{
		Name: "heavy", MinReady: 1, Interval: time.Second, MaxAge: time.Hour, Ramp: 100 * time.Second,
		Servers: []ServerSpec{{Backend: "heavy", Name: "h1", Weight: 80}, {Backend: "heavy", Name: "h2", Weight: 80}},
	}}, func() time.Time { return now })
	require.NoError(t, err)
	began := now
	weights := func() (h1, h2 int) { return serverOf(t, m, "heavy/h1").Weight, serverOf(t, m, "heavy/h2").Weight }
	h1, h2 := weights()
	assert.Equal(t, []int{80, 80}, []int{h1, h2}, "a start is no readmit")

	require.NoError(t, m.StartRamp(Target{Tier: "heavy", Server: "heavy/h1"}))
	for after, want := range map[time.Duration]int{
		0: 1, time.Second: 1, 10 * time.Second: 8, 50 * time.Second: 40, 99 * time.Second: 79, 100 * time.Second: 80, time.Hour: 80, -time.Hour: 1,
	} {
		now = began.Add(after)
		h1, h2 := weights()
		assert.Equal(t, want, h1, "%v", after)
		assert.Equal(t, 80, h2)
	}
	assert.ErrorIs(t, m.StartRamp(Target{Tier: "none"}), ErrUnknownTier)
	assert.ErrorIs(t, m.StartRamp(Target{Tier: "heavy", Server: "heavy/h9"}), ErrUnknownServer)
}

// The engine's own weight is what a ramp leads to.
func TestRampOfAMeasuredWeight(t *testing.T) {
	now := time.Now()
	m, err := New([]Spec{{
		Name: "heavy", MinReady: 1, Interval: time.Second, MaxAge: time.Hour, Ramp: 10 * time.Second, WeightField: "capacity",
		Servers: []ServerSpec{{Backend: "heavy", Name: "h1", Weight: 80}},
	}}, func() time.Time { return now })
	require.NoError(t, err)
	ticket := m.fence.BeginProbe("heavy/h1")
	require.True(t, m.fence.Complete(ticket, fence.Observation{Ready: true, Reason: "metadata_passed", Metadata: map[string]string{"capacity": "40"}}).Ready)
	assert.Equal(t, 40, serverOf(t, m, "heavy/h1").Weight)
	require.NoError(t, m.StartRamp(Target{Tier: "heavy"}))
	now = now.Add(5 * time.Second)
	assert.Equal(t, 20, serverOf(t, m, "heavy/h1").Weight)
}

// A weight is told until HAProxy has it, and what somebody sets there stays.
//
// Controls: without byHand in tells, what was set by hand was told over; without the reset
// at a restart, the weight of the configuration counted as set by hand; without settled
// reset by StartRamp and reweigh, so did the last weight of a ramp.
func TestAWeightThatSomebodySetsInHAProxyStays(t *testing.T) {
	now := time.Now()
	m, err := New([]Spec{
		{Name: "heavy", MinReady: 1, Interval: time.Second, MaxAge: time.Hour, Servers: []ServerSpec{{Backend: "heavy", Name: "h1", Weight: 100}, {Backend: "heavy", Name: "h2", Weight: 50}}},
		{Name: "light", MinReady: 1, Interval: time.Second, MaxAge: time.Hour, Ramp: time.Minute, Servers: []ServerSpec{{Backend: "light", Name: "l1", Weight: 100}}},
	}, func() time.Time { return now })
	require.NoError(t, err)
	has := func(percent int) func(int) bool { return func(p int) bool { return p == percent } }
	told := func(name string) any {
		a, _ := m.Server([]byte(name))
		switch {
		case a.WeightByHand:
			return "by hand"
		case a.TellWeight:
			return a.Weight
		}
		return "-"
	}
	const plain, half, ramped = "heavy/h1", "heavy/h2", "light/l1"
	assert.Equal(t, []any{"-", 50, 100}, []any{told(plain), told(half), told(ramped)}, "nothing is known of HAProxy yet")

	m.SeeWeight(plain, false, 100, has(100))
	m.SeeWeight(half, false, 100, has(100))
	assert.Equal(t, []any{"-", 50}, []any{told(plain), told(half)}, "not yet taken")
	m.SeeWeight(half, false, 100, has(50))
	assert.Equal(t, "-", told(half))
	for _, name := range []string{plain, half} {
		m.SeeWeight(name, false, 100, has(10))
		assert.Equal(t, "by hand", told(name))
		m.SeeWeight(name, false, 100, has(10))
		assert.Equal(t, "by hand", told(name), "and it stays so")
	}
	m.SeeWeight(half, false, 100, has(50))
	assert.Equal(t, "-", told(half), "put back")
	m.SeeWeight(half, true, 100, has(100))
	assert.Equal(t, 50, told(half), "another process, with the weight of its configuration")

	m.SeeWeight(ramped, false, 100, has(100))
	assert.Equal(t, "-", told(ramped))
	m.SeeWeight(plain, false, 100, has(100))
	for range 2 { // it is told until it is taken, however often it is looked at before
		m.view.Load().servers[plain].settled.Store(50)
		m.SeeWeight(plain, false, 100, has(50))
		assert.Equal(t, 100, told(plain), "a weight that has left the configuration")
		m.SeeWeight(plain, false, 100, has(50))
		assert.Equal(t, 100, told(plain))
		m.SeeWeight(plain, false, 100, has(100))
		assert.Equal(t, "-", told(plain))
	}
	// HAProxy reckons in whole numbers.
	m.SeeWeight(half, true, 1, has(100))
	assert.Equal(guarantee.T(t), "-", told(half), "less than all of a configured weight of 1 is none")
	m.SeeWeight(half, true, 3, has(100))
	assert.Equal(t, 50, told(half))
	m.SeeWeight(half, true, 100, has(100))
	require.NoError(t, m.StartRamp(Target{Tier: "light"}))
	assert.Equal(t, 1, told(ramped))
	now = now.Add(time.Hour)
	m.SeeWeight(ramped, false, 100, has(37))
	assert.Equal(t, 100, told(ramped), "the end of the ramp, which HAProxy has not heard of yet")
	m.SeeWeight(ramped, false, 100, has(100))
	assert.Equal(t, "-", told(ramped))
}
