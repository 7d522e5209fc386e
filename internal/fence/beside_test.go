package fence

import (
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"tier-agent/test/guarantee"
)

// x1 stands beside h1; its evidence may be older.
const x1 = "heavy/h1 exercise"

func besides() []Member {
	return []Member{
		{Tier: "heavy", Server: x1, Beside: h1, Subject: "x", MaxAge: time.Minute}, // the order does not matter
		{Tier: "heavy", Server: h1, Subject: "a", MaxAge: 5 * time.Second, StartWindow: 10 * time.Second},
		{Tier: "heavy", Server: h2, Subject: "b", MaxAge: 5 * time.Second},
	}
}

func newBeside(t testing.TB) (*Fence, *clock) {
	t.Helper()
	f, c := newFence(t)
	require.NoError(t, f.Replace(besides()))
	return f, c
}

func (f *Fence) sees(name string, obs Observation) Verdict {
	return f.ProbeNow(name, func(*Ticket) Observation { return obs })
}

func both(f *Fence) [2]bool {
	own, other := f.Together(h1, x1)
	return [2]bool{own.Ready, other.Ready}
}

// Controls: with a core of its own for what stands beside, and with one.drop taken
// out of advance together with the comparison in judgeAt, the evidence stayed.
func TestG1_EveryInvalidationVoidsBoth(t *testing.T) {
	for name, invalidate := range map[string]func(*Fence){
		"server":      func(f *Fence) { f.InvalidateServer(h1) },
		"beside":      func(f *Fence) { f.InvalidateServer(x1) },
		"tier":        func(f *Fence) { f.InvalidateTier("heavy") },
		"all":         func(f *Fence) { f.InvalidateAll() },
		"replacement": func(f *Fence) { m := besides(); m[1].Subject = "a2"; _ = f.Replace(m) },
		"restart": func(f *Fence) {
			f.sees(h1, Observation{Ready: true, Instance: "i1"})
			f.sees(h1, Observation{Ready: true, Instance: "i2"})
		},
	} {
		t.Run(name, func(t *testing.T) {
			f, _ := newBeside(t)
			f.sees(h1, ready("one"))
			f.sees(x1, ready("one"))
			require.Equal(t, [2]bool{true, true}, both(f))
			own, other := f.BeginProbe(h1), f.BeginProbe(x1)

			invalidate(f)
			a, b := f.Together(h1, x1)
			assertRefused(t, a, ReasonPending)
			assertRefused(t, b, ReasonPending)
			assert.Equal(t, a.Generation, b.Generation)
			assertRefused(t, f.Complete(own, ready("one")), ReasonInvalidated)
			assertRefused(t, f.Complete(other, ready("one")), ReasonInvalidated)
			assert.Equal(guarantee.T(t), [2]bool{false, false}, both(f))

			f.sees(h1, ready("one"))
			assert.Equal(guarantee.T(t), [2]bool{true, false}, both(f), "the old evidence of the second kind is not back")
			f.sees(x1, ready("one"))
			assert.Equal(t, [2]bool{true, true}, both(f))
		})
	}
}

func TestTogetherAllocatesNothing(t *testing.T) {
	f, _ := newBeside(t)
	f.sees(h1, ready("one"))
	assert.Zero(t, testing.AllocsPerRun(1000, func() { f.Together(h1, x1) }))
}

func TestG5_EachKindAgesByItself(t *testing.T) {
	f, c := newBeside(t)
	f.sees(x1, ready("one"))
	c.step(58 * time.Second)
	f.sees(h1, ready("one"))
	assert.Equal(t, [2]bool{true, true}, both(f))
	c.step(2*time.Second + time.Nanosecond)
	own, other := f.Together(h1, x1)
	assert.True(t, own.Ready)
	assert.Equal(t, ReasonStale, other.Reason)
	assert.False(guarantee.T(t), other.Ready)
	f.sees(x1, ready("one"))
	c.step(5 * time.Second)
	own, other = f.Together(h1, x1)
	assert.Equal(guarantee.T(t), ReasonStale, own.Reason)
	assert.True(t, other.Ready)
}

// An engine that fails and comes back may be another process, which has loaded
// nothing yet, and nobody has said so.
//
// Control: with s.turn() taken out of count, the completion of the process that
// went spoke for the one that came; with the issue number left alone in turn, one
// that was out did.
func TestWhatComesBackIsExercisedAnew(t *testing.T) {
	g := guarantee.T(t)
	f, _ := newBeside(t)
	f.sees(x1, ready("one"))
	f.sees(h1, ready("one")) // the first of its generation turns nothing
	require.Equal(t, [2]bool{true, true}, both(f))
	f.sees(h1, ready("one"))
	require.Equal(t, [2]bool{true, true}, both(f))

	out := f.BeginProbe(x1)
	f.sees(h1, failed())
	assert.Equal(g, ReasonSuperseded, f.Complete(out, ready("one")).Reason)
	early := f.sees(x1, ready("one"))
	assert.True(t, early.Ready)
	out = f.BeginProbe(x1)
	f.sees(h1, ready("one"))
	assert.Equal(g, [2]bool{true, false}, both(f))
	assert.Equal(g, ReasonSuperseded, f.Complete(out, ready("one")).Reason)
	assert.Equal(g, [2]bool{true, false}, both(f))
	f.sees(x1, ready("one"))
	assert.Equal(t, [2]bool{true, true}, both(f))

	f.sees(x1, failed()) // and what fails beside it says nothing about the server itself
	assert.Equal(g, [2]bool{true, false}, both(f))
}

