package main

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"tier-agent/internal/config"
	"tier-agent/internal/runtimeapi"
	"tier-agent/internal/similar"
)

// liveRemarks asks every HAProxy of the configuration for its servers, and its master
// for its workers. Nothing is changed there.
func liveRemarks(ctx context.Context, cfg *config.Config) (remarks config.Problems) {
	for n, seen := range runtimeapi.Each(ctx, instances(cfg), func(ctx context.Context, i *runtimeapi.Instance) (live, error) {
		state, err := i.Servers(ctx, "")
		one := live{servers: map[string]bool{}}
		for _, s := range state.Servers {
			one.servers[s.Name()] = true
		}
		if err == nil {
			one.level, err = i.Level(ctx)
		}
		if i.HasMaster() {
			_, one.master = i.Workers(ctx)
		}
		return one, err
	}) {
		at := fmt.Sprintf("haproxy[%d].", n)
		if seen.Value.master != nil {
			remarks = append(remarks, cfg.Remark(at+"master", seen.Value.master.Error(), "see that the path is that of -S, and that this user may open it"))
		}
		if seen.Err != nil {
			remarks = append(remarks, cfg.Remark(at+"runtime", seen.Err.Error(), `see that the path is that of "stats socket ... level admin", and that this user may open it`))
			continue
		}
		if seen.Value.level != "admin" {
			remarks = append(remarks, cfg.Remark(at+"runtime", fmt.Sprintf("the socket of haproxy %s has level %.20q, which may change nothing", seen.Instance, seen.Value.level), `give it "stats socket ... level admin"`))
		}
		absent := missing(cfg, seen.Value.servers)
		for k, text := range named(absent, seen.Value.servers) {
			remarks = append(remarks, cfg.Remark(absent[k].path, "haproxy "+seen.Instance+" has "+text, "name it as in haproxy.cfg, or reload that HAProxy"))
		}
		if more := len(absent) - problemsLogged; more > 0 {
			remarks = append(remarks, cfg.Remark("tiers", fmt.Sprintf("haproxy %s does not have %d more servers", seen.Instance, more), "see to those above first"))
		}
	}
	return remarks
}

// live is what was seen of one HAProxy.
type live struct {
	servers map[string]bool // every "backend/server"
	master  error
	level   string // what the socket may do
}

// absentee is what the configuration names at path, and a HAProxy does not have: a
// server, or all servers of a backend.
type absentee struct{ path, name string }

// missing compares the configuration with all the servers of one HAProxy. A tier without
// a Runtime API is not driven there.
func missing[V any](cfg *config.Config, servers map[string]V) (all []absentee) {
	backends := backendsOf(servers)
	for i, t := range cfg.Tiers {
		if t.Admission != config.AdmissionRuntime {
			continue
		}
		for j, s := range t.Servers {
			if _, there := servers[s.FullName()]; !there {
				all = append(all, absentee{fmt.Sprintf("tiers[%d].servers[%d].server", i, j), s.FullName()})
			}
		}
		if t.Members != nil && !backends[t.Members.Backend] {
			all = append(all, absentee{fmt.Sprintf("tiers[%d].members.backend", i), t.Members.Backend})
		}
	}
	return all
}

// named says what each of the first of them is, with what was probably meant.
func named[V any](all []absentee, servers map[string]V) (texts []string) {
	known, backends := slices.Sorted(maps.Keys(servers)), slices.Sorted(maps.Keys(backendsOf(servers)))
	for _, one := range all[:min(len(all), problemsLogged)] {
		if strings.Contains(one.name, "/") {
			texts = append(texts, "no server "+one.name+similar.Hint(one.name, known))
		} else {
			texts = append(texts, "no server in backend "+one.name+similar.Hint(one.name, backends))
		}
	}
	return texts
}

func backendsOf[V any](servers map[string]V) map[string]bool {
	all := map[string]bool{}
	for name := range servers {
		backend, _, _ := strings.Cut(name, "/")
		all[backend] = true
	}
	return all
}
