package admission

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"tier-agent/internal/observe"
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
	return c.do(ctx, VerbDrain, d.Target, d.Progress, check, func(ctx context.Context, r *run) Result {
		if d.Timeout <= 0 {
			return r.refuse(CodeInvalid, "timeout %v: give a positive duration, such as 10m", d.Timeout)
		}
		if len(r.set.Instances()) == 0 {
			return r.refuse(CodeNoRuntimeAPI, "%s has admission: agent-check, so that its streams are not counted, also where a HAProxy is configured; count them in HAProxy, or let tier-agent drive the tier through the Runtime API", d.Target)
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
	readable := time.Now()
	var behind *hidden
	for zeros := 0; ; {
		began := time.Now()
		// What ends the drain has looked at all there is.
		now := r.left(waiting, zeros > 0 || last.loads == nil)
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
			if now.err == nil {
				readable = began
			}
			if behind = nil; zeros >= zeroReads && !now.trying && !d.IgnoreOldWorkers {
				behind = r.hidden(waiting)
			}
			r.waits("%s", now.wanted(behind))
			if behind != nil {
				for n := range now.loads {
					if now.loads[n].Instance == behind.instance {
						now.loads[n].Hidden = behind.String()
					}
				}
			}
			r.say(Progress{HAProxy: now.loads})
			if refused := r.hopeless(now.err, readable); refused != nil {
				return *refused
			}
		case last.loads == nil:
			last = now // cut short, but it says which HAProxy was waited for
		}
		if zeros >= zeroReads && !last.trying && (behind == nil || behind.unseen()) {
			break
		}
		select {
		case <-waiting.Done():
			if ctx.Err() != nil {
				return r.stopped(ctx, d.Target.String()+" stays quiesced")
			}
			left := last.leftover()
			if behind != nil {
				left = behind.String()
			}
			return r.end(TimedOut, CodeDrainTimeout, "after %v %s; %s stays quiesced", d.Timeout, left, d.Target)
		case <-time.After(r.o.Poll):
		}
	}
	if behind != nil {
		return r.refuse(CodeReloaded, "%v; look there, or say --ignore-old-workers; %s stays quiesced", behind, d.Target)
	}
	if reloaded := r.unseen(last.loads, pids); reloaded != "" && !d.IgnoreOldWorkers {
		return r.refuse(CodeReloaded, "haproxy %s: an old worker may still run streams of %s, and without the master's socket (master in the configuration) that cannot be seen; look there, or say --ignore-old-workers", reloaded, d.Target)
	}
	return r.end(Done, CodeOK, "%s is drained: no stream and no queued request in %d reads of %s%s%s%s%s", d.Target, zeroReads, plural(len(last.loads), "HAProxy", "HAProxies"), r.absent(), last.queued(), r.blind()+r.unlisted(), r.waysIn())
}

// hopeless ends a drain that HAProxy cannot be read for: at once where that does not pass
// by itself, otherwise when it has gone on for too long. One that hangs, or is busy, may
// come to itself at any time.
func (r *run) hopeless(err error, readable time.Time) *Result {
	since := time.Since(readable)
	switch {
	case err == nil, !runtimeapi.Lasting(err) && (since < r.o.Grace || errors.Is(err, runtimeapi.ErrTimeout)):
		return nil
	case runtimeapi.Lasting(err):
		return keep(r.refuse(CodeHAProxy, "%s stays quiesced, and what it still has cannot be counted: %v", r.Target, err))
	}
	return keep(r.refuse(CodeHAProxy, "%s stays quiesced, and what it still has could not be counted for %v: %v%s", r.Target, since.Round(time.Second), err, lacking(err)))
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
func (r *run) left(ctx context.Context, whole bool) reading {
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
	counts := make([]runtimeapi.Result[[]observe.Worker], len(states))
	if ctx.Err() == nil { // else every instance would be blamed for the one that took the time
		counts = r.workers(ctx, whole)
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

// unseen names, and says why, a HAProxy that may have an old worker which nothing shows: it has
// no master's socket, and was reloaded, since the quiesce or as far as it has been
// watched, less than hard-stop-after ago.
func (r *run) unseen(loads []InstanceLoad, pids map[string]int) string {
	for _, i := range r.set.Instances() {
		if i.HasMaster() {
			continue
		}
		reloaded := ""
		switch worker := r.worker(i.Name()); {
		case worker.Replaced:
			reloaded = i.Name() + " was reloaded"
		case worker.Young:
			reloaded = i.Name() + " had begun shortly before tier-agent first saw it"
		}
		for _, l := range loads {
			if was, known := pids[l.Instance]; l.Instance == i.Name() && known && was != l.PID {
				reloaded = i.Name() + " was reloaded"
			}
		}
		limit, set := r.o.HardStopAfter[i.Name()]
		var up time.Duration
		if r.o.Watcher != nil {
			for _, o := range r.o.Watcher.Views() {
				if o.Instance == i.Name() {
					up = o.Info.Uptime
				}
			}
		}
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

// queued says, in a message, what waits in the backends' own queues: a drain waits for none
// of it.
func (d reading) queued() string {
	n := 0
	for _, l := range d.loads {
		n += l.BackendQueue
	}
	if n == 0 {
		return ""
	}
	return "; " + plural(n, "request waits", "requests wait") + " in the queue of the backend, for whichever server takes requests next"
}

// wanted says for what a drain waits that has read this.
func (d reading) wanted(behind *hidden) string {
	if behind != nil {
		return "its end: " + behind.String()
	}
	for _, l := range d.loads {
		if l.Error != "" {
			return l.Error + " to pass"
		}
	}
	if d.left == 0 {
		return fmt.Sprintf("%d reads in a row that find nothing", zeroReads)
	}
	return plural(d.left, "stream or queued request", "streams and queued requests") + " to end"
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
