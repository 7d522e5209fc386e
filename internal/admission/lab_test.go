package admission

import (
	"context"
	"log/slog"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"tier-agent/internal/intent"
	"tier-agent/internal/observe"
	"tier-agent/internal/probe"
	"tier-agent/internal/runtimeapi"
	"tier-agent/internal/tier"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var (
	llm   = tier.Target{Tier: "llm"} // gpu1, gpu2; identified
	gpu1  = tier.Target{Tier: "llm", Server: "llm/gpu1"}
	gpu2  = tier.Target{Tier: "llm", Server: "llm/gpu2"}
	chat  = tier.Target{Tier: "chat"}  // a1; identified
	bare  = tier.Target{Tier: "bare"}  // b1; health alone
	words = tier.Target{Tier: "words"} // w1; no Runtime API
)

// lab is a controller with everything around it: a model, a prober and two
// HAProxies or more, whose agent's word is what the model says.
type lab struct {
	*Controller
	model            *tier.Model
	monitor          *tier.Monitor
	watcher          *observe.Watcher // once watching has been called
	prober           *prober
	hap1, hap2, hap3 *haproxy
	journal          *journal
	clock            *clock
	stateDir         string
	exercise         *tier.Exercise // of llm
}

func newLab(t testing.TB, change ...func(*Options, *runtimeapi.Options)) *lab {
	t.Helper()
	return newLabOf(t, 2, change...)
}

func newLabOf(t testing.TB, haproxies int, change ...func(*Options, *runtimeapi.Options)) *lab {
	t.Helper()
	return newLabWith(t, nil, haproxies, change...)
}

func newLabWith(t testing.TB, exercise *tier.Exercise, haproxies int, change ...func(*Options, *runtimeapi.Options)) *lab {
	t.Helper()
	l := &lab{exercise: exercise, journal: &journal{}, clock: &clock{}, stateDir: t.TempDir()}
	l.prober = &prober{journal: l.journal, of: map[string]func(context.Context) probe.Result{}}
	servers := []string{"llm/gpu1", "llm/gpu2", "chat/a1", "bare/b1"}
	l.hap1 = newHAProxy(t, "hap1", "2.6", l.journal, servers...)
	l.hap2 = newHAProxy(t, "hap2", "3.2", l.journal, servers...)
	if haproxies > 2 {
		l.hap3 = newHAProxy(t, "hap3", "3.0", l.journal, servers...)
	}
	l.start(t, change...)
	return l
}

// start makes a controller as the daemon's start does, over what the state
// directory has.
func (l *lab) start(t testing.TB, change ...func(*Options, *runtimeapi.Options)) {
	t.Helper()
	specs := []tier.Spec{
		{Name: "llm", Identified: true, Servers: []tier.ServerSpec{server("llm", "gpu1"), server("llm", "gpu2")}},
		{Name: "chat", Identified: true, Servers: []tier.ServerSpec{server("chat", "a1")}},
		{Name: "bare", Servers: []tier.ServerSpec{server("bare", "b1")}},
		{Name: "words", Identified: true, AgentWords: true, Servers: []tier.ServerSpec{server("words", "w1")}},
	}
	specs[0].Exercise = l.exercise
	for n := range specs {
		specs[n].MinReady, specs[n].Interval, specs[n].MaxAge = 1, 5*time.Millisecond, time.Hour
	}
	var err error
	l.model, err = tier.New(specs, l.clock.now)
	require.NoError(t, err)
	log := slog.New(slog.DiscardHandler)
	l.monitor = tier.NewMonitor(l.model, l.prober, nil, log)
	o := Options{
		Model: l.model, Monitor: l.monitor, Log: log,
		// A wait that a test does not mean to see the end of is long, one that
		// it repeats is short.
		Settle: time.Minute, Confirm: time.Minute, Poll: time.Millisecond,
		Ended: func(r Result) { assert.NotContains(t, r.Message, "%!", "a message that fmt could not write") },
	}
	ro := runtimeapi.Options{Timeout: 30 * time.Second}
	for _, c := range change {
		c(&o, &ro)
	}
	var set []*runtimeapi.Instance
	for _, h := range l.haproxies() {
		h.with(func() { h.agent = l.admits })
		set = append(set, runtimeapi.New(h.name, "unix", h.path, ro))
	}
	o.HAProxy = runtimeapi.NewSet(set...)
	if o.Store == nil {
		store, err := intent.Open(l.stateDir)
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, store.Close()) })
		o.Store = store
	}
	l.Controller = New(o)
}

func server(backend, name string) tier.ServerSpec {
	return tier.ServerSpec{
		Backend: backend, Name: name, Weight: 100, Subject: name, Separate: true,
		Target: probe.Target{URL: &url.URL{Scheme: "http", Host: backend, Path: name}},
	}
}

