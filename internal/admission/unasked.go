package admission

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"tier-agent/internal/durable"
	"tier-agent/internal/observe"
	"tier-agent/internal/runtimeapi"
	"tier-agent/internal/tier"
)

// Unasked is a server that was closed in one process of HAProxy, since nothing there asks
// tier-agent about it.
type Unasked struct {
	HAProxy string `json:"haproxy"`
	Server  string `json:"server"`  // "backend/server"
	PID     int    `json:"pid"`     // HAProxy's
	Started int64  `json:"started"` // in seconds since 1970; 0 where HAProxy does not say
	// Drained: by its admin state; otherwise by its health.
	Drained bool `json:"drained,omitempty"`
	// Overruled: somebody has opened it again. It is theirs from then on.
	Overruled bool `json:"overruled,omitempty"`
}

func (u Unasked) key() string { return unaskedKey(place{u.HAProxy, u.Server}) }

// HAProxy's names have no blank.
func unaskedKey(at place) string { return at.instance + " " + at.server }

func (u Unasked) check() error {
	if u.HAProxy == "" || u.Server == "" {
		return errors.New("a record names no haproxy or no server")
	}
	return nil
}

// UnaskedServers is the file of the servers that were closed so. With an error, which names
// the file, it is of use all the same, and empty: what it had named stays closed.
func UnaskedServers(stateDir string) (*durable.Table[Unasked], error) {
	path := filepath.Join(stateDir, "unasked.json")
	table, err := durable.OpenTable(path, "servers", Unasked.key, Unasked.check)
	if err != nil {
		err = fmt.Errorf("%s: %w: open the servers by hand that status shows closed", path, err)
	}
	return table, err
}

// closeUnasked closes, in one HAProxy, a server that gets requests although its evidence
// says no, and whose checks there do not ask tier-agent: they were disabled by a command,
// ask somebody else, or the server was added without any. It opens the server again on
// evidence. It does so only where HAProxy is meant to ask about the tier.
//
// Where no check of something else runs it uses HAProxy's health, so that the admin state
// stays the operator's. Otherwise that check would bring the server up again, and it is
// drained.
func (c *Controller) closeUnasked(ctx context.Context, i *runtimeapi.Instance, o observe.View) {
	if c.o.Polls == nil {
		return
	}
	now := time.Now()
	for _, spec := range c.o.Model.Specs() {
		if spec.AgentWords {
			continue
		}
		wired := c.o.Polls.Wired(o, append(fullNames(spec.Servers), spec.Name), now)
		for _, s := range spec.Servers {
			u := unaskedLook{Controller: c, instance: i, spec: s, at: seen{place: place{o.Instance, s.FullName()}, process: processOf(o.Info)}}
			a, known := c.o.Model.Server([]byte(u.at.server))
			shown, there := o.Servers[u.at.server]
			if !known || !there {
				continue
			}
			if was, ours := c.wasUnasked(u.at, shown); ours {
				u.again(ctx, was, a, shown)
			} else if wired && shown.Takes() && !a.Up && !a.Quiesced {
				u.first(ctx, spec, c.o.Polls.Asking(o, u.at.server, spec.Name, now), shown)
			}
		}
	}
	c.complain("unasked", c.o.Unasked.Flush(), "which servers were closed, since nothing asks about them, cannot be written")
}

// unaskedLook is one look at one server on one HAProxy.
type unaskedLook struct {
	*Controller
	instance *runtimeapi.Instance
	spec     tier.ServerSpec
	at       seen
}

// first closes a server that is not ready and gets requests, unless its agent-check asks:
// that closes it by itself.
func (u *unaskedLook) first(ctx context.Context, spec tier.Spec, asking observe.Asking, shown observe.Server) {
	switch {
	case asking.Agent, asking.Unknown && shown.Agent.Enabled:
	case !shown.Health.Enabled:
		u.health(ctx, false, true)
	case asking.Health:
		// It would take the server down itself, after fall times inter, and brings it up.
		u.health(ctx, false, false)
	case asking.Unknown:
	default:
		u.drain(ctx, spec.Name, true)
	}
}

