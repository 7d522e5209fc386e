package tier

import (
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"tier-agent/internal/fence"
	"tier-agent/test/guarantee"
)

var heavy2 = Target{Tier: "heavy", Server: "heavy/h2"}

// both says of an answer whether requests are let in, and what the checks hear.
func both(a Answer) string {
	return map[bool]string{true: "admit", false: "no"}[a.Admit] + " " + map[bool]string{true: "up", false: "down"}[a.Up]
}

func paused(t testing.TB, m *Model, target Target, reason string) *Pause {
	t.Helper()
	h, err := m.Pause(target, Closure{Reason: reason})
	require.NoError(t, err)
	return h
}

func settle(t testing.TB, h *Pause) (reason string, first bool) {
	t.Helper()
	c, first, err := h.Settle()
	require.NoError(t, err)
	return c.Reason, first
}

// heavy has three servers of which two must be ready. heavy/h3 has no evidence.
//
// Control: with up counted like admitted in tier, a paused server took its tier down
// for a check that asks by the tier's name; with settled left out of close, nothing
// was down after Settle.
func TestAPauseKeepsRequestsOutAndChecksUp(t *testing.T) {
	for name, target := range map[string]Target{"the tier": heavy, "a server": heavy2} {
		t.Run(name, func(t *testing.T) {
			g := guarantee.T(t)
			m := newModel(t)
			m.set("heavy/h1", "heavy/h2")
			h := paused(t, m, target, "swap")
			a := serverOf(t, m, "heavy/h2")
			assert.Equal(g, "no up", both(a))
			assert.True(t, a.Quiesced)
			assert.Equal(t, ReasonQuiesced, a.Reason)
			assert.Equal(g, "no up", both(serverOf(t, m, "heavy/h2")))
			whole := tierOf(t, m, "heavy")
			assert.Equal(g, "no up", both(whole))
			assert.True(t, whole.Ready, "or agent-check, which asks for it, would say down")
			closed, err := m.Closed(target)
			require.NoError(t, err)
			assert.Equal(t, "swap", closed.Reason)
			assert.False(t, h.Settled())
			require.NoError(t, m.Replace(moved()))
			require.NoError(t, m.Replace(specs()))
			m.set("heavy/h1", "heavy/h2")
			assert.Equal(g, "no up", both(serverOf(t, m, "heavy/h2")), "it stays through a replacement, and no longer than the evidence")
			_, err = m.Invalidate(heavy)
			require.NoError(t, err)
			assert.Equal(g, "no down", both(serverOf(t, m, "heavy/h2")))
			m.set("heavy/h1", "heavy/h2")

			reason, first := settle(t, h)
			assert.Equal(t, "swap", reason)
			assert.True(t, first)
			assert.Equal(g, "no down", both(serverOf(t, m, "heavy/h2")))
			assert.Equal(g, "no down", both(tierOf(t, m, "heavy")))
			h.Release()
			assert.Equal(g, "no down", both(serverOf(t, m, "heavy/h2")), "what is settled is not released")
		})
	}
}

func TestAReleasedPauseLeavesTheGateAsItWasFound(t *testing.T) {
	m := newModel(t)
	m.set("heavy/h1", "heavy/h2")
	h := paused(t, m, heavy, "swap")
	h.Release()
	assert.Equal(t, "admit up", both(serverOf(t, m, "heavy/h1")))
	assert.Equal(t, "admit up", both(tierOf(t, m, "heavy")))
	h.Release()
	again := paused(t, m, heavy, "again")
	h.Release()
	assert.Equal(guarantee.T(t), "no up", both(tierOf(t, m, "heavy")), "a pause that has ended ends no other")
	again.Release()

	_, err := m.Close(heavy, Closure{Reason: "restored"})
	require.NoError(t, err)
	h = paused(t, m, heavy, "swap")
	assert.True(t, h.Settled())
	assert.Equal(guarantee.T(t), "no down", both(serverOf(t, m, "heavy/h1")), "a closure that stands is not softened")
	reason, first := settle(t, h)
	assert.Equal(t, "restored", reason)
	assert.False(t, first)
	h.Release()
	assert.Equal(guarantee.T(t), "no down", both(serverOf(t, m, "heavy/h1")))

	_, err = m.Pause(Target{Tier: "none"}, Closure{})
	require.ErrorIs(t, err, ErrUnknownTier)
}

