package admission

import (
	"context"
	"errors"
	"fmt"
	"time"

	"tier-agent/internal/runtimeapi"
)

// confirmations is how many looks in a row must show every server up. A check that
// HAProxy had sent before the gate opened brings it down once more.
const confirmations = 2

// confirmWithin bounds a confirmation whose checks get on, but slowly.
const confirmWithin = 15 * time.Minute

// confirm waits until every HAProxy would send the named servers a request, and says what
// it last saw where that does not come.
//
// How long that takes is for HAProxy's checks to say: `inter 10s downinter 5s rise 15` is
// 75 s. It shows no interval, but each check that passes, so the wait goes on as long as
// they get further. An operator's limit is used as it is.
//
// A process that has taken over meanwhile may have come up with the drain of before: it is
// opened too, by opening.
func (r *run) confirm(ctx context.Context, names map[string]bool, limit time.Duration, opening change) error {
	began := time.Now()
	moved, best := began, map[place]int{}
	for up := 0; ; {
		missing, err := r.notUp(ctx, names, best, &moved)
		if errors.Is(err, errReplaced) {
			if _, err := r.everywhere(context.WithoutCancel(ctx), opening); errors.Is(err, errHeld) {
				return err
			}
		}
		if missing == "" {
			if up++; up == confirmations {
				return nil
			}
			missing = "HAProxy has shown them up once only"
		} else {
			up = 0
		}
		if runtimeapi.Lasting(err) {
			return err
		}
		r.waits("HAProxy to have every server up: %s", missing)
		over := time.Until(moved.Add(r.o.Confirm)) // without any check that has got further
		if limit > 0 {
			over = time.Until(began.Add(limit))
		}
		over = min(over, time.Until(began.Add(max(limit, confirmWithin))))
		if over <= 0 {
			return fmt.Errorf("after %v %s", time.Since(began).Round(100*time.Millisecond), missing)
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(min(over, r.o.Poll)):
		}
	}
}

var errReplaced = errors.New("another process has taken over")

// notUp names the first server that some HAProxy does not have up; empty where
// all are. Where another process has taken over from the one that was opened the error is
// errReplaced. It notes how far each has come at best, and when one has come further.
func (r *run) notUp(ctx context.Context, names map[string]bool, best map[place]int, moved *time.Time) (missing string, failed error) {
	note := func(text string) {
		if missing == "" {
			missing = text
		}
	}
	for _, one := range r.loads(ctx) {
		if one.Err != nil {
			failed = also(failed, one.Err)
			note(one.Err.Error())
			continue
		}
		for _, s := range r.servers {
			at := place{one.Instance, s.FullName()}
			if _, held := r.held[at]; held || !names[s.FullName()] {
				continue
			}
			if processOf(one.Value[s.Backend].Info) != r.visited[one.Instance] {
				failed = also(failed, errReplaced)
				note(fmt.Sprintf("haproxy %s: %v", one.Instance, errReplaced))
			}
			load, ok := one.Value[s.Backend].Find(s.Name)
			far := load.CheckHealth + load.AgentHealth
			switch {
			case !ok:
				note(fmt.Sprintf("haproxy %s has no server %s", one.Instance, s.FullName()))
			case load.Up() && load.Weight == 0:
				note(fmt.Sprintf("haproxy %s has %s up with weight 0, and sends it nothing: give its line a weight (100), or set one", one.Instance, s.FullName()))
			case load.Up():
				far = 1 << 30
			default:
				note(fmt.Sprintf("haproxy %s shows %s as %q (check %s, agent %s)",
					one.Instance, s.FullName(), load.Status, load.CheckStatus, load.AgentStatus))
			}
			if was, seen := best[at]; !seen || far > was {
				best[at], *moved = far, time.Now()
			}
		}
	}
	return missing, failed
}
