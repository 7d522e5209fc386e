package admission

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"tier-agent/internal/durable"
	"tier-agent/internal/intent"
	"tier-agent/internal/observe"
	"tier-agent/internal/runtimeapi"
	"tier-agent/internal/tier"
)

// Options of a Controller. Zero durations mean the defaults.
type Options struct {
	Model   *tier.Model
	Monitor *tier.Monitor
	HAProxy *runtimeapi.Set
	// Watcher is what the HAProxies last showed; may be nil.
	Watcher Watcher
	// Polls notes who is asked about; may be nil.
	Polls *observe.Polls
	// HardStopAfter is how long old workers of each HAProxy may live.
	HardStopAfter map[string]time.Duration
	// Store keeps the intents.
	Store Store
	// Openings are needed where a tier has members; see there.
	Openings Openings
	// Overrides are needed for overrides; may be nil.
	Overrides Overrides
	// Unasked keeps the servers that were closed since nothing asks about them; nil keeps
	// them in memory alone.
	Unasked *durable.Table[Unasked]
	// Processes keeps which processes of HAProxy were seen; likewise.
	Processes *durable.Table[Process]
	Log       *slog.Logger
	// Ended is told about every transition that has ended; may be nil.
	Ended func(Result)

	// Settle is how long a readmit waits for probes from before its
	// invalidation before it is refused. A routine probe of a healthy engine
	// ends within it, one that hangs does not. Default 250 ms.
	Settle time.Duration
	// Confirm is how long HAProxy may take to show a readmitted server up without its
	// checks getting any further: more than one interval of theirs, which HAProxy does
	// not show. Default 65 s.
	Confirm time.Duration
	// Queue is how long a quiesce waits for the queues on its servers to empty.
	// Default 5 s.
	Queue time.Duration
	// Poll is the time between two reads of HAProxy while waiting. Default
	// 200 ms.
	Poll time.Duration
	// Grace is how long a drain goes on while HAProxy cannot be read, where that may
	// pass: a reload takes seconds. One that hangs is waited for. Default 10 s.
	Grace time.Duration
	// Lives reports whether a master of HAProxy's still runs, judged from beside now,
	// which does; known is false where that cannot be told. Default: by /proc.
	Lives func(m, now intent.Master) (lives, known bool)
	// Silence is how long a transition may go on without a word. Default 5 s.
	Silence time.Duration
}

// Watcher tells what the HAProxies last showed; see package observe.
type Watcher interface {
	Views() []observe.View
	// Look reads every instance now, LookAt those that are wanted.
	Look(context.Context)
	LookAt(ctx context.Context, wanted func(instance string) bool)
	// Wake has the instances read soon.
	Wake()
}

// Controller runs the transitions. It is safe for concurrent use.
type Controller struct {
	o       Options
	intents intents
	closing closings

	overriding sync.Mutex // held while the overrides are changed, on disk and in the model

	replacing sync.Mutex         // held while the model is replaced
	judging   sync.Mutex         // held while views are read and the model is told what they show; protects the next
	judged    map[string]process // whose view was told last, by instance

	mu         sync.Mutex // protects the rest
	lanes      map[string]*lane
	notes      map[tier.Target]string // what a start found half done
	complaints map[string]string      // what reconciling has complained about last
	leftovers  map[place]leftover     // our drains that a reload may bring back
	masters    map[string]succession  // by instance
	names      map[place]process      // whose agent-check sends the server's own name
	// exposed is since when a server is sent requests that it should not get.
	exposed map[place]time.Time
	// elsewhere are the servers that each instance sends to another address than the
	// probes.
	elsewhere map[string]comparison
}

// zeroReads is how many reads in a row must find nothing before a drain ends:
// a request that HAProxy has routed but not yet counted shows up in the next.
const zeroReads = 3

// betweenTries is how long no connection may have been tried again before a drain
// ends. HAProxy waits a second, or timeout connect where that is less, before it tries
// a failed one again, and counts that request nowhere meanwhile; what it does count is
// each try.
const betweenTries = 1500 * time.Millisecond

// New returns a controller of the model's tiers.
func New(o Options) *Controller {
	o.Settle = or(o.Settle, 250*time.Millisecond)
	o.Confirm = or(o.Confirm, 65*time.Second)
	o.Queue = or(o.Queue, 5*time.Second)
	o.Poll = or(o.Poll, 200*time.Millisecond)
	o.Grace = or(o.Grace, 10*time.Second)
	o.Silence = or(o.Silence, 5*time.Second)
	if o.Unasked == nil {
		o.Unasked, _ = durable.OpenTable("", "", Unasked.key, Unasked.check) // without a file, nothing fails
	}
	if o.Processes == nil {
		o.Processes, _ = durable.OpenTable("", "", Process.key, Process.check)
	}
	if o.Lives == nil {
		o.Lives = lives
	}
	if o.Ended == nil {
		o.Ended = func(Result) {}
	}
	c := &Controller{
		o:       o,
		intents: intents{store: o.Store},
		closing: closings{of: map[place]closingCount{}},
		lanes:   map[string]*lane{},
		notes:   map[tier.Target]string{},

		complaints: map[string]string{},
		leftovers:  map[place]leftover{},
		names:      map[place]process{},
		exposed:    map[place]time.Time{},
		judged:     map[string]process{},
		elsewhere:  map[string]comparison{},
	}
	c.masters = c.successions()
	return c
}

func or(d, otherwise time.Duration) time.Duration {
	if d > 0 {
		return d
	}
	return otherwise
}

