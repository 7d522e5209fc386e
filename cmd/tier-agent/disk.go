package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"time"

	"tier-agent/internal/activation"
	"tier-agent/internal/admission"
	"tier-agent/internal/durable"
	"tier-agent/internal/intent"
	"tier-agent/internal/members"
	"tier-agent/internal/override"
)

// disk is what is kept in the state directory.
type disk struct {
	intents   *intent.Store
	openings  admission.Openings
	once      *activation.Store
	overrides *override.Store
	unasked   *durable.Table[admission.Unasked]
	processes *durable.Table[admission.Process]
}

func (d disk) close() { _ = d.intents.Close() }

// openDisk reads all of it. What only spares something, and cannot be read, is no error.
func openDisk(dir string, log *slog.Logger) (d disk, err error) {
	if err := private(dir); err != nil && !errors.Is(err, fs.ErrNotExist) {
		log.Error("the state directory is not safe from others, who may open what is quiesced", "error", err)
	}
	d.intents, err = intent.Open(dir)
	switch {
	case d.intents == nil:
		return d, err
	case errors.Is(err, intent.ErrChanged):
		log.Error("what is quiesced may not be all that should be", "error", err)
	case err != nil: // closed is what was, and what is quiesced now is said not to be durable
		log.Error("the state directory cannot be written", "error", err)
	}
	openings, err := members.Open(dir)
	if errors.Is(err, members.ErrChanged) { // of use all the same
		log.Error("which members are held is not known", "error", err)
	} else if err != nil {
		d.close()
		return d, err
	}
	d.openings = openings
	if d.once, err = activation.Open(dir); err != nil {
		log.Warn("activation_min counts for no tier that is configured now", "error", err)
	}
	if d.overrides, err = override.Open(dir, time.Now()); err != nil {
		log.Warn("overrides from before are not in force", "error", err)
	}
	if d.unasked, err = admission.UnaskedServers(dir); err != nil {
		log.Warn("servers that were closed, since nothing asks about them, are not known", "error", err)
	}
	if d.processes, err = admission.Processes(dir); err != nil {
		log.Warn("which processes of HAProxy there were before is not known", "error", err)
	}
	return d, nil
}

// startWithin is how long a start waits for what may be on a mount that hangs.
const startWithin = 10 * time.Second

// within is do, and gives up at ctx's end, and after startWithin. What do returns after that
// is lost: the process ends.
func within[T any](ctx context.Context, what string, do func() (T, error)) (T, error) {
	type result struct {
		value T
		err   error
	}
	done := make(chan result, 1)
	go func() {
		value, err := do()
		done <- result{value, err}
	}()
	late := time.NewTimer(startWithin)
	defer late.Stop()
	var none T
	select {
	case r := <-done:
		return r.value, r.err
	case <-ctx.Done():
		return none, fmt.Errorf("%s: stopped before it was open", what)
	case <-late.C:
		return none, fmt.Errorf("%s: not open after %v: is it on a mount that hangs?", what, startWithin)
	}
}
