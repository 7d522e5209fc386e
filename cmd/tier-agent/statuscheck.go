package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"tier-agent/internal/admission"
	"tier-agent/internal/httpapi"
	"tier-agent/internal/tier"
)

// checkStatus prints what is wrong, and fails where anything is.
func (a *app) checkStatus(ctx context.Context, name string, timeout time.Duration) error {
	st, err := a.askStatus(ctx, name, timeout)
	if err != nil {
		return err
	}
	lines := red(st, name)
	if len(lines) == 0 {
		return nil
	}
	if a.json {
		err = a.printJSON(map[string][]string{"red": lines})
	} else {
		_, err = io.WriteString(a.out, strings.Join(lines, "\n")+"\n")
	}
	return &exitError{code: exitFailed, err: err}
}

// red says, a line each, what of a status an operator has to mend or to wait for.
func red(st httpapi.Status, name string) (all []string) {
	for _, t := range st.Tiers {
		for _, way := range t.WaysIn {
			all = append(all, t.Name+" is quiesced, and "+stillGetsIn(way))
		}
		for _, s := range shownOf(t, name) {
			for _, way := range s.WaysIn {
				all = append(all, s.Name+" is quiesced, and "+stillGetsIn(way))
			}
			for _, instance := range slices.Sorted(maps.Keys(s.HAProxy)) {
				if s.HAProxy[instance] == "no such server" {
					all = append(all, fmt.Sprintf("haproxy %s has no server %s", instance, s.Name))
				}
			}
			for _, instance := range slices.Sorted(maps.Keys(s.Shown)) {
				if shown := s.Shown[instance]; exposed(t, s, shown) || keptDown(t, s, shown) || shown.Follows {
					all = append(all, fmt.Sprintf("%s on haproxy %s %s", s.Name, instance, unlike(t, s, shown, true)))
				}
			}
		}
	}
	if asksStrangely(st.Gate) && name == "" {
		all = append(all, "gate: "+strange(st.Gate))
	}
	for _, h := range st.HAProxy {
		if !h.Readable {
			all = append(all, unreadable(h))
		}
		if h.StateFile != "" {
			all = append(all, "haproxy "+h.Instance+": its "+stateFile(h))
		}
	}
	for _, i := range st.Intents {
		if i.Unwritten {
			all = append(all, noted(i))
		}
		for _, drift := range i.Drift {
			all = append(all, notClosed(whose(i), drift))
		}
	}
	return all
}

// told reports whether HAProxy's checks are told that the server is up.
func told(t httpapi.TierStatus, s httpapi.ServerStatus) bool { return (s.Ready || s.Up) && !t.Quiesced }

// exposed reports whether HAProxy sends requests to a server that should get none.
func exposed(t httpapi.TierStatus, s httpapi.ServerStatus, shown httpapi.ShownStatus) bool {
	return shown.Takes && !told(t, s) && !gateRefuses(t, shown)
}

// gateRefuses reports whether the gate keeps requests out of all of a tier. It does not
// know which server a request will get, so that in a tier which is admitted it keeps none
// out of a server that is not ready.
func gateRefuses(t httpapi.TierStatus, shown httpapi.ShownStatus) bool {
	return shown.Gated && !t.Ready && t.Reason != tier.ReasonDown
}

// keptDown reports whether HAProxy's checks have a server down that tier-agent says is up.
func keptDown(t httpapi.TierStatus, s httpapi.ServerStatus, shown httpapi.ShownStatus) bool {
	return told(t, s) && shown.Heard != ""
}

// whose names the target of an intent.
func whose(i httpapi.IntentStatus) string { return cmp.Or(i.Server, i.Tier) }

// asksStrangely reports whether the gate was asked lately about a tier that there is not.
func asksStrangely(g *httpapi.GateStatus) bool {
	return g != nil && g.StrangeMS != nil && *g.StrangeMS < time.Minute.Milliseconds()
}

// The lines below stand in status and in status --check.

func strange(g *httpapi.GateStatus) string {
	return "asked " + age(g.StrangeMS) + " ago about a tier that is not configured, and refused that (unknown_tier): compare the names that haproxy.cfg gives it with those of the tiers"
}

func stillGetsIn(way admission.WayIn) string { return "requests still get in: " + way.Message }

func noted(i httpapi.IntentStatus) string { return whose(i) + ": " + i.Note }

func notClosed(name, drift string) string { return name + " is not closed everywhere: " + drift }

func stateFile(h httpapi.HAProxyStatus) string { return "server-state file is " + h.StateFile }

func unreadable(h httpapi.HAProxyStatus) string {
	line := about(h.Instance, cmp.Or(h.Detail, h.Error))
	if h.PID != 0 {
		line += fmt.Sprintf("; last read %v ago", time.Duration(h.AgeMS)*time.Millisecond)
	}
	return line
}
