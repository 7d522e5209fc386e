package tier

import (
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"tier-agent/internal/fence"
	"tier-agent/test/guarantee"
)

// override puts one of heavy into force from now on.
func (m *Model) override(lasting time.Duration) {
	m.SetOverrides(map[string]Override{"heavy": {Reason: "why", Who: "ann", From: m.now(), Lasting: lasting}})
}

// saw completes one probe.
func (m *Model) saw(name string, o fence.Observation) {
	m.fence.ProbeNow(name, func(*fence.Ticket) fence.Observation { return o })
}

var wrong = fence.Observation{Reason: "identity_mismatch", Judged: true, Healthy: true}

// What the fence knows of health counts while an override is in force and not a moment
// longer.
//
// Controls: with overridden always true, heavy was open before and after; with Left
// rounded up to seconds, it was open at the end.
func TestG1_HealthAloneOpensOnlyUnderAnOverride(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newModel(t)
		for _, name := range []string{"heavy/h1", "heavy/h2", "heavy/h3", "fast/f1"} {
			m.saw(name, wrong)
		}
		closed := func(when string) {
			t.Helper()
			for _, name := range []string{"heavy/h1", "fast/f1"} {
				a := serverOf(t, m, name)
				assert.False(guarantee.T(t), a.Admit || a.Up || a.Ready || a.Overridden, when)
				assert.Equal(t, "identity_mismatch", a.Reason)
			}
			assert.False(guarantee.T(t), tierOf(t, m, "heavy").Admit, when)
		}
		closed("before")
		m.override(time.Minute + 500*time.Millisecond)
		a := serverOf(t, m, "heavy/h1")
		assert.True(t, a.Admit && a.Up && a.Ready && a.Overridden)
		assert.Equal(t, ReasonOverride, a.Reason)
		assert.Equal(t, StateDegraded, a.State, "that of the evidence")
		whole := tierOf(t, m, "heavy")
		assert.True(t, whole.Admit && whole.Up && whole.Overridden)
		assert.Equal(t, ReasonOverride, whole.Reason)
		assert.False(guarantee.T(t), serverOf(t, m, "fast/f1").Admit, "it is heavy's alone")
		st := m.Status()
		assert.Equal(t, "identity_mismatch", st[0].Servers[0].Evidence)
		require.NotNil(t, st[0].Override)
		assert.Nil(t, st[1].Override)

		time.Sleep(time.Minute + 499*time.Millisecond)
		assert.True(t, serverOf(t, m, "heavy/h1").Admit, "its evidence is stale, which does not count")
		time.Sleep(time.Millisecond)
		m.saw("heavy/h1", wrong)
		m.saw("fast/f1", wrong)
		closed("at its end")
		assert.Nil(t, m.Status()[0].Override)
	})
}

// An engine whose health check fails, or that has not been probed since an invalidation,
// takes nothing.
//
// Control: with Health's answer left out of onHealth, all of them did.
func TestAnOverrideWantsHealth(t *testing.T) {
	m := newModel(t)
	m.override(time.Hour)
	assert.Equal(t, fence.ReasonPending, tierOf(t, m, "heavy").Reason)
	assert.False(guarantee.T(t), tierOf(t, m, "heavy").Admit)
	m.saw("heavy/h1", fence.Observation{Reason: "health_http_503", Judged: true})
	a := serverOf(t, m, "heavy/h1")
	assert.False(guarantee.T(t), a.Admit || a.Up)
	assert.Equal(t, "health_http_503", a.Reason)
	m.saw("heavy/h2", wrong)
	assert.True(t, tierOf(t, m, "heavy").Admit, "one of three is enough, whatever min_ready says")
	assert.Equal(t, 1, m.Status()[0].Needed)
	_, err := m.Invalidate(heavy)
	require.NoError(t, err)
	assert.False(guarantee.T(t), serverOf(t, m, "heavy/h2").Admit)
	m.saw("heavy/h2", wrong)
	assert.True(t, serverOf(t, m, "heavy/h2").Admit, "the next probe decides")
}

