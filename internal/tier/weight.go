package tier

import (
	"fmt"
	"math"
	"strconv"
	"time"

	"tier-agent/internal/fence"
)

// A weight is in percent of what HAProxy is configured with. None is below 1: with
// the base weight of 100 that the reference wiring has, HAProxy makes a whole
// number of it, and 0 would take no traffic at all.
const (
	minWeight = 1
	maxWeight = 100
)

// StartRamp lets the weight of the target's servers grow from now on, over
// Spec.Ramp, as after a readmit: an engine that has just started has a cold cache.
func (m *Model) StartRamp(target Target) error {
	v := m.view.Load()
	if _, err := v.covered(target); err != nil {
		return fmt.Errorf("ramp: %w", err)
	}
	now := m.now()
	for _, s := range v.tiers[target.Tier].servers {
		if target.Server == "" || target.Server == s.name {
			s.ramp.Store(&now)
		}
	}
	return nil
}

// weight is what HAProxy is told now.
func (m *Model) weight(s *server, v fence.Verdict) int {
	w := s.spec.Weight
	if field := s.tier.spec.WeightField; field != "" {
		w = measured(v.Metadata[field], w)
	}
	began, over := s.ramp.Load(), s.tier.spec.Ramp
	if began == nil || over <= 0 {
		return w
	}
	elapsed := max(m.now().Sub(*began), 0)
	if elapsed >= over {
		return w
	}
	return max(minWeight, int(int64(w)*int64(elapsed/time.Millisecond)/max(1, int64(over/time.Millisecond))))
}

// measured is the weight that an engine gives itself, within bounds; the fixed one
// where it gives none that is a number.
func measured(text string, fixed int) int {
	f, err := strconv.ParseFloat(text, 64)
	if err != nil || math.IsNaN(f) {
		return fixed
	}
	return int(min(max(math.Round(f), minWeight), maxWeight))
}
