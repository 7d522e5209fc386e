package tier

import (
	"fmt"
	"slices"
	"sync/atomic"

	"tier-agent/internal/fence"
)

// view is immutable but for what its gates and states point to, which is atomic
// and shared with the views before and after it.
type view struct {
	version uint64 // 1 for the first, one more with each replacement
	order   []*tier
	tiers   map[string]*tier
	servers map[string]*server
}

type tier struct {
	spec    Spec
	gate    *gate
	once    *atomic.Bool // has been ready since it appeared
	gated   *atomic.Bool // see Model.Gated
	agreed  *agreement
	servers []*server
}

type server struct {
	name string
	// exercise is the name of the fence's member for it; "" for none. No
	// configuration has a blank in a name.
	exercise string
	spec     ServerSpec
	tier     *tier
	*state
}

// Changes says what a replacement makes of the tiers, by name and in the order
// of their configuration: of the new one, and for Removed of the old.
type Changes struct{ Added, Removed, Changed []string }

// All are the tiers that do not stay as they are, sorted.
func (c Changes) All() []string {
	return slices.Sorted(slices.Values(slices.Concat(c.Added, c.Removed, c.Changed)))
}

// Changes says what Replace would make of the tiers.
func (m *Model) Changes(specs []Spec) Changes {
	old := m.view.Load()
	var c Changes
	for _, spec := range specs {
		switch was := old.tiers[spec.Name]; {
		case was == nil:
			c.Added = append(c.Added, spec.Name)
		case !same(was.spec, spec):
			c.Changed = append(c.Changed, spec.Name)
		}
	}
	for _, t := range old.order {
		if !slices.ContainsFunc(specs, func(s Spec) bool { return s.Name == t.spec.Name }) {
			c.Removed = append(c.Removed, t.spec.Name)
		}
	}
	return c
}

// Replace makes specs the whole of the model, in one step, or fails as New does
// and changes nothing.
//
// Evidence stays with a server of the same tier, name and Subject; every probe
// and every observation of any other is void from then on. A gate and a
// suspension stay with the name alone, for as long as the configuration has it
// without a gap: what is quiesced stays so while its address is edited. Those of a
// member go with its address.
func (m *Model) Replace(specs []Spec) error {
	m.replacing.Lock()
	defer m.replacing.Unlock()
	next, members, err := newView(m.view.Load(), specs)
	if err != nil {
		return err
	}
	// The fence first: between the two a reader finds evidence gone, never
	// evidence of something else.
	if err := m.fence.Replace(members); err != nil {
		return err
	}
	m.view.Store(next)
	return nil
}

// Version counts the replacements, from 1. What was read of the model under
// another version may be about what is no longer there.
func (m *Model) Version() uint64 { return m.view.Load().version }

func newView(old *view, specs []Spec) (*view, []fence.Member, error) {
	v := &view{version: old.version + 1, tiers: make(map[string]*tier, len(specs)), servers: map[string]*server{}}
	var members []fence.Member
	for _, spec := range specs {
		if v.tiers[spec.Name] != nil {
			return nil, nil, fmt.Errorf("tier %q is named twice", spec.Name)
		}
		t := &tier{spec: spec, gate: new(gate), once: new(atomic.Bool), gated: new(atomic.Bool), agreed: new(agreement)}
		was := old.tiers[spec.Name]
		if was != nil {
			t.gate, t.once, t.gated = was.gate, was.once, was.gated
			if was.spec.SameField == spec.SameField {
				t.agreed = was.agreed
			}
		}
		v.order, v.tiers[spec.Name] = append(v.order, t), t
		for _, ss := range spec.Servers {
			s := &server{name: ss.FullName(), spec: ss, tier: t, state: new(state)}
			if before := old.servers[s.name]; before != nil && before.tier == was && before.spec.Address == ss.Address {
				s.state = before.state
			}
			t.servers, v.servers[s.name] = append(t.servers, s), s
			members = append(members, fence.Member{
				Tier: spec.Name, Server: s.name, Subject: ss.Subject, MaxAge: spec.MaxAge,
				Rise: spec.Rise, Fall: spec.Fall, StartWindow: spec.StartWindow,
			})
			if x := spec.Exercise; x != nil {
				s.exercise = s.name + " exercise"
				members = append(members, fence.Member{
					Tier: spec.Name, Server: s.exercise, Beside: s.name, Subject: s.exercised(), MaxAge: x.MaxAge,
					Rise: spec.Rise, Fall: spec.Fall, StartWindow: spec.StartWindow,
				})
			}
		}
	}
	return v, members, nil
}
