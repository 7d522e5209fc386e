package runtimeapi

import (
	"context"
	"fmt"
	"strings"
)

// SetHealth makes HAProxy take a server's health for bad or good, whatever its admin state,
// which stays as it is, and reads the server back as SetState does. It holds until the next
// result of a check, or the next reload: for good on a server none of whose checks runs
// (measured on 2.6, 3.0 and 3.2). HAProxy refuses it for a server that tracks another.
func (i *Instance) SetHealth(ctx context.Context, backend, server string, good bool) (Change, error) {
	word, want := "down", OpStopped
	if good {
		word, want = "up", OpRunning
	}
	change, err := i.mutate(ctx, backend, server, "health "+word, func(text string) bool {
		return strings.TrimSpace(text) == ""
	})
	if err == nil && change.After.Operational != want {
		err = fmt.Errorf("%w: %s wanted health %s, is %s", ErrNotApplied, change.After.Name(), word, change.After.Operational)
	}
	return change, i.wrap(err)
}