// short makes a HAProxy that hangs cost little. What answers has all the time
// that the busiest machine needs.
func short(_ *Options, o *runtimeapi.Options) { o.Timeout = 2 * time.Second }

func (l *lab) haproxies() []*haproxy {
	all := []*haproxy{l.hap1, l.hap2}
	if l.hap3 != nil {
		all = append(all, l.hap3)
	}
	return all
}

func (l *lab) admits(name string) bool {
	a, _ := l.model.Server([]byte(name))
	return a.Admit
}

func (l *lab) closed(t testing.TB, target tier.Target) bool {
	t.Helper()
	c, err := l.model.Closed(target)
	require.NoError(t, err)
	return c != nil
}

func (l *lab) generation(t testing.TB, target tier.Target) string {
	t.Helper()
	g, err := l.model.Generation(target)
	require.NoError(t, err)
	return g.String()
}

// quiesced closes the target and forgets what was written about it.
func (l *lab) quiesced(t testing.TB, target tier.Target) {
	t.Helper()
	r := l.Quiesce(t.Context(), QuiesceRequest{Target: target, Reason: "swap", Who: "alice", Force: true})
	require.Equal(t, Done, r.Outcome, r.Message)
	l.journal.clear()
}

func (l *lab) readmit(t testing.TB, target tier.Target) Result {
	t.Helper()
	return l.Readmit(t.Context(), ReadmitRequest{Target: target, Who: "bob"})
}

// states of a server on hap1 and hap2.
func (l *lab) states(name string) [2]string {
	return [2]string{l.hap1.state(name).String(), l.hap2.state(name).String()}
}

var (
	bothReady   = [2]string{"ready", "ready"}
	bothDrained = [2]string{"drain(forced)", "drain(forced)"}
)

// journal is what happened, in order, on all sides.
type journal struct {
	mu    sync.Mutex // protects lines
	lines []string
}

func (j *journal) add(line string) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.lines = append(j.lines, line)
}

func (j *journal) clear() {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.lines = nil
}

// with returns the lines that contain any of the texts.
func (j *journal) with(texts ...string) []string {
	j.mu.Lock()
	defer j.mu.Unlock()
	found := []string{}
	for _, line := range j.lines {
		if slices.ContainsFunc(texts, func(text string) bool { return strings.Contains(line, text) }) {
			found = append(found, line)
		}
	}
	return found
}

// prober answers for each server what the test wants, and ready otherwise.
type prober struct {
	journal *journal
	mu      sync.Mutex // protects of
	of      map[string]func(context.Context) probe.Result
}

func (p *prober) Probe(ctx context.Context, target probe.Target) probe.Result {
	name := target.URL.Host + "/" + target.URL.Path
	p.journal.add("probe " + name)
	p.mu.Lock()
	answer := p.of[name]
	p.mu.Unlock()
	if answer == nil {
		return passed
	}
	return answer(ctx)
}

// Exercise answers as Probe does, for "exercise <server>".
func (p *prober) Exercise(ctx context.Context, target probe.Target) probe.Result {
	name := "exercise " + target.URL.Host + "/" + target.URL.Path
	p.journal.add(name)
	p.mu.Lock()
	answer := p.of[name]
	p.mu.Unlock()
	if answer == nil {
		return probe.Result{Ready: true, Reason: probe.ExercisePassed}
	}
	return answer(ctx)
}

var passed = probe.Result{Ready: true, Reason: probe.IdentityPassed}

func (p *prober) set(name string, answer func(context.Context) probe.Result) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.of[name] = answer
}

func (p *prober) says(name string, r probe.Result) {
	p.set(name, func(context.Context) probe.Result { return r })
}

// hold makes the next probes of a server wait: each tells entered and answers
// once release lets it. Like the real prober it ends with its context.
func (p *prober) hold(name string) (entered <-chan struct{}, release chan<- probe.Result) {
	in, out := make(chan struct{}), make(chan probe.Result)
	p.set(name, func(ctx context.Context) probe.Result {
		select {
		case in <- struct{}{}:
		case <-ctx.Done():
		}
		select {
		case r := <-out:
			return r
		case <-ctx.Done():
			return probe.Result{Reason: "health_transport_canceled"}
		}
	})
	return in, out
}

// clock is real time, until it is stopped: then who asks for the time waits,
// and so does who wants what the asker holds.
type clock struct {
	mu      sync.Mutex // protects stopped
	stopped func()
}

func (c *clock) now() time.Time {
	c.mu.Lock()
	wait := c.stopped
	c.mu.Unlock()
	if wait != nil {
		wait()
	}
	return time.Now()
}

func (c *clock) stop(wait func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.stopped = wait
}

// soon waits for what happens by itself.
func soon(t testing.TB, what string, happened func() bool) {
	t.Helper()
	require.Eventually(t, happened, 30*time.Second, time.Millisecond, what)
}