// A tier that shows its health while it is quiesced does so on both steps.
func TestAPauseOfATierThatShowsItsHealth(t *testing.T) {
	shows := specs()
	shows[1].QuiescedHealth = true
	m := newModel(t)
	require.NoError(t, m.Replace(shows))
	m.set("fast/f1")
	h := paused(t, m, Target{Tier: "fast"}, "swap")
	assert.Equal(guarantee.T(t), "no up", both(serverOf(t, m, "fast/f1")))
	settle(t, h)
	assert.Equal(guarantee.T(t), "no up", both(serverOf(t, m, "fast/f1")))
}

// A tier that is closed as a whole shows its health where the gate asks about it; one
// server of it, and a tier that is told to, does not.
//
// Control: with alone ignored in showsHealth, the single server was up.
func TestWhereTheGateHoldsATierItsHealthIsShown(t *testing.T) {
	for name, c := range map[string]struct {
		target Target
		change func(*Spec)
		want   string
	}{
		"the tier":             {heavy, func(*Spec) {}, "no up"},
		"one server":           {heavy2, func(*Spec) {}, "no down"},
		"told to say down":     {heavy, func(s *Spec) { s.QuiescedDown = true }, "no down"},
		"by admin words":       {heavy, func(s *Spec) { s.AgentWords = true }, "no down"},
		"one server, its word": {heavy2, func(s *Spec) { s.QuiescedHealth = true }, "no up"},
	} {
		t.Run(name, func(t *testing.T) {
			m := newModel(t)
			changed := specs()
			c.change(&changed[0])
			require.NoError(t, m.Replace(changed))
			m.set("heavy/h1", "heavy/h2")
			_, err := m.Close(c.target, Closure{Reason: "swap"})
			require.NoError(t, err)
			unasked := "no down"
			if changed[0].QuiescedHealth {
				unasked = "no up"
			}
			assert.Equal(t, unasked, both(serverOf(t, m, "heavy/h2")), "before the gate has asked")
			m.Gated([]byte("fast"))
			m.Gated([]byte("none"))
			assert.Equal(t, unasked, both(serverOf(t, m, "heavy/h2")), "about another tier")
			m.Gated([]byte("heavy"))
			assert.Equal(t, c.want, both(serverOf(t, m, "heavy/h2")))
			require.NoError(t, m.Replace(changed))
			assert.Equal(t, c.want, both(serverOf(t, m, "heavy/h2")), "after a reload of the file")
			m.Ungated()
			assert.Equal(t, unasked, both(serverOf(t, m, "heavy/h2")), "of another process of HAProxy")
		})
	}
}

