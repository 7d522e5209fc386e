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
	minWeight  = 1
	maxWeight  = 100
	fullWeight = 100
)

// What state.settled is where it is no weight.
const (
	asConfigured = 0  // HAProxy has begun anew, or has not been seen yet
	unsettled    = -1 // it is to be told
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
			s.settled.Store(unsettled)
		}
	}
	return nil
}

// weight is what HAProxy is told now: never so little that it makes 0 of it.
func (m *Model) weight(s *server, v fence.Verdict) int {
	return max(m.wanted(s, v), int(s.least.Load()))
}

func (m *Model) wanted(s *server, v fence.Verdict) int {
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

// weighted reports whether this side has a say in the server's weight at all.
func (s *server) weighted() bool {
	spec := s.tier.spec
	return s.spec.Weight != fullWeight || spec.WeightField != "" || spec.Ramp > 0
}

// tells reports whether HAProxy is to be told the weight: until it has taken it, and not
// where somebody has set another one since. A weight that is told steadily would undo
// what an operator sets, at the next poll.
func (s *server) tells(weight int) bool {
	settled := int(s.settled.Load())
	if settled == asConfigured && !s.weighted() {
		settled = fullWeight // as HAProxy starts
	}
	return s.tier.spec.AgentWords || !s.byHand.Load() && settled != weight
}

// SeeWeight says what weight the HAProxies were seen to have for a server: has reports
// whether that is so much percent of the configured one on each of them; restarted, that
// one of them began anew since the last time, with the weight of its configuration, of
// which the smallest is configured. One that differs although HAProxy had taken the weight
// before was set by hand.
func (m *Model) SeeWeight(name string, restarted bool, configured int, has func(percent int) bool) {
	s := m.view.Load().servers[name]
	if s == nil {
		return
	}
	if configured > 0 {
		s.least.Store(int32((fullWeight + configured - 1) / configured))
	}
	if restarted {
		s.settled.Store(asConfigured)
		s.byHand.Store(false)
	}
	switch weight := m.weight(s, m.evidence(s)); {
	case has(weight):
		s.settled.Store(int32(weight))
		s.byHand.Store(false)
	case s.tells(weight):
		s.settled.Store(unsettled)
	default:
		s.byHand.Store(true)
	}
}

// reweigh notes that a server has another weight now than HAProxy has taken, also where
// it changes back before anybody has looked.
func (m *Model) reweigh(s *server) {
	if s.tells(m.weight(s, m.evidence(s))) {
		s.settled.Store(unsettled)
	}
}
