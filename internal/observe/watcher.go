package observe

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"tier-agent/internal/runtimeapi"
	"tier-agent/internal/statefile"
)

// View is what one HAProxy last showed.
type View struct {
	Instance string
	At       time.Time // of the last read that succeeded
	// Err is why the instance counts as unreadable: the last read failed, or is too long
	// ago. The rest is then from the last good one.
	Err     error
	Info    runtimeapi.Info
	Servers map[string]Server // every "backend/server" there
	// InFlight is what it still has of the servers that Options.Quiesced names, by
	// "backend/server". One that is not in it could not be counted, or not yet.
	InFlight map[string]InFlight
	// Down says what HAProxy's checks have heard of the servers that are down there and
	// should be up, by "backend/server".
	Down map[string]string
	// Returning says, of servers that Options.Quiesced names and of others at their
	// addresses, by what clients come back to them also while they are drained:
	// "a cookie", or a stick table; by "backend/server".
	Returning map[string]string
	// OldWorkers: the streams of old workers can be seen. KeepsFile: its server-state file
	// is written here.
	OldWorkers, KeepsFile bool
	// StateFile says what is wrong with the instance's server-state file; empty
	// where nothing is, or it has none.
	StateFile string
}

// Watcher keeps what the HAProxies show, so that status and metrics read
// memory and never wait for HAProxy, and keeps their server-state files.
type Watcher struct {
	every    time.Duration
	log      *slog.Logger
	watched  []*watched // in the set's order
	looked   func(context.Context, *runtimeapi.Instance, View)
	quiesced func(server string) bool
	ready    func(server string) bool
	files    atomic.Bool // the state files are written
}

// watched is one instance under watch.
type watched struct {
	instance *runtimeapi.Instance
	seen     atomic.Pointer[View]
	wake     chan struct{}

	mu    sync.Mutex      // held for one look: dumps are taken, and files written, in one order
	asked map[string]bool // backends whose ways back are known, of the process that was seen last
	file  *statefile.File
	busy  chan string // not nil: the file is being kept, and says what is wrong with it here
}

// retryAfter is the time to the next read of an instance that could not be
// read: what comes back is to be seen at once.
const retryAfter = 200 * time.Millisecond

// Options of a Watcher.
type Options struct {
	HAProxy *runtimeapi.Set
	Every   time.Duration // between two reads of an instance
	Log     *slog.Logger
	// StateFiles are the paths of server-state files, by instance.
	StateFiles map[string]string
	// Rows gives the rows of a state file, from what its HAProxy shows. May be nil where
	// there are no state files.
	Rows func(statefile.Shown) []statefile.Row
	// Quiesced reports whether what is left on a "backend/server" is to be counted,
	// which costs HAProxy's statistics of the backend at each look. May be nil.
	Quiesced func(server string) bool
	// Ready reports whether HAProxy's checks are told that a "backend/server" is up. Why
	// one is down all the same is asked, at the same cost. May be nil.
	Ready func(server string) bool
	// Looked is told about every good look that Run has taken; may be nil. It may
	// act on the instance and may take its time.
	Looked func(context.Context, *runtimeapi.Instance, View)
}

// New returns a watcher that has not looked yet. It writes no state file
// before KeepFiles.
func New(o Options) *Watcher {
	w := &Watcher{every: o.Every, log: o.Log, looked: o.Looked, quiesced: o.Quiesced, ready: o.Ready}
	for _, i := range o.HAProxy.Instances() {
		one := &watched{instance: i, wake: make(chan struct{}, 1)}
		if path := o.StateFiles[i.Name()]; path != "" {
			one.file = statefile.New(path, o.Rows)
		}
		w.watched = append(w.watched, one)
	}
	return w
}

// ErrStale is the Err of a view that was taken too long ago: the reads after it have
// not come back.
var ErrStale = errors.New("not read lately")

// staleLooks is how many looks in a row may be missing before a view is stale. One
// look may take a read's whole timeout and a second on top.
const staleLooks = 5

// Views returns the last view of each instance, in the set's order. Before
// the first read an instance has only its name.
func (w *Watcher) Views() []View {
	all := make([]View, len(w.watched))
	for n, one := range w.watched {
		all[n] = one.last()
		if v := &all[n]; v.Err == nil && !v.At.IsZero() && time.Since(v.At) > staleLooks*w.every {
			v.Err = fmt.Errorf("haproxy %s: %w", v.Instance, ErrStale)
		}
	}
	return all
}

// KeepFiles begins to write the state files. Until the first round of probes
// has ended nothing is known to be ready, and every server would get a row.
func (w *Watcher) KeepFiles() {
	w.files.Store(true)
	w.Wake()
}

// Wake makes Run look now: something has changed on our side.
func (w *Watcher) Wake() {
	for _, one := range w.watched {
		select {
		case one.wake <- struct{}{}:
		default: // it is about to look anyway
		}
	}
}

// Look reads every instance now, and returns when their state files say what
// was read. It is for a transition that wants its own doing seen and kept. What is
// left of streams is not waited for: Run counts that right after.
func (w *Watcher) Look(ctx context.Context) {
	w.LookAt(ctx, func(string) bool { return true })
}

