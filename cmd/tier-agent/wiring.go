package main

import (
	"fmt"
	"log/slog"
	"net"
	"sync"
	"syscall"
	"time"

	"tier-agent/internal/agentcheck"
	"tier-agent/internal/config"
	"tier-agent/internal/httpapi"
	"tier-agent/internal/members"
	"tier-agent/internal/observe"
	"tier-agent/internal/probe"
	"tier-agent/internal/runtimeapi"
	"tier-agent/internal/spoe"
	"tier-agent/internal/tier"
)

// specs turns the configuration, and who the members of its tiers are, into what the
// model and the monitor take.
func specs(cfg *config.Config, found map[string]members.Found) []tier.Spec {
	all := make([]tier.Spec, 0, len(cfg.Tiers))
	for _, t := range cfg.Tiers {
		spec := tier.Spec{
			Name: t.Name, MinReady: t.MinReady, ActivationMin: t.ActivationMin,
			Identified:     t.Identified(),
			AgentWords:     t.Admission == config.AdmissionAgentCheck,
			QuiescedHealth: t.QuiescedHealth, QuiescedDown: t.QuiescedDown,
			Interval: t.Probe.Interval, Jitter: t.Probe.Jitter, MaxAge: t.Probe.MaxAge,
			Rise: t.Rise, Fall: t.Fall, StartWindow: t.StartWindow, Ramp: t.Ramp,
		}
		if t.Metadata != nil {
			spec.Instance, spec.SameField, spec.WeightField = t.Metadata.Instance, t.Metadata.Same, t.Metadata.Weight
		}
		if t.Exercise != nil {
			spec.Exercise = exercise(t)
		}
		for _, s := range t.Servers {
			spec.Servers = append(spec.Servers, tier.ServerSpec{
				Backend: s.Backend, Name: s.Name, Weight: s.Weight,
				Target: target(t, s), Subject: subject(t, s), Manner: manner(t), Separate: s.Separate,
			})
		}
		if t.Members != nil {
			spec.Members = &tier.Members{Backend: t.Members.Backend, LeftOut: found[t.Name].LeftOut}
			for _, m := range found[t.Name].Members {
				s := config.Server{Backend: t.Members.Backend, Name: m.Server, URL: t.Members.Probe.At(m.Address), Weight: 100}
				spec.Servers = append(spec.Servers, tier.ServerSpec{
					Backend: s.Backend, Name: s.Name, Weight: s.Weight, Address: m.Address,
					Target: target(t, s), Subject: subject(t, s) + "|" + m.Address.String(), Manner: manner(t),
				})
			}
		}
		all = append(all, spec)
	}
	return all
}

func target(t config.Tier, s config.Server) probe.Target {
	p := probe.Target{
		URL:     s.URL,
		Health:  probe.Health{Path: t.Health.Path, StatusMin: t.Health.StatusMin, StatusMax: t.Health.StatusMax},
		Timeout: t.Probe.Timeout,
		MaxBody: t.Probe.MaxBody,
	}
	if t.Identity != nil {
		p.Identity = &probe.Identity{Path: t.Identity.Path, ID: t.Identity.ID}
		if t.Identity.Token != nil {
			p.Identity.Token = t.Identity.Token.Value
		}
	}
	if t.Metadata != nil {
		p.Metadata = &probe.Metadata{Path: t.Metadata.Path, Fields: t.Metadata.Fields}
		for _, field := range []string{t.Metadata.Instance, t.Metadata.Same, t.Metadata.Weight} {
			if field != "" {
				p.Metadata.Collect = append(p.Metadata.Collect, field)
			}
		}
	}
	if x := t.Exercise; x != nil {
		p.Exercise = &probe.Exercise{
			Path: x.Path, Body: x.Body, StatusMin: x.StatusMin, StatusMax: x.StatusMax, Answer: x.Answer, Timeout: x.Timeout,
		}
		if x.Token != nil {
			p.Exercise.Token = x.Token.Value
		}
	}
	return p
}

func exercise(t config.Tier) *tier.Exercise {
	x := t.Exercise
	how := fmt.Sprintf("%d", t.Probe.MaxBody)
	if x.Token != nil {
		how += fmt.Sprintf(" %v", x.Token)
	}
	return &tier.Exercise{
		Interval: x.Interval, MaxAge: x.MaxAge, Timeout: x.Timeout,
		Subject: fmt.Sprintf("%q %q %q %d-%d", x.Path, x.Body, x.Answer, x.StatusMin, x.StatusMax), Manner: how,
	}
}

// subject names all that evidence about a server depends on. fmt prints maps
// in the order of their keys.
func subject(t config.Tier, s config.Server) string {
	about := fmt.Sprintf("%s|%+v", s.URL, t.Health)
	if t.Identity != nil {
		about += fmt.Sprintf("|%q %q", t.Identity.Path, t.Identity.ID)
	}
	if t.Metadata != nil {
		about += fmt.Sprintf("|%q %#v %q %q %q",
			t.Metadata.Path, t.Metadata.Fields, t.Metadata.Instance, t.Metadata.Same, t.Metadata.Weight) // "42" is not 42
	}
	return about
}

// manner names all else that a probe depends on. A secret prints as where it
// comes from.
func manner(t config.Tier) string {
	how := fmt.Sprintf("%v %d", t.Probe.Timeout, t.Probe.MaxBody)
	if t.Identity != nil && t.Identity.Token != nil {
		how += fmt.Sprintf(" %v", t.Identity.Token)
	}
	return how
}

