package tier

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"tier-agent/internal/fence"
	"tier-agent/internal/probe"
	"tier-agent/test/guarantee"
)

// schedule notes when each probe began, since the test did. A probe is known by
// its target's MaxBody: the server's number, and its address's in the hundreds.
type schedule struct {
	began time.Time
	mu    sync.Mutex // protects at
	at    map[int64][]time.Duration
}

func newSchedule() *schedule { return &schedule{began: time.Now(), at: map[int64][]time.Duration{}} }

func (s *schedule) note(target probe.Target) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.at[target.MaxBody] = append(s.at[target.MaxBody], time.Since(s.began))
}

func (s *schedule) of(id int64) []time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]time.Duration(nil), s.at[id]...)
}

// passing notes the probe of a server that is ready.
func (s *schedule) passing(ctx context.Context, target probe.Target) probe.Result {
	s.note(target)
	return passing(ctx, target)
}

// scheduled runs a monitor of the numbered servers, which all pass, and waits for its first
// round.
func scheduled(t *testing.T) (*Model, *schedule, *Monitor, context.CancelFunc) {
	t.Helper()
	m, err := New(numbered(), time.Now)
	require.NoError(t, err)
	s := newSchedule()
	mon, stop := run(t, m, s.passing, nil)
	<-mon.FirstRound()
	return m, s, mon, stop
}

// numbered gives every server a number: heavy's 1 to 3, fast's 4.
func numbered() []Spec {
	all := specs()
	n := int64(0)
	for i := range all {
		for j := range all[i].Servers {
			n++
			all[i].Servers[j].Target.MaxBody = n
		}
	}
	return all
}

// elsewhere is numbered with another address for heavy/h1.
func elsewhere() []Spec {
	next := numbered()
	next[0].Servers[0].Subject, next[0].Servers[0].Target.MaxBody = "h1 elsewhere", 101
	return next
}

func replace(t *testing.T, m *Model, mon *Monitor, specs []Spec) (firstRound <-chan struct{}) {
	t.Helper()
	require.NoError(t, m.Replace(specs))
	return mon.Follow()
}

const ms = time.Millisecond

// Controls: with probedAlike always false every server was probed again at 1.5 s;
// with the stop of the watcher taken out of part the new address waited for ever
// and the test did not end.
func TestFollowDisturbsNothingThatStays(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, err := New(numbered(), time.Now)
		require.NoError(t, err)
		s := newSchedule()
		mon, stop := run(t, m, func(ctx context.Context, target probe.Target) probe.Result {
			s.note(target)
			time.Sleep(100 * ms)
			return passing(ctx, target)
		}, nil)
		defer stop()
		<-mon.FirstRound()
		time.Sleep(time.Until(s.began.Add(1500 * ms)))

		next := elsewhere()
		next[0].MinReady, next[0].MaxAge, next[0].Servers[1].Weight = 1, 6*time.Second, 10
		next[1].Interval = 2 * time.Second
		next = append(next, Spec{Name: "new", MinReady: 1, Interval: time.Second, MaxAge: 5 * time.Second,
			Servers: []ServerSpec{{Backend: "new", Name: "n1", Target: probe.Target{MaxBody: 5}}}})
		first := replace(t, m, mon, next)
		assert.True(t, serverOf(t, m, "heavy/h2").Admit)
		assert.Equal(guarantee.T(t), fence.ReasonPending, serverOf(t, m, "heavy/h1").Reason)
		assert.True(t, serverOf(t, m, "fast/f1").Admit, "another interval leaves the evidence")
		<-first
		assert.Equal(t, 1600*ms+400*time.Microsecond, time.Since(s.began), "the newcomers, and nobody else")
		for _, name := range []string{"heavy/h1", "new/n1"} {
			assert.True(t, serverOf(t, m, name).Admit, name)
		}
		time.Sleep(time.Until(s.began.Add(4 * time.Second)))
		synctest.Wait()
		const us200 = startSpacing
		assert.Equal(t, []time.Duration{0, time.Second}, s.of(1))
		assert.Equal(t, []time.Duration{1500 * ms, 2500 * ms, 3500 * ms}, s.of(101))
		assert.Equal(t, []time.Duration{us200, time.Second + us200, 2*time.Second + us200, 3*time.Second + us200}, s.of(2))
		assert.Equal(t, []time.Duration{2 * us200, time.Second + 2*us200, 2*time.Second + 2*us200, 3*time.Second + 2*us200}, s.of(3))
		assert.Equal(t, []time.Duration{3 * us200, time.Second + 3*us200, 1500*ms + us200, 3500*ms + us200}, s.of(4))
		assert.Equal(t, []time.Duration{1500*ms + 2*us200, 2500*ms + 2*us200, 3500*ms + 2*us200}, s.of(5))
	})
}