// Neither another address, nor another value than the tier's counts.
func TestAnOverrideAsksForNothingElse(t *testing.T) {
	all := specs()
	all[0].SameField = "build"
	m, err := New(all, time.Now)
	require.NoError(t, err)
	m.saw("heavy/h1", fence.Observation{Ready: true, Healthy: true, Reason: "metadata_passed", Metadata: map[string]string{"build": "1"}})
	m.SetElsewhere("heavy/h1", true)
	assert.False(guarantee.T(t), serverOf(t, m, "heavy/h1").Admit)
	m.override(time.Hour)
	assert.True(t, serverOf(t, m, "heavy/h1").Admit)
}

// Controls: with the override heeded where the gate is settled, HAProxy's checks were told
// up of a quiesced tier that shows its health; with shut left out of tier, a tier whose
// servers are all held was open.
func TestAnOverrideOpensNothingThatIsClosed(t *testing.T) {
	all := specs()
	all[0].QuiescedHealth = true
	m, err := New(all, time.Now)
	require.NoError(t, err)
	m.saw("heavy/h1", wrong)
	m.saw("heavy/h2", wrong)
	m.override(time.Hour)

	pause, err := m.Pause(heavy, Closure{Reason: "swap"})
	require.NoError(t, err)
	a := serverOf(t, m, "heavy/h1")
	assert.False(guarantee.T(t), a.Admit)
	assert.True(t, a.Up, "what the checks take down may let its queue loose")
	_, _, err = pause.Settle()
	require.NoError(t, err)
	for _, a := range []Answer{serverOf(t, m, "heavy/h1"), tierOf(t, m, "heavy")} {
		assert.False(guarantee.T(t), a.Admit || a.Up)
		assert.Equal(t, ReasonQuiesced, a.Reason)
	}
	gen, err := m.Generation(heavy)
	require.NoError(t, err)
	require.NoError(t, m.Open(heavy, gen))

	_, err = m.Close(heavy1, Closure{Reason: "disk"})
	require.NoError(t, err)
	assert.False(guarantee.T(t), serverOf(t, m, "heavy/h1").Admit)
	assert.True(t, tierOf(t, m, "heavy").Admit, "the other one is open")
	m.SetShut("heavy/h2", true)
	assert.False(guarantee.T(t), tierOf(t, m, "heavy").Admit)
}

// Control: with Overridden left out of activated, the tier counted as one that was ready.
func TestAnOverrideIsNoFirstTime(t *testing.T) {
	m, err := New(activating(), time.Now)
	require.NoError(t, err)
	m.saw("heavy/h1", wrong)
	m.override(time.Hour)
	assert.True(t, tierOf(t, m, "heavy").Admit)
	m.SetOverrides(nil)
	m.set("heavy/h1")
	assert.False(guarantee.T(t), tierOf(t, m, "heavy").Admit)
	assert.Empty(t, m.Activated())
}

// The wall clock may be set, forward or back; both end it.
//
// Control: with the difference of the two times alone, one that was set back prolonged it.
func TestAnOverrideEndsByTheWorseOfTwoClocks(t *testing.T) {
	began := time.Now()
	wall := func(d time.Duration) time.Time { return began.Round(0).Add(d) } // has no monotonic reading
	for what, c := range map[string]struct {
		now  time.Time
		ends bool
	}{
		"both a moment before": {began.Add(time.Hour - 1), false},
		"both":                 {began.Add(time.Hour), true},
		"set forward":          {wall(time.Hour), true},
		"set back":             {wall(-time.Second), true},
	} {
		var now atomic.Pointer[time.Time]
		now.Store(&began)
		m, err := New(specs(), func() time.Time { return *now.Load() })
		require.NoError(t, err)
		m.override(time.Hour)
		now.Store(&c.now)
		m.saw("heavy/h1", wrong)
		assert.Equal(guarantee.T(t), !c.ends, serverOf(t, m, "heavy/h1").Admit, what)
	}
}
