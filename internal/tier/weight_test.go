package tier

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

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
