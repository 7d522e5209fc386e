package fence

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"tier-agent/test/guarantee"
)

// counting is a fence whose members rise and fall like this.
func counting(t testing.TB, rise, fall int, change ...func(*Member)) (*Fence, *clock) {
	t.Helper()
	f, c := newFence(t)
	recount(t, f, rise, fall, change...)
	return f, c
}

func recount(t testing.TB, f *Fence, rise, fall int, change ...func(*Member)) {
	t.Helper()
	all := members()
	for i := range all {
		all[i].Rise, all[i].Fall = rise, fall
		for _, c := range change {
			c(&all[i])
		}
	}
	require.NoError(t, f.Replace(all))
}

// see publishes one observation of h1 for each letter: p passes, f fails, w is a wrong
// answer.
func see(t testing.TB, f *Fence, letters string) {
	t.Helper()
	for _, l := range letters {
		obs := failed()
		switch l {
		case 'p':
			obs = ready("one")
		case 'w':
			obs.Judged = true
		}
		publish(t, f, h1, obs)
	}
}

// The second string says what stands after each observation of the first: R is
// ready, N is not, and a digit is how many are counted against what stood.
//
// Controls: with the reset of n taken out of count, fails that did not follow
// each other added up and the line "not in a row" failed; with
// `t.n < s.rules.fall` always false, the fourth and the sixth; with the look at
// Judged taken out of count, those of a wrong answer.
func TestRiseAndFallCountInARow(t *testing.T) {
	for name, tc := range map[string]struct {
		rise, fall  int
		seen, stand string
	}{
		"one is enough, unless told otherwise":    {0, 0, "pfpffp", "RNRNNR"},
		"and where told so":                       {1, 1, "pfpffp", "RNRNNR"},
		"the first decides, whichever it is":      {3, 3, "fpppp", "N12RR"},
		"fall":                                    {1, 3, "pfffp", "R12NR"},
		"rise":                                    {3, 1, "pfpppf", "RN12RN"},
		"both":                                    {2, 2, "pffpp", "R1N1R"},
		"not in a row":                            {3, 3, "pfpffpffpfff", "R1R12R12R12N"},
		"not in a row, the other way":             {3, 3, "fpfppfpppp", "N1N12N12RR"},
		"a fall begins the rise anew":             {2, 2, "fppffpfpp", "N1R1N1N1R"},
		"more than enough changes nothing":        {2, 2, "pfffffppppp", "R1NNNN1RRRR"},
		"a rise alone leaves a fall of one":       {9, 1, "pf", "RN"},
		"a wrong answer needs no other":           {2, 9, "pwpp", "RN1R"},
		"nor one before it":                       {2, 9, "pffwpp", "R12N1R"},
		"none comes back after it":                {1, 9, "pwff", "RNNN"},
		"below one is one, negative ones as well": {-1, -5, "pfp", "RNR"},
	} {
		t.Run(name, func(t *testing.T) {
			f, _ := counting(t, tc.rise, tc.fall)
			up := false
			for i, want := range tc.stand {
				see(t, f, tc.seen[i:i+1])
				v := f.Current(h1)
				against := 0
				switch want {
				case 'R':
					up = true
				case 'N':
					up = false
				default:
					against = int(want - '0')
				}
				assert.Equal(t, up, v.Ready, "after %s", tc.seen[:i+1])
				assert.Equal(t, against, v.Against, "after %s", tc.seen[:i+1])
			}
		})
	}
}

// Control: with `!first &&` taken out of count, the passing ones were not ready.
func TestAGenerationsFirstObservationDecidesByItself(t *testing.T) {
	for name, invalidate := range map[string]func(*Fence){
		"server":      func(f *Fence) { f.InvalidateServer(h1) },
		"tier":        func(f *Fence) { f.InvalidateTier("heavy") },
		"all":         func(f *Fence) { f.InvalidateAll() },
		"new subject": func(f *Fence) { recount(t, f, 3, 3, func(m *Member) { m.Subject += " elsewhere" }) },
	} {
		t.Run(name, func(t *testing.T) {
			f, _ := counting(t, 3, 3)
			see(t, f, "pff")
			require.Equal(t, 2, f.Current(h1).Against)
			invalidate(f)
			assertRefused(t, f.Current(h1), ReasonPending)
			assert.Zero(t, f.Current(h1).Against)
			see(t, f, "f")
			assert.Equal(guarantee.T(t), "health_http_503", f.Current(h1).Reason, "the ready from before does not count")

			see(t, f, "pp")
			invalidate(f)
			see(t, f, "p") // a readmit's own
			assert.True(t, f.Current(h1).Ready)
			see(t, f, "ff")
			assert.True(t, f.Current(h1).Ready, "nor do the fails from before")
		})
	}
}

