package tier

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"tier-agent/internal/fence"
	"tier-agent/internal/probe"
	"tier-agent/test/guarantee"
)

// alike is a tier of so many servers which must have the same digest.
func alike(t testing.TB, servers int) *sameLab {
	t.Helper()
	spec := Spec{Name: "heavy", MinReady: 1, Interval: time.Second, MaxAge: time.Hour, SameField: "digest"}
	for n := range servers {
		spec.Servers = append(spec.Servers, ServerSpec{Backend: "heavy", Name: fmt.Sprint("h", n+1), Weight: 100})
	}
	m, err := New([]Spec{spec}, time.Now)
	require.NoError(t, err)
	return &sameLab{t, m}
}

type sameLab struct {
	t testing.TB
	m *Model
}

// seen completes one probe of each server named, as the monitor does.
func (l *sameLab) seen(digests map[string]string) {
	l.t.Helper()
	for name, digest := range digests {
		l.saw(name, digest)
	}
}

func (l *sameLab) saw(name, digest string) {
	l.t.Helper()
	obs := fence.Observation{Ready: true, Reason: probe.MetadataPassed, Metadata: map[string]string{"digest": digest}}
	if digest == "" {
		obs = fence.Observation{Reason: probe.Timeout}
	}
	l.m.fence.Complete(l.m.fence.BeginProbe("heavy/"+name), obs)
	l.m.agree(l.m.view.Load().tiers["heavy"])
}

// admitted are the servers that take requests, and must refuse for no other reason.
func (l *sameLab) admitted(servers int) (names []string) {
	l.t.Helper()
	for n := range servers {
		name := fmt.Sprint("h", n+1)
		if a := serverOf(l.t, l.m, "heavy/"+name); a.Admit {
			names = append(names, name)
		} else if a.Reason != ReasonQuiesced && a.Reason != probe.Timeout && a.Reason != fence.ReasonPending {
			assert.Equal(l.t, ReasonDiffers, a.Reason, name)
			assert.Equal(l.t, StateDegraded, a.State)
		}
	}
	return names
}

func TestTheOddOneOutIsRefused(t *testing.T) {
	l := alike(t, 3)
	l.seen(map[string]string{"h1": "a", "h2": "a", "h3": "b"})
	assert.Equal(guarantee.T(t), []string{"h1", "h2"}, l.admitted(3))
	l.saw("h3", "a")
	assert.Equal(t, []string{"h1", "h2", "h3"}, l.admitted(3))
	// One after the other, until the new ones are more.
	l.saw("h1", "b")
	assert.Equal(guarantee.T(t), []string{"h2", "h3"}, l.admitted(3))
	l.saw("h2", "b")
	assert.Equal(guarantee.T(t), []string{"h1", "h2"}, l.admitted(3))
}

// Control: with the first one's value settled before the others were probed, h1 was
// let in; with the tie decided by whoever comes first in the map, sometimes one.
func TestATieRefusesAllNewcomers(t *testing.T) {
	l := alike(t, 2)
	l.saw("h1", "a")
	assert.Empty(guarantee.T(t), l.admitted(2), "h2 may have another")
	l.saw("h2", "b")
	assert.Empty(guarantee.T(t), l.admitted(2), "nobody was there before")
	l.saw("h2", "a")
	assert.Equal(t, []string{"h1", "h2"}, l.admitted(2))
	l.saw("h2", "b")
	assert.Equal(guarantee.T(t), []string{"h1"}, l.admitted(2), "who was there stays")
	l.saw("h1", "")
	assert.Equal(guarantee.T(t), []string{"h2"}, l.admitted(2), "and has no say when it has failed")
}

// Servers that are closed are exchanged behind the others' back.
//
// Control: with count given no say about open, the two that were exchanged outvoted
// the one that served.
func TestClosedServersHaveNoSay(t *testing.T) {
	l := alike(t, 3)
	l.seen(map[string]string{"h1": "a", "h2": "a", "h3": "a"})
	for _, name := range []string{"heavy/h1", "heavy/h2"} {
		_, err := l.m.Close(Target{Tier: "heavy", Server: name}, Closure{Reason: "swap"})
		require.NoError(t, err)
	}
	l.seen(map[string]string{"h1": "b", "h2": "b"})
	assert.Equal(guarantee.T(t), []string{"h3"}, l.admitted(3))
	// A whole tier that is closed goes over to what its servers have then.
	_, err := l.m.Close(Target{Tier: "heavy"}, Closure{Reason: "swap"})
	require.NoError(t, err)
	l.saw("h3", "b")
	for _, target := range []Target{{Tier: "heavy", Server: "heavy/h1"}, {Tier: "heavy", Server: "heavy/h2"}, {Tier: "heavy"}} {
		gen, err := l.m.Generation(target)
		require.NoError(t, err)
		require.NoError(t, l.m.Open(target, gen))
	}
	assert.Equal(t, []string{"h1", "h2", "h3"}, l.admitted(3))
}

// The monitor keeps the agreement.
//
// Control: with agree taken out of probe nobody was let in.
func TestTheMonitorSeesWhoDiffers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := alike(t, 3)
		_, stop := run(t, l.m, func(_ context.Context, target probe.Target) probe.Result {
			return probe.Result{Ready: true, Reason: probe.MetadataPassed, Metadata: map[string]string{"digest": "a"}}
		}, nil)
		defer stop()
		time.Sleep(2 * time.Second)
		synctest.Wait()
		assert.Equal(t, []string{"h1", "h2", "h3"}, l.admitted(3))
	})
}
