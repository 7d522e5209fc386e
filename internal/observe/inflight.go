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

// countWithin bounds the statistics that are read after one look: the next look waits
// for them.
const countWithin = time.Second

// count reads the statistics of one instance, after a look, and publishes what is in
// flight on its quiesced servers, and why servers that should be up are down. Where
// there are neither it asks nothing.
func (w *Watcher) count(ctx context.Context, one *watched) {
	seen := one.last()
	quiesced, down := seen.those(w.quiesced, anyhow), seen.those(w.ready, Server.failing)
	if len(quiesced)+len(down)+len(seen.InFlight)+len(seen.Down) == 0 {
		return
	}
	inFlight, why := map[string]InFlight{}, map[string]string{}
	bounded, cancel := context.WithTimeout(ctx, countWithin)
	defer cancel()
	// What the running one says does not wait for the others: an old one may be silent.
	if len(down) > 0 {
		running := one.running(bounded)
		if running.PID != seen.Info.PID { // it cannot be read, or the look has not seen it
			running, why = Worker{}, seen.Down
		}
		for _, name := range down {
			backend, server, _ := strings.Cut(name, "/")
			if row, known := running.Backends[backend].Find(server); known && !row.Up() {
				why[name] = heard(row)
			}
		}
	}
	if len(quiesced) > 0 {
		workers, err := one.load(bounded)
		here := slices.ContainsFunc(workers, func(w Worker) bool { return w.PID == seen.Info.PID })
		if err == nil && here { // else it is not to be read, or a process that the look has not seen
			on := inFlightOn(workers)
			for _, server := range quiesced {
				if n, known := on[server]; known {
					inFlight[server] = n
				}
			}
		}
	}
	if ctx.Err() != nil {
		return
	}
	one.mu.Lock()
	defer one.mu.Unlock()
	view := one.last() // a transition may have looked meanwhile
	if replaced(seen, view.Info) {
		return
	}
	view.InFlight, view.Down = inFlight, why
	one.seen.Store(&view)
}

// those are the servers of the view that ask and is are true of.
func (v View) those(ask func(server string) bool, is func(Server) bool) (names []string) {
	for name, s := range v.Servers {
		if ask != nil && is(s) && ask(name) {
			names = append(names, name)
		}
	}
	return names
}

func anyhow(Server) bool { return true }

// failing reports whether HAProxy's checks have taken the server down.
func (s Server) failing() bool { return s.Open() && !s.Takes() }

// heard is what the checks of a server that is down were answered last.
func heard(row runtimeapi.ServerLoad) string {
	var parts []string
	if row.AgentStatus != "" {
		parts = append(parts, strings.TrimSpace("agent-check "+row.AgentStatus+" "+row.LastAgent))
	}
	if row.CheckStatus != "" {
		parts = append(parts, "health check "+row.CheckStatus)
	}
	if parts == nil {
		return row.Status
	}
	return row.Status + "; " + strings.Join(parts, "; ")
}

// running is what the worker carries that answers; the zero value where it cannot be read.
func (one *watched) running(ctx context.Context) (w Worker) {
	only := runtimeapi.NewSet(one.instance) // as in read
	r := runtimeapi.Each(ctx, only, func(ctx context.Context, i *runtimeapi.Instance) ([]runtimeapi.BackendLoad, error) {
		return i.Loads(ctx)
	})[0]
	w.Backends = map[string]runtimeapi.BackendLoad{}
	for _, load := range r.Value {
		w.PID, w.Backends[load.Backend] = load.Info.PID, load
	}
	return w
}

func (one *watched) load(ctx context.Context) ([]Worker, error) {
	only := runtimeapi.NewSet(one.instance) // as in read
	r := runtimeapi.Each(ctx, only, func(ctx context.Context, i *runtimeapi.Instance) ([]Worker, error) {
		return EveryWorker(ctx, i)
	})[0]
	return r.Value, r.Err
}

// inFlightOn adds up what the workers have on each server, and on those that track it.
func inFlightOn(workers []Worker) map[string]InFlight {
	on := map[string]InFlight{}
	for _, w := range workers {
		for backend, load := range w.Backends {
			for _, s := range load.Servers {
				for _, name := range append(w.Tracked(s), backend+"/"+s.Server) {
					n := on[name]
					on[name] = InFlight{n.Streams + s.Sessions, n.Queue + s.Queue}
				}
			}
		}
	}
	return on
}
