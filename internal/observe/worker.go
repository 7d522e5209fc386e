package observe

import (
	"context"
	"errors"
	"slices"
	"strings"

	"tier-agent/internal/runtimeapi"
)

// Worker is what one worker of a HAProxy carries, by backend.
type Worker struct {
	PID      int
	Backends map[string]runtimeapi.BackendLoad
}

// Tracked are the servers that s follows by `track`, from one to the next.
func (w Worker) Tracked(s runtimeapi.ServerLoad) (names []string) {
	for s.Tracked != "" && !slices.Contains(names, s.Tracked) {
		names = append(names, s.Tracked)
		backend, server, _ := strings.Cut(s.Tracked, "/")
		s, _ = w.Backends[backend].Find(server)
	}
	return names
}

// Lost reports whether a worker has no such server any more. In an old one it may be the
// tier's under another name: a reload renames it, and its streams go on.
func (w Worker) Lost(backend, server string) bool {
	load, known := w.Backends[backend]
	_, there := load.Find(server)
	return known && !there
}

// EveryWorker reads the backends, or all that there are, in every worker that can be
// seen. One that a worker does not know is left out.
func EveryWorker(ctx context.Context, i *runtimeapi.Instance, backends ...string) (all []Worker, err error) {
	add := func(loads []runtimeapi.BackendLoad) {
		for _, load := range loads {
			n := slices.IndexFunc(all, func(w Worker) bool { return w.PID == load.Info.PID })
			if n < 0 {
				n, all = len(all), append(all, Worker{load.Info.PID, map[string]runtimeapi.BackendLoad{}})
			}
			all[n].Backends[load.Backend] = load
		}
	}
	switch {
	case backends == nil && i.HasMaster():
		each, err := i.AllWorkersLoads(ctx)
		for _, loads := range each {
			add(loads)
		}
		return all, err
	case backends == nil:
		loads, err := i.Loads(ctx)
		add(loads)
		return all, err
	}
	for _, backend := range backends {
		var loads []runtimeapi.BackendLoad
		if i.HasMaster() {
			loads, err = i.AllWorkersLoad(ctx, backend)
		} else if load, failed := i.Load(ctx, backend); failed == nil {
			loads, err = []runtimeapi.BackendLoad{load}, nil
		} else {
			err = failed
		}
		if err != nil && !errors.Is(err, runtimeapi.ErrNoSuchServer) {
			return nil, err
		}
		add(loads)
	}
	return all, nil
}
