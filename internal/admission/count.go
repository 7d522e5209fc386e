package admission

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"tier-agent/internal/observe"
	"tier-agent/internal/runtimeapi"
	"tier-agent/internal/tier"
)

// load adds up what one HAProxy has on the transition's servers, and on those that track
// them, in every worker that could be read.
func (r *run) load(state runtimeapi.Result[visit], count runtimeapi.Result[[]observe.Worker]) (InstanceLoad, error) {
	l := InstanceLoad{Instance: state.Instance, PID: state.Value.pid}
	err := cmp.Or(state.Err, count.Err)
	var current observe.Worker
	for _, w := range count.Value {
		if w.PID == l.PID {
			current = w
		}
	}
	if count.Value != nil && current.PID == 0 {
		err = cmp.Or(err, fmt.Errorf("haproxy %s was replaced while it was read", l.Instance))
	}
	for _, w := range count.Value {
		one := WorkerLoad{PID: w.PID}
		for server, tracks := range r.covered(w, current) {
			backend, name, _ := strings.Cut(server, "/")
			s, _ := w.Backends[backend].Find(name)
			one.Streams, one.Queue, l.retries = one.Streams+s.Sessions, one.Queue+s.Queue, l.retries+s.Retries
			if tracks && s.Sessions+s.Queue > 0 {
				l.Tracking = addTo(l.Tracking, server, s.Sessions+s.Queue)
			}
		}
		l.Streams, l.Queue = l.Streams+one.Streams, l.Queue+one.Queue
		if w.PID != l.PID {
			l.OldWorkers = append(l.OldWorkers, one)
			continue
		}
		for _, backend := range r.backends() {
			l.BackendQueue += w.Backends[backend].Queue
		}
	}
	slices.SortFunc(l.OldWorkers, func(a, b WorkerLoad) int { return cmp.Compare(a.PID, b.PID) })
	return l, err
}

func addTo(counts map[string]int, name string, n int) map[string]int {
	if counts == nil {
		counts = map[string]int{}
	}
	counts[name] += n
	return counts
}

// covered are the servers of one worker, "backend/server", that the drain counts: those
// of the transition, and, with true, those that follow one of them by `track`. A request
// on one of these is at the same engine.
func (r *run) covered(w, current observe.Worker) map[string]bool {
	all := map[string]bool{}
	for backend, load := range w.Backends {
		for _, s := range load.Servers {
			own := r.counts(backend, s.Server) ||
				r.Target.Server == "" && slices.Contains(r.backends(), backend) && current.Lost(backend, s.Server)
			if own || slices.ContainsFunc(w.Tracked(s), r.countsNamed) {
				all[backend+"/"+s.Server] = !own
			}
		}
	}
	return all
}

// counts reports whether a server's streams are those that the drain waits for: of a
// tier with members all of its backend's, also on slots whose host has left.
func (r *run) counts(backend, server string) bool {
	if r.Target.Server == "" && r.spec.Members != nil {
		return backend == r.spec.Members.Backend
	}
	return slices.ContainsFunc(r.servers, func(s tier.ServerSpec) bool { return s.Backend == backend && s.Name == server })
}

// countsNamed is counts of "backend/server".
func (r *run) countsNamed(name string) bool {
	backend, server, _ := strings.Cut(name, "/")
	return r.counts(backend, server)
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

// workers reads what the drain counts in every worker that can be seen: through the
// master's socket the old ones of a reload too, otherwise the one that answers. A server
// that is missing there is an error; old workers may never have had it.
//
// With whole it reads every backend, since any may have a server that tracks one of the
// transition's, and notes which do. Otherwise it reads those and the transition's own:
// the whole is much where HAProxy has thousands of servers, and a drain may go on for
// hours.
func (r *run) workers(ctx context.Context, whole bool) []runtimeapi.Result[[]observe.Worker] {
	results := runtimeapi.Each(ctx, r.set, func(ctx context.Context, i *runtimeapi.Instance) ([]observe.Worker, error) {
		var backends []string
		if !whole {
			backends = append(r.backends(), r.tracking[i.Name()]...)
		}
		all, err := observe.EveryWorker(ctx, i, backends...)
		if err != nil {
			return nil, err
		}
		for _, s := range r.servers {
			if !slices.ContainsFunc(all, func(w observe.Worker) bool { _, ok := w.Backends[s.Backend].Find(s.Name); return ok }) {
				return nil, fmt.Errorf("haproxy %s: %w: %s", i.Name(), runtimeapi.ErrNoSuchServer, s.FullName())
			}
		}
		return all, nil
	})
	if whole {
		r.tracking = map[string][]string{}
		for _, one := range results {
			for _, w := range one.Value {
				for server, tracks := range r.covered(w, observe.Worker{}) {
					backend, _, _ := strings.Cut(server, "/")
					if tracks && !slices.Contains(r.backends(), backend) && !slices.Contains(r.tracking[one.Instance], backend) {
						r.tracking[one.Instance] = append(r.tracking[one.Instance], backend)
					}
				}
			}
		}
	}
	return results
}
