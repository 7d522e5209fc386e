package tier

import (
	"time"

	"tier-agent/internal/fence"
)

// ReasonOverride is the reason of a server or a tier that takes requests because an
// Override is in force.
const ReasonOverride = "override"

// Override opens a tier, for a time, to servers whose health check passes: identity,
// metadata, exercise, address, the age of evidence and MinReady do not count. It opens
// nothing that is quiesced, and no server that HAProxy has closed counts for the tier.
type Override struct {
	Reason string    `json:"reason"`
	Who    string    `json:"who"`
	Since  time.Time `json:"since"`
	Until  time.Time `json:"until"`
	// Lasting counts from From, when this process took the override up: From has both of
	// its clocks.
	From    time.Time     `json:"-"`
	Lasting time.Duration `json:"-"`
}

// Left is how long the override is still in force; 0 where it is over. Of the wall clock
// and the monotonic one that counts which says less, and one that was set back ends it.
func (o Override) Left(now time.Time) time.Duration {
	age, ok := fence.Age(o.From, now)
	if !ok {
		return 0
	}
	return max(0, o.Lasting-age)
}

// SetOverrides makes overrides, by tier, the whole of those in force. One of a tier that
// is not configured waits for it. The map is not changed afterwards.
func (m *Model) SetOverrides(overrides map[string]Override) { m.overrides.Store(&overrides) }

// Overrides are all that were set and may be over by now. The map is not to be changed.
func (m *Model) Overrides() map[string]Override {
	if all := m.overrides.Load(); all != nil {
		return *all
	}
	return nil
}

// Override is the one that is in force for a tier now, whether or not the tier is
// quiesced; nil for none.
func (m *Model) Override(tier string) *Override {
	if o, known := m.Overrides()[tier]; known && o.Left(m.now()) > 0 {
		return &o
	}
	return nil
}

// overridden allocates nothing, since every answer asks it.
func (m *Model) overridden(t *tier) bool {
	o, known := m.Overrides()[t.spec.Name]
	return known && o.Left(m.now()) > 0
}

// onHealth makes the answer for a server one that rests on its health alone. The state
// stays that of the evidence.
func (m *Model) onHealth(s *server, a *Answer) {
	a.Overridden = true
	if a.Ready, a.Reason = m.fence.Health(s.name); a.Ready {
		a.Reason = ReasonOverride
	}
}

// neededIf is how many servers must be ready now for the tier to be.
func (t *tier) neededIf(overridden bool) int {
	if overridden {
		return 1
	}
	return t.needed()
}
