package main

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/negasus/haproxy-spoe-go/action"
	"github.com/negasus/haproxy-spoe-go/agent"
	"github.com/negasus/haproxy-spoe-go/logger"
	"github.com/negasus/haproxy-spoe-go/request"

	"tier-agent/internal/probe"
	"tier-agent/internal/spoe"
	"tier-agent/internal/tier"
	"tier-agent/test/spoeload"
)

// spoeTiers are the tiers that every agent answers for.
var spoeTiers = []string{"heavy", "light"}

// Indices of the agents.
const (
	library = iota
	ours
	bare
)

type spoeAgent struct {
	name string
	addr map[string]string // by network
}

// serveSPOE starts the three agents, each on TCP and on a unix socket.
func serveSPOE() (agents []spoeAgent, stop func(), err error) {
	source, err := newSPOESource()
	if err != nil {
		return nil, nil, err
	}
	dir, err := os.MkdirTemp("", "tier-agent-bench")
	if err != nil {
		return nil, nil, err
	}
	ctx, cancel := context.WithCancel(context.Background())
	var listeners []net.Listener
	var serving sync.WaitGroup
	stop = func() {
		cancel()
		for _, ln := range listeners {
			_ = ln.Close()
		}
		serving.Wait()
		_ = os.RemoveAll(dir)
	}
	server := spoe.NewServer(source, spoe.Options{})
	for _, one := range []struct {
		name  string
		serve func(net.Listener)
	}{
		library: {"library", func(ln net.Listener) { _ = agent.New(source.handle, logger.NewNop()).Serve(ln) }},
		ours:    {"tier-agent", func(ln net.Listener) { _ = server.Serve(ctx, ln) }},
		bare:    {"bare", spoeload.Bare},
	} {
		a := spoeAgent{one.name, map[string]string{}}
		for network, at := range map[string]string{"tcp": "127.0.0.1:0", "unix": filepath.Join(dir, one.name)} {
			ln, err := net.Listen(network, at)
			if err != nil {
				stop()
				return nil, nil, err
			}
			listeners = append(listeners, ln)
			a.addr[network] = ln.Addr().String()
			serving.Go(func() { one.serve(ln) })
		}
		agents = append(agents, a)
	}
	return agents, stop, nil
}

// spoeSource reads a real model with evidence, for ours and for the library.
type spoeSource struct{ model *tier.Model }

func newSPOESource() (spoeSource, error) {
	var specs []tier.Spec
	for _, name := range spoeTiers {
		specs = append(specs, tier.Spec{
			Name: name, MinReady: 1, Interval: time.Hour, MaxAge: 2 * time.Hour,
			Servers: []tier.ServerSpec{{Backend: name, Name: "s1"}, {Backend: name, Name: "s2"}},
		})
	}
	model, err := tier.New(specs, time.Now)
	if err != nil {
		return spoeSource{}, err
	}
	monitor := tier.NewMonitor(model, passes{}, nil, slog.New(slog.DiscardHandler))
	for _, spec := range specs {
		for _, server := range spec.Servers {
			if v := monitor.ProbeNow(context.Background(), server.FullName()); !v.Ready {
				return spoeSource{}, errors.New("no evidence: " + v.Reason)
			}
		}
	}
	return spoeSource{model}, nil
}

// passes is a prober that costs nothing.
type passes struct{}

func (passes) Probe(context.Context, probe.Target) probe.Result {
	return probe.Result{Ready: true, Reason: "health_passed"}
}

func (p passes) Exercise(ctx context.Context, t probe.Target) probe.Result { return p.Probe(ctx, t) }

func (s spoeSource) SPOEVerdict(tier, server []byte) (spoe.Verdict, bool) {
	a, known := s.model.Tier(tier)
	return spoe.Verdict{
		Admit: a.Admit, Reason: a.Reason, Generation: a.Generation,
		Age: a.Age, HasEvidence: a.HasEvidence,
	}, known
}

// handle is the same answer as a handler of the library's agent.
func (s spoeSource) handle(r *request.Request) {
	message, err := r.Messages.GetByName("tier-readiness")
	if err != nil {
		return
	}
	value, _ := message.KV.Get("tier")
	name, _ := value.(string)
	v, _ := s.SPOEVerdict([]byte(name), nil)
	r.Actions.SetVar(action.ScopeTransaction, "admit", v.Admit)
	r.Actions.SetVar(action.ScopeTransaction, "reason", v.Reason)
	r.Actions.SetVar(action.ScopeTransaction, "generation", v.Generation.String())
	r.Actions.SetVar(action.ScopeTransaction, "age_ms", v.Age.Milliseconds())
}
