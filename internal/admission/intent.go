package admission

import (
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"

	"tier-agent/internal/intent"
	"tier-agent/internal/runtimeapi"
	"tier-agent/internal/tier"
)

// place is one server on one HAProxy: admin state is per process.
type place struct{ instance, server string }

// process is one run of HAProxy: in a container the worker has the same id after each
// restart. started is in seconds since 1970, 0 where HAProxy does not say.
type process struct {
	pid     int
	started int64
}

func processOf(i runtimeapi.Info) process {
	if i.StartTime.IsZero() {
		return process{pid: i.PID}
	}
	return process{i.PID, i.StartTime.Unix()}
}

// seen is a place as it was when it was read.
type seen struct {
	place
	process
	admin   runtimeapi.AdminState
	address netip.AddrPort // not valid where that is nowhere
}

// intents are the durable records of what is to stay closed. Whatever HAProxy
// shows that they do not explain is somebody else's doing: a hold.
type intents struct {
	store Store

	mu   sync.Mutex           // orders changes: each is a read, a merge and a write
	lost atomic.Pointer[lost] // the last write, where it failed; any later one writes all
}

// lost is a write that failed. What it was to write holds in memory alone.
type lost struct {
	key intent.Key
	err error
}

// Store keeps the records; see package intent.
type Store interface {
	All() []intent.Record
	Get(intent.Key) (intent.Record, bool)
	Put(intent.Record) (intent.Record, error)
	Drop(intent.Key, uint64) error
	Move([]intent.Key, []intent.Record) error
}

func key(t tier.Target) intent.Key { return intent.Key{Tier: t.Tier, Server: t.Server} }

func targetOf(r intent.Record) tier.Target { return tier.Target{Tier: r.Tier, Server: r.Server} }

func closureOf(r intent.Record) tier.Closure {
	return tier.Closure{Reason: r.Reason, Who: r.Who, Since: r.Since}
}

// begin writes that the target is closed, before anything is done about it in
// HAProxy. A record that stands keeps its closure and its findings. Where it
// cannot be written it holds in memory, and phase or rewrite say so.
// Where the target is a member, that of the host which had its slot before is kept.
func (in *intents) begin(target tier.Target, member bool, c tier.Closure, change func(*intent.Record)) {
	in.mu.Lock()
	defer in.mu.Unlock()
	r, known := in.get(target)
	if !known {
		r.Tier, r.Server = target.Tier, target.Server
		r.Reason, r.Who, r.Since = c.Reason, c.Who, c.Since
		if member {
			in.makeRoom(&r)
		}
	}
	r.Phase = intent.Quiescing
	change(&r)
	_, _ = in.put(r)
}

// note records what was found before a target is closed, in one write, before
// the closing is sent: no drain of ours is ever found unnoted. The first
// finding of a place stands: by the second our own drain is what is found, of
// this target or of another that covers the same server. Only a hold can end:
// what was confirmed closed and is open in the same process, an operator has
// opened. A place without a server notes the process alone.
//
// It returns the places that were noted for the first time.
func (in *intents) note(target tier.Target, places ...seen) (fresh []place) {
	_, _ = in.change(target, func(r *intent.Record) bool {
		changed := false
		fresh = nil
		for _, at := range places {
			pid, known := r.Processes[at.instance]
			if !known && at.pid != 0 {
				r.Processes[at.instance] = at.pid
				changed = true
			}
			if at.server == "" {
				continue
			}
			found, known := r.Found[at.instance][at.server]
			switch {
			case !known:
				set(r, at.place, in.first(at))
				fresh = append(fresh, at.place)
				changed = true
			case r.Phase == intent.Quiesced && pid == at.pid && runtimeapi.AdminState(found)&forced != 0 && at.admin&forced == 0:
				set(r, at.place, at.admin)
				changed = true
			}
		}
		return changed
	})
	return fresh
}

// noted reports whether a record says what was found at a place.
func (in *intents) noted(at place) bool {
	return slices.ContainsFunc(in.store.All(), func(r intent.Record) bool {
		_, found := r.Found[at.instance][at.server]
		return found && !r.Gone
	})
}

// correct replaces what was found a moment ago: somebody came between that read
// and the closing, so that this is what the closing really found. Not so where
// another intent of ours covers the place: then it was that one's closing.
func (in *intents) correct(target tier.Target, at seen) {
	_, _ = in.change(target, func(r *intent.Record) bool {
		for _, other := range in.store.All() {
			if _, ours := other.Found[at.instance][at.server]; ours && !other.Gone && other.Key() != r.Key() {
				return false
			}
		}
		set(r, at.place, at.admin)
		return true
	})
}