// A swap that was announced, and another process that nobody announced: the
// exercise was quicker than the first probe of its generation, and the process that
// answered it has gone.
//
// Control: with s.turn() taken out of restarted, both were ready.
func TestG1_NoExerciseOfAnInstanceThatWent(t *testing.T) {
	f, _ := newBeside(t)
	f.sees(h1, Observation{Ready: true, Instance: "i1"})
	f.InvalidateServer(h1)
	f.sees(x1, ready("one"))
	out := f.BeginProbe(x1)
	v := f.sees(h1, Observation{Ready: true, Instance: "i2"})
	assert.True(t, v.Ready, "the first of its generation")
	assert.Equal(guarantee.T(t), [2]bool{true, false}, both(f))
	assert.Equal(guarantee.T(t), ReasonSuperseded, f.Complete(out, ready("one")).Reason)
	f.sees(x1, ready("one"))
	assert.Equal(t, [2]bool{true, true}, both(f))

	f.InvalidateServer(h1)
	f.sees(x1, ready("one"))
	f.sees(h1, Observation{Ready: true, Instance: "i2"})
	assert.Equal(t, [2]bool{true, true}, both(f), "the one that was known")
}

// Control: with whole() not asked in count, it had started as soon as its health
// was there.
func TestAServerHasStartedWhenBothAreReady(t *testing.T) {
	f, c := newBeside(t)
	f.sees(h1, ready("one"))
	f.sees(x1, failed())
	own, _ := f.Together(h1, x1)
	assert.True(t, own.Starting)
	f.sees(x1, ready("one"))
	own, _ = f.Together(h1, x1)
	assert.False(t, own.Starting)
	f.InvalidateServer(h1)
	c.step(time.Second)
	own, _ = f.Together(h1, x1)
	assert.False(t, own.Starting, "it has been ready")
}

func TestTicketsOfBothAreOutForBoth(t *testing.T) {
	f, _ := newBeside(t)
	one, _ := f.BeginCheck(h1)
	other, _ := f.BeginCheck(x1)
	require.NotNil(t, one)
	require.NotNil(t, other, "each kind has a place of its own")
	again, _ := f.BeginCheck(x1)
	assert.Nil(guarantee.T(t), again, "G3")
	assert.Equal(t, 2, f.Outstanding(h1))
	idle := f.WhenIdle(h1)
	one.Abandon()
	select {
	case <-idle:
		t.Fatal("one is still out")
	default:
	}
	other.Abandon()
	<-idle
}

func TestReplaceOfWhatStandsBeside(t *testing.T) {
	f, _ := newBeside(t)
	f.sees(h1, ready("one"))
	f.sees(x1, ready("one"))
	out := f.BeginProbe(x1)

	m := besides()
	m[0].Subject = "another body"
	require.NoError(t, f.Replace(m))
	assert.Equal(guarantee.T(t), [2]bool{true, false}, both(f), "the server keeps its own")
	assertRefused(t, f.Complete(out, ready("one")), ReasonInvalidated)

	require.NoError(t, f.Replace(besides()[1:]))
	own, other := f.Together(h1, x1)
	assert.True(t, own.Ready)
	assert.Equal(guarantee.T(t), ReasonUnknown, other.Reason)
	require.NoError(t, f.Replace(besides()))
	assert.Equal(guarantee.T(t), [2]bool{true, false}, both(f))

	own, other = f.Together(h2, x1)
	assert.Equal(t, ReasonPending, own.Reason)
	assert.Equal(t, ReasonUnknown, other.Reason, "it stands beside another")

	for what, wrong := range map[string]Member{
		"nobody":       {Tier: "heavy", Server: "y", Beside: "heavy/none", MaxAge: time.Second},
		"another tier": {Tier: "fast", Server: "y", Beside: h1, MaxAge: time.Second},
		"no server":    {Tier: "heavy", Server: "y", Beside: x1, MaxAge: time.Second},
	} {
		assert.ErrorContains(t, f.Replace(append(besides(), wrong)), "which is no server of its tier", what)
	}
}

// The two are ready in turn and never together: nor may any reader see that.
//
// Control: with Together made of two calls of Current, readers did (four runs of
// five, and each with -race).
func TestG1_NoReaderJoinsTwoMoments(t *testing.T) {
	f, _ := newBeside(t)
	stop := make(chan struct{})
	var readers sync.WaitGroup
	for range 4 {
		readers.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
					runtime.Gosched() // or one processor is the readers' for most of the time
				}
				own, other := f.Together(h1, x1)
				if own.Ready && other.Ready {
					guarantee.T(t).Errorf("ready at %s and %s", own.Generation, other.Generation)
					return
				}
			}
		})
	}
	for range 50000 {
		f.sees(h1, ready("one"))
		f.InvalidateServer(h1)
		f.sees(x1, ready("one"))
		f.InvalidateServer(h1)
	}
	close(stop)
	readers.Wait()
}
