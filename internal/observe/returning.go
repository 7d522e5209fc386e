package observe

import (
	"context"
	"errors"
	"maps"
	"net/netip"
	"strings"

	"tier-agent/internal/runtimeapi"
)

// askReturning completes, after a look, what is known of the servers that are quiesced
// and of others at their addresses. It is configuration: each backend is asked about once
// for each process, and what cannot be read again after the next look.
func (w *Watcher) askReturning(ctx context.Context, one *watched) {
	one.mu.Lock()
	seen := one.last()
	backends := w.toAsk(seen, one.asked)
	one.mu.Unlock()
	if len(backends) == 0 || seen.Err != nil {
		return
	}
	bounded, cancel := context.WithTimeout(ctx, countWithin)
	defer cancel()
	for _, backend := range backends {
		if found, err := one.returningTo(bounded, backend, seen); err == nil {
			one.add(backend, found, seen)
		}
	}
}

// add publishes what was found of a backend, unless another process runs by now.
func (one *watched) add(backend string, found map[string]string, seen View) {
	one.mu.Lock()
	defer one.mu.Unlock()
	now := one.last()
	if replaced(seen, now.Info) {
		return
	}
	all := make(map[string]string, len(now.Returning)+len(found))
	maps.Copy(all, now.Returning) // which earlier views share
	maps.Copy(all, found)
	now.Returning = all
	if one.asked == nil {
		one.asked = map[string]bool{}
	}
	one.asked[backend] = true
	one.seen.Store(&now)
}

// toAsk are the backends of quiesced servers, and of others at their addresses, that have
// not been asked about.
func (w *Watcher) toAsk(now View, asked map[string]bool) (all []string) {
	if w.quiesced == nil {
		return nil
	}
	at := map[netip.AddrPort]bool{}
	for name, s := range now.Servers {
		if w.quiesced(name) {
			at[s.Address] = true
		}
	}
	if len(at) == 0 {
		return nil
	}
	met := map[string]bool{}
	for name, s := range now.Servers {
		backend, _, _ := strings.Cut(name, "/")
		if !asked[backend] && !met[backend] && (w.quiesced(name) || s.Address.IsValid() && at[s.Address]) {
			met[backend] = true
			all = append(all, backend)
		}
	}
	return all
}

// returningTo asks by what clients come back to a backend's servers.
func (one *watched) returningTo(ctx context.Context, backend string, now View) (map[string]string, error) {
	only := runtimeapi.NewSet(one.instance) // as in read
	r := runtimeapi.Each(runtimeapi.ExpectPID(ctx, now.Info.PID), only, func(ctx context.Context, i *runtimeapi.Instance) (map[string]string, error) {
		load, err := i.Load(ctx, backend)
		if errors.Is(err, runtimeapi.ErrNoSuchServer) {
			return nil, nil // a backend that is `disabled`, to which no request goes
		}
		if err != nil {
			return nil, err
		}
		tables, err := i.StickTables(ctx, func(table string) bool { return table == backend || !now.has(table) })
		if err != nil {
			return nil, err
		}
		return returningBy(load, tables), nil
	})[0]
	return r.Value, r.Err
}

// has reports whether the view has servers of the backend.
func (v View) has(backend string) bool {
	for name := range v.Servers {
		if of, _, _ := strings.Cut(name, "/"); of == backend {
			return true
		}
	}
	return false
}

// returningBy says it of each server. A stick table of a section without servers is there
// for others, and HAProxy does not show for which.
func returningBy(load runtimeapi.BackendLoad, tables []string) map[string]string {
	table := ""
	for _, name := range tables {
		if name == load.Backend {
			table = "an entry in the backend's stick table"
		} else if table == "" {
			table = "an entry in stick table " + name + ", if the backend uses that"
		}
	}
	by := map[string]string{}
	for _, s := range load.Servers {
		var ways []string
		if load.Cookie && s.Cookie {
			ways = append(ways, "a cookie")
		}
		if table != "" {
			ways = append(ways, table)
		}
		if ways != nil {
			by[load.Backend+"/"+s.Server] = strings.Join(ways, " or ")
		}
	}
	return by
}
