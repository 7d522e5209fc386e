package runtimeapi

import (
	"cmp"
	"context"
	"fmt"
	"strings"
)

// State is what the CLI can make of a server. The zero value is none of them.
type State int

// The states of `set server <backend>/<server> state` (management guide 9.3).
// Each clears the other two's forced bits (measured on 2.6, 3.0 and 3.2).
const (
	// StateReady clears ForcedMaint and ForcedDrain; inherited and DNS bits stay.
	StateReady State = iota + 1
	// StateDrain sets ForcedDrain and LEAVES maintenance: requests that are bound
	// to the server by persistence get through to it again. A server with a health
	// check counts as up from then on until its checks have failed `fall` times,
	// whatever they said before the maintenance.
	StateDrain
	// StateMaint sets ForcedMaint: no request, and health checks pause.
	StateMaint
)

// String is the CLI's word.
func (s State) String() string {
	switch s {
	case StateReady:
		return "ready"
	case StateDrain:
		return "drain"
	case StateMaint:
		return "maint"
	}
	return fmt.Sprintf("invalid state %d", int(s))
}

// reached reports whether a is what s leaves behind.
func (s State) reached(a AdminState) bool {
	switch s {
	case StateReady:
		return a&forcedBits == 0
	case StateDrain:
		return a&forcedBits == ForcedDrain
	case StateMaint:
		return a&ForcedMaint != 0
	}
	return false
}

// Change is a server's state right before and right after a mutation, and the
// process that made it. Other writers (an operator, an agent) may come between.
type Change struct {
	Before, After ServerState
	Info          Info
}

// SetState sets a server's admin state and reads it back in the same exchange.
// nil means: this process had the wanted forced bits after the mutation.
// Inherited and DNS bits may remain; Change.After has them.
//
// With ErrUncertain the mutation was sent and may be applied now or later; that a
// read shows the old state proves nothing yet. With ErrNotApplied and ErrRefused
// the Change is filled. No mutation is sent twice.
func (i *Instance) SetState(ctx context.Context, backend, server string, want State) (Change, error) {
	change, err := i.setState(ctx, backend, server, want)
	return change, i.wrap(err)
}

// Restore makes the forced bits of a server those of want, as SetState does;
// want's other bits are not ours to make and are not looked at. With both forced
// bits it sets maintenance, the stricter: no CLI command leaves both, each clears
// the other, and HAProxy refuses a state file that has both (measured on 2.6,
// 3.0 and 3.2). A server that is `disabled` in the configuration and was drained
// (12) is drained again.
func (i *Instance) Restore(ctx context.Context, backend, server string, want AdminState) (Change, error) {
	state := StateReady
	switch {
	case want&ForcedMaint != 0:
		state = StateMaint
	case want&ForcedDrain != 0:
		state = StateDrain
	}
	change, err := i.setState(ctx, backend, server, state)
	return change, i.wrap(err)
}

func (i *Instance) setState(ctx context.Context, backend, server string, want State) (Change, error) {
	if want < StateReady || want > StateMaint {
		return Change{}, fmt.Errorf("%w: %s", ErrInvalidName, want)
	}
	// A mutation that worked answers with an empty line (measured on 2.6, 3.0 and
	// 3.2). That proves nothing; another answer proves that it did not work.
	change, err := i.mutate(ctx, backend, server, "state "+want.String(), func(text string) bool {
		return strings.TrimSpace(text) == ""
	})
	if err == nil && !want.reached(change.After.Admin) {
		err = fmt.Errorf("%w: %s wanted %s, is %s", ErrNotApplied, change.After.Name(), want, change.After.Admin)
	}
	return change, err
}

// mutate sets something of a server and reads the server before and after, in one
// exchange. accepted tells whether HAProxy's text says that it worked.
func (i *Instance) mutate(ctx context.Context, backend, server, what string, accepted func(text string) bool) (Change, error) {
	if err := checkName("backend", backend); err != nil {
		return Change{}, err
	}
	if err := checkName("server", server); err != nil {
		return Change{}, err
	}
	if ctx.Value(pidKey{}) != nil {
		if _, err := i.exchange(ctx, reading); err != nil {
			return Change{}, err
		}
	}
	name := backend + "/" + server
	a, err := i.exchange(ctx, mutating,
		showServers(backend), "set server "+name+" "+what, showServers(backend))
	if err != nil {
		return Change{}, err
	}
	change := Change{Info: a.info}
	var unread [2]error
	change.Before, unread[0] = readBack(a.texts[0], backend, server)
	change.After, unread[1] = readBack(a.texts[2], backend, server)
	if !accepted(a.texts[1]) {
		return change, fmt.Errorf("%s %s: %w", what, name, i.refused(a.texts[1]))
	}
	if err := cmp.Or(unread[0], unread[1]); err != nil {
		return change, fmt.Errorf("%s %s: %w (%w)", what, name, err, ErrUncertain)
	}
	return change, nil
}

// readBack finds the one server in a table that was read around a mutation.
func readBack(text, backend, server string) (ServerState, error) {
	table, err := parseServers(text, backend)
	if err != nil {
		return ServerState{}, err
	}
	row, ok := table.Find(backend, server)
	if !ok {
		return ServerState{}, fmt.Errorf("%w: backend %s has no server %s", ErrNoSuchServer, backend, server)
	}
	return row, nil
}