// LookAt is Look at some of the instances.
func (w *Watcher) LookAt(ctx context.Context, wanted func(instance string) bool) {
	var wg sync.WaitGroup
	for _, one := range w.watched {
		if wanted(one.instance.Name()) {
			wg.Go(func() {
				w.look(ctx, one)
				w.askReturning(ctx, one)
			})
		}
	}
	wg.Wait()
	if w.quiesced != nil {
		w.Wake()
	}
}

// Run reads until ctx ends, each instance on its own: one that hangs delays no
// other. A read that fails says so and keeps the last view.
func (w *Watcher) Run(ctx context.Context) error {
	var wg sync.WaitGroup
	for _, one := range w.watched {
		wg.Go(func() { w.watch(ctx, one) })
	}
	wg.Wait()
	<-ctx.Done()
	return nil
}

func (w *Watcher) watch(ctx context.Context, one *watched) {
	for {
		next := w.every
		if !w.turn(ctx, one) {
			next = min(next, retryAfter)
		}
		select {
		case <-ctx.Done():
			return
		case <-one.wake:
		case <-time.After(next):
		}
	}
}

// Turn looks at one instance once, as Run does again and again, and acts on what it saw.
func (w *Watcher) Turn(ctx context.Context, instance string) {
	for _, one := range w.watched {
		if one.instance.Name() == instance {
			w.turn(ctx, one)
		}
	}
}

// turn reports whether the instance could be read.
func (w *Watcher) turn(ctx context.Context, one *watched) bool {
	v := w.look(ctx, one)
	if v.Err != nil {
		return false
	}
	if w.looked != nil && ctx.Err() == nil {
		w.tell(ctx, one, v)
	}
	w.askReturning(ctx, one)
	w.count(ctx, one)
	return true
}

// tell tells about a look, and outlives what that does.
func (w *Watcher) tell(ctx context.Context, one *watched, o View) {
	defer func() {
		if p := recover(); p != nil {
			w.log.Error("what was seen of haproxy could not be acted on", "haproxy", o.Instance, "panic", p)
		}
	}()
	w.looked(ctx, one.instance, o)
}

// look reads one instance, keeps its state file and publishes what it saw.
func (w *Watcher) look(ctx context.Context, one *watched) View {
	one.mu.Lock()
	defer one.mu.Unlock()
	last := one.last()
	dump, err := one.read(ctx)
	if ctx.Err() != nil {
		return last
	}
	now := View{
		Instance: last.Instance, Err: err,
		OldWorkers: one.instance.HasMaster(), KeepsFile: one.file != nil,
	}
	if err == nil {
		now.At, now.Info, now.Servers = time.Now(), dump.Info, make(map[string]Server, len(dump.Servers))
		spare := dump.Spare()
		for _, s := range dump.Servers {
			now.Servers[s.Name()] = ServerOf(s, spare[s.Name()])
		}
		if !replaced(last, dump.Info) {
			now.InFlight, now.Down, now.Returning = last.InFlight, last.Down, last.Returning
		} else {
			one.asked = nil
		}
	} else {
		now.At, now.Info, now.Servers, now.Returning = last.At, last.Info, last.Servers, last.Returning
	}
	now.StateFile = w.keep(one, dump, now, replaced(last, now.Info))
	w.note(last, now)
	one.seen.Store(&now)
	return now
}

// read takes a whole dump of the process that runs. One that is being replaced
// answers, too; what it shows is no longer anybody's state.
func (one *watched) read(ctx context.Context) (runtimeapi.ServersState, error) {
	only := runtimeapi.NewSet(one.instance) // whose Each outlives whatever an answer brings about
	dump := runtimeapi.Each(ctx, only, func(ctx context.Context, i *runtimeapi.Instance) (runtimeapi.ServersState, error) {
		return i.Servers(ctx, "")
	})[0]
	if dump.Err == nil && dump.Value.Info.Stopping {
		dump.Err = fmt.Errorf("haproxy %s: process %d is being replaced", dump.Instance, dump.Value.Info.PID)
	}
	return dump.Value, dump.Err
}

// replaced reports whether another process than the one of last shows this.
func replaced(last View, now runtimeapi.Info) bool {
	return !last.At.IsZero() && last.Info.PID != 0 && !last.Info.SameProcess(now)
}

// note logs what an operator would want to know once: lost, back, replaced.
func (w *Watcher) note(last, now View) {
	seen, wasLost := !last.At.IsZero(), last.Err != nil
	switch {
	case now.Err != nil && !wasLost:
		w.log.Warn("haproxy cannot be read", "haproxy", now.Instance, "error", now.Err)
	case now.Err == nil && (!seen || wasLost):
		w.log.Info("haproxy is read", "haproxy", now.Instance, "version", now.Info.Version.Raw, "pid", now.Info.PID)
	case now.Err == nil && replaced(last, now.Info):
		w.log.Info("haproxy was reloaded or restarted", "haproxy", now.Instance, "pid", now.Info.PID, "was", last.Info.PID)
	}
	if now.StateFile != "" && now.StateFile != last.StateFile {
		w.log.Warn("the server-state file does not do its work", "haproxy", now.Instance, "state_file", now.StateFile)
	}
}

// Readable reports whether the view says what the instance does now.
func (v View) Readable() bool { return v.Err == nil && v.Servers != nil }

func (one *watched) last() View {
	if o := one.seen.Load(); o != nil {
		return *o
	}
	return View{Instance: one.instance.Name()}
}
