package admission

import (
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"tier-agent/internal/probe"
	"tier-agent/internal/runtimeapi"
	"tier-agent/internal/tier"
	"tier-agent/test/guarantee"
)

// story drives one lab with random verbs, faults and hands from outside, and
// holds what it finds after each against what was ever allowed to open it.
type story struct {
	*rapid.T
	l    *lab
	open map[tier.Target]bool // by the transitions' own results
}

// Control: it failed with back left out after a failed confirm, with the count
// of ready servers taken out of verify, and with Close taken out of Quiesce.
func TestNothingOpensButByAReadmitOnReadyEvidence(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		var done []func()
		l := newLab(closing{t, &done}, func(o *Options, ro *runtimeapi.Options) {
			o.Settle, o.Confirm = time.Second, 10*time.Millisecond
		})
		defer func() {
			for _, end := range slices.Backward(done) {
				end()
			}
		}()
		s := &story{T: rt, l: l, open: map[tier.Target]bool{llm: true, gpu1: true, gpu2: true}}
		for range rapid.IntRange(1, 40).Draw(rt, "steps") {
			s.step()
			s.check()
		}
	})
}

// closing is a testing.TB whose Cleanup ends with one run of the property.
type closing struct {
	testing.TB
	done *[]func()
}

func (c closing) Cleanup(f func()) { *c.done = append(*c.done, f) }

func (s *story) step() {
	target := rapid.SampledFrom([]tier.Target{llm, llm, gpu1, gpu2}).Draw(s.T, "target")
	switch rapid.SampledFrom([]string{"quiesce", "readmit", "readmit", "drain", "invalidate", "engine", "fault", "heal", "operator", "reload", "wiring"}).Draw(s.T, "step") {
	case "quiesce":
		r := s.l.Quiesce(s.Context(), QuiesceRequest{Target: target, Reason: "swap", Who: "alice", Force: true})
		s.open[target] = false
		if !r.Quiesced {
			guarantee.T(s.T).Errorf("quiesce ended %s (%s) and left %v open", r.Outcome, r.Code, target)
			guarantee.T(s.T).FailNow()
		}
		if r.Outcome == Done {
			s.closedEverywhere(target, r)
		}
	case "readmit":
		s.readmit(ReadmitRequest{Target: target, Partial: rapid.Bool().Draw(s.T, "partial"), TakeHold: rapid.Bool().Draw(s.T, "take")})
	case "drain":
		r := s.l.Drain(s.Context(), DrainRequest{Target: target, Timeout: 20 * time.Millisecond})
		if r.Outcome == Done {
			s.closedEverywhere(target, r)
		}
	case "invalidate":
		s.l.Invalidate(target)
	case "engine":
		name := rapid.SampledFrom([]string{"llm/gpu1", "llm/gpu2"}).Draw(s.T, "engine")
		s.l.prober.says(name, probe.Result{Ready: rapid.Bool().Draw(s.T, "ready"), Reason: "as_drawn"})
	case "fault":
		s.haproxy().fail(fault{
			action: rapid.SampledFrom([]action{cut, half, refuse, ignore}).Draw(s.T, "action"),
			on:     rapid.SampledFrom([]string{"", "state drain", "state ready", "show stat", "gpu2 state"}).Draw(s.T, "on"),
			times:  rapid.IntRange(1, 4).Draw(s.T, "times"), text: "Permission denied",
		})
	case "heal":
		s.l.hap1.heal()
		s.l.hap2.heal()
	case "operator":
		s.haproxy().operator(rapid.SampledFrom([]string{"llm/gpu1", "llm/gpu2"}).Draw(s.T, "server"),
			rapid.SampledFrom([]string{"ready", "drain", "maint"}).Draw(s.T, "state"))
	case "reload":
		s.haproxy().reload()
	case "wiring": // the agent's word does not get through, or does again
		h, deaf := s.haproxy(), rapid.Bool().Draw(s.T, "deaf")
		h.with(func() { h.agent = func(name string) bool { return !deaf && s.l.admits(name) } })
	}
}

func (s *story) readmit(q ReadmitRequest) {
	wasOpen := s.open[q.Target]
	r := s.l.Readmit(s.Context(), q)
	if r.Outcome != Done {
		if !wasOpen && !r.Quiesced {
			guarantee.T(s.T).Errorf("readmit ended %s (%s) and left %v open", r.Outcome, r.Code, q.Target)
			guarantee.T(s.T).FailNow()
		}
		return
	}
	ready, need := 0, len(r.Evidence)
	for _, e := range r.Evidence {
		if e.Ready {
			ready++
		}
	}
	if q.Partial && q.Target == llm {
		need = min(need, 1)
	}
	if wasOpen || ready < need {
		guarantee.T(s.T).Errorf("readmit of %v, open %v, was done on %d ready servers of %d", q.Target, wasOpen, ready, len(r.Evidence))
		guarantee.T(s.T).FailNow()
	}
	for _, e := range r.Evidence {
		for _, h := range s.l.haproxies() {
			h.mu.Lock()
			status := h.status(e.Server)
			h.mu.Unlock()
			if e.Ready && status != "UP" {
				s.Fatalf("readmit of %v was done, %s is %s on %s", q.Target, e.Server, status, h.name)
			}
		}
	}
	s.open[q.Target] = true
}

// check compares the gates, and what is let through them, with what the
// transitions have said.
func (s *story) check() {
	for target, open := range s.open {
		closure, err := s.l.model.Closed(target)
		if err != nil || (closure == nil) != open {
			guarantee.T(s.T).Errorf("%v has closure %v (%v), and the transitions say open: %v", target, closure, err, open)
			guarantee.T(s.T).FailNow()
		}
	}
	for _, target := range []tier.Target{gpu1, gpu2} {
		if s.l.admits(target.Server) && !(s.open[llm] && s.open[target]) {
			guarantee.T(s.T).Errorf("%v is admitted", target)
			guarantee.T(s.T).FailNow()
		}
	}
}

func (s *story) closedEverywhere(target tier.Target, r Result) {
	servers, _ := s.l.model.Servers(target)
	for _, server := range servers {
		for _, h := range s.l.haproxies() {
			if state := h.state(server.FullName()); state&forced == 0 {
				guarantee.T(s.T).Errorf("%s of %v was done, and %s is %s on %s", r.Verb, target, server.FullName(), state, h.name)
				guarantee.T(s.T).FailNow()
			}
		}
	}
}

func (s *story) haproxy() *haproxy {
	return rapid.SampledFrom(s.l.haproxies()).Draw(s.T, "haproxy")
}
