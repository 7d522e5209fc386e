package tier

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
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

// instances is fast with an engine that names its instance.
func instances(change ...func(*Spec)) []Spec {
	all := specs()[1:]
	all[0].Instance = "boot.id"
	for _, c := range change {
		c(&all[0])
	}
	return all
}

func bootOf(n int32) probe.Result {
	return probe.Result{Ready: true, Reason: probe.MetadataPassed, Metadata: map[string]string{"boot.id": fmt.Sprint(n)}}
}

// heard is what the monitor has told of fast/f1.
type heard struct {
	mu  sync.Mutex // protects all
	all []Probed
}

func (l *heard) told(p Probed) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.all = append(l.all, p)
}

func (l *heard) since(n int) []Probed {
	l.mu.Lock()
	defer l.mu.Unlock()
	return append([]Probed(nil), l.all[n:]...)
}

// Control: with the second check taken out of watch, the new engine was not ready
// before the next interval.
func TestARestartedEngineIsProbedAgainAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, err := New(instances(), time.Now)
		require.NoError(t, err)
		var boot atomic.Int32
		var l heard
		mon, stop := run(t, m, func(context.Context, probe.Target) probe.Result {
			seen := boot.Load()
			time.Sleep(100 * time.Millisecond)
			return bootOf(seen)
		}, l.told)
		defer stop()
		<-mon.FirstRound()
		boot.Store(1)
		time.Sleep(1050 * time.Millisecond) // the first probe of it has ended, 1.1 s after the start
		synctest.Wait()
		assert.Equal(guarantee.T(t), fence.ReasonPending, serverOf(t, m, "fast/f1").Reason)
		time.Sleep(100 * time.Millisecond)
		synctest.Wait()
		assert.True(t, serverOf(t, m, "fast/f1").Admit)
		assert.Equal(t, "1", m.Status()[0].Servers[0].Metadata["boot.id"])

		told := l.since(1)
		require.Len(t, told, 2)
		assert.True(t, told[0].Verdict.Restarted)
		assert.Equal(guarantee.T(t), fence.ReasonInvalidated, told[0].Verdict.Reason)
		assert.Equal(t, probe.MetadataPassed, told[0].Observed)
		assert.True(t, told[1].Verdict.Ready)
		time.Sleep(5 * time.Second)
		assert.Len(t, l.since(3), 5, "and then at the interval")
	})
}

// The probe that is out belongs to somebody who asked by hand, and saw the old
// engine.
func TestARestartWithAProbeInFlight(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, err := New(instances(), time.Now)
		require.NoError(t, err)
		var boot atomic.Int32
		var hang atomic.Bool
		release := make(chan struct{})
		mon, stop := run(t, m, func(context.Context, probe.Target) probe.Result {
			seen := boot.Load()
			if hang.CompareAndSwap(true, false) {
				<-release
			}
			return bootOf(seen)
		}, nil)
		defer stop()
		<-mon.FirstRound()
		hang.Store(true)
		old := make(chan fence.Verdict)
		go func() { old <- mon.ProbeNow(t.Context(), "fast/f1") }()
		synctest.Wait()
		boot.Store(1)
		time.Sleep(time.Second)
		synctest.Wait()
		close(release)
		v := <-old
		assert.False(guarantee.T(t), v.Ready)
		assert.Equal(t, fence.ReasonInvalidated, v.Reason)
		assert.Equal(t, "1", m.Status()[0].Servers[0].Metadata["boot.id"])
	})
}

// Two that take turns behind one address are never ready, and are asked no more
// than twice in an interval.
func TestEnginesThatTakeTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, err := New(instances(), time.Now)
		require.NoError(t, err)
		var n atomic.Int32
		mon, stop := run(t, m, func(context.Context, probe.Target) probe.Result { return bootOf(n.Add(1)) }, nil)
		defer stop()
		<-mon.FirstRound()
		time.Sleep(10*time.Second + time.Millisecond)
		synctest.Wait()
		assert.False(guarantee.T(t), serverOf(t, m, "fast/f1").Admit)
		assert.EqualValues(t, 1+2*10, n.Load())
	})
}

// Without Instance the same field is metadata like any other.
func TestWithoutAnInstanceNothingIsARestart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, err := New(instances(func(s *Spec) { s.Instance = "" }), time.Now)
		require.NoError(t, err)
		var n atomic.Int32
		mon, stop := run(t, m, func(context.Context, probe.Target) probe.Result { return bootOf(n.Add(1)) }, nil)
		defer stop()
		<-mon.FirstRound()
		gen := serverOf(t, m, "fast/f1").Generation
		time.Sleep(3*time.Second + time.Millisecond)
		synctest.Wait()
		assert.True(t, serverOf(t, m, "fast/f1").Admit)
		assert.Equal(t, gen, serverOf(t, m, "fast/f1").Generation)

		require.NoError(t, m.Replace(instances()))
		<-mon.Follow()
		time.Sleep(time.Second)
		synctest.Wait()
		assert.NotEqual(t, gen, serverOf(t, m, "fast/f1").Generation, "until it is told of one")
	})
}

// Changed is called when what is told of the server changes, not with each probe
// that says otherwise.
//
// Control: with the probe's own verdict handed to note, it was called for each.
func TestChangedFollowsWhatStands(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, err := New(instances(func(s *Spec) { s.Rise, s.Fall = 2, 3 }), time.Now)
		require.NoError(t, err)
		outcomes := []bool{true, false, true, false, false, true, false, false, false, true, true, true}
		var n atomic.Int32
		var stands []string
		mon := NewMonitor(m, proberFunc(func(ctx context.Context, target probe.Target) probe.Result {
			if outcomes[n.Add(1)-1] {
				return passing(ctx, target)
			}
			return probe.Result{Reason: probe.Timeout}
		}), nil, slog.New(slog.DiscardHandler))
		mon.Changed = func() {
			st := m.Status()[0].Servers[0]
			stands = append(stands, fmt.Sprintf("%d %s", n.Load(), st.Evidence))
		}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- mon.Run(ctx) }()
		time.Sleep(11*time.Second + time.Millisecond)
		cancel()
		require.NoError(t, <-done)
		assert.Equal(t, []string{"1 identity_passed", "9 probe_timeout", "10 probe_rising", "11 identity_passed"}, stands)
	})
}

func TestStatusCountsWhatIsAgainst(t *testing.T) {
	o := operate(t, func(s *Spec) { s.Fall = 3 })
	o.saw(probe.IdentityPassed, probe.Timeout, "health_transport_reset")
	st := o.m.Status()[0].Servers[0]
	assert.Equal(t, probe.IdentityPassed, st.Evidence)
	assert.Equal(t, 2, st.Against)
}
