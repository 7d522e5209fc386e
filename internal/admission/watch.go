package admission

import (
	"context"
	"fmt"
	"log/slog"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"tier-agent/internal/runtimeapi"
	"tier-agent/internal/statefile"
)

// Observed is what one HAProxy last showed.
type Observed struct {
	Instance string
	At       time.Time // of the read
	Err      error     // the read's; the rest is then from the last good one
	Info     runtimeapi.Info
	Servers  map[string]runtimeapi.AdminState // every "backend/server" there
	// Addresses are where it sends their requests; not valid where that is no IP
	// address.
	Addresses map[string]netip.AddrPort
	// Agents says of each whether it has an agent-check.
	Agents map[string]bool
	// Replaced: this process took over from another one that was seen before it.
	Replaced bool
	// Left is what it still has of the servers that WatchOptions.Quiesced names, by
	// "backend/server". One that is not in it could not be counted, or not yet.
	Left map[string]Left
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
	looked   func(context.Context, *runtimeapi.Instance, Observed)
	quiesced func(server string) bool
	files    atomic.Bool // the state files are written
}

// watched is one instance under watch.
type watched struct {
	instance *runtimeapi.Instance
	seen     atomic.Pointer[Observed]
	wake     chan struct{}

	mu   sync.Mutex // held for one look: dumps are taken, and files written, in one order
	file *statefile.File
}

// retryAfter is the time to the next read of an instance that could not be
// read: what comes back is to be seen at once.
const retryAfter = 200 * time.Millisecond

// WatchOptions of a Watcher.
type WatchOptions struct {
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
	// Looked is told about every good look that Run has taken; may be nil. It may
	// act on the instance and may take its time.
	Looked func(context.Context, *runtimeapi.Instance, Observed)
}

// NewWatcher returns a watcher that has not looked yet. It writes no state file
// before KeepFiles.
func NewWatcher(o WatchOptions) *Watcher {
	w := &Watcher{every: o.Every, log: o.Log, looked: o.Looked, quiesced: o.Quiesced}
	for _, i := range o.HAProxy.Instances() {
		one := &watched{instance: i, wake: make(chan struct{}, 1)}
		if path := o.StateFiles[i.Name()]; path != "" {
			one.file = statefile.New(path, o.Rows)
		}
		w.watched = append(w.watched, one)
	}
	return w
}

// Observed returns the last view of each instance, in the set's order. Before
// the first read an instance has only its name.
func (w *Watcher) Observed() []Observed {
	all := make([]Observed, len(w.watched))
	for n, one := range w.watched {
		all[n] = one.last()
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
	w.lookAt(ctx, func(string) bool { return true })
}

// lookAt is Look at some of the instances.
func (w *Watcher) lookAt(ctx context.Context, wanted func(instance string) bool) {
	var wg sync.WaitGroup
	for _, one := range w.watched {
		if wanted(one.instance.Name()) {
			wg.Go(func() { w.look(ctx, one) })
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
		o := w.look(ctx, one)
		next := w.every
		if o.Err != nil {
			next = min(next, retryAfter)
		} else if w.looked != nil && ctx.Err() == nil {
			w.tell(ctx, one, o)
		}
		if o.Err == nil {
			w.count(ctx, one)
		}
		select {
		case <-ctx.Done():
			return
		case <-one.wake:
		case <-time.After(next):
		}
	}
}

// tell tells about a look, and outlives what that does.
func (w *Watcher) tell(ctx context.Context, one *watched, o Observed) {
	defer func() {
		if p := recover(); p != nil {
			w.log.Error("what was seen of haproxy could not be acted on", "haproxy", o.Instance, "panic", p)
		}
	}()
	w.looked(ctx, one.instance, o)
}

// look reads one instance, keeps its state file and publishes what it saw.
func (w *Watcher) look(ctx context.Context, one *watched) Observed {
	one.mu.Lock()
	defer one.mu.Unlock()
	last := one.last()
	dump, err := one.read(ctx)
	if ctx.Err() != nil {
		return last
	}
	now := Observed{Instance: last.Instance, At: time.Now(), Err: err, Replaced: last.Replaced}
	if err == nil {
		now.Info, now.Servers = dump.Info, make(map[string]runtimeapi.AdminState, len(dump.Servers))
		now.Addresses, now.Agents = make(map[string]netip.AddrPort, len(dump.Servers)), make(map[string]bool, len(dump.Servers))
		for _, s := range dump.Servers {
			now.Servers[s.Name()], now.Addresses[s.Name()], now.Agents[s.Name()] = s.Admin, s.At(), s.HasAgent()
		}
		now.Replaced = last.Replaced || replaced(last, dump.Info)
		if !replaced(last, dump.Info) {
			now.Left = last.Left
		}
	} else {
		now.Info, now.Servers, now.Addresses, now.Agents = last.Info, last.Servers, last.Addresses, last.Agents
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

// keep writes the instance's state file and says what is wrong with it.
func (w *Watcher) keep(one *watched, dump runtimeapi.ServersState, now Observed, started bool) string {
	if one.file == nil || !w.files.Load() {
		return ""
	}
	shown := &dump
	if now.Err != nil {
		shown = nil
	} else if started {
		one.file.Started(dump)
	}
	if _, err := one.file.Keep(shown); err != nil {
		return "not written: " + err.Error()
	}
	if name := one.file.Forgotten(); name != "" {
		return "not loaded: its row for " + name + " was there and " + name + " came up open; does server-state-file name it?"
	}
	return ""
}

// replaced reports whether another process than the one of last shows this.
func replaced(last Observed, now runtimeapi.Info) bool {
	return !last.At.IsZero() && last.Info.PID != 0 && !last.Info.SameProcess(now)
}

// note logs what an operator would want to know once: lost, back, replaced.
func (w *Watcher) note(last, now Observed) {
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

func (one *watched) last() Observed {
	if o := one.seen.Load(); o != nil {
		return *o
	}
	return Observed{Instance: one.instance.Name()}
}
