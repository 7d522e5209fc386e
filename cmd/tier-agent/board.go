package main

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"tier-agent/internal/config"
	"tier-agent/internal/horizon"
	"tier-agent/internal/tier"
)

// publishEvery is how late a change of a tier that nobody has asked about may be
// noted.
const publishEvery = time.Second

// board shows the tiers to the horizon, which judges tier-agent as a whole.
type board struct {
	model   *tier.Model
	horizon *horizon.Horizon

	// together is how far apart two servers may be seen to fail by the same cause, in
	// nanoseconds: one is refused at once, the other found out by a timeout an interval
	// later.
	together atomic.Int64

	// mu makes one step of reading the model and publishing it: an older reading
	// that is published late would pass for a change.
	mu sync.Mutex
}

func newBoard(model *tier.Model, cfg *config.Config) *board {
	b := &board{model: model, horizon: horizon.New(cfg.StaleAfter, time.Now)}
	b.follow(cfg)
	return b
}

// Judge reads the model first: evidence that has grown too old since the last
// publication serves nobody (G5). correlated is how many servers became
// unreachable together, where no other is left.
func (b *board) Judge() (v horizon.Verdict, correlated int) {
	members := b.publish()
	return b.horizon.Judge(), horizon.CorrelatedFailure(members, time.Duration(b.together.Load()))
}

// follow takes over what a configuration says about the whole.
func (b *board) follow(cfg *config.Config) {
	b.horizon.SetStaleAfter(cfg.StaleAfter)
	var longest time.Duration
	for _, t := range cfg.Tiers {
		longest = max(longest, t.Probe.Interval+t.Probe.Timeout)
	}
	b.together.Store(int64(longest))
}

// run publishes until ctx ends, from the moment that the first round of probes is
// over: what comes in during it is no change of anything.
func (b *board) run(ctx context.Context, ready <-chan struct{}) error {
	select {
	case <-ready:
	case <-ctx.Done():
		return nil
	}
	tick := time.NewTicker(publishEvery)
	defer tick.Stop()
	for {
		b.publish()
		select {
		case <-tick.C:
		case <-ctx.Done():
			return nil
		}
	}
}

// publish shows what is observable of each tier, and returns how each server was
// seen last.
func (b *board) publish() (members []horizon.Member) {
	b.mu.Lock()
	defer b.mu.Unlock()
	var rows []horizon.Row
	for _, t := range b.model.Status() {
		rows = append(rows, rowOf(t))
		for _, s := range t.Servers {
			members = append(members, horizon.Member{
				Unreachable: s.Seen == tier.StateUnreachable, Since: s.Since, Excluded: s.Answer.Quiesced,
			})
		}
	}
	b.horizon.Publish(rows)
	return members
}

// rowOf leaves out what moves by itself: ages.
func rowOf(t tier.Status) horizon.Row {
	row := horizon.Row{
		Name: t.Name, Serving: t.Answer.Admit, Quiesced: t.Answer.Quiesced,
		Servers: len(t.Servers), Reason: t.Answer.Reason, Generation: t.Answer.Generation.String(),
	}
	closed := 0
	for _, s := range t.Servers {
		switch {
		case s.Answer.Admit:
			row.Ready++
		case s.Answer.Quiesced:
			closed++
		}
	}
	// Servers that were quiesced one by one are a tier that is closed on purpose,
	// where the others all serve.
	row.Quiesced = row.Quiesced || !row.Serving && closed > 0 && row.Ready+closed == row.Servers
	return row
}
