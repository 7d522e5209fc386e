package tier

import (
	"slices"
	"time"

	"tier-agent/internal/fence"
)

// ReasonQuiesced is the reason of a tier or server whose admission is closed.
const ReasonQuiesced = "quiesced"

// ReasonElsewhere is the reason of a server whose evidence is about another
// address than the one that HAProxy sends to.
const ReasonElsewhere = "address_mismatch"

// ReasonTooFew is the reason of a tier that has fewer servers than it needs,
// where there is nothing wrong with any of them.
const ReasonTooFew = "too_few_servers"

// ReasonActivation is the reason of a tier that would be ready if it had been so
// since it appeared: the first time it needs ActivationMin.
const ReasonActivation = "awaiting_activation"

// ReasonShut is the reason of a tier whose servers would be ready, and which HAProxy has
// in maintenance, in drain or at weight 0.
const ReasonShut = "closed_in_haproxy"

// ReasonDown is the reason of a tier that may take requests, and whose servers HAProxy
// has down. Faces that HAProxy asks never say it.
const ReasonDown = "down_in_haproxy"

// ReasonFailed is the reason of a probe that did not end by itself: a bug.
const ReasonFailed = "probe_failed"

// Answer is what a face says about a server or a tier at one moment.
type Answer struct {
	// Admit: a new request may go there.
	Admit bool
	// Quiesced: admission is closed, whatever the evidence.
	Quiesced bool
	// Ready: the evidence alone says ready. Of a tier, that of as many servers as
	// it needs that HAProxy's checks may have up.
	Ready bool
	// Up is what HAProxy's checks are told: Admit, or Ready while a Pause stands and
	// nothing is closed for good. Of a server whose quiesced tier shows its health also
	// Ready, or what the probes from before an invalidation saw, until the next one.
	Up bool
	// Reason is from the closed vocabulary of the fence and the probe, or one of
	// the Reason constants here.
	Reason     string
	State      State // of a server only
	Generation fence.Generation
	// Age of the evidence; of a tier, of the oldest that the answer rests on.
	// Only where HasEvidence. An exercise that has passed counts for its own
	// maximum age and not here.
	Age         time.Duration
	HasEvidence bool
	// Weight in percent of what HAProxy is configured with; of a server only. TellWeight:
	// HAProxy has not taken it yet. WeightByHand: it has one that somebody set there.
	Weight                   int
	TellWeight, WeightByHand bool
	AgentWords               bool
	// Overridden: an Override is in force. Ready says no more then than that the health
	// checks of the engines pass.
	Overridden bool
}

// Server answers for "backend/server". The name may come from the wire: it is
// looked up without a copy. It reports false where the name is unknown.
func (m *Model) Server(name []byte) (Answer, bool) {
	return m.steady(func(v *view) (Answer, bool) {
		s := v.servers[string(name)]
		if s == nil {
			return Answer{}, false
		}
		a, _ := m.server(s)
		return a, true
	})
}

// Continues reports whether the name of some server or tier begins with these bytes and
// goes on after them.
func (m *Model) Continues(begun []byte) bool {
	v := m.view.Load()
	longer := func(name string) bool { return len(name) > len(begun) && name[:len(begun)] == string(begun) }
	for name := range v.servers {
		if longer(name) {
			return true
		}
	}
	return slices.ContainsFunc(v.order, func(t *tier) bool { return longer(t.spec.Name) })
}

// Member answers for a server of a tier, both looked up as in Server. It reports
// false where there is no such server, or it is another tier's.
func (m *Model) Member(tierName, server []byte) (Answer, bool) {
	return m.steady(func(v *view) (Answer, bool) {
		s := v.servers[string(server)]
		if s == nil || s.tier.spec.Name != string(tierName) {
			return Answer{}, false
		}
		a, _ := m.server(s)
		return a, true
	})
}

// Tier answers for a tier, looked up as in Server. A tier is ready when
// MinReady of its servers are admitted, or ActivationMin until it has been.
func (m *Model) Tier(name []byte) (Answer, bool) {
	var t *tier
	a, known := m.steady(func(v *view) (Answer, bool) {
		if t = v.tiers[string(name)]; t == nil {
			return Answer{}, false
		}
		return m.tier(t), true
	})
	if known {
		m.activated(t, a)
	}
	return a, known
}

