package fence

import (
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"tier-agent/test/guarantee"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	h1 = "heavy/h1"
	h2 = "heavy/h2"
	f1 = "fast/f1"

	maxAge = 10 * time.Second
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

func newFence(t testing.TB) (*Fence, *clock) {
	t.Helper()
	c := &clock{t: time.Unix(1_800_000_000, 0)}
	f := New(c.now)
	require.NoError(t, f.Replace(members()))
	return f, c
}

func members() []Member {
	return []Member{
		{Tier: "heavy", Server: h1, Subject: "a", MaxAge: maxAge},
		{Tier: "heavy", Server: h2, Subject: "b", MaxAge: maxAge},
		{Tier: "fast", Server: f1, Subject: "c", MaxAge: maxAge},
	}
}

func ready(id string) Observation {
	return Observation{Ready: true, Reason: "identity_passed", Metadata: map[string]string{"id": id}}
}

func failed() Observation { return Observation{Reason: "health_http_503"} }

// publish makes obs the evidence of the server.
func publish(t testing.TB, f *Fence, name string, obs Observation) Verdict {
	t.Helper()
	v := f.ProbeNow(name, func(*Ticket) Observation { return obs })
	require.Equal(t, obs.Reason, v.Reason)
	return v
}

// assertRefused checks that a fenced completion gave its caller nothing.
func assertRefused(t testing.TB, v Verdict, reason string) {
	t.Helper()
	assert.False(guarantee.T(t), v.Ready)
	assert.Equal(t, reason, v.Reason)
	assert.Nil(guarantee.T(t), v.Metadata)
	assert.False(guarantee.T(t), v.HasEvidence())
}

// Control: with `t.gen != s.generation()` taken out of complete, the second
// half failed: the ticket of the old generation was published as ready.
func TestR001_ResultIsTiedToTheGenerationWhenItsProbeBegan(t *testing.T) {
	f, _ := newFence(t)

	begun := f.BeginProbe(h1)
	v := f.Complete(begun, ready("one"))
	assert.True(t, v.Ready)
	assert.Equal(t, begun.Generation(), v.Generation)
	assert.Equal(t, begun.Generation(), f.Current(h1).Generation)
	assert.Equal(t, begun.Issue(), f.Current(h1).Issue)

	old := f.BeginProbe(h1)
	_, ok := f.InvalidateServer(h1)
	require.True(t, ok)
	assertRefused(t, f.Complete(old, ready("two")), ReasonInvalidated)
	assert.NotEqual(t, old.Generation(), f.Current(h1).Generation)
	assert.Equal(guarantee.T(t), ReasonPending, f.Current(h1).Reason)
}

// Control: with `row.epoch.Store` taken out of InvalidateTier, the evidence
// stood and the generation did not move. With `s.evidence.gen != gen` taken out of
// judge and the call of dropOutdated too, the evidence stood.
func TestR002_InvalidatingATierAdvancesItAndClearsItsEvidenceAtOnce(t *testing.T) {
	f, _ := newFence(t)
	publish(t, f, h1, ready("one"))
	publish(t, f, f1, ready("small"))

	before := f.Current(h1).Generation
	gen, ok := f.InvalidateTier("heavy")
	require.True(t, ok)
	assert.Greater(t, gen.Tier, before.Tier)
	assert.Equal(t, before.Global, gen.Global)
	for _, name := range []string{h1, h2} { // h2 never had evidence
		v := f.Current(name)
		assert.Equal(guarantee.T(t), ReasonPending, v.Reason)
		assert.False(guarantee.T(t), v.HasEvidence())
		assert.Equal(t, gen.Tier, v.Generation.Tier)
	}
	assert.True(t, f.Current(f1).Ready, "another tier keeps its evidence")

	again, ok := f.InvalidateTier("heavy")
	require.True(t, ok)
	assert.Greater(t, again.Tier, gen.Tier, "also when nothing was there")

	_, ok = f.InvalidateTier("nosuch")
	assert.False(t, ok)
}

// Control: with the walk over the servers left in place but
// `f.global.Store(f.counter.Add(1))` taken out of InvalidateAll, all three
// completions were accepted.
func TestR003_InvalidatingEverythingFencesEveryProbeInFlight(t *testing.T) {
	f, _ := newFence(t)
	publish(t, f, h1, ready("one")) // h2 and f1 never had a result

	tickets := map[string]*Ticket{h1: f.BeginProbe(h1), h2: f.BeginProbe(h2), f1: f.BeginProbe(f1)}
	gen := f.InvalidateAll()
	for name, ticket := range tickets {
		assertRefused(t, f.Complete(ticket, ready("late")), ReasonInvalidated)
		v := f.Current(name)
		assert.Equal(guarantee.T(t), ReasonPending, v.Reason)
		assert.Equal(t, gen.Global, v.Generation.Global)
	}
}

// Control: with the return taken out of complete's first case, so that a void
// ticket went on to publish, the evidence was replaced and "late" returned.
func TestR004_ALateCompletionChangesNothingAndRelaunchesNothing(t *testing.T) {
	f, c := newFence(t)
	launched := 0
	entered, release := make(chan struct{}), make(chan struct{})
	done := make(chan Verdict)
	go func() {
		done <- f.Check(h1, func(*Ticket) Observation {
			launched++
			close(entered)
			<-release
			return ready("late")
		})
	}()
	<-entered
	f.InvalidateTier("heavy")
	current := publish(t, f, h1, ready("new"))
	c.step(time.Second)
	close(release)

	assertRefused(t, <-done, ReasonInvalidated)
	assert.Equal(t, 1, launched)
	after := f.Current(h1)
	assert.Equal(guarantee.T(t), current.Issue, after.Issue)
	assert.Equal(guarantee.T(t), current.Ended, after.Ended)
	assert.Equal(guarantee.T(t), "new", after.Metadata["id"])
}

// Control: with `if s.checking` taken out of BeginCheck, the second Check
// launched its probe. With `t.srv.checking = false` taken out of end, the last
// one never did.
func TestR005_OneProbeInFlightThroughCheck(t *testing.T) {
	f, _ := newFence(t)
	mustNot := func(*Ticket) Observation {
		guarantee.T(t).Error("a second probe was launched")
		return failed()
	}
	publish(t, f, h1, ready("one"))
	entered, release := make(chan struct{}), make(chan struct{})
	done := make(chan Verdict)
	go func() {
		done <- f.Check(h1, func(*Ticket) Observation {
			close(entered)
			<-release
			return ready("late")
		})
	}()
	<-entered

	v := f.Check(h1, mustNot)
	assert.True(t, v.Ready, "what is current is answered while a probe is out")
	assert.Equal(t, "one", v.Metadata["id"])

	f.InvalidateServer(h1)
	assertRefused(t, f.Check(h1, mustNot), ReasonPending)
	f.InvalidateTier("heavy")
	f.InvalidateAll()
	assertRefused(t, f.Check(h1, mustNot), ReasonPending)
	assert.Equal(t, 1, f.Outstanding(h1))

	close(release)
	assertRefused(t, <-done, ReasonInvalidated)
	assert.Zero(t, f.Outstanding(h1))
	v = f.Check(h1, func(*Ticket) Observation { return ready("fresh") })
	assert.True(t, v.Ready, "once it has ended, the next Check may probe")
}

// Control: with the case `t.issue < s.accepted` taken out of complete, the
// earlier-issued probe replaced the later one, both ways.
func TestR006_AnEarlierIssuedProbeNeverReplacesALaterOne(t *testing.T) {
	for name, obs := range map[string][2]Observation{
		"late success": {ready("old"), failed()},
		"late failure": {failed(), ready("new")},
	} {
		t.Run(name, func(t *testing.T) {
			f, _ := newFence(t)
			earlier, later := f.BeginProbe(h1), f.BeginProbe(h1)
			kept := f.Complete(later, obs[1])
			require.Equal(t, obs[1].Reason, kept.Reason)
			assertRefused(t, f.Complete(earlier, obs[0]), ReasonSuperseded)
			assert.Equal(guarantee.T(t), kept.Issue, f.Current(h1).Issue)
			assert.Equal(guarantee.T(t), obs[1].Reason, f.Current(h1).Reason)
		})
	}
	t.Run("in order both count", func(t *testing.T) {
		f, _ := newFence(t)
		earlier, later := f.BeginProbe(h1), f.BeginProbe(h1)
		assert.True(t, f.Complete(earlier, ready("old")).Ready)
		assert.Equal(t, "new", f.Complete(later, ready("new")).Metadata["id"])
	})
	t.Run("a check is ordered with direct probes", func(t *testing.T) {
		f, _ := newFence(t)
		check, _ := f.BeginCheck(h1)
		publish(t, f, h1, failed())
		assertRefused(t, f.Complete(check, ready("old")), ReasonSuperseded)
	})
}

// Control: with the case `t.issue < s.accepted` taken out of complete, the old
// failure stood, with its times. With `started: t.started` replaced by the
// time of completion, the times were wrong and the age too small.
func TestR007_TimesAreThoseOfTheAcceptedProbe(t *testing.T) {
	f, c := newFence(t)
	t0 := c.now()
	old := f.BeginProbe(h1) // started at 0 s
	c.step(time.Second)
	newer := f.BeginProbe(h1) // started at 1 s
	c.step(time.Second)
	v := f.Complete(newer, ready("new")) // ended at 2 s
	require.True(t, v.Ready)
	c.step(time.Second)
	assertRefused(t, f.Complete(old, failed()), ReasonSuperseded) // at 3 s

	v = f.Current(h1)
	assert.True(guarantee.T(t), v.Ready)
	assert.Equal(guarantee.T(t), t0.Add(time.Second), v.Started)
	assert.Equal(guarantee.T(t), t0.Add(2*time.Second), v.Ended)
	assert.Equal(t, 2*time.Second, v.Age)
}

// Control: with Complete made to hold the server's lock across the probe (run
// locking around probe), the test never got past the first read.
func TestR009_ABlockedProbeAndAnInvalidationTouchNoOther(t *testing.T) {
	f, _ := newFence(t)
	publish(t, f, f1, ready("small"))
	entered, release := make(chan struct{}), make(chan struct{})
	done := make(chan Verdict)
	go func() {
		done <- f.Check(h1, func(*Ticket) Observation {
			close(entered)
			<-release
			return ready("one")
		})
	}()
	<-entered

	// All of this happens while the probe of h1 is blocked.
	before := f.Current(f1)
	assert.Equal(t, ReasonPending, f.Current(h1).Reason)
	assert.True(t, f.Check(h2, func(*Ticket) Observation { return ready("two") }).Ready)
	publish(t, f, f1, ready("small"))
	f.InvalidateServer(h2)
	assert.Equal(t, before.Generation, f.Current(f1).Generation)
	require.NoError(t, f.Replace(members()))

	close(release)
	assert.True(t, (<-done).Ready, "an invalidation of h2 does not fence h1")
}

// Control: with newServer given epoch 1 and tierEpoch a fresh counter of its
// own, the generations of the second life were not above those of the first
// and the old ticket was accepted.
func TestR010_StateIsBoundedAndCountersNeverGoBack(t *testing.T) {
	f, _ := newFence(t)
	for range 10_000 {
		f.InvalidateServer(h1)
		f.InvalidateTier("heavy")
		f.InvalidateAll()
	}
	assert.Len(t, f.table.Load().servers, 3)
	assert.Len(t, f.table.Load().tiers, 2)

	last := publish(t, f, h1, ready("one"))
	out := f.BeginProbe(h1)
	require.NoError(t, f.Replace(members()[2:]))
	assert.Equal(t, ReasonUnknown, f.Current(h1).Reason)
	assert.Len(t, f.table.Load().servers, 1)
	assert.Len(t, f.table.Load().tiers, 1)

	require.NoError(t, f.Replace(members()))
	assertRefused(t, f.Complete(out, ready("former life")), ReasonInvalidated)
	v := f.Current(h1)
	assert.Equal(guarantee.T(t), ReasonPending, v.Reason)
	assert.Greater(t, v.Generation.Tier, last.Generation.Tier)
	assert.Greater(t, v.Generation.Server, last.Generation.Server)
	assert.Greater(t, f.BeginProbe(h1).Issue(), out.Issue())
}
