package main

import (
	"context"
	"errors"
	"maps"
	"net/netip"
	"slices"

	"tier-agent/internal/admission"
	"tier-agent/internal/config"
	"tier-agent/internal/members"
	"tier-agent/internal/observe"
)

// shown gives the members of the tiers that have some, as the HAProxies last showed
// them. One that cannot be read keeps what it showed last. A slot without a host is none.
func shown(cfg *config.Config, observed []observe.View, before map[string]members.Found) map[string]members.Found {
	var wants []members.Want
	for _, t := range cfg.Tiers {
		if t.Members != nil {
			wants = append(wants, members.Want{Tier: t.Name, Backend: t.Members.Backend, Max: t.Members.Max})
		}
	}
	if wants == nil {
		return nil
	}
	all := make([]map[string]netip.AddrPort, len(observed))
	for n, o := range observed {
		all[n] = o.Addresses()
	}
	return members.Of(wants, all, before, config.MaxMembersInAll)
}

// meet is the first Discover. A HAProxy that cannot be read shows its members later.
func (r *reloader) meet(ctx context.Context) {
	if !slices.ContainsFunc(r.cfg.Tiers, func(t config.Tier) bool { return t.Members != nil }) {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, max(r.cfg.StartBudget, config.DefaultStartBudget))
	defer cancel()
	r.watcher.Look(ctx)
	r.Discover(ctx)
}

// Discover makes the members what HAProxy shows. Tier by tier: a transition that is
// under way puts its own tier off until the next look, and no other.
func (r *reloader) Discover(ctx context.Context) {
	r.mu.Lock()
	defer r.mu.Unlock()
	found := shown(r.cfg, r.watcher.Views(), r.found)
	changed := false
	for _, t := range r.cfg.Tiers {
		was, is := r.found[t.Name], found[t.Name]
		if t.Members == nil || was.Equal(is) {
			continue
		}
		next := maps.Clone(r.found)
		if next == nil {
			next = map[string]members.Found{}
		}
		next[t.Name] = is
		switch _, err := r.controller.Replace(specs(r.cfg, next)); {
		case errors.Is(err, admission.ErrTierBusy):
			r.log.Debug("the members of a tier have changed while a transition of it is under way; they are taken over when that has ended", "tier", t.Name)
			continue
		case err != nil: // nothing that HAProxy can show
			r.log.Error("the members of a tier could not be taken over", "tier", t.Name, "error", err)
			continue
		}
		r.found, changed = next, true
		r.log.Info("the members of a tier have changed", "tier", t.Name, "members", len(is.Members), "were", len(was.Members))
		if is.LeftOut > was.LeftOut {
			r.log.Warn("a backend has more servers than its tier may have members", "tier", t.Name, "left_out", is.LeftOut, "max", t.Members.Max)
		}
	}
	if changed {
		r.follow()
	}
}