// What an invalidation has voided says nothing against an engine: until the next probe
// such a tier shows what the last one saw.
//
// Control: with Ready alone in server, the server was down until the next probe after the
// quiesce's own invalidation.
func TestAnInvalidationDoesNotChangeTheLooksOfAQuiescedServer(t *testing.T) {
	shows := specs()
	shows[1].QuiescedHealth = true
	m := newModel(t)
	require.NoError(t, m.Replace(shows))
	fast := Target{Tier: "fast"}
	_, err := m.Close(fast, Closure{Reason: "swap"})
	require.NoError(t, err)
	server := m.view.Load().servers["fast/f1"]
	see := func(ready bool, want string) {
		t.Helper()
		state := StateUnreachable
		if ready {
			state = StateReady
		}
		obs := fence.Observation{Ready: ready, Reason: "health_passed", Judged: true}
		server.saw(state, m.fence.ProbeNow("fast/f1", func(*fence.Ticket) fence.Observation { return obs }))
		assert.Equal(t, want, both(serverOf(t, m, "fast/f1")), "by the probe")
		_, err := m.Invalidate(fast)
		require.NoError(t, err)
		assert.Equal(t, want, both(serverOf(t, m, "fast/f1")), "after the invalidation")
	}
	assert.Equal(t, "no down", both(serverOf(t, m, "fast/f1")), "never probed")
	see(true, "no up")
	see(false, "no down")
	see(true, "no up")
	server.elsewhere.Store(true)
	assert.Equal(t, "no down", both(serverOf(t, m, "fast/f1")), "HAProxy sends elsewhere")
}

// An opening that comes in between does not make a settled gate of an open one.
func TestSettleClosesWhateverHasBecomeOfThePause(t *testing.T) {
	m := newModel(t)
	h := paused(t, m, heavy, "swap")
	gen, err := m.Generation(heavy)
	require.NoError(t, err)
	require.NoError(t, m.Open(heavy, gen))
	_, first := settle(t, h)
	assert.True(t, first)
	assert.True(guarantee.T(t), tierOf(t, m, "heavy").Quiesced)

	other := paused(t, m, Target{Tier: "fast"}, "swap")
	require.NoError(t, m.Replace(without("fast")))
	_, _, err = other.Settle()
	require.ErrorIs(t, err, ErrUnknownTier)
	require.NoError(t, m.Replace(specs()))
	settle(t, other)
	assert.True(guarantee.T(t), tierOf(t, m, "fast").Quiesced, "of its next life")
}

// The gate against a list of who pauses it.
//
// Control: with the look at settled taken out of pause, with release storing nil, and
// with close taking its own closure where one is paused, each failed here.
func TestGateProperty(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		var g gate
		var by []*Closure // the model of it
		settled := false
		all := []*Closure{{Reason: "a"}, {Reason: "b"}, {Reason: "c"}}
		in := func(c *Closure) int {
			for n, one := range by {
				if one == c {
					return n
				}
			}
			return -1
		}
		rt.Repeat(map[string]func(*rapid.T){
			"pause": func(rt *rapid.T) {
				if c := rapid.SampledFrom(all).Draw(rt, "by"); in(c) < 0 {
					if g.pause(c); !settled {
						by = append(by, c)
					}
				}
			},
			"close": func(rt *rapid.T) {
				c := rapid.SampledFrom(all).Draw(rt, "by")
				if len(by) == 0 {
					by = []*Closure{c}
				}
				by, settled = by[:1], true
				assert.Same(rt, by[0], g.close(c))
			},
			"release": func(rt *rapid.T) {
				c := rapid.SampledFrom(all).Draw(rt, "by")
				g.release(c)
				if n := in(c); n >= 0 && !settled {
					by = append(by[:n:n], by[n+1:]...)
				}
			},
			"open": func(*rapid.T) { g.closing.Store(nil); by, settled = nil, false },
			"": func(rt *rapid.T) {
				assert.Equal(rt, settled, g.settled())
				if len(by) == 0 {
					assert.Nil(rt, g.closed())
				} else {
					assert.Same(guarantee.T(rt), by[0], g.closed())
				}
			},
		})
	})
}

// Control: with Store for CompareAndSwap in release, the gate came open again.
func TestWhoeverReleasesMeanwhileASettledGateStaysSo(t *testing.T) {
	for range 50_000 {
		var g gate
		one, other := new(Closure), new(Closure)
		g.pause(one)
		g.pause(other)
		var wg sync.WaitGroup
		wg.Go(func() { g.release(one) })
		wg.Go(func() { g.close(other) })
		wg.Wait()
		require.True(guarantee.T(t), g.settled())
	}
}
