package admission

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"

	"tier-agent/internal/crash"
	"tier-agent/internal/runtimeapi"
	"tier-agent/internal/tier"
)

// errHeld: somebody else has a server closed in HAProxy, and nobody has said
// that it may be opened.
var errHeld = errors.New("held in HAProxy by somebody else")

// visit is what one HAProxy showed and took.
type visit struct {
	process
	servers []ServerResult
	before  map[string]runtimeapi.AdminState // "backend/server" -> state, noted before it is changed
	states  map[string]runtimeapi.AdminState // the same, after
}

// change says what to make of a server that one HAProxy shows so; zero leaves
// it alone, and an error says that it may not be opened.
type change func(seen) (runtimeapi.State, error)

// everywhere lets change act on each of the transition's servers on every
// HAProxy at once. change may be nil: then the states are only read. The error
// names every instance that failed.
func (r *run) everywhere(ctx context.Context, change change) ([]runtimeapi.Result[visit], error) {
	return r.visitAll(ctx, change, func([]seen) {})
}

// visitAll is everywhere, and tells read what a backend showed before anything
// in it is changed. read is called for several instances at once.
func (r *run) visitAll(ctx context.Context, change change, read func([]seen)) ([]runtimeapi.Result[visit], error) {
	r.waits("HAProxy (%s) to answer", strings.Join(r.instances(), ", "))
	results := runtimeapi.Each(ctx, r.set, func(ctx context.Context, i *runtimeapi.Instance) (visit, error) {
		return r.visit(ctx, i, change, read)
	})
	r.HAProxy, r.visited = nil, map[string]process{}
	var failed error
	for _, one := range results {
		r.visited[one.Instance] = one.Value.process
		at := InstanceResult{Instance: one.Instance, PID: one.Value.pid, Servers: one.Value.servers}
		if one.Err != nil {
			at.Error = one.Err.Error()
			failed = also(failed, one.Err)
		}
		r.HAProxy = append(r.HAProxy, at)
	}
	return results, failed
}

// instances are the names of the HAProxies that the transition covers.
func (r *run) instances() (names []string) {
	for _, i := range r.set.Instances() {
		names = append(names, i.Name())
	}
	return names
}

// also joins two errors on one line: they end up in messages. Either may be nil.
func also(first, second error) error {
	switch {
	case first == nil:
		return second
	case second == nil:
		return first
	}
	return fmt.Errorf("%w; %w", first, second)
}

// visit goes on after a server that failed, so that one which HAProxy does not
// know leaves no other open; only a failed opening ends it, being undone anyway.
func (r *run) visit(ctx context.Context, i *runtimeapi.Instance, change change, told func([]seen)) (visit, error) {
	v := visit{before: map[string]runtimeapi.AdminState{}, states: map[string]runtimeapi.AdminState{}}
	tables := map[string]*runtimeapi.ServersState{} // nil where it cannot be read
	var failed []error
	for _, s := range r.servers {
		table, read := tables[s.Backend]
		if !read {
			state, err := i.Servers(ctx, s.Backend)
			if errors.Is(err, runtimeapi.ErrTimeout) {
				failed = append(failed, err)
				break // it hangs: the rest would cost as much again
			}
			if err != nil {
				failed = append(failed, err)
			} else {
				table, v.process = &state, processOf(state.Info)
			}
			if err == nil || errors.Is(err, runtimeapi.ErrNoSuchServer) {
				told(r.showing(i.Name(), s.Backend, state))
			}
			tables[s.Backend] = table
		}
		if table == nil {
			continue
		}
		row, ok := table.Find(s.Backend, s.Name)
		if !ok {
			failed = append(failed, fmt.Errorf("haproxy %s: %w: %s", i.Name(), runtimeapi.ErrNoSuchServer, s.FullName()))
			continue
		}
		if opening, err := v.change(ctx, i, row, change); err != nil {
			if failed = append(failed, err); opening || errors.Is(err, runtimeapi.ErrTimeout) {
				break
			}
		}
	}
	if len(r.servers) == 0 && r.spec.Members != nil {
		// None of it is there yet, and it is to be known that HAProxy answers.
		state, err := i.Servers(ctx, r.spec.Members.Backend)
		if v.process = processOf(state.Info); err != nil {
			failed = append(failed, err)
		}
	}
	switch len(failed) {
	case 0:
		return v, nil
	case 1:
		return v, failed[0]
	}
	return v, fmt.Errorf("%w (and %d more)", failed[0], len(failed)-1)
}

// change makes of one server what change wants. With an error it says whether
// that was to open the server.
func (v *visit) change(ctx context.Context, i *runtimeapi.Instance, row runtimeapi.ServerState, change change) (opening bool, err error) {
	name := row.Name()
	at := seen{place: place{i.Name(), name}, process: v.process, admin: row.Admin, address: row.At()}
	after := row.Admin
	v.before[name] = row.Admin
	var want runtimeapi.State
	if change != nil {
		if want, err = change(at); err != nil {
			return true, err
		}
	}
	if want != 0 {
		opening = want == runtimeapi.StateReady
		done, err := i.SetState(ctx, row.Backend, row.Server, want)
		if err != nil {
			return opening, err
		}
		at.admin, at.address, at.process, after = done.Before.Admin, done.Before.At(), processOf(done.Info), done.After.Admin
		v.before[name] = at.admin
		// Somebody may have come between the read and the change. What change
		// would not have touched in that state is put back.
		if again, refused := change(at); again != want {
			if done, err = i.Restore(ctx, row.Backend, row.Server, at.admin); err != nil {
				return opening, err
			}
			if after = done.After.Admin; refused != nil {
				return opening, refused
			}
		}
	}
	v.states[name] = after
	v.servers = append(v.servers, ServerResult{Server: name, Before: v.before[name].String(), After: after.String()})
	return opening, nil
}

