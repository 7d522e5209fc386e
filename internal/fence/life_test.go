package fence

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// as is an observation that names its instance.
func as(obs Observation, instance string) Observation {
	obs.Instance = instance
	return obs
}

// An engine is replaced at the same address while three probes are out. The one
// that was issued last saw the engine that went.
//
// Controls: with the advance of the epoch taken out of restarted, the last probe of
// the old engine was published after the new one had been seen; with restarted
// always false, the new engine's was, although it began before.
func TestARestartThatNobodyAnnouncedFencesWhatIsInFlight(t *testing.T) {
	f, _ := newFence(t)
	publish(t, f, h1, as(ready("one"), "x"))
	before := f.Current(h1).Generation
	hung, fast, last := f.BeginProbe(h1), f.BeginProbe(h1), f.BeginProbe(h1)
	other := f.BeginProbe(h2)

	v := f.Complete(fast, as(ready("two"), "y"))
	assertRefused(t, v, ReasonInvalidated)
	assert.True(t, v.Restarted)
	assert.Equal(t, before, v.Generation)
	v = f.Current(h1)
	assertRefused(t, v, ReasonPending)
	assert.Greater(t, v.Generation.Server, before.Server)
	assert.Equal(t, before.Tier, v.Generation.Tier)

	for _, late := range []*Ticket{last, hung} {
		v := f.Complete(late, as(ready("one"), "x"))
		assertRefused(t, v, ReasonInvalidated)
		assert.False(t, v.Restarted, "a probe from before says nothing of the new generation")
	}
	assert.True(t, f.Complete(other, ready("other")).Ready, "its neighbour is not fenced")

	publish(t, f, h1, as(ready("two"), "y"))
	assert.Equal(t, "two", f.Current(h1).Metadata["id"])
	assert.Equal(t, v.Generation, f.Current(h1).Generation)
}

func TestWhatIsARestart(t *testing.T) {
	for name, tc := range map[string]struct {
		seen     []Observation // the last one is asked for
		restarts bool
	}{
		"another id":                    {[]Observation{as(ready("1"), "x"), as(ready("1"), "y")}, true},
		"the same id":                   {[]Observation{as(ready("1"), "x"), as(ready("2"), "x")}, false},
		"the first id":                  {[]Observation{ready("1"), as(ready("1"), "x")}, false},
		"no id":                         {[]Observation{as(ready("1"), "x"), ready("1")}, false},
		"another id after none":         {[]Observation{as(ready("1"), "x"), failed(), ready("1"), as(ready("1"), "y")}, true},
		"another id, not ready":         {[]Observation{as(ready("1"), "x"), as(failed(), "y")}, true},
		"another id than one not ready": {[]Observation{as(failed(), "x"), as(ready("1"), "y")}, true},
	} {
		t.Run(name, func(t *testing.T) {
			f, _ := newFence(t)
			gen := f.Current(h1).Generation
			var v Verdict
			for _, obs := range tc.seen {
				v = f.ProbeNow(h1, func(*Ticket) Observation { return obs })
			}
			assert.Equal(t, tc.restarts, v.Restarted)
			assert.Equal(t, tc.restarts, f.Current(h1).Generation != gen)
		})
	}
}

// A readmit invalidates, probes, and opens if the generation has not moved since:
// the engine that was swapped meanwhile is not a restart to be fenced once more.
//
// Control: with the comparison made across generations (named always true), the
// probe of the new engine was refused.
func TestAnAnnouncedReplacementIsNotFencedTwice(t *testing.T) {
	for name, invalidate := range map[string]func(*Fence){
		"server": func(f *Fence) { f.InvalidateServer(h1) },
		"tier":   func(f *Fence) { f.InvalidateTier("heavy") },
		"all":    func(f *Fence) { f.InvalidateAll() },
	} {
		t.Run(name, func(t *testing.T) {
			f, _ := counting(t, 3, 3)
			publish(t, f, h1, as(ready("one"), "x"))
			invalidate(f)
			gen := f.Current(h1).Generation
			late := f.BeginProbe(h1)
			publish(t, f, h1, as(ready("two"), "y"))
			assert.True(t, f.Current(h1).Ready)
			assert.Equal(t, gen, f.Current(h1).Generation)

			assertRefused(t, f.Complete(late, as(ready("one"), "x")), ReasonSuperseded)
			assert.True(t, f.Current(h1).Ready)
		})
	}
}

