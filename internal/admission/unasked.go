package admission

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
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
	Drained bool         `json:"drained,omitempty"`
	State   UnaskedState `json:"state"`
}

// UnaskedState is how far that has come. What is sent is written before, since its answer
// may be lost.
type UnaskedState string

// The states.
const (
	UnaskedClosing UnaskedState = "closing" // the command is on its way
	UnaskedClosed  UnaskedState = "closed"
	UnaskedOpening UnaskedState = "opening" // likewise
	// UnaskedOverruled: somebody has opened it again. It is theirs from then on.
	UnaskedOverruled UnaskedState = "overruled"
)

var unaskedStates = []UnaskedState{UnaskedClosing, UnaskedClosed, UnaskedOpening, UnaskedOverruled}

func (u Unasked) key() string { return unaskedKey(place{u.HAProxy, u.Server}) }

// HAProxy's names have no blank.
func unaskedKey(at place) string { return at.instance + " " + at.server }

func (u Unasked) check() error {
	switch {
	case u.HAProxy == "" || u.Server == "":
		return errors.New("a record names no haproxy or no server")
	case !slices.Contains(unaskedStates, u.State):
		return fmt.Errorf("server %q: state %.40q is none of %v", u.Server, u.State, unaskedStates)
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
				u.again(ctx, spec, was, a, shown)
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
	now := Unasked{HAProxy: u.at.instance, Server: u.at.server, PID: u.at.pid, Started: u.at.started, State: UnaskedClosing}
	switch {
	case asking.Agent, asking.Unknown && shown.Agent.Enabled:
	case !shown.Health.Enabled:
		u.put(now)
		u.close(ctx, spec, now)
	case asking.HealthOwn:
		// It would take the server down itself, after fall times inter, and brings it up:
		// there is nothing to remember.
		u.close(ctx, spec, now)
	case asking.Health, asking.Unknown: // the tier's answer is what its check was given to go by
	default:
		now.Drained = true
		u.put(now)
		u.close(ctx, spec, now)
	}
}

// again looks after a server that was closed before.
func (u *unaskedLook) again(ctx context.Context, spec tier.Spec, was Unasked, a tier.Answer, shown observe.Server) {
	takes := shown.Takes()
	switch {
	case was.Drained && a.Quiesced && u.intents.noted(u.at.place), takes && (a.Up || was.State == UnaskedOpening):
		u.forgetUnasked(u.at.place) // a quiesce has made the drain its own, or it is open
	case a.Up:
		was.State = UnaskedOpening
		u.put(was)
		u.open(ctx, spec, was)
	case takes && was.State == UnaskedClosing:
		u.close(ctx, spec, was)
	case takes && was.State == UnaskedClosed:
		was.State = UnaskedOverruled
		u.put(was)
		u.o.Log.Warn("a server that tier-agent had closed was opened by somebody else, and stays so", "haproxy", u.at.instance, "server", u.at.server)
	case !takes && was.State != UnaskedOverruled:
		was.State = UnaskedClosed
		u.put(was)
	}
}

func (u *unaskedLook) put(r Unasked) { _ = u.o.Unasked.Put(r) } // closeUnasked complains

func (u *unaskedLook) close(ctx context.Context, spec tier.Spec, r Unasked) {
	if u.send(ctx, spec, r, runtimeapi.StateDrain) {
		u.o.Log.Warn("a server was closed: it is not ready, got requests, and its checks do not say so", "haproxy", u.at.instance, "server", u.at.server, "drained", r.Drained)
	}
}

func (u *unaskedLook) open(ctx context.Context, spec tier.Spec, r Unasked) {
	if u.send(ctx, spec, r, runtimeapi.StateReady) {
		u.forgetUnasked(u.at.place)
		u.o.Log.Info("a server that tier-agent had closed is open again: its evidence is ready", "haproxy", u.at.instance, "server", u.at.server)
	}
}

// send reports whether HAProxy has confirmed it.
func (u *unaskedLook) send(ctx context.Context, spec tier.Spec, r Unasked, state runtimeapi.State) bool {
	// Not in the middle of a transition of that server: what it finds and changes is its own.
	leave, ok := u.lane(spec.Name).try(tier.Target{Tier: spec.Name, Server: u.at.server})
	if !ok {
		return false
	}
	defer leave()
	ctx = runtimeapi.ExpectPID(ctx, u.at.pid)
	var err error
	if r.Drained {
		_, err = u.instance.SetState(ctx, u.spec.Backend, u.spec.Name, state)
	} else {
		_, err = u.instance.SetHealth(ctx, u.spec.Backend, u.spec.Name, state == runtimeapi.StateReady)
	}
	u.complain("unasked "+unaskedKey(u.at.place), err, "a server that nothing asks about could not be closed or opened", "haproxy", u.at.instance, "server", u.at.server)
	u.o.Watcher.Wake()
	return err == nil
}

// wasUnasked is the record of a server that was closed so. A reload forgets HAProxy's
// health; a drain it may keep.
func (c *Controller) wasUnasked(at seen, shown observe.Server) (Unasked, bool) {
	u, known := c.o.Unasked.Get(unaskedKey(at.place))
	if !known {
		return u, false
	}
	same := at.process == process{u.PID, u.Started}
	if same || u.Drained && u.State != UnaskedOverruled && shown.Admin&runtimeapi.ForcedDrain != 0 {
		return u, true
	}
	c.forgetUnasked(at.place)
	return u, false
}

func (c *Controller) forgetUnasked(at place) { _ = c.o.Unasked.Drop(unaskedKey(at)) }

// besidesUnasked is an admin state without the drain of a server that nothing asks about:
// that is ours, and no hold.
func (c *Controller) besidesUnasked(at place, admin runtimeapi.AdminState) runtimeapi.AdminState {
	if u, known := c.o.Unasked.Get(unaskedKey(at)); known && u.Drained && u.State != UnaskedOverruled {
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
		case u.State == UnaskedOverruled:
			said += " (somebody has opened it since)"
		case u.Drained && shown.Admin&runtimeapi.ForcedDrain != 0:
			said += " (drained)"
		}
		all = append(all, said)
	}
	return all
}

