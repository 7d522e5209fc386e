package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"tier-agent/internal/httpapi"
	"tier-agent/test/lab"
)

const (
	heavyName  = "heavy.test"
	secondHost = "127.0.0.3"
)

// grow brings a second host into heavy's name: first with the wrong model, then with
// the right one.
func (s *story) grow(ctx context.Context) error {
	s.say("A second host appears in DNS, with the wrong model.")
	second, err := s.StartEngineAt(ctx, "second-wrong", lab.FastModel, s.at(secondHost))
	if err != nil {
		return err
	}
	if err := s.dns.Set(heavyName, s.host, secondHost); err != nil {
		return err
	}
	if err := s.member(ctx, "degraded", "maint(forced,config)"); err != nil {
		return err
	}
	for range 50 {
		if err := s.serving(ctx, "heavy"); err != nil {
			return err
		}
	}
	s.saw("50 of 50 to heavy: the first host answers, the second gets nothing")

	s.say("The second host gets the right model.")
	if err := second.Stop(5 * time.Second); err != nil {
		return err
	}
	if _, err := s.StartEngineAt(ctx, "second-right", lab.HeavyModel, s.at(secondHost)); err != nil {
		return err
	}
	if err := s.member(ctx, "ready", "ready [config]"); err != nil {
		return err
	}
	return s.cli(ctx, 0, "heavy/h2", "status")
}

// member waits until heavy's second slot has the state, in tier-agent and in HAProxy.
func (s *story) member(ctx context.Context, state, admin string) error {
	const name = "heavy/h2"
	err := lab.Within(15*time.Second, func() error {
		out, errs, code := s.CLI(ctx, "status", "--json")
		if code != 0 {
			return errors.New(errs)
		}
		var st httpapi.Status
		if err := json.Unmarshal([]byte(out), &st); err != nil {
			return err
		}
		for _, t := range st.Tiers {
			for _, m := range t.Servers {
				if m.Name == name && m.State == state && m.HAProxy["edge"] == admin {
					return nil
				}
			}
		}
		return fmt.Errorf("%s should be %s, and %q in HAProxy", name, state, admin)
	})
	if err == nil {
		s.saw("%s is %s for tier-agent, and %s in HAProxy", name, state, admin)
	}
	return err
}
