package main

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"time"

	"tier-agent/test/lab"
)

// story is the guarded swap, step by step.
type story struct {
	*lab.Lab
	dns   *lab.DNS // of heavy's hosts, nil where it has one server
	host  string   // where heavy's first engine listens
	heavy *lab.Process
	steps int
}

const firstHost = "127.0.0.1"

// start brings up engines, tier-agent and HAProxy, and waits until both tiers
// serve.
func (s *story) start(ctx context.Context) (err error) {
	if s.dns != nil {
		if err = s.dns.Set(heavyName, s.host); err != nil {
			return err
		}
	}
	if s.heavy, err = s.StartEngineAt(ctx, "heavy", lab.HeavyModel, s.at(s.host)); err != nil {
		return err
	}
	if _, err = s.StartEngine(ctx, "fast", lab.FastModel, s.Ports.Fast); err != nil {
		return err
	}
	if err = s.StartAgent(ctx); err != nil {
		return err
	}
	if err = s.StartHAProxy(ctx); err != nil {
		return err
	}
	return lab.Within(10*time.Second, func() error { return s.serving(ctx, "heavy", "fast") })
}

func (s *story) play(ctx context.Context) error {
	s.say("Both tiers serve.")
	if err := s.serving(ctx, "heavy", "fast"); err != nil {
		return err
	}
	s.saw("heavy answers as %s, fast as %s", lab.HeavyModel, lab.FastModel)
	if s.dns != nil {
		if err := s.grow(ctx); err != nil {
			return err
		}
	}

	s.say("A long stream runs on heavy.")
	stream := s.Stream(ctx, "heavy", 120, 50*time.Millisecond)
	select {
	case <-stream.Started:
	case err := <-stream.Ended:
		return fmt.Errorf("the stream did not start: %w", err)
	}
	s.saw("its first token has come")

	s.say("Quiesce heavy.")
	if err := s.cli(ctx, 0, "done", "quiesce", "heavy", "--reason", "swap-engine"); err != nil {
		return err
	}

	s.say("New requests to heavy are refused, fast never notices.")
	if err := s.refused(ctx, 10, "quiesced"); err != nil {
		return err
	}
	if err := s.fast(ctx, 100); err != nil {
		return err
	}

	s.say("Drain waits for the stream, which ends whole.")
	if err := s.cli(ctx, 0, "done", "drain", "heavy", "--timeout", "60s"); err != nil {
		return err
	}
	if err := <-stream.Ended; err != nil {
		return err
	}
	s.saw("the stream came whole, to its [DONE]")

	s.say("The engine is replaced, by one that serves the wrong model.")
	if err := s.swap(ctx, "heavy-wrong", lab.FastModel); err != nil {
		return err
	}
	s.say("Readmit is refused, and heavy stays closed.")
	if err := s.cli(ctx, 1, "identity_mismatch", "readmit", "heavy"); err != nil {
		return err
	}
	if err := s.refused(ctx, 10, "quiesced"); err != nil {
		return err
	}

	s.say("The right engine comes, and readmit opens heavy.")
	if err := s.swap(ctx, "heavy-right", lab.HeavyModel); err != nil {
		return err
	}
	if err := s.refused(ctx, 3, "quiesced"); err != nil {
		return err
	}
	if err := s.cli(ctx, 0, "done", "readmit", "heavy"); err != nil {
		return err
	}
	if err := s.serving(ctx, "heavy", "fast"); err != nil {
		return err
	}
	s.saw("heavy serves again")
	fmt.Println("\nThe story went as it should.")
	return nil
}

// swap ends the engine behind heavy and starts another in its place.
func (s *story) swap(ctx context.Context, name, model string) (err error) {
	if err := s.heavy.Stop(5 * time.Second); err != nil {
		return err
	}
	s.heavy, err = s.StartEngineAt(ctx, name, model, s.at(s.host))
	if err == nil {
		s.saw("an engine with the model %s listens on heavy's port", model)
	}
	return err
}

func (s *story) at(host string) string { return fmt.Sprintf("%s:%d", host, s.Ports.Heavy) }

// serving checks that each tier answers with its own model.
func (s *story) serving(ctx context.Context, tiers ...string) error {
	models := map[string]string{"heavy": lab.HeavyModel, "fast": lab.FastModel}
	for _, tier := range tiers {
		a, err := s.Ask(ctx, tier)
		if err != nil {
			return err
		}
		if a.Status != http.StatusOK || a.Model != models[tier] {
			return fmt.Errorf("%s answers %d as %q, it should be 200 as %q", tier, a.Status, a.Model, models[tier])
		}
	}
	return nil
}

// refused checks that the gate refuses, and shows why, as a client sees it.
func (s *story) refused(ctx context.Context, n int, reason string) error {
	var last lab.Refusal
	for range n {
		a, err := s.Ask(ctx, "heavy")
		if err != nil {
			return err
		}
		if last, err = a.Refusal(); err != nil {
			return fmt.Errorf("heavy is to be refused by the gate: %w", err)
		}
		if last.Reason != reason || last.Generation == "" {
			return fmt.Errorf("heavy is refused as %q at generation %q, the reason should be %q", last.Reason, last.Generation, reason)
		}
	}
	s.saw("%d of %d to heavy: 503, Retry-After %s, reason %s, generation %s", n, n, last.Retry, last.Reason, last.Generation)
	return nil
}

func (s *story) fast(ctx context.Context, n int) error {
	for i := range n {
		if err := s.serving(ctx, "fast"); err != nil {
			return fmt.Errorf("request %d: %w", i+1, err)
		}
	}
	s.saw("%d of %d to fast: 200", n, n)
	return nil
}

// cli runs a verb and checks its exit code and that its output says want.
func (s *story) cli(ctx context.Context, code int, want string, args ...string) error {
	fmt.Printf("   $ tier-agent %s\n", strings.Join(args, " "))
	out, errs, got := s.CLI(ctx, args...)
	for line := range strings.Lines(errs + out) {
		fmt.Print("     ", line)
	}
	if got != code || !strings.Contains(out, want) {
		return fmt.Errorf("%s exits with %d, it should be %d and say %q", args[0], got, code, want)
	}
	return nil
}

func (s *story) say(what string) {
	s.steps++
	fmt.Printf("\n%d. %s\n", s.steps, what)
}

func (s *story) saw(format string, args ...any) { fmt.Printf("   saw: "+format+"\n", args...) }

// invite says what there is to try.
func (s *story) invite() {
	fmt.Printf(`
Running: HAProxy, tier-agent, and two engines. Ctrl-C ends it.

  export TIER_AGENT_SOCKET=%s
  bin/tier-agent status
  curl -s %s -d '{"max_tokens":3}'
  bin/tier-agent quiesce heavy --reason try-it
  curl -si %s -d '{"max_tokens":3}'      # 503, Retry-After, the reason and the generation
  bin/tier-agent drain heavy
  bin/tier-agent readmit heavy
  curl -s %s -d '{"model":"small-8b","max_tokens":3}'   # the model names the tier

  Readiness and metrics: http://127.0.0.1:%d/readyz/heavy and /metrics
  Logs: %s

DEMO=once make demo plays a guarded swap and checks each step.
`, s.AdminSocket(), s.URL("/heavy/v1/chat/completions"), s.URL("/heavy/v1/chat/completions"), s.URL("/v1/chat/completions"), s.Ports.HTTP, s.Dir)
}
