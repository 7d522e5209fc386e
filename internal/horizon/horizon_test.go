package horizon

import (
	"encoding/json"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	horizon = time.Hour
	day     = 24 * time.Hour
)

// clock is a hand-set clock without a monotonic reading, so that a test can
// also set it back.
type clock struct {
	mu sync.Mutex
	t  time.Time
}

func (c *clock) now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.t
}

func (c *clock) step(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.t = c.t.Add(d)
}

func newHorizon() (*Horizon, *clock) {
	c := &clock{t: time.Unix(1_800_000_000, 0)}
	return New(horizon, c.now), c
}

func serving(name string) Row {
	return Row{Name: name, Serving: true, Ready: 2, Servers: 2, State: "ready", Reason: "identity_passed", Generation: "1.2"}
}

func broken(name string) Row {
	return Row{Name: name, Servers: 2, State: "unreachable", Reason: "probe_timeout", Generation: "1.2"}
}

func quiesced(name string) Row {
	return Row{Name: name, Quiesced: true, Ready: 2, Servers: 2, State: "quiesced", Reason: "quiesced", Generation: "1.3"}
}

// breaks publishes the rows with those of the names serving, and then broken.
func breaks(h *Horizon, names []string, rows ...Row) {
	before, after := slices.Clone(rows), slices.Clone(rows)
	for _, name := range names {
		before, after = append(before, serving(name)), append(after, broken(name))
	}
	h.Publish(before)
	h.Publish(after)
}

func ready(stale ...Stale) Verdict {
	return Verdict{Ready: true, Reason: ReasonServing, StaleDegraded: stale}
}

// Control: with the comparison with staleAfter taken out of Judge (every row
// live), the dead tier kept its veto.
func TestOneLiveTierAndOneDeadFor41DaysIsReady(t *testing.T) {
	h, c := newHorizon()
	breaks(h, []string{"dead"}, serving("live"))
	for range 41 * 24 { // published all the while
		c.step(time.Hour)
		h.Publish([]Row{serving("live"), broken("dead")})
	}
	assert.Equal(t, ready(Stale{Name: "dead", Reason: "probe_timeout", IdleSeconds: 41 * 86400}), h.Judge())

	h.Publish([]Row{serving("live"), serving("dead")})
	assert.Equal(t, ready(), h.Judge(), "mended, it is named no more")
}

// Control: with `!serving` taken out of Judge, a horizon without rows, one that
// never served and one whose tiers had all aged out were ready.
func TestNothingServingIsNeverReadyHoweverOld(t *testing.T) {
	for name, publish := range map[string]func(*Horizon){
		"nothing published":      func(*Horizon) {},
		"an empty publication":   func(h *Horizon) { h.Publish(nil) },
		"never served":           func(h *Horizon) { h.Publish([]Row{broken("a"), broken("b")}) },
		"all broken":             func(h *Horizon) { breaks(h, []string{"a", "b"}) },
		"quiesced":               func(h *Horizon) { h.Publish([]Row{quiesced("a")}) },
		"quiesced, and broken":   func(h *Horizon) { breaks(h, []string{"b"}, quiesced("a")) },
		"serving, then all gone": func(h *Horizon) { h.Publish([]Row{serving("a")}); h.Publish([]Row{}) },
	} {
		t.Run(name, func(t *testing.T) {
			h, c := newHorizon()
			publish(h)
			for _, d := range []time.Duration{0, horizon, time.Nanosecond, 41 * day, 250 * 365 * day, -280 * 365 * day} {
				c.step(d)
				v := h.Judge()
				assert.False(t, v.Ready, "after %v more", d)
				assert.Equal(t, ReasonNoTier, v.Reason, "after %v more", d)
			}
		})
	}
}

func TestWhatFailsIsNamedAlsoWhereNothingServes(t *testing.T) {
	h, c := newHorizon()
	breaks(h, []string{"old"})
	c.step(horizon + time.Second)
	breaks(h, []string{"new"}, broken("old"))
	assert.Equal(t, Verdict{
		Reason:        ReasonNoTier,
		Failing:       []Failing{{Name: "new", Reason: "probe_timeout"}},
		StaleDegraded: []Stale{{Name: "old", Reason: "probe_timeout", IdleSeconds: 3601}},
	}, h.Judge())
}