// Control: with the wait for those before taken out of Follow, the new address
// was probed while the old one's probe was still out.
func TestAHeldProbeOfARemovedTierIsDiscardedAndWaitedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, err := New(numbered(), time.Now)
		require.NoError(t, err)
		s := newSchedule()
		release := make(chan struct{})
		told := map[string][]Probed{}
		var mu sync.Mutex // protects told
		mon, stop := run(t, m, func(ctx context.Context, target probe.Target) probe.Result {
			s.note(target)
			if target.MaxBody == 1 {
				<-release
			}
			return passing(ctx, target)
		}, func(p Probed) {
			mu.Lock()
			defer mu.Unlock()
			told[p.Server] = append(told[p.Server], p)
		})
		defer stop()
		time.Sleep(500 * ms)
		select {
		case <-replace(t, m, mon, numbered()[1:]):
		default:
			t.Error("nobody is new, so there is no round to wait for")
		}
		_, known := m.Server([]byte("heavy/h1"))
		assert.False(t, known)
		time.Sleep(time.Second)
		assert.Len(t, s.of(2), 1, "a removed server is not probed")

		first := replace(t, m, mon, elsewhere())
		time.Sleep(time.Second)
		assert.Empty(guarantee.T(t), s.of(101), "the old probe is out")
		assert.Equal(guarantee.T(t), fence.ReasonPending, serverOf(t, m, "heavy/h1").Reason)
		assert.True(t, serverOf(t, m, "heavy/h2").Admit, "its neighbours wait for nobody")
		assert.False(t, closed(first))

		close(release)
		synctest.Wait()
		mu.Lock()
		assert.Equal(guarantee.T(t), []string{fence.ReasonInvalidated, "identity_passed"}, []string{told["heavy/h1"][0].Verdict.Reason, told["heavy/h1"][0].Observed})
		mu.Unlock()
		<-first
		assert.Equal(t, []time.Duration{2500 * ms}, s.of(101))
		assert.True(t, serverOf(t, m, "heavy/h1").Admit)
		assert.Len(t, s.of(4), 3, "fast has never noticed: 0, 1 and 2 s")
	})
}

// Edited again and again while a probe is out: one server is probed by one at a
// time, whatever the order in which they end.
func TestManyReplacementsWhileAProbeIsHeld(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, err := New(numbered(), time.Now)
		require.NoError(t, err)
		s := newSchedule()
		release := make(chan struct{})
		mon, stop := run(t, m, func(ctx context.Context, target probe.Target) probe.Result {
			s.note(target)
			if target.MaxBody == 1 {
				<-release
			}
			return passing(ctx, target)
		}, nil)
		defer stop()
		time.Sleep(100 * ms)
		for range 50 {
			replace(t, m, mon, elsewhere())
			synctest.Wait()
			replace(t, m, mon, numbered())
			synctest.Wait()
		}
		first := replace(t, m, mon, elsewhere())
		synctest.Wait()
		mon.watchers.mu.Lock()
		left := len(mon.watchers.leaving["heavy/h1"])
		mon.watchers.mu.Unlock()
		assert.LessOrEqual(t, left, 2, "those that never began are not remembered")
		assert.Len(guarantee.T(t), s.of(1), 1)
		assert.Empty(guarantee.T(t), s.of(101))
		close(release)
		<-first
		assert.Equal(t, []time.Duration{100 * ms}, s.of(101))
		assert.True(t, serverOf(t, m, "heavy/h1").Admit)
	})
}

// Between Replace and Follow, and while it waits for its turn, the old watcher
// would get a ticket for whoever has the name now.
//
// Control: with `!s.about(t, k)` taken out of check, the old address's probe became
// the new one's evidence.
func TestNoProbeOfTheOldAddressSpeaksForTheNewOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, s, mon, stop := scheduled(t)
		defer stop()
		time.Sleep(100 * ms)
		require.NoError(t, m.Replace(elsewhere()))
		time.Sleep(2 * time.Second)
		assert.Len(t, s.of(1), 1)
		assert.Equal(guarantee.T(t), fence.ReasonPending, serverOf(t, m, "heavy/h1").Reason)
		assert.True(t, mon.ProbeNow(t.Context(), "heavy/h1").Ready)
		assert.Len(t, s.of(101), 1, "who asks by name gets the present one")
		<-mon.Follow()
		assert.Len(t, s.of(101), 2)
	})
}

// A suspension holds over a replacement, also for a server that it changes.
func TestASuspendedServerStaysSuspended(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, s, mon, stop := scheduled(t)
		defer stop()
		resume := mon.Suspend([]string{"heavy/h1", "heavy/h2"})
		<-replace(t, m, mon, elsewhere())
		time.Sleep(2500 * ms)
		assert.Empty(t, s.of(101))
		assert.Len(t, s.of(2), 1)
		resume()
		time.Sleep(time.Second)
		synctest.Wait()
		assert.Len(t, s.of(101), 1)
		assert.Len(t, s.of(2), 2)
	})
}

// A tier that goes and comes back between two calls of Follow is another one, also
// where nothing about it has changed.
//
// Control: with the comparison of the states taken out of part, its watcher took
// no notice of a suspension.
func TestFollowMissesNoGap(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, s, mon, stop := scheduled(t)
		defer stop()
		time.Sleep(500 * ms)
		require.NoError(t, m.Replace(numbered()[1:]))
		<-replace(t, m, mon, numbered())
		assert.Len(t, s.of(1), 2, "once in each life")
		assert.Len(t, s.of(4), 1)
		defer mon.Suspend([]string{"heavy/h1"})()
		time.Sleep(5 * time.Second)
		assert.Len(t, s.of(1), 2)
	})
}

// Neither before Run nor after it does anything follow.
func TestFollowOutsideRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, err := New(numbered(), time.Now)
		require.NoError(t, err)
		s := newSchedule()
		<-NewMonitor(m, proberFunc(s.passing), nil, nil).Follow()
		mon, stop := run(t, m, s.passing, nil)
		<-mon.FirstRound()
		stop()
		<-replace(t, m, mon, elsewhere())
		assert.Empty(t, s.of(101))
	})
}