// unguarded are the places of a readmit's servers that are not among the ready ones, and
// that HAProxy would not ask about: nothing would keep those out.
func (r *run) unguarded(ready map[string]bool) map[place]bool {
	all := map[place]bool{}
	if r.o.Polls == nil || r.o.Watcher == nil {
		return all
	}
	for _, o := range r.o.Watcher.Views() {
		for _, s := range r.servers {
			name := s.FullName()
			asking := r.o.Polls.Asking(o, name, r.spec.Name, time.Now())
			_, there := o.Servers[name]
			if _, held := r.held[place{o.Instance, name}]; there && !held && !ready[name] && !asking.Agent && !asking.Health {
				all[place{o.Instance, name}] = true
			}
		}
	}
	return all
}

// noteWaiting makes the drain of a quiesce one of an unasked server, once the tier is open:
// before, a look would take it for the quiesce's.
func (r *run) noteWaiting() {
	if len(r.waiting) == 0 {
		return
	}
	for _, o := range r.o.Watcher.Views() {
		for at := range r.waiting {
			if at.instance == o.Instance {
				p := processOf(o.Info)
				_ = r.o.Unasked.Put(Unasked{HAProxy: at.instance, Server: at.server, PID: p.pid, Started: p.started, Drained: true, State: UnaskedClosed}) // closeUnasked complains
			}
		}
	}
}

// leftWaiting says, in a message, what was left drained.
func (r *run) leftWaiting() string {
	if len(r.waiting) == 0 {
		return ""
	}
	var all []string
	for at := range r.waiting {
		all = append(all, at.server+" on haproxy "+at.instance)
	}
	slices.Sort(all)
	return "; left drained until ready, since HAProxy's checks do not ask about them: " + strings.Join(all, ", ")
}