// Control: with a row's stamp kept whatever it says, the tier aged out in the
// second cycle.
func TestABrokenTierThatKeepsChangingNeverAgesOut(t *testing.T) {
	h, c := newHorizon()
	breaks(h, []string{"flapping"}, serving("live"))
	reasons := []string{"health_http_503", "probe_timeout"}
	for cycle := range 20 {
		c.step(horizon - time.Duration(cycle%2)) // the edge itself, and just before it
		v := h.Judge()
		assert.Equal(t, ReasonFailing, v.Reason, "cycle %d", cycle)
		assert.Empty(t, v.StaleDegraded, "cycle %d", cycle)
		row := broken("flapping")
		row.Reason = reasons[cycle%2]
		h.Publish([]Row{serving("live"), row})
		assert.Equal(t, []Failing{{Name: "flapping", Reason: row.Reason}}, h.Judge().Failing, "cycle %d", cycle)
	}
	c.step(horizon + time.Nanosecond)
	assert.True(t, h.Judge().Ready, "silence ends it")
}

// Controls: with `<` in the place of `<=` the edge itself was aged; with
// staleAfter+1 the nanosecond after it was live.
func TestTheHorizonsExactEdge(t *testing.T) {
	h, c := newHorizon()
	breaks(h, []string{"dead"}, serving("live"))
	assert.Equal(t, ReasonFailing, h.Judge().Reason)
	c.step(horizon)
	assert.Equal(t, Verdict{Reason: ReasonFailing, Failing: []Failing{{Name: "dead", Reason: "probe_timeout"}}}, h.Judge(),
		"exactly at the horizon it is live")
	c.step(time.Nanosecond)
	assert.Equal(t, ready(Stale{Name: "dead", Reason: "probe_timeout", IdleSeconds: 3600}), h.Judge())
	c.step(time.Second - 2*time.Nanosecond)
	assert.Equal(t, ready(Stale{"dead", "probe_timeout", 3600}), h.Judge(), "whole seconds")
	c.step(time.Nanosecond)
	assert.Equal(t, ready(Stale{"dead", "probe_timeout", 3601}), h.Judge())
}

// Control: with e.changed of the first entry taken for all of them, the break was
// not seen.
func TestABreakOnALiveTierTurnsItRedBesideTwoAgedOutSiblings(t *testing.T) {
	h, c := newHorizon()
	breaks(h, []string{"dead1", "dead2"}, serving("a"), serving("b"))
	c.step(2 * horizon)
	aged := []Stale{{"dead1", "probe_timeout", 7200}, {"dead2", "probe_timeout", 7200}}
	assert.Equal(t, ready(aged...), h.Judge())

	h.Publish([]Row{serving("a"), broken("b"), broken("dead1"), broken("dead2")})
	assert.Equal(t, Verdict{Reason: ReasonFailing, Failing: []Failing{{"b", "probe_timeout"}}, StaleDegraded: aged}, h.Judge())
	h.Publish([]Row{serving("a"), serving("b"), broken("dead1"), broken("dead2")})
	assert.Equal(t, ready(aged...), h.Judge(), "never latched")
}

// Control: with every row stamped where any of them has changed, the dead one
// stayed live.
func TestFourHundredRepublishesOfASiblingDoNotRefreshADeadRow(t *testing.T) {
	h, c := newHorizon()
	breaks(h, []string{"dead"}, serving("live"))
	broke := c.now()
	for n := range 400 {
		c.step(10 * time.Second)
		row := serving("live")
		row.Ready = 1 + n%2
		h.Publish([]Row{row, broken("dead")})
	}
	changed, known := h.LastChange("dead")
	assert.True(t, known)
	assert.Equal(t, broke, changed)
	changed, _ = h.LastChange("live")
	assert.Equal(t, c.now(), changed)
	assert.Equal(t, ready(Stale{Name: "dead", Reason: "probe_timeout", IdleSeconds: 4000}), h.Judge())
}