// first is what any record has found at a place before; otherwise what is found
// now.
func (in *intents) first(at seen) runtimeapi.AdminState {
	for _, other := range in.store.All() {
		if found, known := other.Found[at.instance][at.server]; known && !other.Gone {
			return runtimeapi.AdminState(found)
		}
	}
	return at.admin
}

func set(r *intent.Record, at place, found runtimeapi.AdminState) {
	if r.Found[at.instance] == nil {
		r.Found[at.instance] = map[string]uint32{}
	}
	r.Found[at.instance][at.server] = uint32(found)
}

// phase writes how far a transition has come, and returns the serial number to
// complete it with.
func (in *intents) phase(target tier.Target, p intent.Phase) (uint64, error) {
	r, err := in.change(target, func(r *intent.Record) bool {
		r.Phase = p
		return true
	})
	return r.Serial, err
}

// settle ends the phase of the record with that serial number: closed
// everywhere. Another record of the target has a story of its own.
func (in *intents) settle(target tier.Target, serial uint64) error {
	_, err := in.change(target, func(r *intent.Record) bool {
		if r.Serial != serial {
			return false
		}
		r.Phase = intent.Quiesced
		return true
	})
	if errors.Is(err, intent.ErrMoved) {
		return nil // ended since
	}
	return err
}

// change merges into the record of a target, and writes where that changed it or
// an earlier write was lost. Only begin makes a record: one that has ended does
// not come back.
func (in *intents) change(target tier.Target, change func(*intent.Record) bool) (intent.Record, error) {
	in.mu.Lock()
	defer in.mu.Unlock()
	r, known := in.get(target)
	if !known {
		return r, fmt.Errorf("%w: %s has none", intent.ErrMoved, target)
	}
	if r.Found == nil {
		r.Found = map[string]map[string]uint32{}
	}
	if r.Processes == nil {
		r.Processes = map[string]int{}
	}
	if !change(&r) && in.lost.Load() == nil {
		return r, nil
	}
	return in.put(r)
}

// put writes. mu must be held.
func (in *intents) put(r intent.Record) (intent.Record, error) {
	r, err := in.store.Put(r)
	in.wrote(r.Key(), err)
	return r, err
}

func (in *intents) wrote(k intent.Key, err error) {
	if err == nil {
		in.lost.Store(nil)
	} else {
		in.lost.Store(&lost{key: k, err: err})
	}
}

// rewrite tries again what could not be written, and says what is lost still.
func (in *intents) rewrite() error {
	in.mu.Lock()
	defer in.mu.Unlock()
	last := in.lost.Load()
	if last == nil {
		return nil
	}
	// The record that was lost and no other: its serial number goes up, and a
	// transition may be about to complete on that of another.
	r, known := in.store.Get(last.key)
	if !known {
		return last.err
	}
	_, err := in.put(r)
	return err
}

// written reports whether all that holds in memory is on disk.
func (in *intents) written() bool { return in.lost.Load() == nil }

// found is what was found of a target, by place.
func (in *intents) found(target tier.Target) findings {
	r, _ := in.get(target)
	all := findings{}
	for instance, servers := range r.Found {
		for server, state := range servers {
			all[place{instance, server}] = runtimeapi.AdminState(state)
		}
	}
	return all
}

// processes are those that were closed, by instance.
func (in *intents) processes(target tier.Target) map[string]int {
	r, _ := in.get(target)
	if r.Processes == nil {
		return map[string]int{}
	}
	return maps.Clone(r.Processes)
}

// without are the instances that the target's operator said to do without.
func (in *intents) without(target tier.Target) []string {
	r, _ := in.get(target)
	return slices.Clone(r.Without)
}

// drop ends an intent, if it is still the one with that serial number.
func (in *intents) drop(target tier.Target, serial uint64) error {
	in.mu.Lock()
	defer in.mu.Unlock()
	err := in.store.Drop(key(target), serial)
	if !errors.Is(err, intent.ErrMoved) {
		in.wrote(key(target), err) // one that failed may have reached the disk: the record is to go back there
	}
	return err
}

// forced are the bits that a command, an agent or the configuration set on the
// server itself; the others come and go without anybody's word about it.
const forced = runtimeapi.ForcedMaint | runtimeapi.ForcedDrain

// findings are what was found before a target was closed.
type findings map[place]runtimeapi.AdminState

// held reports whether the place is closed by somebody else's hand: what was
// closed before us stays theirs, and so does what we never saw before it was
// closed, and maintenance, which we never set.
func (f findings) held(at seen) bool {
	found, ours := f[at.place]
	return at.admin&runtimeapi.ForcedMaint != 0 || at.admin&forced != 0 && (!ours || found&forced != 0)
}

// inMaint are the places that were found in maintenance.
func (f findings) inMaint() map[place]bool {
	all := map[place]bool{}
	for at, found := range f {
		if found&runtimeapi.ForcedMaint != 0 {
			all[at] = true
		}
	}
	return all
}
