package observe

import (
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// Polls notes who is asked about: when HAProxy's checks, or its gate, last asked for a
// name. Any number of goroutines may note at once, and noting allocates nothing.
//
// HAProxy does not say who it is. With several of them the checks count as asking for a
// name while those of one of them do.
type Polls struct {
	// Several: more than one HAProxy is configured. Whether each of them asks the gate cannot
	// be told, so that none counts as asking. Nor does a health check that goes to the server's
	// own port, as one of the engine does: another HAProxy's may have asked.
	Several bool

	strange atomic.Int64 // when the gate was last asked about a tier that there is not, in ns since 1970; 0 for never

	mu    sync.Mutex // held while names, which is replaced whole, is changed
	names atomic.Pointer[map[string]*polled]
}

// Kind is a way of asking.
type Kind int

// The ways of asking.
const (
	AgentCheck  Kind = iota // HAProxy's agent-check, about a server or a tier
	HealthCheck             // HAProxy's health check, about a server
	Gate                    // a request, through SPOE, about a tier
	kinds
)

// polled is in nanoseconds since 1970, by kind; 0 for never.
type polled struct{ newest, before [kinds]atomic.Int64 }

// SetNames says which servers and tiers there are. Others are not noted, so that what
// comes from the wire takes no memory.
func (p *Polls) SetNames(names []string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	next := make(map[string]*polled, len(names))
	for _, name := range names {
		if next[name] = p.of(name); next[name] == nil {
			next[name] = new(polled)
		}
	}
	p.names.Store(&next)
}

// Note notes that somebody asks for name now.
func (p *Polls) Note(k Kind, name []byte, now time.Time) {
	if all := p.names.Load(); all != nil {
		if of := (*all)[string(name)]; of != nil {
			of.before[k].Store(of.newest[k].Swap(now.UnixNano()))
		}
	}
}

// NoteStrange notes that the gate is asked about a tier that there is not.
func (p *Polls) NoteStrange(now time.Time) { p.strange.Store(now.UnixNano()) }

// Strange is when that was last so; zero for never. May be called on nil.
func (p *Polls) Strange() time.Time {
	if p == nil || p.strange.Load() == 0 {
		return time.Time{}
	}
	return time.Unix(0, p.strange.Load())
}

func (p *Polls) of(name string) *polled {
	if all := p.names.Load(); all != nil {
		return (*all)[name]
	}
	return nil
}

// Last is when somebody last asked for name, and whether that has ended: nobody has
// asked for three times as long as between the last two questions, and for some seconds.
func (p *Polls) Last(k Kind, name string, now time.Time) (at time.Time, ended bool) {
	of := p.of(name)
	if of == nil {
		return time.Time{}, false
	}
	newest, before := of.newest[k].Load(), of.before[k].Load()
	if newest == 0 {
		return time.Time{}, false
	}
	at = time.Unix(0, newest)
	pause := leastPause
	if before != 0 {
		pause = max(pause, 3*time.Duration(newest-before))
	}
	return at, now.Sub(at) > pause
}

// Asks reports whether name is asked for by the HAProxy of the view: what asked before its
// process began was another one. The gate is asked only when a request comes, so that its
// silence ends nothing. May be called on nil, which nobody has asked.
func (p *Polls) Asks(v View, k Kind, name string, now time.Time) bool {
	if p == nil {
		return false
	}
	if k == Gate && p.Several {
		return false
	}
	at, ended := p.Last(k, name, now)
	return at.After(v.Started()) && (k == Gate || !ended)
}

// leastPause is how long checks may be silent at least before they count as ended. The
// slowest common inter is 5 s, and a check may take its timeout on top.
const leastPause = 10 * time.Second

// Asking says which running checks of a server ask this tier-agent. Unknown: some run,
// and their process has just begun, so that they may yet ask.
type Asking struct {
	Agent, Health, Unknown bool
	// HealthOwn: the health check asks by the server's own name, and is told its evidence.
	HealthOwn bool
}

// Any reports whether a check asks, as far as can be known yet.
func (a Asking) Any() bool { return a.Agent || a.Health || a.Unknown }

// Asking says it of one server, which may be asked about by its name or its tier's.
func (p *Polls) Asking(v View, server, tier string, now time.Time) Asking {
	s := v.Servers[server]
	asks := func(k Kind) bool {
		return p.CheckAsks(v, k, server, server, now) || p.CheckAsks(v, k, server, tier, now)
	}
	return Asking{
		Agent: asks(AgentCheck), Health: asks(HealthCheck),
		HealthOwn: p.CheckAsks(v, HealthCheck, server, server, now),
		Unknown:   now.Sub(v.Started()) < leastPause && (s.Agent.Enabled || s.Health.Enabled),
	}
}

// followsAfter is how long a process has run before an agent-check that has not asked about a
// server asks about another one: agent-inter is 30 s at most where HAProxy is to hear anything.
const followsAfter = time.Minute

// Follows reports whether the agent-check of a server runs and asks about another one.
func (p *Polls) Follows(v View, server, tier string, now time.Time) bool {
	return p != nil && v.Servers[server].Agent.Enabled && now.Sub(v.Started()) > followsAfter && !p.Asking(v, server, tier, now).Agent
}

// CheckAsks reports whether a check of that kind runs on the server and asks for name.
func (p *Polls) CheckAsks(v View, k Kind, server, name string, now time.Time) bool {
	s := v.Servers[server]
	runs := s.Agent.Enabled
	if k == HealthCheck {
		runs = s.Health.Enabled && (p == nil || !p.Several || s.HealthElsewhere)
	}
	return runs && p.Asks(v, k, name, now)
}

// Wired reports whether anything has asked this tier-agent about one of the names, a tier
// and its servers, since the HAProxy's process began: then HAProxy is meant to ask.
func (p *Polls) Wired(v View, names []string, now time.Time) bool {
	return slices.ContainsFunc(names, func(name string) bool {
		for k := range kinds {
			if at, _ := p.Last(k, name, now); at.After(v.Started()) {
				return true
			}
		}
		return false
	})
}
