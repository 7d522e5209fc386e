package tier

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"tier-agent/internal/fence"
	"tier-agent/internal/probe"
	"tier-agent/test/guarantee"
)

// activating is heavy with three servers, of which one must be ready, but all
// three the first time.
func activating() []Spec {
	all := specs()
	all[0].MinReady, all[0].ActivationMin = 1, 3
	return all
}

func (m *Model) unset(names ...string) {
	for _, name := range names {
		m.fence.ProbeNow(name, func(*fence.Ticket) fence.Observation {
			return fence.Observation{Reason: "health_http_503"}
		})
	}
}

// Controls: with once left false the tier was never ready on one; with needed
// giving MinReady, it was from the start; with `t.once = was.once` taken out of
// newView, an edit of its weights took the tier out.
func TestATierIsReadyTheFirstTimeAtItsActivationMinimum(t *testing.T) {
	m, err := New(activating(), time.Now)
	require.NoError(t, err)
	m.set("heavy/h1", "heavy/h2")
	a := tierOf(t, m, "heavy")
	assert.False(guarantee.T(t), a.Admit)
	assert.False(t, a.Ready)
	assert.False(t, a.Up)
	assert.Equal(t, ReasonActivation, a.Reason)
	assert.True(t, serverOf(t, m, "heavy/h1").Admit, "the gate is the tier's, not its servers'")
	assert.Equal(t, 3, m.Status()[0].Needed)

	m.set("heavy/h3")
	assert.True(t, tierOf(t, m, "heavy").Admit)
	assert.Equal(t, 1, m.Status()[0].Needed)
	m.unset("heavy/h1", "heavy/h2")
	assert.True(t, tierOf(t, m, "heavy").Admit, "it has been ready")
	m.unset("heavy/h3")
	assert.False(guarantee.T(t), tierOf(t, m, "heavy").Admit)
	m.fence.InvalidateAll()
	m.set("heavy/h1")
	assert.True(t, tierOf(t, m, "heavy").Admit, "and has not appeared anew")

	next := activating()
	next[0].Servers[1].Weight, next[0].Servers[2].Subject = 10, "h3 elsewhere"
	require.NoError(t, m.Replace(next))
	assert.True(t, tierOf(t, m, "heavy").Admit)

	require.NoError(t, m.Replace(next[1:]))
	require.NoError(t, m.Replace(next))
	m.set("heavy/h1", "heavy/h2")
	assert.False(guarantee.T(t), tierOf(t, m, "heavy").Admit, "now it has")
	m.set("heavy/h3")
	require.True(t, m.Status()[0].Answer.Admit, "whoever asks")
	m.unset("heavy/h1", "heavy/h2")
	assert.True(t, tierOf(t, m, "heavy").Admit)
}

// What has been ready while it was closed has not taken a request yet.
func TestAClosedTierIsNotActivated(t *testing.T) {
	m, err := New(activating(), time.Now)
	require.NoError(t, err)
	h := paused(t, m, heavy, "swap")
	m.set("heavy/h1", "heavy/h2", "heavy/h3")
	assert.False(guarantee.T(t), tierOf(t, m, "heavy").Admit)
	m.unset("heavy/h1")
	h.Release()
	assert.False(guarantee.T(t), tierOf(t, m, "heavy").Admit)
	assert.Equal(t, ReasonActivation, tierOf(t, m, "heavy").Reason)
}

func TestAnActivationMinimumBelowMinReadyIsNone(t *testing.T) {
	for _, least := range []int{0, 1, 2} {
		all := specs()
		all[0].ActivationMin = least // of MinReady 2
		m, err := New(all, time.Now)
		require.NoError(t, err)
		m.set("heavy/h1")
		assert.False(guarantee.T(t), tierOf(t, m, "heavy").Admit)
		m.set("heavy/h2")
		assert.True(t, tierOf(t, m, "heavy").Admit)
	}
}

// Controls: with ReasonTooFew taken out of tier, the answer had no reason at 4 of
// 3; with ReasonActivation, it was too_few_servers at 3 of 4.
func TestATierThatIsTooSmallSaysSo(t *testing.T) {
	for _, c := range []struct {
		min, activation int
		want            string
	}{{1, 4, ReasonActivation}, {3, 4, ReasonActivation}, {4, 4, ReasonTooFew}} {
		all := activating()
		all[0].MinReady, all[0].ActivationMin = c.min, c.activation
		m, err := New(all, time.Now)
		require.NoError(t, err)
		m.set("heavy/h1", "heavy/h2", "heavy/h3")
		a := tierOf(t, m, "heavy")
		assert.False(guarantee.T(t), a.Admit)
		assert.Equal(t, c.want, a.Reason, "%+v", c)
	}
}

// A start that knows of heavy goes on with min_ready; one that does not asks for
// all three.
//
// Control: with the body of Activate taken out, one server was not enough.
func TestG9_ATierThatWasReadyBeforeAStartStaysActivated(t *testing.T) {
	for _, before := range []bool{true, false} {
		m, err := New(activating(), time.Now)
		require.NoError(t, err)
		m.Activate(func(name string) bool { return before && name == "heavy" })
		m.set("heavy/h1")
		assert.Equal(guarantee.T(t), before, tierOf(t, m, "heavy").Admit)
		assert.False(guarantee.T(t), tierOf(t, m, "fast").Admit)
	}
}

// What is to be kept is said once for each first time, whoever asks, and names
// what the configuration has.
//
// Control: with the send taken out of activated, nothing was said.
func TestTheFirstTimeOfATierIsSaid(t *testing.T) {
	m, err := New(activating(), time.Now)
	require.NoError(t, err)
	said := func() bool {
		select {
		case <-m.FirstReady():
			return true
		default:
			return false
		}
	}
	m.set("heavy/h1", "heavy/h2", "fast/f1")
	tierOf(t, m, "heavy")
	assert.False(t, said())
	assert.Empty(t, m.Activated())
	m.Status()
	assert.True(t, said())
	assert.Equal(t, []string{"fast"}, m.Activated())
	m.set("heavy/h3")
	tierOf(t, m, "heavy")
	assert.True(t, said())
	assert.Equal(t, []string{"heavy", "fast"}, m.Activated())
	m.Status()
	assert.False(t, said(), "once")

	require.NoError(t, m.Replace(activating()[1:]))
	assert.Equal(t, []string{"fast"}, m.Activated())
	require.NoError(t, m.Replace(activating()))
	assert.Equal(t, []string{"fast"}, m.Activated())
}

// Nobody asks while all three are ready.
//
// Control: with the call of activate taken out of probe, one server was not enough
// afterwards.
func TestTheMonitorActivatesWithoutAReader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, err := New(activating(), time.Now)
		require.NoError(t, err)
		var broken atomic.Bool
		mon, stop := run(t, m, func(ctx context.Context, target probe.Target) probe.Result {
			if broken.Load() {
				return probe.Result{Reason: "health_http_503"}
			}
			return passing(ctx, target)
		}, nil)
		defer stop()
		<-mon.FirstRound()
		broken.Store(true)
		time.Sleep(2 * time.Second)
		synctest.Wait()
		m.set("heavy/h1")
		assert.True(t, tierOf(t, m, "heavy").Admit)
	})
}
