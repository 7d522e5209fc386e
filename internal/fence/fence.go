package fence

import (
	"fmt"
	"sync"
	"sync/atomic"
	"time"
)

// Member is one server that the fence keeps evidence about.
type Member struct {
	Tier   string
	Server string // unique over all tiers, "backend/server"
	// Subject is what the evidence is about: address, identity, whatever makes
	// an old observation worthless when it changes. A member whose subject
	// differs from before is a new member.
	Subject string
	// MaxAge is the age beyond which evidence is no evidence, counted from the
	// start of its probe.
	MaxAge time.Duration
	// Rise and Fall are how many passing observations in a row make ready what
	// is not, and how many failing ones the opposite; below 1 means 1. They count
	// within one generation, whose first observation decides by itself unless it
	// began with a restart that nobody announced. Fall is for probes that brought
	// no answer: it keeps nothing ready that was judged (Observation.Judged), nor
	// beyond MaxAge of the last passing observation.
	Rise, Fall int
	// Beside names another member of the same tier, a server, about which this
	// one is evidence of a second kind, taken and aged by itself. The two have one
	// generation: what invalidates either invalidates both, in one step, and each
	// ticket of either is out for both. Empty for a server.
	//
	// Evidence of the second kind is dropped, with the probes of it that are out,
	// where the server's own turns from ready to not ready or back within a
	// generation: what comes back need not be the process that went.
	Beside string
	// StartWindow is how long a member that has never been ready may be loading,
	// since the fence first heard of it or of its instance; see Verdict.Starting.
	// 0: not at all.
	StartWindow time.Duration
}

// Fence holds the generations and the evidence of all configured servers. It
// is safe for concurrent use.
type Fence struct {
	now     func() time.Time
	counter atomic.Uint64 // the one source of epochs and issue numbers; never goes back
	global  atomic.Uint64
	table   atomic.Pointer[table]

	// mu serialises what changes the table, the tiers' epochs and the global
	// epoch. Readers, probes and invalidations of one server never take it.
	mu sync.Mutex
}

// table is immutable; a change of membership makes a new one.
type table struct {
	servers map[string]*server
	tiers   map[string]tierRow
}

type tierRow struct {
	epoch   *atomic.Uint64 // shared by the tables that know the tier without a gap
	servers []*server
}

// New returns a fence without servers. now is its clock; time.Now is the one
// to use outside tests, for its two readings (see Age).
func New(now func() time.Time) *Fence {
	f := &Fence{now: now}
	f.global.Store(f.counter.Add(1))
	f.table.Store(&table{})
	return f
}

// Replace makes members the whole membership, in one step. A member that was
// there with the same tier and subject keeps its evidence and its tickets;
// every other starts without evidence, under a generation never used before.
// One that stands beside another goes when that one does, and shares its
// generation. It is an error, and changes nothing, to name a server twice, to give
// a maximum age that is not positive, or to stand beside what is no server of the
// tier.
func (f *Fence) Replace(members []Member) error {
	for _, m := range members {
		if m.MaxAge <= 0 {
			return fmt.Errorf("fence: server %q: maximum age %v is not positive", m.Server, m.MaxAge)
		}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	old := f.table.Load()
	next := &table{
		servers: make(map[string]*server, len(members)),
		tiers:   make(map[string]tierRow),
	}
	shared := map[*core][]*server{}
	for _, m := range besideLast(members) {
		if _, twice := next.servers[m.Server]; twice {
			return fmt.Errorf("fence: server %q is named twice", m.Server)
		}
		row, known := next.tiers[m.Tier]
		if !known {
			row.epoch = f.tierEpoch(old, m.Tier)
		}
		var with *core
		if m.Beside != "" {
			lead := next.servers[m.Beside]
			if lead == nil || lead.tier != m.Tier || lead.beside != "" {
				return fmt.Errorf("fence: %q stands beside %q, which is no server of its tier", m.Server, m.Beside)
			}
			with = lead.core
		}
		s := old.servers[m.Server]
		if s == nil || s.tier != m.Tier || s.subject != m.Subject || s.beside != m.Beside || with != nil && s.core != with {
			s = f.newServer(m, row.epoch, with)
		}
		shared[s.core] = append(shared[s.core], s)
		row.servers = append(row.servers, s)
		next.servers[m.Server], next.tiers[m.Tier] = s, row
	}
	for _, m := range members {
		s := next.servers[m.Server]
		s.mu.Lock()
		s.rules, s.members = m.rules(), shared[s.core]
		s.mu.Unlock()
	}
	f.table.Store(next)
	for name, s := range old.servers {
		if next.servers[name] != s {
			s.remove()
		}
	}
	return nil
}

// Current gives the verdict on a server from published memory. It starts
// nothing, waits for no probe and allocates nothing.
func (f *Fence) Current(name string) Verdict {
	return f.table.Load().servers[name].current()
}

// CurrentBytes is Current for a name that came from the wire.
func (f *Fence) CurrentBytes(name []byte) Verdict {
	return f.table.Load().servers[string(name)].current() // no copy: the compiler knows this form
}

// InvalidateServer advances the server's generation and drops its evidence.
// It reports false where the server is unknown.
func (f *Fence) InvalidateServer(name string) (Generation, bool) {
	s := f.table.Load().servers[name]
	if s == nil {
		return Generation{}, false
	}
	return s.invalidate(), true
}

// InvalidateTier advances the tier's generation; with it the evidence of all
// its servers is void at once, and so is every probe that is out. The
// generation returned has no server epoch. It reports false where the tier is
// unknown.
func (f *Fence) InvalidateTier(name string) (Generation, bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	row, known := f.table.Load().tiers[name]
	if !known {
		return Generation{}, false
	}
	row.epoch.Store(f.counter.Add(1))
	for _, s := range row.servers {
		s.dropOutdated()
	}
	return Generation{Global: f.global.Load(), Tier: row.epoch.Load()}, true
}

// InvalidateAll advances the global generation: no evidence and no probe from
// before it counts, of any server.
func (f *Fence) InvalidateAll() Generation {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.global.Store(f.counter.Add(1))
	for _, s := range f.table.Load().servers {
		s.dropOutdated()
	}
	return Generation{Global: f.global.Load()}
}

// TierGeneration is the tier's generation now, without a server epoch.
func (f *Fence) TierGeneration(name string) (Generation, bool) {
	row, known := f.table.Load().tiers[name]
	if !known {
		return Generation{}, false
	}
	return Generation{Global: f.global.Load(), Tier: row.epoch.Load()}, true
}

func (f *Fence) tierEpoch(old *table, name string) *atomic.Uint64 {
	if row, known := old.tiers[name]; known {
		return row.epoch
	}
	epoch := new(atomic.Uint64)
	epoch.Store(f.counter.Add(1))
	return epoch
}

// newServer gives the member a generation of its own, unless it stands with others.
func (f *Fence) newServer(m Member, tierEpoch *atomic.Uint64, with *core) *server {
	if with == nil {
		with = &core{epoch: f.counter.Add(1), life: life{appeared: f.now()}}
	}
	return &server{
		name: m.Server, tier: m.Tier, subject: m.Subject, beside: m.Beside,
		now: f.now, counter: &f.counter, global: &f.global, tierEpoch: tierEpoch,
		core: with, rules: m.rules(),
	}
}

func (s *server) current() Verdict {
	if s == nil {
		return Verdict{Reason: ReasonUnknown}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.judge()
}
