package admission

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"tier-agent/internal/runtimeapi"
	"tier-agent/internal/tier"
)

// DrainRequest asks to wait until nothing runs on a target.
type DrainRequest struct {
	Target  tier.Target
	Timeout time.Duration // positive
	// IgnoreOldWorkers accepts a drain although HAProxy was reloaded since the
	// quiesce, whose old worker this socket does not show.
	IgnoreOldWorkers bool
	// Progress is told what each read saw; may be nil.
	Progress func(Progress)
}

// Drain waits until no HAProxy has a stream or a queued request on the
// target's servers, over several reads in a row. It only reads, but for one
// thing: where a reload has lost the closing, it closes again and starts
// counting anew. At its timeout, and when ctx ends, the target stays quiesced.
func (c *Controller) Drain(ctx context.Context, d DrainRequest) Result {
	check := func(*run) *Result { return nil }
	return c.do(ctx, VerbDrain, d.Target, check, func(ctx context.Context, r *run) Result {
		if d.Timeout <= 0 {
			return r.refuse(CodeInvalid, "timeout %v: give a positive duration, such as 10m", d.Timeout)
		}
		if len(r.set.Instances()) == 0 {
			return r.refuse(CodeNoRuntimeAPI, "%s is driven through agent-check alone: its streams cannot be counted without a Runtime API", d.Target)
		}
		if closed, _ := c.o.Model.Closed(d.Target); closed == nil {
			return r.refuse(CodeNotQuiesced, "%s is not quiesced itself; quiesce it first", d.Target)
		}
		if r.leaveOut(c.intents.without(d.Target)); len(r.set.Instances()) == 0 {
			return r.refuse(CodeNoRuntimeAPI, "%s was quiesced%s: no HAProxy is left whose streams could be counted", d.Target, r.absent())
		}
		return r.wait(ctx, d, c.intents.processes(d.Target))
	})
}

func (r *run) wait(ctx context.Context, d DrainRequest, pids map[string]int) Result {
	deadline := time.Now().Add(d.Timeout)
	waiting, cancel := context.WithDeadline(ctx, deadline)
	defer cancel()
	var last reading
	var tried time.Time // when a connection was last seen tried again
	for zeros := 0; ; {
		began := time.Now()
		now := r.left(waiting)
		switch {
		// By the clock as well: a read meets the deadline before the context ends.
		case waiting.Err() == nil && time.Now().Before(deadline):
			if now.retries != last.retries {
				tried = time.Now()
			}
			now.trying = began.Sub(tried) < betweenTries
			last = now
			for _, l := range now.loads {
				// One that was never seen closed is held to the process it shows first.
				if _, known := pids[l.Instance]; !known && l.PID != 0 {
					pids[l.Instance] = l.PID
				}
			}
			if zeros++; now.err != nil || now.left > 0 {
				zeros = 0
			}
			if d.Progress != nil {
				d.Progress(Progress{Seconds: time.Since(r.began).Seconds(), HAProxy: now.loads})
			}
		case last.loads == nil:
			last = now // cut short, but it says which HAProxy was waited for
		}
		if zeros >= zeroReads && !last.trying {
			break
		}
		select {
		case <-waiting.Done():
			if ctx.Err() != nil {
				return r.stopped(ctx, d.Target.String()+" stays quiesced")
			}
			return r.end(TimedOut, CodeDrainTimeout, "after %v %s; %s stays quiesced", d.Timeout, last.leftover(), d.Target)
		case <-time.After(r.o.Poll):
		}
	}
	if reloaded := r.unseen(last.loads, pids); reloaded != "" && !d.IgnoreOldWorkers {
		return r.refuse(CodeReloaded, "haproxy %s was reloaded: its old worker may still run streams of %s, and without its master's socket (master in the configuration) that cannot be seen; look there, or say --ignore-old-workers", reloaded, d.Target)
	}
	return r.end(Done, CodeOK, "%s is drained: no stream and no queued request in %d reads of %s%s%s%s", d.Target, zeroReads, plural(len(last.loads), "HAProxy", "HAProxies"), r.absent(), r.blind(), r.waysIn())
}

// reading is what one look at every HAProxy found. With err the count is a
// floor.
type reading struct {
	loads []InstanceLoad
	left  int
	err   error
	// retries counts every connection tried again since each HAProxy's start. While it
	// is trying, a request may be between two tries.
	retries uint64
	trying  bool
}

// left counts what runs on the target's servers, in one read of every HAProxy
// in which all of them were found closed.
func (r *run) left(ctx context.Context) reading {
	states, unread := r.everywhere(ctx, nil)
	for _, one := range states {
		for _, state := range one.Value.states {
			if state&forced == 0 {
				unread = fmt.Errorf("haproxy %s had reopened it", one.Instance)
			}
		}
	}
	if unread != nil && ctx.Err() == nil {
		// Reopened by a reload, or not to be read: both call for closing, which
		// is not cut off, so that none of it is applied after a readmit.
		if err := r.close(context.WithoutCancel(ctx)); err != nil {
			unread = err
		}
	}
	counts := make([]runtimeapi.Result[workerLoads], len(states))
	if ctx.Err() == nil { // else every instance would be blamed for the one that took the time
		counts = r.workers(ctx)
	}
	now := reading{err: unread}
	for n := range states {
		l, err := r.load(states[n], counts[n])
		if err != nil {
			l.Error, now.err = err.Error(), err
		}
		now.left += l.Streams + l.Queue
		now.retries += l.retries
		now.loads = append(now.loads, l)
	}
	return now
}