// Control: with `proving: true` taken out of restarted, every restart was ready
// again with its first probe.
func TestARestartHasToRise(t *testing.T) {
	f, _ := counting(t, 2, 3)
	publish(t, f, h1, as(ready("one"), "0"))
	for _, instance := range []string{"1", "2", "3"} { // restarts before it has risen
		f.ProbeNow(h1, func(*Ticket) Observation { return as(ready("one"), instance) })
		publish(t, f, h1, as(ready("one"), instance))
		v := f.Current(h1)
		assert.False(t, v.Ready)
		assert.Equal(t, ReasonRising, v.Reason)
		assert.Equal(t, 1, v.Against)
	}
	publish(t, f, h1, as(ready("one"), "3"))
	assert.True(t, f.Current(h1).Ready)

	f.ProbeNow(h1, func(*Ticket) Observation { return as(ready("one"), "4") })
	publish(t, f, h1, as(failed(), "4"))
	assert.Equal(t, "health_http_503", f.Current(h1).Reason)
	f.InvalidateServer(h1)
	publish(t, f, h1, as(ready("one"), "4"))
	assert.True(t, f.Current(h1).Ready, "but what a readmit has invalidated has not")
}

// Which of them a request would reach nobody can say.
func TestTwoInstancesBehindOneAddressAreNeverReady(t *testing.T) {
	f, _ := newFence(t)
	publish(t, f, h1, as(ready("one"), "x"))
	for range 5 {
		for _, instance := range []string{"y", "x"} {
			f.ProbeNow(h1, func(*Ticket) Observation { return as(ready("one"), instance) })
			assertRefused(t, f.Current(h1), ReasonPending)
		}
	}
}

// Control: with `ok &&` taken out of starting, a clock that stood before the
// appearance made an excuse of it.
func TestStartingIsAWindowUntilTheFirstReady(t *testing.T) {
	const window = 5 * time.Second
	windowed := func(m *Member) { m.StartWindow = window }
	f, c := counting(t, 1, 1, windowed)
	assert.True(t, f.Current(h1).Starting)
	see(t, f, "f")
	c.step(window)
	assert.True(t, f.Current(h1).Starting, "the window's end itself is still in it")
	c.step(time.Nanosecond)
	assert.False(t, f.Current(h1).Starting)
	c.step(-window - 2)
	assert.False(t, f.Current(h1).Starting, "before it appeared")
	c.step(window)
	assert.True(t, f.Current(h1).Starting, "judged at read time, never latched")

	see(t, f, "pf")
	assert.False(t, f.Current(h1).Starting, "it has been ready")
	f.InvalidateAll()
	assert.False(t, f.Current(h1).Starting, "an invalidation is no new engine")
	recount(t, f, 1, 1, windowed, func(m *Member) { m.Subject = "elsewhere" })
	assert.True(t, f.Current(h1).Starting, "another address is")

	publish(t, f, h1, as(ready("one"), "x"))
	assert.False(t, f.Current(h1).Starting)
	f.ProbeNow(h1, func(*Ticket) Observation { return as(ready("one"), "y") })
	assert.True(t, f.Current(h1).Starting, "and another instance")
	publish(t, f, h1, as(ready("one"), "y"))
	assert.False(t, f.Current(h1).Starting)
	f.InvalidateServer(h1)
	publish(t, f, h1, as(failed(), "z"))
	assert.True(t, f.Current(h1).Starting, "announced or not")
	assert.False(t, f.Current("no/such").Starting)
}

func TestAReadyThatWasTooOldAtBirthIsNotTheFirst(t *testing.T) {
	f, c := counting(t, 1, 1, func(m *Member) { m.StartWindow = time.Hour })
	v := f.Check(h1, func(*Ticket) Observation {
		c.step(maxAge + time.Second)
		return ready("slow")
	})
	require.Equal(t, ReasonStale, v.Reason)
	assert.True(t, f.Current(h1).Starting)
}
