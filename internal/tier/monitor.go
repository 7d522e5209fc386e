package tier

import (
	"context"
	"log/slog"
	"math/rand/v2"
	"runtime/debug"
	"sync"
	"time"

	"tier-agent/internal/fence"
	"tier-agent/internal/probe"
)

// startSpacing is the time between the first probes of two servers: ten
// thousand probes at once would measure tier-agent instead of the engines.
const startSpacing = 200 * time.Microsecond

// Prober makes one bounded probe, of either kind.
type Prober interface {
	Probe(context.Context, probe.Target) probe.Result
	Exercise(context.Context, probe.Target) probe.Result
}

// Probed is told about every probe that has ended.
type Probed struct {
	Tier, Server string
	Exercise     bool          // what was asked is Spec.Exercise
	Verdict      fence.Verdict // of this probe: refused ones carry the fence's reason
	Observed     string        // what the probe itself saw, also when it was refused
	Took         time.Duration
	Late         time.Duration // how long after its planned time it began
}

// Monitor probes each server at its interval, through the fence, and exercises it
// at that of its exercise. Each server has a goroutine of its own for either, so a
// probe that hangs delays no other; what it leaves behind is evidence that grows
// too old (G5).
type Monitor struct {
	model  *Model
	prober Prober
	ended  func(Probed)
	log    *slog.Logger

	// Changed is called, from many goroutines, when what the evidence of a server
	// says has changed; nil for nobody. It is set before Run.
	Changed func()

	firstRound chan struct{}
	watchers   watchers
}

// NewMonitor returns a monitor of the model's servers. ended may be nil; it is
// called from many goroutines.
func NewMonitor(m *Model, p Prober, ended func(Probed), log *slog.Logger) *Monitor {
	if ended == nil {
		ended = func(Probed) {}
	}
	return &Monitor{model: m, prober: p, ended: ended, log: log, firstRound: make(chan struct{})}
}

// FirstRound is closed once every server has been probed once, and exercised where
// it is to be, that the model had when Run began.
func (m *Monitor) FirstRound() <-chan struct{} { return m.firstRound }

// Run probes until ctx ends, and returns when its last probe has.
func (m *Monitor) Run(ctx context.Context) error {
	m.watchers.begin(ctx)
	first := m.Follow()
	// Closed also where ctx ends first: each watcher counts itself off.
	<-first
	close(m.firstRound)
	<-ctx.Done()
	m.watchers.wait()
	return nil
}

// Suspend makes the monitor leave the servers alone until resume is called,
// once. A probe that is out already is not ended by it.
func (m *Monitor) Suspend(names []string) (resume func()) {
	var suspended []*state
	for _, name := range names {
		if s := m.model.view.Load().servers[name]; s != nil {
			s.suspended.Add(1)
			suspended = append(suspended, s.state)
		}
	}
	return sync.OnceFunc(func() {
		for _, s := range suspended {
			s.suspended.Add(-1)
		}
	})
}

// WhenIdle returns a channel that is closed once no probe of the server is
// out, of either kind.
func (m *Monitor) WhenIdle(name string) <-chan struct{} { return m.model.fence.WhenIdle(name) }

// ProbeNow probes one server at once, whatever its interval, and returns the
// verdict on that probe.
func (m *Monitor) ProbeNow(ctx context.Context, name string) fence.Verdict {
	return m.now(ctx, name, (*server).probed)
}

// ExerciseNow is ProbeNow with the server's exercise. Where it has none it is
// unknown.
func (m *Monitor) ExerciseNow(ctx context.Context, name string) fence.Verdict {
	return m.now(ctx, name, (*server).exercising)
}

func (m *Monitor) now(ctx context.Context, name string, of func(*server) kind) fence.Verdict {
	for {
		s := m.model.view.Load().servers[name]
		if s == nil {
			return fence.Verdict{Reason: fence.ReasonUnknown}
		}
		k := of(s)
		t := m.model.fence.BeginProbe(k.member)
		if t == nil { // removed since the look-up, or there is none of that kind
			return fence.Verdict{Reason: fence.ReasonUnknown}
		}
		if s.about(t, k) {
			return m.probe(ctx, s, k, t, 0)
		}
		t.Abandon() // replaced since the look-up
	}
}

// watch makes one kind of probe of one server until ctx or stop ends; done is
// called after the first.
func (m *Monitor) watch(ctx context.Context, w *watcher, offset time.Duration, done func()) {
	s := w.server
	planned := time.Now().Add(offset)
	timer := time.NewTimer(offset)
	defer timer.Stop()
	var last fence.Verdict
	var restarts repeated
	for {
		select {
		case <-ctx.Done():
			return
		case <-w.stop:
			return
		case <-timer.C:
		case <-w.early:
			if !m.lacks(s, w.member) {
				continue // one that was out when it was asked for has filled it
			}
			planned = time.Now()
		}
		v := m.check(ctx, s, w.kind, time.Since(planned))
		if v.Restarted && !closed(w.stop) {
			// What showed the restart counts for neither engine. Once: two that take
			// turns behind one address are probed no more often for it.
			if more, say := restarts.say(time.Now()); say {
				m.log.Info("engine restarted", "tier", s.tier.spec.Name, "server", s.name, "more", more)
			}
			v = m.check(ctx, s, w.kind, 0)
		}
		if v.HasEvidence() {
			last = m.note(s, last, m.model.fence.Current(w.member))
		}
		if v.Ready && !w.exercise && s.exercise != "" && m.lacks(s, s.exercise) {
			m.watchers.hasten(s.exercise)
		}
		done()
		planned = nextAfter(planned, time.Now(), shorten(w.interval, s.tier.spec.Jitter, rand.Float64()))
		timer.Reset(time.Until(planned))
	}
}

