package main

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"tier-agent/internal/httpapi"
)

// printWiring says in one line what protects a tier in HAProxy, and of the named servers
// which HAProxy treats otherwise than it is told.
func printWiring(out io.Writer, t httpapi.TierStatus, named []httpapi.ServerStatus, instances []httpapi.HAProxyStatus) {
	old := func(s httpapi.ServerStatus) bool { return s.Asked == nil } // the daemon is an older one
	if len(t.Servers) == 0 || len(instances) == 0 || slices.ContainsFunc(t.Servers, old) {
		return
	}
	wired := t.GateAskedMS != nil || slices.ContainsFunc(t.Servers, func(s httpapi.ServerStatus) bool { return s.Asked.AgentCheckMS != nil || s.Asked.HealthCheckMS != nil })
	if wired {
		fmt.Fprintf(out, "%s in HAProxy: %s\n", t.Name, strings.Join(protections(t, instances), ", "))
	} else {
		fmt.Fprintf(out, "%s in HAProxy: it does not ask tier-agent; only quiesce and readmit change what it sends there\n", t.Name)
	}
	for _, name := range t.Unlisted {
		fmt.Fprintf(out, "  %s gets requests, and no tier lists it\n", name)
	}
	for _, s := range named {
		for _, instance := range slices.Sorted(maps.Keys(s.Shown)) {
			if said := unlike(t, s, s.Shown[instance], wired); said != "" {
				fmt.Fprintf(out, "  %s on haproxy %s %s\n", s.Name, instance, said)
			}
		}
	}
}

// protections are what HAProxy has of them.
func protections(t httpapi.TierStatus, instances []httpapi.HAProxyStatus) []string {
	gate := "gate not asked yet"
	if t.GateAskedMS != nil {
		gate = "gate asked " + age(t.GateAskedMS) + " ago"
	}
	return []string{
		asking("agent-check", t.Servers, func(a *httpapi.AskedStatus) *int64 { return a.AgentCheckMS }),
		asking("health check", t.Servers, func(a *httpapi.AskedStatus) *int64 { return a.HealthCheckMS }),
		gate,
		having("state file", instances, func(h httpapi.HAProxyStatus) bool { return h.KeepsStateFile }),
		having("old workers seen", instances, func(h httpapi.HAProxyStatus) bool { return h.SeesOldWorkers }),
	}
}

// asking says how many of the servers a check asks about, and how long ago it last did.
func asking(check string, servers []httpapi.ServerStatus, of func(*httpapi.AskedStatus) *int64) string {
	n, latest := 0, (*int64)(nil)
	for _, s := range servers {
		if of(s.Asked) == nil {
			continue
		}
		n++
		if latest == nil || *of(s.Asked) < *latest {
			latest = of(s.Asked)
		}
	}
	switch n {
	case 0:
		return "no " + check
	case len(servers):
		return fmt.Sprintf("%s asked %s ago", check, age(latest))
	}
	return fmt.Sprintf("%s asked %s ago about %d of %d servers", check, age(latest), n, len(servers))
}

// having says which instances have something: all of them, none, or by name.
func having(what string, instances []httpapi.HAProxyStatus, has func(httpapi.HAProxyStatus) bool) string {
	var names []string
	for _, h := range instances {
		if has(h) {
			names = append(names, h.Instance)
		}
	}
	switch len(names) {
	case 0:
		return "no " + what
	case len(instances):
		return what
	}
	return what + " on " + strings.Join(names, ", ")
}

// unlike says where HAProxy does not do what it is told about a server, or is not asking.
func unlike(t httpapi.TierStatus, s httpapi.ServerStatus, shown httpapi.ShownStatus, wired bool) string {
	told := told(t, s)
	checks := fmt.Sprintf("agent-check %s, health check %s there", shown.AgentCheck, shown.HealthCheck)
	switch {
	case shown.Takes && !told && gateRefuses(t, shown):
		return "is " + shown.State + " and should not be (" + s.Reason + "): only the gate keeps requests out; " + checks
	case exposed(t, s, shown):
		return "GETS REQUESTS and should not (" + s.Reason + "); " + checks
	case shown.Follows:
		return "has an agent-check that does not ask about it (agent-send): what is told of another server takes it down, too"
	case wired && shown.Takes && !shown.Asks && !shown.Gated:
		return "does not ask tier-agent, and would go on getting requests if it were not ready; " + checks
	case s.WeightByHand && shown.Weight > 0:
		return fmt.Sprintf("has weight %d, which somebody set there; it is left alone until that is undone", shown.Weight)
	case keptDown(t, s, shown):
		return "is down and should be up: " + shown.Heard
	case told && shown.State == "weight 0":
		return "has weight 0 and gets no requests"
	}
	return ""
}