// again looks after a server that was closed before.
func (u *unaskedLook) again(ctx context.Context, was Unasked, a tier.Answer, shown observe.Server) {
	switch {
	case was.Drained && a.Quiesced, a.Up && shown.Takes():
		u.forgetUnasked(u.at.place) // a quiesce has made the drain its own, or it is open
	case a.Up && was.Drained:
		u.drain(ctx, was.Server, false)
	case a.Up:
		u.health(ctx, true, false)
	case !was.Overruled && shown.Takes():
		was.Overruled = true
		_ = u.o.Unasked.Put(was) // complained about by closeUnasked
		u.o.Log.Warn("a server that tier-agent had closed was opened by somebody else, and stays so", "haproxy", u.at.instance, "server", u.at.server)
	}
}

func (u *unaskedLook) health(ctx context.Context, good, noted bool) {
	change, err := u.instance.SetHealth(runtimeapi.ExpectPID(ctx, u.at.pid), u.spec.Backend, u.spec.Name, good)
	u.ended(change, err, good, Unasked{}, noted)
}

func (u *unaskedLook) drain(ctx context.Context, tierName string, closing bool) {
	// Not in the middle of a transition of that server: what it finds and changes is its own.
	leave, ok := u.lane(tierName).try(tier.Target{Tier: tierName, Server: u.at.server})
	if !ok {
		return
	}
	defer leave()
	want := runtimeapi.StateReady
	if closing {
		want = runtimeapi.StateDrain
	}
	change, err := u.instance.SetState(runtimeapi.ExpectPID(ctx, u.at.pid), u.spec.Backend, u.spec.Name, want)
	u.ended(change, err, !closing, Unasked{Drained: true}, closing)
}

func (u *unaskedLook) ended(change runtimeapi.Change, err error, opened bool, how Unasked, noted bool) {
	u.complain("unasked "+unaskedKey(u.at.place), err, "a server that nothing asks about could not be closed or opened", "haproxy", u.at.instance, "server", u.at.server)
	if err != nil {
		return
	}
	attrs := []any{"haproxy", u.at.instance, "server", u.at.server, "pid", change.Info.PID}
	if opened {
		u.forgetUnasked(u.at.place)
		u.o.Log.Info("a server that tier-agent had closed is open again: its evidence is ready", attrs...)
	} else {
		if noted {
			how.HAProxy, how.Server, how.PID, how.Started = u.at.instance, u.at.server, u.at.pid, u.at.started
			_ = u.o.Unasked.Put(how) // complained about by closeUnasked
		}
		u.o.Log.Warn("a server was closed: it is not ready, got requests, and its checks do not say so", append(attrs, "drained", how.Drained)...)
	}
	u.o.Watcher.Wake()
}

// wasUnasked is the record of a server that was closed so. A reload forgets HAProxy's
// health; a drain it may keep.
func (c *Controller) wasUnasked(at seen, shown observe.Server) (Unasked, bool) {
	u, known := c.o.Unasked.Get(unaskedKey(at.place))
	if !known {
		return u, false
	}
	same := at.process == process{u.PID, u.Started}
	if same || u.Drained && !u.Overruled && shown.Admin&runtimeapi.ForcedDrain != 0 {
		return u, true
	}
	c.forgetUnasked(at.place)
	return u, false
}

func (c *Controller) forgetUnasked(at place) { _ = c.o.Unasked.Drop(unaskedKey(at)) }

// besidesUnasked is an admin state without the drain of a server that nothing asks about:
// that is ours, and no hold.
func (c *Controller) besidesUnasked(at place, admin runtimeapi.AdminState) runtimeapi.AdminState {
	if u, known := c.o.Unasked.Get(unaskedKey(at)); known && u.Drained && !u.Overruled {
		return admin &^ runtimeapi.ForcedDrain
	}
	return admin
}

// Unasked are the servers of a view that tier-agent has closed so, in words.
func (c *Controller) Unasked(o observe.View) []string {
	var all []string
	for _, u := range c.o.Unasked.All() {
		shown, there := o.Servers[u.Server]
		if u.HAProxy != o.Instance || !there || !u.Drained && processOf(o.Info) != (process{u.PID, u.Started}) {
			continue
		}
		said := u.Server
		switch {
		case u.Overruled:
			said += " (somebody has opened it since)"
		case u.Drained && shown.Admin&runtimeapi.ForcedDrain != 0:
			said += " (drained)"
		}
		all = append(all, said)
	}
	return all
}
