package main

import (
	"context"
	"log/slog"
	"sync/atomic"
	"time"

	"tier-agent/internal/activation"
	"tier-agent/internal/tier"
)

// saveAgain is the time between two attempts to write what could not be written.
const saveAgain = time.Second

// activations keep on disk which tiers have been ready since they appeared. Nobody
// who answers waits for it: a tier serves before it is written, so a kill in the
// milliseconds between has it appear anew, with as many servers ready as it needs
// for that.
type activations struct {
	model  *tier.Model
	store  *activation.Store
	log    *slog.Logger
	failed atomic.Bool // the last write has, and the log says so
}

// restore is for the start, before anything reads the model: what was ready before
// is, and what the configuration no longer names is forgotten.
func (a *activations) restore() {
	a.model.Activate(a.store.Has)
	a.save()
}

// save writes what the model says now, where that is anything else. It reports
// whether it is on disk.
func (a *activations) save() bool {
	err := a.store.Save(a.model.Activated)
	if was := a.failed.Swap(err != nil); err != nil && !was {
		a.log.Warn("a restart of tier-agent would have tiers wait for activation_min again, or not", "error", err)
	} else if err == nil && was {
		a.log.Info("which tiers have been ready is written again")
	}
	return err == nil
}

// run saves each first time, until ctx ends, and then what came last.
func (a *activations) run(ctx context.Context) error {
	for {
		var again <-chan time.Time
		if !a.save() {
			again = time.After(saveAgain)
		}
		select {
		case <-a.model.FirstReady():
		case <-again:
		case <-ctx.Done():
			a.save()
			return nil
		}
	}
}
