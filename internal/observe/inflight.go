package observe

import (
	"context"
	"maps"
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
	for _, backend := range backends(quiesced, down) {
		workers, err := one.load(bounded, backend)
		now := slices.IndexFunc(workers, func(l runtimeapi.BackendLoad) bool { return l.Info.PID == seen.Info.PID })
		if err != nil || now < 0 {
			continue // not to be read, or a process that the look has not seen
		}
		for _, server := range quiesced[backend] {
			if n, known := inFlightOn(server, workers); known {
				inFlight[backend+"/"+server] = n
			}
		}
		for _, server := range down[backend] {
			if row, known := workers[now].Find(server); known && !row.Up() {
				why[backend+"/"+server] = heard(row)
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
	now.InFlight, now.Down = inFlight, why
	one.seen.Store(&now)
}

// those are the servers of the view that ask and is are true of, by backend.
func (v View) those(ask func(server string) bool, is func(Server) bool) map[string][]string {
	of := map[string][]string{}
	if ask == nil {
		return of
	}
	for name, s := range v.Servers {
		if backend, server, ok := strings.Cut(name, "/"); ok && is(s) && ask(name) {
			of[backend] = append(of[backend], server)
		}
	}
	return of
}

func anyhow(Server) bool { return true }

// failing reports whether HAProxy's checks have taken the server down.
func (s Server) failing() bool { return s.Open() && !s.Takes() }

// backends are those of either.
func backends(quiesced, down map[string][]string) []string {
	all := slices.Collect(maps.Keys(quiesced))
	for backend := range down {
		if _, twice := quiesced[backend]; !twice {
			all = append(all, backend)
		}
	}
	return all
}

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
