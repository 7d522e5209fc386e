package tier

import (
	"context"
	"log/slog"
	"net/netip"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"tier-agent/internal/probe"
	"tier-agent/test/guarantee"
)

// from is a prober whose probes pass at the addresses that they are given, by kind.
type from struct {
	probed, exercised netip.AddrPort
	preferred         []netip.AddrPort
}

func (f *from) Probe(_ context.Context, t probe.Target) probe.Result {
	f.preferred = append(f.preferred, t.Prefer)
	return probe.Result{Ready: true, Reason: "identity_passed", Reached: f.probed}
}

func (f *from) Exercise(_ context.Context, t probe.Target) probe.Result {
	f.preferred = append(f.preferred, t.Prefer)
	return probe.Result{Ready: true, Reason: "exercise_passed", Reached: f.exercised}
}

// G11: evidence counts where it is from the address that each HAProxy sends to, whatever
// else the name of the server has.
//
// Control: with v.Address not compared in sentElsewhere, all were admitted.
func TestG11_EvidenceIsOfTheAddressThatItsProbeReached(t *testing.T) {
	a, b := netip.MustParseAddrPort("10.0.0.1:80"), netip.MustParseAddrPort("10.0.0.2:80")
	m := newModel(t)
	p := &from{probed: a}
	mon := NewMonitor(m, p, nil, slog.New(slog.DiscardHandler))
	admits := func() bool { return serverOf(t, m, "fast/f1").Admit }
	look := func() { mon.ProbeNow(t.Context(), "fast/f1") }

	look()
	assert.True(t, admits(), "no HAProxy is known to send anywhere")
	assert.Equal(t, a, m.Reached("fast/f1"))
	m.SetSent("fast/f1", []netip.AddrPort{b})
	assert.False(guarantee.T(t), admits(), "at once, without another probe")
	assert.Equal(t, ReasonElsewhere, serverOf(t, m, "fast/f1").Reason)
	p.probed = b
	look()
	assert.True(t, admits())
	p.probed = a
	look()
	assert.False(guarantee.T(t), admits(), "the name has given another address this time")
	p.probed = b
	look()
	m.SetSent("fast/f1", []netip.AddrPort{b, a})
	assert.False(guarantee.T(t), admits(), "two HAProxies that send to two engines")
	p.probed = netip.AddrPort{}
	m.SetSent("fast/f1", []netip.AddrPort{b})
	look()
	assert.False(guarantee.T(t), admits(), "what cannot be compared differs")
	m.SetSent("fast/f1", nil)
	assert.True(t, admits())
	look()
	assert.Equal(t, []netip.AddrPort{{}, b, b, b, b, b}, p.preferred, "the last one that was reached, where no HAProxy is known to send anywhere")
}

// Control: with the addresses not compared in evidence, it was admitted.
func TestG11_BothKindsOfEvidenceAreOfOneAddress(t *testing.T) {
	a, b := netip.MustParseAddrPort("10.0.0.1:80"), netip.MustParseAddrPort("10.0.0.2:80")
	m, err := New(exercised(), time.Now)
	require.NoError(t, err)
	p := &from{probed: a, exercised: b}
	mon := NewMonitor(m, p, nil, slog.New(slog.DiscardHandler))
	mon.ExerciseNow(t.Context(), "fast/f1")
	mon.ProbeNow(t.Context(), "fast/f1")
	one := serverOf(t, m, "fast/f1")
	assert.Equal(guarantee.T(t), ReasonElsewhere, one.Reason)
	s := m.view.Load().servers["fast/f1"]
	assert.True(t, mon.lacks(s, s.exercise), "so that the exercise is made before its time")
	p.exercised = a
	mon.ExerciseNow(t.Context(), "fast/f1")
	assert.True(t, serverOf(t, m, "fast/f1").Admit)
	assert.False(t, mon.lacks(s, s.exercise))
}
