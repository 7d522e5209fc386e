package runtimeapi

import (
	"context"
	"fmt"
	"strings"
)

// Overrule makes a server take requests although its checks say down: it disables those
// that run, and sets its health up. The admin state, the weight, and what the agent-check
// said last stay (measured on 2.6, 3.0 and 3.2). A check that is under way may still take
// the server down, and a reload forgets all of it: look again.
//
// nil means that HAProxy has refused nothing. A server that tracks another is refused.
func (i *Instance) Overrule(ctx context.Context, shown ServerState) error {
	var commands []string
	if shown.Health().Enabled {
		commands = append(commands, "disable health "+shown.Name())
	}
	if shown.Agent().Enabled {
		commands = append(commands, "disable agent "+shown.Name())
	}
	return i.command(ctx, shown, append(commands, "set server "+shown.Name()+" health up"))
}

// Overruled reports whether a server is as Overrule leaves it.
func (s ServerState) Overruled() bool {
	return !s.Health().Enabled && !s.Agent().Enabled && s.Operational == OpRunning
}

// Reinstate gives a server back to its checks, as they and it were found before an
// Overrule: what was down is down at once, and comes up by its checks.
func (i *Instance) Reinstate(ctx context.Context, found ServerState) error {
	return i.command(ctx, found, found.Reinstating())
}

// Reinstating are the commands of a Reinstate.
func (s ServerState) Reinstating() (commands []string) {
	switch s.Operational {
	case OpStopped:
		commands = append(commands, "set server "+s.Name()+" health down")
	case OpStopping:
		commands = append(commands, "set server "+s.Name()+" health stopping")
	}
	if s.Health().Enabled {
		commands = append(commands, "enable health "+s.Name())
	}
	if s.Agent().Enabled {
		commands = append(commands, "enable agent "+s.Name())
	}
	return commands
}

func (i *Instance) command(ctx context.Context, s ServerState, commands []string) error {
	if err := checkName("backend", s.Backend); err != nil {
		return i.wrap(err)
	}
	if err := checkName("server", s.Server); err != nil {
		return i.wrap(err)
	}
	a, err := i.exchange(ctx, mutating, commands...)
	if err != nil {
		return i.wrap(err)
	}
	for n, text := range a.texts {
		if strings.TrimSpace(text) != "" {
			return i.wrap(fmt.Errorf("%s: %w", commands[n], i.refused(text)))
		}
	}
	return nil
}
