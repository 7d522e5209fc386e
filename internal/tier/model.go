package tier

import (
	"errors"
	"fmt"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"tier-agent/internal/fence"
)

var (
	// ErrUnknownTier: the configuration names no such tier.
	ErrUnknownTier = errors.New("unknown tier")
	// ErrUnknownServer: the tier has no such server.
	ErrUnknownServer = errors.New("unknown server")
	// ErrGenerationMoved: something was invalidated between the evidence and
	// the opening that was to rest on it.
	ErrGenerationMoved = errors.New("the generation has moved on")
)

// Model holds the configured tiers, their gates and, through the fence, their
// evidence. It is safe for concurrent use.
type Model struct {
	fence *fence.Fence
	now   func() time.Time
	view  atomic.Pointer[view]

	overrides atomic.Pointer[map[string]Override] // by tier; replaced whole

	first chan struct{} // of one place; see FirstReady

	replacing sync.Mutex // one replacement at a time: each stands on the view before it
}

// New returns a model of the given tiers, all open and without evidence. now
// is the clock of the fence. It fails on a tier or a server that is named
// twice and on a maximum age that is not positive.
func New(specs []Spec, now func() time.Time) (*Model, error) {
	m := &Model{fence: fence.New(now), now: now, first: make(chan struct{}, 1)}
	m.view.Store(&view{})
	if err := m.Replace(specs); err != nil {
		return nil, err
	}
	return m, nil
}

// Spec returns the tier's description.
func (m *Model) Spec(name string) (Spec, error) {
	v := m.view.Load()
	t := v.tiers[name]
	if t == nil {
		return Spec{}, v.unknownTier(name)
	}
	return t.spec, nil
}

// Specs returns the description of each tier, in the configuration's order. It asks
// for no evidence, as Status does.
func (m *Model) Specs() []Spec {
	order := m.view.Load().order
	all := make([]Spec, len(order))
	for n, t := range order {
		all[n] = t.spec
	}
	return all
}

// Servers returns the servers that a target covers.
func (m *Model) Servers(target Target) ([]ServerSpec, error) {
	return m.view.Load().covered(target)
}

// MemberAt is the address of a member, by "backend/server"; not valid where there is
// none, or the configuration lists it.
func (m *Model) MemberAt(name string) netip.AddrPort {
	if s := m.view.Load().servers[name]; s != nil {
		return s.spec.Address
	}
	return netip.AddrPort{}
}

func (v *view) covered(target Target) ([]ServerSpec, error) {
	t := v.tiers[target.Tier]
	if t == nil {
		return nil, v.unknownTier(target.Tier)
	}
	var found []ServerSpec
	for _, s := range t.servers {
		if target.Server == "" || target.Server == s.name {
			found = append(found, s.spec)
		}
	}
	if found == nil && (target.Server != "" || t.spec.Members == nil) {
		return nil, v.unknownServer(target)
	}
	return found, nil
}

// Close closes the target's gate for good and returns the closure that now holds:
// the given one, or an earlier one that stands, which a Pause has brought perhaps.
// From its return no face admits anything there, nor has it up.
func (m *Model) Close(target Target, c Closure) (Closure, error) {
	g, err := m.gate(target)
	if err != nil {
		return Closure{}, err
	}
	return *g.close(&c), nil
}

// Open opens the target's gate, if nothing was invalidated since gen: evidence
// from gen is void otherwise, and the opening rests on it.
func (m *Model) Open(target Target, gen fence.Generation) error {
	g, err := m.gate(target)
	if err != nil {
		return err
	}
	now, err := m.Generation(target)
	if err != nil {
		return err
	}
	if now != gen {
		return fmt.Errorf("%w: %s was verified at %s and is at %s", ErrGenerationMoved, target, gen, now)
	}
	g.closing.Store(nil)
	return nil
}

// SetShut says whether no HAProxy would send a request to a server, by its admin state
// or its weight there. Such a server does not count for its tier. What HAProxy's checks
// make of the server is no part of it: they hear it from here.
func (m *Model) SetShut(name string, shut bool) {
	if s := m.view.Load().servers[name]; s != nil {
		s.shut.Store(shut)
	}
}

// Closed returns the target's own closure, nil where its gate is open.
func (m *Model) Closed(target Target) (*Closure, error) {
	g, err := m.gate(target)
	if err != nil {
		return nil, err
	}
	return g.closed(), nil
}

// Invalidate advances the target's generation: evidence and probes from before
// it no longer count. A target without a tier is everything.
func (m *Model) Invalidate(target Target) (fence.Generation, error) {
	if target.Tier == "" && target.Server == "" {
		return m.fence.InvalidateAll(), nil
	}
	if _, err := m.gate(target); err != nil {
		return fence.Generation{}, err
	}
	if target.Server == "" {
		if gen, known := m.fence.InvalidateTier(target.Tier); known {
			return gen, nil
		}
		if servers, err := m.Servers(target); err == nil && len(servers) == 0 {
			return m.Generation(target) // there is no evidence that could be void
		}
	} else if gen, known := m.fence.InvalidateServer(target.Server); known {
		return gen, nil
	}
	return fence.Generation{}, fmt.Errorf("%w %q: removed since", ErrUnknownTier, target.Tier)
}

// Generation is the target's now; of a tier without a server epoch.
func (m *Model) Generation(target Target) (fence.Generation, error) {
	if _, err := m.gate(target); err != nil {
		return fence.Generation{}, err
	}
	if target.Server != "" {
		return m.fence.Current(target.Server).Generation, nil
	}
	gen, _ := m.fence.TierGeneration(target.Tier)
	return gen, nil
}

func (m *Model) gate(target Target) (*gate, error) {
	v := m.view.Load()
	if _, err := v.covered(target); err != nil {
		return nil, err
	}
	if target.Server != "" {
		return &v.servers[target.Server].gate, nil
	}
	return v.tiers[target.Tier].gate, nil
}
