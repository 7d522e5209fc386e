package runtimeapi

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
)

// agentSendsAtOnce is how many servers go into one exchange: their commands have to
// fit into one line.
const agentSendsAtOnce = 16

// SetAgentSend makes HAProxy send each server's own name, "backend/server", when it
// polls that server's agent, until its next start or reload. HAProxy's command line
// cannot carry a line end (measured on 2.6, 3.0 and 3.2), so a blank ends the name:
// without one gpu1 could be the beginning of gpu10. Nor
// does any command show what is in force, so that nil means no more than that one
// process has taken all of it; its Info is returned. A server without an agent-check
// takes it, too.
func (i *Instance) SetAgentSend(ctx context.Context, backend string, servers []string) (Info, error) {
	info, err := i.setAgentSend(ctx, backend, servers)
	return info, i.wrap(err)
}

func (i *Instance) setAgentSend(ctx context.Context, backend string, servers []string) (Info, error) {
	for _, server := range servers {
		if err := errors.Join(checkName("backend", backend), checkName("server", server)); err != nil {
			return Info{}, err
		}
	}
	var info Info
	for batch := range slices.Chunk(servers, agentSendsAtOnce) {
		commands := make([]string, len(batch))
		for n, server := range batch {
			name := backend + "/" + server
			commands[n] = fmt.Sprintf(`set server %s agent-send %s\ `, name, name)
		}
		a, err := i.exchange(ctx, mutating, commands...)
		if err != nil {
			return Info{}, err
		}
		for n, text := range a.texts {
			if strings.TrimSpace(text) != "" {
				return Info{}, fmt.Errorf("agent-send %s/%s: %w", backend, batch[n], i.refused(text))
			}
		}
		if info.PID != 0 && !info.SameProcess(a.info) {
			return Info{}, fmt.Errorf("%w: process %d, then %d", ErrOtherProcess, info.PID, a.info.PID)
		}
		info = a.info
	}
	return info, nil
}
