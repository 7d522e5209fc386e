package observe

import (
	"context"
	"slices"
	"strings"
	"time"

	"tier-agent/internal/runtimeapi"
)

// InFlight is what a server that is closed still has: in every worker that can be
// seen, as a drain counts it.
type InFlight struct{ Streams, Queue int }

// countWithin bounds the counting of one look: the next look waits for it.
const countWithin = time.Second

// count counts what is left on the quiesced servers of one instance, after a look,
// and publishes it. Where nothing is quiesced it asks nothing.
func (w *Watcher) count(ctx context.Context, one *watched) {
	seen := one.last()
	of := w.toCount(seen)
	if len(of) == 0 && len(seen.InFlight) == 0 {
		return
	}
	left := map[string]InFlight{}
	bounded, cancel := context.WithTimeout(ctx, countWithin)
	defer cancel()
	for backend, servers := range of {
		workers, err := one.load(bounded, backend)
		if err != nil || !slices.ContainsFunc(workers, func(l runtimeapi.BackendLoad) bool { return l.Info.PID == seen.Info.PID }) {
			continue // not to be read, or a process that the look has not seen
		}
		for _, server := range servers {
			if n, known := inFlightOn(server, workers); known {
				left[backend+"/"+server] = n
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
	now.InFlight = left
	one.seen.Store(&now)
}

// toCount are the quiesced servers that the instance has, by backend.
func (w *Watcher) toCount(o View) map[string][]string {
	of := map[string][]string{}
	if w.quiesced == nil {
		return of
	}
	for name := range o.Servers {
		if backend, server, ok := strings.Cut(name, "/"); ok && w.quiesced(name) {
			of[backend] = append(of[backend], server)
		}
	}
	return of
}

func (one *watched) load(ctx context.Context, backend string) ([]runtimeapi.BackendLoad, error) {
	only := runtimeapi.NewSet(one.instance) // as in read
	r := runtimeapi.Each(ctx, only, func(ctx context.Context, i *runtimeapi.Instance) ([]runtimeapi.BackendLoad, error) {
		return i.EveryWorkerLoad(ctx, backend)
	})[0]
	return r.Value, r.Err
}

// inFlightOn adds up a server's; known is false where no worker has it.
func inFlightOn(server string, workers []runtimeapi.BackendLoad) (n InFlight, known bool) {
	for _, w := range workers {
		if s, has := w.Find(server); has {
			n.Streams, n.Queue, known = n.Streams+s.Sessions, n.Queue+s.Queue, true
		}
	}
	return n, known
}
