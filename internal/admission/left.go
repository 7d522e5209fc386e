package admission

import (
	"context"
	"slices"
	"time"

	"tier-agent/internal/runtimeapi"
)

// Left is what a server that is closed still has: in every worker that can be
// seen, as a drain counts it.
type Left struct{ Streams, Queue int }

// countWithin bounds the counting of one look: the next look waits for it.
const countWithin = time.Second

// count counts what is left on the quiesced servers of one instance, after a look,
// and publishes it. Where nothing is quiesced it asks nothing.
func (w *Watcher) count(ctx context.Context, one *watched) {
	seen := one.last()
	of := w.toCount(seen)
	if len(of) == 0 && len(seen.Left) == 0 {
		return
	}
	left := map[string]Left{}
	bounded, cancel := context.WithTimeout(ctx, countWithin)
	defer cancel()
	// Else it is not to be read, or a process that the look has not seen.
	if workers, err := one.load(bounded); err == nil && slices.ContainsFunc(workers, func(w worker) bool { return w.pid == seen.Info.PID }) {
		on := leftOn(workers)
		for _, server := range of {
			if n, known := on[server]; known {
				left[server] = n
			}
		}
	}
	if ctx.Err() != nil {
		return
	}
	one.mu.Lock()
	defer one.mu.Unlock()
	now := one.last() // a transition may have looked meanwhile
	if replaced(seen, now.Info) {
		return
	}
	now.Left = left
	one.seen.Store(&now)
}

// toCount are the quiesced servers that the instance has.
func (w *Watcher) toCount(o Observed) (of []string) {
	for name := range o.Servers {
		if w.quiesced != nil && w.quiesced(name) {
			of = append(of, name)
		}
	}
	return of
}

func (one *watched) load(ctx context.Context) ([]worker, error) {
	only := runtimeapi.NewSet(one.instance) // as in read
	r := runtimeapi.Each(ctx, only, func(ctx context.Context, i *runtimeapi.Instance) ([]worker, error) {
		return everyWorker(ctx, i)
	})[0]
	return r.Value, r.Err
}

// leftOn adds up what the workers have on each server, and on those that track it.
func leftOn(workers []worker) map[string]Left {
	left := map[string]Left{}
	for _, w := range workers {
		for backend, load := range w.backends {
			for _, s := range load.Servers {
				for _, name := range append(w.tracked(s), backend+"/"+s.Server) {
					n := left[name]
					left[name] = Left{n.Streams + s.Sessions, n.Queue + s.Queue}
				}
			}
		}
	}
	return left
}
