package admission

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"tier-agent/internal/runtimeapi"
)

// holds looks for what somebody else has closed in HAProxy (G10), before the
// quiesce or since. It refuses, unless the operator says what to do about it:
// take it, or keep it and open the rest.
func (r *run) holds(ctx context.Context, q ReadmitRequest) *Result {
	results, err := r.everywhere(ctx, nil)
	if ctx.Err() != nil {
		return keep(r.stopped(ctx, q.Target.String()+" stays quiesced"))
	}
	if err != nil {
		return keep(r.refuse(CodeHAProxy, "%s stays quiesced: %v%s", q.Target, err, lacking(err)))
	}
	if q.TakeHold {
		return nil
	}
	found := r.intents.found(q.Target)
	r.held = map[place]runtimeapi.AdminState{}
	for _, one := range results {
		for _, s := range r.servers {
			at := seen{place: place{one.Instance, s.FullName()}, process: one.Value.process}
			at.admin = r.besidesUnasked(at.place, one.Value.states[s.FullName()])
			if found.held(at) && !r.newcomer(at, s) {
				r.held[at.place] = at.admin
			}
		}
	}
	switch {
	case len(r.held) == 0:
		return nil
	case !q.KeepHold:
		return keep(r.refuse(CodeHeld, "%s stays quiesced: somebody else holds it in HAProxy (%s); end that there, or say --take-hold to open that too, or --keep-hold to open the rest", q.Target, strings.Join(r.heldNames(), "; ")))
	case len(r.heldEverywhere()) == len(r.servers):
		return keep(r.refuse(CodeHeld, "%s stays quiesced: somebody else holds all of it in HAProxy (%s), and --keep-hold leaves nothing to open", q.Target, strings.Join(r.heldNames(), "; ")))
	}
	return nil
}

// heldEverywhere are the servers that no HAProxy would open.
func (r *run) heldEverywhere() map[string]bool {
	all := map[string]bool{}
	for _, s := range r.servers {
		if len(r.set.Instances()) > 0 && !slices.ContainsFunc(r.set.Instances(), func(i *runtimeapi.Instance) bool {
			_, held := r.held[place{i.Name(), s.FullName()}]
			return !held
		}) {
			all[s.FullName()] = true
		}
	}
	return all
}

// leftHeld says, in a message, what was left as somebody else had it.
func (r *run) leftHeld() string {
	if len(r.held) == 0 {
		return ""
	}
	return "; left as they were found: " + strings.Join(r.heldNames(), "; ")
}

func (r *run) heldNames() []string {
	var all []string
	for at := range r.held {
		all = append(all, closedAt(at, r.held[at]))
	}
	slices.Sort(all)
	return all
}

// closedAt says, in a message, how a server is closed and where.
func closedAt(at place, admin runtimeapi.AdminState) string {
	return fmt.Sprintf("%s is %s on haproxy %s", at.server, admin, at.instance)
}