// Control: with the name of every row that was ever published remembered, the
// tier that returned was failing, and had its old stamp.
func TestARowThatReturnsIsFirstSeen(t *testing.T) {
	h, c := newHorizon()
	breaks(h, []string{"gone"}, serving("live"))
	c.step(time.Minute)
	h.Publish([]Row{serving("live")})
	_, known := h.LastChange("gone")
	assert.False(t, known)
	assert.Equal(t, ready(), h.Judge(), "what is not there has no veto")

	c.step(time.Minute)
	h.Publish([]Row{serving("live"), broken("gone")})
	changed, _ := h.LastChange("gone")
	assert.Equal(t, c.now(), changed)
	assert.Equal(t, ready(), h.Judge(), "it has not served in this life")
}

// Control: with `|| was.served` taken out of Publish, a tier that stayed broken
// for a second publication was no longer failing.
func TestWhatATierOnceServedIsRemembered(t *testing.T) {
	h, c := newHorizon()
	h.Publish([]Row{serving("live"), broken("new")})
	assert.Equal(t, ready(), h.Judge(), "it may be starting; it has never served")
	breaks(h, []string{"new"}, serving("live"))
	for range 3 {
		c.step(time.Minute)
		h.Publish([]Row{serving("live"), broken("new")})
		assert.Equal(t, []Failing{{"new", "probe_timeout"}}, h.Judge().Failing)
	}
}

// A swap of one tier leaves the daemon ready, and a readmit that fails does not.
//
// Control: with `!e.row.Quiesced` taken out of failing, the swap was red.
func TestAQuiesceHoldsNoVeto(t *testing.T) {
	h, c := newHorizon()
	h.Publish([]Row{serving("live"), serving("swapped")})
	h.Publish([]Row{serving("live"), quiesced("swapped")})
	assert.Equal(t, ready(), h.Judge())
	c.step(41 * day)
	assert.Equal(t, ready(), h.Judge(), "nor is it degraded, however long it takes")
	h.Publish([]Row{serving("live"), broken("swapped")})
	assert.Equal(t, []Failing{{"swapped", "probe_timeout"}}, h.Judge().Failing, "opened, and it does not serve: a change")
	h.Publish([]Row{serving("live"), quiesced("swapped")})
	assert.Equal(t, ready(), h.Judge(), "taken in hand after it broke")
}

// Control: with serves made the row's Serving alone, the contradiction was ready.
func TestARowThatServesAndIsQuiescedServesNothing(t *testing.T) {
	h, _ := newHorizon()
	row := serving("a")
	row.Quiesced = true
	h.Publish([]Row{row})
	assert.Equal(t, Verdict{Reason: ReasonNoTier}, h.Judge())
}

// Control: with `!twice` taken out of Publish, it was named twice.
func TestOfTwoRowsOfOneNameTheLaterCounts(t *testing.T) {
	h, _ := newHorizon()
	breaks(h, []string{"twice"}, serving("live"))
	h.Publish([]Row{serving("live"), serving("twice"), broken("twice")})
	assert.Equal(t, []Failing{{"twice", "probe_timeout"}}, h.Judge().Failing)
}

// The names are what pages and monitoring read.
func TestAVerdictAsJSON(t *testing.T) {
	all := Verdict{Reason: ReasonFailing, Failing: []Failing{{"b", "probe_timeout"}}, StaleDegraded: []Stale{{"c", "probe_stale", 3601}}}
	for want, v := range map[string]Verdict{
		`{"ready":true,"reason":"serving"}`:        ready(),
		`{"ready":false,"reason":"no_tier_ready"}`: {Reason: ReasonNoTier},
		`{"ready":false,"reason":"tier_failing","failing":[{"name":"b","reason":"probe_timeout"}],` +
			`"stale_degraded":[{"name":"c","reason":"probe_stale","idle_seconds":3601}]}`: all,
	} {
		got, err := json.Marshal(v)
		require.NoError(t, err)
		assert.Equal(t, want, string(got))
	}
}