func instances(cfg *config.Config) *runtimeapi.Set {
	all := make([]*runtimeapi.Instance, 0, len(cfg.HAProxy))
	for _, h := range cfg.HAProxy {
		o := runtimeapi.Options{Timeout: h.Timeout}
		if h.Master != nil {
			o.Master = runtimeapi.Socket{Network: h.Master.Network, Address: h.Master.Addr}
		}
		all = append(all, runtimeapi.New(h.Name, h.Runtime.Network, h.Runtime.Addr, o))
	}
	return runtimeapi.NewSet(all...)
}

// hardStops are how long old workers may live, by instance.
func hardStops(cfg *config.Config) map[string]time.Duration {
	of := map[string]time.Duration{}
	for _, h := range cfg.HAProxy {
		of[h.Name] = h.HardStopAfter
	}
	return of
}

// stateFiles are the server-state files that are kept, by instance.
func stateFiles(cfg *config.Config) map[string]string {
	files := map[string]string{}
	for _, h := range cfg.HAProxy {
		files[h.Name] = h.StateFile
	}
	return files
}

// agentSource lets agent-check read the model: a server by "backend/server",
// or a whole tier by its name.
type agentSource struct {
	model *tier.Model
	polls *observe.Polls
}

func (s agentSource) AgentState(name []byte) (agentcheck.State, bool) {
	a, known := s.model.Server(name)
	if !known {
		if a, known = s.model.Tier(name); !known {
			return agentcheck.State{}, false
		}
	}
	s.polls.Note(observe.AgentCheck, name, time.Now())
	st := agentcheck.State{Quiesced: a.Quiesced && !a.Up, Ready: a.Ready || a.Up, Reason: a.Reason, AdminWords: a.AgentWords}
	if a.TellWeight {
		st.Weight = a.Weight
	}
	return st, true
}

func (s agentSource) Continues(begun []byte) bool { return s.model.Continues(begun) }

// enoughFiles is twice the gate's own cap on connections.
const enoughFiles = 8192

// gateSource lets the SPOE gate read the model: a tier, one server of it, or all. The
// model hears that it is asked, where that can be only the one HAProxy that there is. An
// old worker, which asks for any server, says nothing about the one that runs.
type gateSource struct {
	model *tier.Model
	polls *observe.Polls
	only  bool
}

func (s gateSource) SPOEVerdict(name, server []byte) (spoe.Verdict, bool) {
	if len(server) == 0 {
		s.polls.Note(observe.Gate, name, time.Now())
		if s.only {
			s.model.Gated(name)
		}
	}
	var v spoe.Verdict
	var known bool
	switch {
	case string(server) == spoe.AnyServer:
		v, known = verdict(s.model.Whole(name))
	case len(server) > 0:
		v, known = verdict(s.model.Member(name, server))
	default:
		v, known = verdict(s.model.Tier(name))
	}
	if !known {
		s.polls.NoteStrange(time.Now())
	}
	return v, known
}

func verdict(a tier.Answer, known bool) (spoe.Verdict, bool) {
	return spoe.Verdict{
		Admit: a.Admit, Reason: a.Reason, Generation: a.Generation, Age: a.Age, HasEvidence: a.HasEvidence,
	}, known
}

// ungates takes the looks at the one HAProxy that there is, and tells the model when they
// are at another process.
func ungates(model *tier.Model) func(observe.View) {
	var mu sync.Mutex // protects running: with several HAProxies each has looks of its own
	var running runtimeapi.Info
	return func(o observe.View) {
		mu.Lock()
		defer mu.Unlock()
		if !running.SameProcess(o.Info) {
			model.Ungated()
			running = o.Info
		}
	}
}

// gateKinds are the names of kinds, for the metrics.
func gateKinds(kinds []spoe.Kind) (names []string) {
	for _, k := range kinds {
		names = append(names, k.String())
	}
	return names
}

func newGate(source gateSource, cfg config.SPOE, ready <-chan struct{}, metrics *httpapi.Metrics, c caps, log *slog.Logger) *spoe.Server {
	var counts *httpapi.GateMetrics
	gate := spoe.NewServer(source, spoe.Options{
		MaxConns: c.gate, MaxConnsPerPeer: c.gatePeer,
		RetryAfter: cfg.RetryAfter, Ready: ready, Logger: log,
		OnAnswers: func(k spoe.Kind, n int) { counts.Answered(k.String(), n) },
		OnEnd:     func(k spoe.Kind) { counts.Ended(k.String()) },
	})
	counts = metrics.Gate(gateKinds(spoe.Answers()), gateKinds(spoe.Ends()), gate.Connections)
	return gate
}

func addresses(all []net.Listener) (names []string) {
	for _, ln := range all {
		names = append(names, ln.Addr().String())
	}
	return names
}

// caps bound the connections of each listener, in all and of one peer; 0 is the listener's
// own default.
type caps struct{ gate, gatePeer, agent, agentPeer, http, admin int }

// newCaps are less than the defaults where the process may not have so many files. Idle
// connections would otherwise leave none for probes, the Runtime API and the state files,
// which have three sixteenths, and close every tier.
func newCaps(log *slog.Logger) caps {
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil || limit.Cur >= enoughFiles {
		return caps{}
	}
	part := func(n uint64) int { return max(2, int(limit.Cur/n)) }
	c := caps{gate: part(2), gatePeer: part(4), agent: part(8), agentPeer: part(16), http: part(8), admin: part(16)}
	log.Warn("few files may be open at once; the listeners take fewer connections for that",
		"limit", limit.Cur, "wanted", enoughFiles, "gate", c.gate, "agent_check", c.agent, "http", c.http)
	return c
}
