package main

import (
	"fmt"
	"slices"
	"strings"

	"tier-agent/internal/httpapi"
	"tier-agent/internal/similar"
)

// only leaves of a status what is about one tier, or about one server and its tier, as
// name has it; "" is everything. A name that neither the configuration nor an intent has
// is an error.
func only(st httpapi.Status, name string) (httpapi.Status, error) {
	if name == "" {
		return st, nil
	}
	has := func(t httpapi.TierStatus) bool {
		return t.Name == name || slices.ContainsFunc(t.Servers, func(s httpapi.ServerStatus) bool { return s.Name == name })
	}
	about := func(i httpapi.IntentStatus) bool { return slices.Contains([]string{i.Tier, i.Server}, name) }
	known := names(st)
	st.Tiers = slices.DeleteFunc(slices.Clone(st.Tiers), func(t httpapi.TierStatus) bool { return !has(t) })
	st.Intents = slices.DeleteFunc(slices.Clone(st.Intents), func(i httpapi.IntentStatus) bool { return !about(i) })
	if len(st.Tiers)+len(st.Intents) == 0 {
		return st, fmt.Errorf("there is no tier or server %q%s; tier-agent status lists them", name, similar.Hint(name, known))
	}
	st.HAProxy = slices.Clone(st.HAProxy)
	for n := range st.HAProxy {
		st.HAProxy[n].Holds = slices.DeleteFunc(slices.Clone(st.HAProxy[n].Holds), func(hold string) bool {
			server, _, _ := strings.Cut(hold, " ")
			return !slices.ContainsFunc(st.Tiers, func(t httpapi.TierStatus) bool {
				return slices.ContainsFunc(shownOf(t, name), func(s httpapi.ServerStatus) bool { return s.Name == server })
			})
		})
	}
	return st, nil
}

// names are all that a status can be narrowed to.
func names(st httpapi.Status) (all []string) {
	for _, t := range st.Tiers {
		all = append(all, t.Name)
		for _, s := range t.Servers {
			all = append(all, s.Name)
		}
	}
	for _, i := range st.Intents {
		all = append(all, i.Tier, i.Server)
	}
	return all
}

// shownOf are the servers of a tier that are shown where a status is narrowed to name:
// the one of that name, or all.
func shownOf(t httpapi.TierStatus, name string) []httpapi.ServerStatus {
	if n := slices.IndexFunc(t.Servers, func(s httpapi.ServerStatus) bool { return s.Name == name }); n >= 0 {
		return t.Servers[n : n+1]
	}
	return t.Servers
}