// load adds up what one HAProxy has on the transition's servers, in every worker
// that could be read.
func (r *run) load(state runtimeapi.Result[visit], count runtimeapi.Result[workerLoads]) (InstanceLoad, error) {
	l := InstanceLoad{Instance: state.Instance, PID: state.Value.pid}
	err := cmp.Or(state.Err, count.Err)
	old := map[int]*WorkerLoad{}
	for backend, workers := range count.Value {
		current := false
		now := slices.IndexFunc(workers, func(w runtimeapi.BackendLoad) bool { return w.Info.PID == l.PID })
		for _, of := range workers {
			streams, queue := 0, 0
			for _, s := range of.Servers {
				if r.counts(backend, s.Server) || r.Target.Server == "" && now >= 0 && goneFrom(workers[now], s.Server) {
					streams, queue = streams+s.Sessions, queue+s.Queue
					l.retries += s.Retries
				}
			}
			l.Streams, l.Queue = l.Streams+streams, l.Queue+queue
			if of.Info.PID == l.PID {
				current = true
				l.BackendQueue += of.Queue
				continue
			}
			if old[of.Info.PID] == nil {
				old[of.Info.PID] = &WorkerLoad{PID: of.Info.PID}
			}
			old[of.Info.PID].Streams += streams
			old[of.Info.PID].Queue += queue
		}
		if !current {
			err = cmp.Or(err, fmt.Errorf("haproxy %s was replaced while it was read", l.Instance))
		}
	}
	for _, pid := range slices.Sorted(maps.Keys(old)) {
		l.OldWorkers = append(l.OldWorkers, *old[pid])
	}
	return l, err
}

// counts reports whether a server's streams are those that the drain waits for: of a
// tier with members all of its backend's, also on slots whose host has left.
func (r *run) counts(backend, server string) bool {
	if r.Target.Server == "" && r.spec.Members != nil {
		return backend == r.spec.Members.Backend
	}
	return slices.ContainsFunc(r.servers, func(s tier.ServerSpec) bool { return s.Backend == backend && s.Name == server })
}

// goneFrom reports whether the worker that answers has no such server any more. In an old
// one it may be the tier's under another name: a reload renames it, and its streams go on.
func goneFrom(now runtimeapi.BackendLoad, server string) bool {
	_, there := now.Find(server)
	return !there
}

// backends are those of the transition's servers; of a tier with members its own, also
// while it has none.
func (r *run) backends() []string {
	var all []string
	if r.spec.Members != nil {
		all = append(all, r.spec.Members.Backend)
	}
	for _, s := range r.servers {
		if !slices.Contains(all, s.Backend) {
			all = append(all, s.Backend)
		}
	}
	return all
}

// workerLoads are a HAProxy's backends, each in every worker that can be seen.
type workerLoads map[string][]runtimeapi.BackendLoad

// workers reads the transition's backends in every worker: through the master's
// socket the old ones of a reload too, otherwise the one that answers. A server
// that is missing there is an error; old workers may never have had it.
func (r *run) workers(ctx context.Context) []runtimeapi.Result[workerLoads] {
	return runtimeapi.Each(ctx, r.set, func(ctx context.Context, i *runtimeapi.Instance) (workerLoads, error) {
		all := workerLoads{}
		for _, backend := range r.backends() {
			one, err := i.EveryWorkerLoad(ctx, backend)
			if err != nil {
				return nil, err
			}
			all[backend] = one
		}
		for _, s := range r.servers {
			if !slices.ContainsFunc(all[s.Backend], func(l runtimeapi.BackendLoad) bool { _, ok := l.Find(s.Name); return ok }) {
				return nil, fmt.Errorf("haproxy %s: %w: %s", i.Name(), runtimeapi.ErrNoSuchServer, s.FullName())
			}
		}
		return all, nil
	})
}

// unseen names a HAProxy that may have an old worker which nothing shows: it has
// no master's socket, and was reloaded, since the quiesce or as far as its
// watcher knows, less than hard-stop-after ago.
func (r *run) unseen(loads []InstanceLoad, pids map[string]int) string {
	for _, i := range r.set.Instances() {
		if i.HasMaster() {
			continue
		}
		reloaded := ""
		for _, l := range loads {
			if was, known := pids[l.Instance]; l.Instance == i.Name() && known && was != l.PID {
				reloaded = i.Name()
			}
		}
		var up time.Duration
		if r.o.Watcher != nil {
			for _, o := range r.o.Watcher.Views() {
				if o.Instance == i.Name() {
					up = o.Info.Uptime
					if o.Replaced {
						reloaded = i.Name()
					}
				}
			}
		}
		limit, set := r.o.HardStopAfter[i.Name()]
		if reloaded != "" && (!set || up < limit) {
			return reloaded
		}
	}
	return ""
}

// blind says, in a message, whose old workers cannot be seen.
func (r *run) blind() string {
	var names []string
	for _, i := range r.set.Instances() {
		if !i.HasMaster() {
			names = append(names, i.Name())
		}
	}
	if names == nil {
		return ""
	}
	return "; old workers of " + strings.Join(names, ", ") + " cannot be seen without the master's socket"
}

func (d reading) leftover() string {
	for _, l := range d.loads {
		if l.Error != "" {
			return "the streams could not be counted (" + l.Error + ")"
		}
	}
	if d.left == 0 && d.trying {
		return fmt.Sprintf("a connection had been tried again less than %v before, and its request may be between two tries (retries in HAProxy's configuration)", betweenTries)
	}
	if d.left == 0 {
		return fmt.Sprintf("too few reads, of %d in a row, had found nothing", zeroReads)
	}
	return plural(d.left, "stream or queued request is left", "streams and queued requests are left")
}

func plural(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, many)
}