func TestACompletionsVerdictIsAboutThatProbeAlone(t *testing.T) {
	f, _ := counting(t, 3, 3)
	see(t, f, "p")
	v := f.ProbeNow(h1, func(*Ticket) Observation { return failed() })
	assert.Equal(t, "health_http_503", v.Reason)
	assert.True(t, f.Current(h1).Ready)
	see(t, f, "ff")
	v = f.Check(h1, func(*Ticket) Observation { return ready("two") })
	assert.True(t, v.Ready)
	assert.Equal(t, "two", v.Metadata["id"])
	v = f.Current(h1)
	assert.Equal(t, ReasonRising, v.Reason)
	assert.False(t, v.Ready)
	assert.Nil(t, v.Metadata)
}

// A tenth of a second passes with each probe, which starts at its beginning.
func TestTimesAreThoseOfTheProbeThatStands(t *testing.T) {
	f, c := counting(t, 3, 3)
	probe := func(obs Observation) Verdict {
		return f.ProbeNow(h1, func(*Ticket) Observation { c.step(100 * time.Millisecond); return obs })
	}
	passed := probe(ready("one"))
	probe(failed())
	probe(failed())
	v := f.Current(h1)
	assert.Equal(t, passed.Started, v.Started, "a ready is as old as the last that passed")
	assert.Equal(t, 300*time.Millisecond, v.Age)
	assert.Equal(t, passed.Issue, v.Issue)

	fell := probe(failed())
	assert.Equal(t, fell.Started, f.Current(h1).Started)
	rising := probe(ready("one"))
	assert.Equal(t, rising.Started, f.Current(h1).Started)
	assert.Equal(t, rising.Issue, f.Current(h1).Issue)
}

func TestWhatIsRefusedIsNotCounted(t *testing.T) {
	f, _ := counting(t, 2, 2)
	early := f.BeginProbe(h1)
	see(t, f, "pf")
	assertRefused(t, f.Complete(early, failed()), ReasonSuperseded)
	f.BeginProbe(h1).Abandon()
	assert.True(t, f.Current(h1).Ready)
	assert.Equal(t, 1, f.Current(h1).Against)
}

// Controls: with `s.fresh(&s.evidence, now)` taken out of standing, the server was
// ready on one pass after a second of staleness; with failing observations made to
// refresh the ready that they stand against, it was ready for ever.
func TestG5_FallKeepsNothingReadyBeyondItsMaximumAge(t *testing.T) {
	f, c := counting(t, 2, 1000)
	see(t, f, "p")
	for range 10 {
		c.step(maxAge / 10)
		see(t, f, "f")
		assert.True(t, f.Current(h1).Ready)
	}
	c.step(time.Nanosecond)
	v := f.Current(h1)
	assert.False(guarantee.T(t), v.Ready, "with nobody probing meanwhile")
	assert.Equal(t, "health_http_503", v.Reason, "there is newer evidence than the one that is too old")
	assert.Equal(t, time.Nanosecond, v.Age)
	assert.Zero(t, v.Against)

	see(t, f, "p")
	assert.Equal(guarantee.T(t), ReasonRising, f.Current(h1).Reason, "it has fallen, and has to rise")
	see(t, f, "p")
	assert.True(t, f.Current(h1).Ready)

	c.step(maxAge + 1)
	assert.Equal(guarantee.T(t), ReasonStale, f.Current(h1).Reason)
	see(t, f, "f")
	assert.Equal(guarantee.T(t), "health_http_503", f.Current(h1).Reason, "one is enough against what is too old")
}

// One pass after a jump of the clock there and back: what had grown too old while
// it failed is not ready again by itself.
//
// Control: with s.fresh taken out of count, it was.
func TestG5_AFallByAgeIsKept(t *testing.T) {
	f, c := counting(t, 2, 3)
	see(t, f, "p")
	c.step(2 * maxAge)
	see(t, f, "f")
	c.step(-2 * maxAge)
	assert.False(guarantee.T(t), f.Current(h1).Ready)
	see(t, f, "p")
	assert.Equal(guarantee.T(t), ReasonRising, f.Current(h1).Reason)
}

// Nothing has been seen to fail since: the daemon was asleep, or its clock was set.
//
// Control: with the emptying of against taken out of count, the fail that the second
// pass had answered took the server down after all.
func TestAgeAloneIsNoFall(t *testing.T) {
	f, c := counting(t, 3, 3)
	see(t, f, "pfp")
	c.step(2 * maxAge)
	assert.Equal(guarantee.T(t), ReasonStale, f.Current(h1).Reason)
	see(t, f, "p")
	assert.True(t, f.Current(h1).Ready)
}

func TestReplaceAppliesNewCountsToTheEvidenceThatStands(t *testing.T) {
	f, _ := counting(t, 1, 5)
	see(t, f, "pff")
	recount(t, f, 2, 3)
	assert.True(t, f.Current(h1).Ready)
	assert.Equal(t, 2, f.Current(h1).Against)
	see(t, f, "f")
	assert.False(t, f.Current(h1).Ready)
	see(t, f, "p")
	recount(t, f, 5, 3)
	see(t, f, "ppp")
	assert.False(t, f.Current(h1).Ready)
	see(t, f, "p")
	assert.True(t, f.Current(h1).Ready)
}