// sayEvery is how often what repeats is logged.
const sayEvery = time.Minute

// repeated is something that may happen with each probe.
type repeated struct {
	said time.Time
	more int // since then
}

// say reports whether to log it, and how often it has happened since that was last so.
func (r *repeated) say(now time.Time) (more int, say bool) {
	if !r.said.IsZero() && now.Sub(r.said) < sayEvery {
		r.more++
		return 0, false
	}
	more, r.more, r.said = r.more, 0, now
	return more, true
}

// check probes the server through its one place for that, unless the place is
// taken or the server is suspended: then the verdict is empty.
func (m *Monitor) check(ctx context.Context, s *server, k kind, late time.Duration) fence.Verdict {
	if s.suspended.Load() > 0 {
		return fence.Verdict{}
	}
	t, _ := m.model.fence.BeginCheck(k.member)
	switch {
	case t == nil:
		return fence.Verdict{}
	case s.suspended.Load() > 0, !s.about(t, k):
		// Suspended meanwhile: this ticket may be newer than the one that counts.
		// Or it is of a server that goes by the same name now.
		t.Abandon()
		return fence.Verdict{}
	}
	return m.probe(ctx, s, k, t, late)
}

// probe runs one probe under its ticket and completes it. A probe that the end
// of the process cut short is abandoned: it says nothing about the engine, and
// a last "not ready" would take a healthy server out on every restart.
func (m *Monitor) probe(ctx context.Context, s *server, k kind, t *fence.Ticket, late time.Duration) fence.Verdict {
	defer t.Abandon()
	began := time.Now()
	r := m.observe(ctx, s, k)
	if r.Reached.IsValid() {
		s.reached.Store(&r.Reached)
	}
	if ctx.Err() != nil {
		return fence.Verdict{Reason: r.Reason, Generation: t.Generation(), Issue: t.Issue()}
	}
	v := m.model.fence.Complete(t, s.observation(r))
	if v.HasEvidence() {
		m.model.agree(s.tier)
		m.model.reweigh(s)
		if !k.exercise {
			s.saw(stateOf(r.Ready, r.Reason, false), v)
		}
		m.model.activate(s.tier)
	}
	m.ended(Probed{
		Tier: s.tier.spec.Name, Server: s.name, Exercise: k.exercise, Verdict: v, Observed: r.Reason,
		Took: time.Since(began), Late: late,
	})
	return v
}

func (s *server) observation(r probe.Result) fence.Observation {
	obs := fence.Observation{Address: r.Reached, Ready: r.Ready, Reason: r.Reason, Metadata: r.Metadata, Healthy: r.Healthy, Judged: !r.Ready && s.judged(r.Reason)}
	if field := s.tier.spec.Instance; field != "" {
		obs.Instance = r.Metadata[field]
	}
	return obs
}

// observe keeps a prober's panic from ending the process: the server is not
// ready, and the trace is in the log.
func (m *Monitor) observe(ctx context.Context, s *server, k kind) (r probe.Result) {
	defer func() {
		if p := recover(); p != nil {
			m.log.Error("probe panicked", "server", s.name, "panic", p, "stack", string(debug.Stack()))
			r = probe.Result{Reason: ReasonFailed}
		}
	}()
	if k.exercise {
		return m.prober.Exercise(ctx, s.target())
	}
	return m.prober.Probe(ctx, s.target())
}

// note logs a change of what the evidence says, once.
func (m *Monitor) note(s *server, last, now fence.Verdict) fence.Verdict {
	if !now.HasEvidence() || now.Ready == last.Ready && now.Reason == last.Reason {
		return last
	}
	level := slog.LevelInfo
	if !now.Ready {
		level = slog.LevelWarn
	}
	m.log.Log(context.Background(), level, "evidence changed", "tier", s.tier.spec.Name, "server", s.name,
		"ready", now.Ready, "reason", now.Reason, "generation", now.Generation.String())
	if m.Changed != nil {
		m.Changed()
	}
	return now
}

// shorten takes up to the fraction jitter off the interval; random is in
// [0, 1). It never lengthens it: the maximum age of evidence counts on that.
func shorten(interval time.Duration, jitter, random float64) time.Duration {
	return interval - time.Duration(float64(interval)*jitter*random)
}

// nextAfter plans the next probe an interval after the last planned one, or
// now where that has passed: missed probes are not made up for in a burst.
func nextAfter(planned, now time.Time, interval time.Duration) time.Time {
	if next := planned.Add(interval); next.After(now) {
		return next
	}
	return now
}