// run is one transition under way: what all verbs share.
type run struct {
	*Controller
	Result
	voice
	began   time.Time
	spec    tier.Spec
	servers []tier.ServerSpec // those that the transition covers
	set     *runtimeapi.Set
	mine    *transition
	visited map[string]process              // the process that each HAProxy had when it was last read or changed
	maint   map[place]bool                  // where an opening has ended somebody's maintenance
	held    map[place]runtimeapi.AdminState // what a readmit leaves as somebody else has it
	// waiting are the servers that a readmit leaves drained until their evidence is ready.
	waiting map[place]bool
	// tracking are the backends of each HAProxy that have servers which track the drained ones.
	tracking map[string][]string
}

// do runs one transition in its tier's lane, tells its progress and reports how it
// ended. What check refuses never comes there: it must not end a readmit.
func (c *Controller) do(ctx context.Context, verb Verb, target tier.Target, progress func(Progress), check func(*run) *Result, body func(context.Context, *run) Result) Result {
	r := newRun(c, verb, target, progress)
	stop := r.voice.start(c.o.Silence)
	result := c.inLane(ctx, r, check, body)
	stop()
	c.report(result)
	return result
}

func newRun(c *Controller, verb Verb, target tier.Target, progress func(Progress)) *run {
	now := time.Now()
	return &run{Controller: c, Result: Result{Verb: verb, Target: target}, began: now, voice: voice{tell: progress, since: now}}
}

func (c *Controller) inLane(ctx context.Context, r *run, check func(*run) *Result, body func(context.Context, *run) Result) Result {
	version := c.o.Model.Version()
	if refused := r.look(check); refused != nil {
		return *refused
	}
	lane := c.lane(r.Target.Tier)
	var err error
	r.waits("other commands of %s to end", r.Target)
	if ctx, r.mine, err = lane.enter(ctx, r.Verb, r.Target); err != nil {
		return r.refuse(CodeBusy, "%v; nothing was changed", err)
	}
	defer lane.leave(r.mine)
	if c.o.Model.Version() != version {
		// Its tier may have been replaced while it waited.
		if refused := r.look(check); refused != nil {
			return *refused
		}
	}
	return body(ctx, r)
}

// look takes what the transition is about from the model.
func (r *run) look(check func(*run) *Result) *Result {
	var err error
	if r.spec, err = r.o.Model.Spec(r.Target.Tier); err != nil {
		return keep(r.refuse(CodeUnknown, "%v", err))
	}
	if r.servers, err = r.o.Model.Servers(r.Target); err != nil {
		return keep(r.refuse(CodeUnknown, "%v", err))
	}
	if r.set = r.o.HAProxy; r.spec.AgentWords {
		r.set = runtimeapi.NewSet()
	}
	return check(r)
}

func (c *Controller) lane(name string) *lane {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.lanes[name] == nil {
		c.lanes[name] = &lane{}
	}
	return c.lanes[name]
}

func (c *Controller) report(r Result) {
	c.log(r)
	c.o.Ended(r)
}

func (c *Controller) log(r Result) {
	level := slog.LevelInfo
	if r.Outcome != Done || r.Verb == VerbOverride {
		level = slog.LevelWarn
	}
	attrs := []any{"verb", r.Verb, "target", r.Target.String(), "outcome", r.Outcome, "code", r.Code,
		"quiesced", r.Quiesced, "generation", r.Generation, "seconds", r.Seconds}
	if r.By != "" {
		attrs = append(attrs, "by", r.By)
	}
	if r.Closure != nil {
		attrs = append(attrs, "reason", r.Closure.Reason, "who", r.Closure.Who)
	}
	c.o.Log.Log(context.Background(), level, r.Message, attrs...)
}

// end makes the result. It is called in the lane, so that what the result says
// of the gate is this transition's doing and not the next one's.
func (r *run) end(o Outcome, code, format string, args ...any) Result {
	r.Closure, _ = r.o.Model.Closed(r.Target)
	r.Quiesced = r.Closure != nil
	if gen, err := r.o.Model.Generation(r.Target); err == nil {
		r.Generation = gen.String()
	}
	return r.Result.end(r.began, time.Now(), o, code, fmt.Sprintf(format, args...))
}

func (r *run) refuse(code, format string, args ...any) Result {
	return r.end(Refused, code, format, args...)
}

// endCode is the code of a transition whose context was ended with a cause of
// ours, and otherwise the given one.
func endCode(ctx context.Context, otherwise string) string {
	switch cause := context.Cause(ctx); {
	case errors.Is(cause, errSuperseded):
		return CodeSuperseded
	case errors.Is(cause, errStopping):
		return CodeStopped
	}
	return otherwise
}

// Stop brings what runs to a safe point: a readmit closes what it has opened, a
// drain stops waiting, and a quiesce is done soon. It returns when nothing runs
// any more, or with ctx.
func (c *Controller) Stop(ctx context.Context) {
	c.mu.Lock()
	lanes := slices.Collect(maps.Values(c.lanes))
	c.mu.Unlock()
	for _, l := range lanes {
		for _, t := range l.stop() {
			select {
			case <-t.done:
			case <-ctx.Done():
				return
			}
		}
	}
}

// stopped ends a transition whose context has ended, saying why.
func (r *run) stopped(ctx context.Context, left string) Result {
	if errors.Is(context.Cause(ctx), errSuperseded) {
		return r.refuse(CodeSuperseded, "%v: %s", errSuperseded, left)
	}
	return r.refuse(CodeStopped, "the command was ended before it was done: %s", left)
}