// Whole answers for a tier each of whose servers may get the request, looked up as in
// Server: it is ready, and none of them is quiesced. Who asks has had a server that is
// not ready for another reason out since before, mostly: to refuse for that would cost
// requests and save few.
func (m *Model) Whole(name []byte) (Answer, bool) {
	return m.steady(func(v *view) (Answer, bool) {
		t := v.tiers[string(name)]
		if t == nil {
			return Answer{}, false
		}
		a := m.tier(t)
		for _, s := range t.servers {
			if one, _ := m.server(s); a.Admit && one.Quiesced {
				a.Admit, a.Reason = false, one.Reason
			}
		}
		return a, true
	})
}

// steady asks one view, again where it was replaced meanwhile: a reader that slept
// over a replacement must not join the gates of before with the evidence of after.
func (m *Model) steady(ask func(*view) (Answer, bool)) (Answer, bool) {
	for {
		v := m.view.Load()
		if a, known := ask(v); !known || m.view.Load() == v {
			return a, known
		}
	}
}

func (m *Model) tier(t *tier) Answer {
	a := Answer{AgentWords: t.spec.AgentWords, Overridden: m.overridden(t)}
	a.Generation, _ = m.fence.TierGeneration(t.spec.Name)
	need := t.neededIf(a.Overridden)
	admitted, up := 0, 0 // of the servers, as if the tier were open
	for _, s := range t.servers {
		one, _ := m.serverIf(s, a.Overridden)
		c := s.gate.closing.Load()
		if one.Ready && c == nil && s.shut.Load() {
			one.Ready, one.Reason = false, ReasonShut
		}
		if one.Ready && (c == nil || !c.settled) {
			up++
		}
		if one.Ready && c == nil {
			admitted++
		} else if a.Reason == "" {
			a.Reason = one.Reason
		}
		if one.HasEvidence {
			a.HasEvidence, a.Age = true, max(a.Age, one.Age)
		}
		if admitted == need {
			a.Reason = one.Reason
			break
		}
	}
	a.Ready = up >= need
	c := t.gate.closing.Load()
	a.Quiesced = c != nil
	a.Admit = admitted >= need && c == nil
	a.Up = a.Ready && (c == nil || !c.settled)
	switch {
	case a.Quiesced:
		a.Reason = ReasonQuiesced
	case !a.Admit && admitted >= t.spec.MinReady:
		a.Reason = ReasonActivation
	case !a.Admit && (a.Reason == "" || admitted > 0 && a.Reason == ReasonQuiesced):
		// Some would serve: what is wrong is their number, not one server's quiesce.
		a.Reason = ReasonTooFew
	}
	return a
}

// server gives the answer, and what the evidence says.
func (m *Model) server(s *server) (Answer, fence.Verdict) {
	return m.serverIf(s, m.overridden(s.tier))
}

func (m *Model) serverIf(s *server, overridden bool) (Answer, fence.Verdict) {
	v := m.evidence(s)
	a := Answer{
		Ready: v.Ready, Reason: v.Reason, Generation: v.Generation,
		Age: v.Age, HasEvidence: v.HasEvidence(),
		Weight: m.weight(s, v), AgentWords: s.tier.spec.AgentWords,
	}
	a.TellWeight, a.WeightByHand = s.tells(a.Weight), s.byHand.Load()
	if s.differs(v) {
		a.Ready, a.Reason = false, ReasonDiffers
	}
	if s.sentElsewhere(v) {
		a.Ready, a.Reason = false, ReasonElsewhere
	}
	a.State = stateOf(a.Ready, a.Reason, v.Starting)
	over, own := s.tier.gate.closing.Load(), s.gate.closing.Load()
	a.Quiesced = over != nil || own != nil
	settled := over != nil && over.settled || own != nil && own.settled
	if overridden && !settled {
		m.onHealth(s, &a)
	}
	a.Admit = a.Ready && !a.Quiesced
	looksReady := a.Ready || a.Reason == fence.ReasonPending && s.looksReady()
	a.Up = a.Ready && !settled || settled && looksReady && s.tier.showsHealth(own != nil && own.settled)
	if a.Quiesced {
		a.Reason, a.State = ReasonQuiesced, StateQuiesced
	}
	return a, v
}