// showing are the transition's servers of one backend as a table shows them.
func (r *run) showing(instance, backend string, table runtimeapi.ServersState) []seen {
	var all []seen
	for _, s := range r.servers {
		if s.Backend != backend {
			continue
		}
		if row, ok := table.Find(s.Backend, s.Name); ok || !s.Address.IsValid() { // listed, and yet to come: the drain of its row is ours
			at := place{instance, s.FullName()}
			all = append(all, seen{place: at, process: processOf(table.Info), admin: r.besidesUnasked(at, row.Admin), address: row.At()})
		}
	}
	return all
}

// close closes what is open, everywhere, and writes down what it finds before
// it changes it; what cannot be written holds in memory. A server that is closed
// already is left as it is: draining one in maintenance would open it to
// persistent clients.
func (r *run) close(ctx context.Context) error {
	before := r.closing.mark(r.places()) // ahead of the read, which is what fresh is judged by
	var mu sync.Mutex                    // protects fresh and sent
	fresh := map[place]bool{}            // noted first by this visit
	sent := map[place]bool{}             // their closing is on its way
	results, err := r.visitAll(ctx, func(at seen) (runtimeapi.State, error) {
		mu.Lock()
		defer mu.Unlock()
		switch {
		case at.admin&forced != 0:
			// Closed right before our closing, by nobody of ours: a hold after all.
			if fresh[at.place] && sent[at.place] && r.closing.aloneSince(before[at.place], at.place) {
				r.intents.correct(r.Target, at)
			}
			return 0, nil
		case !sent[at.place]:
			sent[at.place] = true
			r.closing.begin(at.place)
		}
		if r.maint[at.place] {
			return runtimeapi.StateMaint, nil
		}
		return runtimeapi.StateDrain, nil
	}, func(places []seen) {
		noted := r.intents.note(r.Target, places...)
		crash.Point(string(r.Verb) + "-found")
		mu.Lock()
		defer mu.Unlock()
		for _, at := range noted {
			fresh[at] = true
		}
	})
	for at := range sent {
		r.closing.end(at)
	}
	for _, one := range results {
		if one.Value.pid == 0 {
			r.intents.note(r.Target, r.lastSeen(one.Instance))
		}
	}
	return err
}

// places are all those that the transition covers.
func (r *run) places() []place {
	var all []place
	for _, i := range r.set.Instances() {
		for _, s := range r.servers {
			all = append(all, place{i.Name(), s.FullName()})
		}
	}
	return all
}

// lastSeen is the process that an instance which cannot be read now was seen in
// last: it runs the streams that a drain has to wait for, also if it is replaced
// before it can be closed. What its servers were then is no finding: nothing was
// sent, and whoever closes one meanwhile, it is not us.
func (r *run) lastSeen(instance string) seen {
	at := seen{place: place{instance: instance}}
	if r.o.Watcher != nil {
		for _, o := range r.o.Watcher.Views() {
			if o.Instance == instance {
				at.process = processOf(o.Info)
			}
		}
	}
	return at
}

// opening undoes our own closing, and with take everybody's. holds has looked
// before the probes; what came since is met here. A newcomer that is not among the
// ready ones stays as it has started: nothing of ours has closed it.
func (r *run) opening(take bool, ready map[string]bool) change {
	ours := r.intents.found(r.Target)
	return func(at seen) (runtimeapi.State, error) {
		switch {
		case at.admin&forced == 0:
			return 0, nil
		case r.held[at.place]&forced == at.admin&forced:
			return 0, nil // as it was when holds looked
		case r.waiting[at.place] && at.admin&forced == runtimeapi.ForcedDrain:
			return 0, nil
		case !take && !ready[at.server] && at.admin.StartsClosed() && r.newcomer(at, r.named(at.server)):
			return 0, nil
		case !take && ours.held(at) && !r.newcomer(at, r.named(at.server)):
			return 0, fmt.Errorf("%w: %s is %s on haproxy %s", errHeld, at.server, at.admin, at.instance)
		}
		return runtimeapi.StateReady, nil
	}
}

// named is the transition's server of that name.
func (r *run) named(name string) tier.ServerSpec {
	for _, s := range r.servers {
		if s.FullName() == name {
			return s
		}
	}
	return tier.ServerSpec{}
}

// loads are the transition's backends on one HAProxy, by name.
type loads = map[string]runtimeapi.BackendLoad

// loads reads the load of each of the transition's backends, on every HAProxy.
func (r *run) loads(ctx context.Context) []runtimeapi.Result[loads] {
	return runtimeapi.Each(ctx, r.set, func(ctx context.Context, i *runtimeapi.Instance) (loads, error) {
		all := loads{}
		for _, s := range r.servers {
			if _, read := all[s.Backend]; read {
				continue
			}
			load, err := i.Load(ctx, s.Backend)
			if err != nil {
				return nil, err
			}
			all[s.Backend] = load
		}
		return all, nil
	})
}
