package tier

import (
	"fmt"

	"tier-agent/internal/similar"
)

// unknownTier is the error for a name that no tier has. It says what was probably meant.
func (v *view) unknownTier(name string) error {
	if s := v.servers[name]; s != nil {
		return fmt.Errorf("%w %q; it is a server of tier %s: name both", ErrUnknownTier, name, s.tier.spec.Name)
	}
	var known []string
	for _, t := range v.order {
		known = append(known, t.spec.Name)
	}
	return fmt.Errorf("%w %q%s", ErrUnknownTier, name, similar.Hint(name, known))
}

// unknownServer is that for a name that no server of the tier has.
func (v *view) unknownServer(target Target) error {
	if s := v.servers[target.Server]; s != nil {
		return fmt.Errorf("%w %q in tier %q; it is one of tier %s", ErrUnknownServer, target.Server, target.Tier, s.tier.spec.Name)
	}
	var known []string
	for _, s := range v.tiers[target.Tier].servers {
		known = append(known, s.name)
	}
	return fmt.Errorf("%w %q%s in tier %q", ErrUnknownServer, target.Server, similar.Hint(target.Server, known), target.Tier)
}
