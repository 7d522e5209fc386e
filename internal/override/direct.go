package override

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"tier-agent/internal/fence"
	"tier-agent/internal/runtimeapi"
)

const (
	// lookEvery is how often a Direct looks whether HAProxy still sends there.
	lookEvery = time.Second
	// reinstateIn bounds how long the end of a Direct tries to give the servers back.
	reinstateIn = 15 * time.Second
)

// ErrClosed: HAProxy has a server in drain or maintenance.
var ErrClosed = errors.New("closed by an administrator's command: quiesced by tier-agent, or held by somebody")

// Direct makes HAProxies send requests to servers although their checks, which ask a
// tier-agent that is gone, say down. It needs nothing but the Runtime API, and lasts no
// longer than its Run.
type Direct struct {
	HAProxy []*runtimeapi.Instance
	Servers []string // "backend/server"
	For     time.Duration
	Say     func(text string) // told what is done, and what cannot be
}

// place is one server of one HAProxy, as it was found.
type place struct {
	instance *runtimeapi.Instance
	found    runtimeapi.ServerState
	opened   bool   // has been, once
	failed   string // what was wrong at the last look
}

// Run opens the servers, keeps them open until the time is over or ctx ends, and gives
// them back as they were found, whatever has become of ctx. With an error at the start
// nothing has changed; one at the end says what is left, and how to mend it.
func (d Direct) Run(ctx context.Context) error {
	places, err := d.find(ctx)
	if err != nil {
		return err
	}
	began := time.Now()
	d.Say("while this runs, HAProxy sends requests to these servers whatever tier-agent or an engine says; if this is killed, say to each HAProxy: " + undo(places))
	for ctx.Err() == nil {
		// The clock that says more counts: one stands still in a machine that is
		// suspended, the other may be set back.
		age, ok := fence.Age(began, time.Now())
		if !ok || age >= d.For {
			break
		}
		for _, p := range places {
			d.keep(ctx, p)
		}
		wait := time.NewTimer(max(min(lookEvery, d.For-age), time.Millisecond))
		select {
		case <-wait.C:
		case <-ctx.Done():
			wait.Stop()
		}
	}
	return d.giveBack(context.WithoutCancel(ctx), places)
}

// find looks at every server everywhere, and refuses all where one may not be opened.
func (d Direct) find(ctx context.Context) (places []*place, err error) {
	var problems []error
	for _, i := range d.HAProxy {
		all, err := i.Servers(ctx, "")
		if err != nil {
			problems = append(problems, fmt.Errorf("%w; leave it out if it is gone", err))
			continue
		}
		for _, name := range d.Servers {
			backend, server, _ := strings.Cut(name, "/")
			row, known := all.Find(backend, server)
			switch {
			case !known:
				problems = append(problems, fmt.Errorf("haproxy %s has no server %s", i.Name(), name))
			case row.Admin&runtimeapi.DNSMaint != 0:
				problems = append(problems, fmt.Errorf("%s on haproxy %s has no address: its name does not resolve", name, i.Name()))
			case !row.Admin.Open():
				problems = append(problems, fmt.Errorf("%s on haproxy %s is %s, %w; if it is to serve all the same, say there: set server %s state ready", name, i.Name(), row.Admin, ErrClosed, name))
			}
			places = append(places, &place{instance: i, found: row})
		}
	}
	return places, errors.Join(problems...)
}

// keep makes a server take requests where it does not. One that somebody drains or puts in
// maintenance meanwhile stays closed: its admin state is not touched.
func (d Direct) keep(ctx context.Context, p *place) {
	shown, err := p.look(ctx)
	switch {
	case err == nil && shown.Overruled() && p.opened:
	case err == nil:
		if err = p.instance.Overrule(ctx, shown); err == nil {
			d.Say(fmt.Sprintf("%s on haproxy %s: %s, now open", p.found.Name(), p.instance.Name(), was(shown)))
			p.opened = true
		}
	}
	text := ""
	switch {
	case ctx.Err() != nil:
		return
	case err != nil:
		text = err.Error()
	case !shown.Admin.Open():
		text = fmt.Sprintf("%s on haproxy %s is %s meanwhile, and stays so", p.found.Name(), p.instance.Name(), shown.Admin)
	case shown.Weight == 0:
		text = fmt.Sprintf("%s on haproxy %s has weight 0 and gets no requests; set server %s weight 100%%", p.found.Name(), p.instance.Name(), p.found.Name())
	}
	if text != "" && text != p.failed {
		d.Say(text)
	}
	p.failed = text
}

func was(s runtimeapi.ServerState) string {
	if s.Operational == runtimeapi.OpRunning {
		return "up with its checks"
	}
	return "down by its checks"
}

func (p *place) look(ctx context.Context) (runtimeapi.ServerState, error) {
	all, err := p.instance.Servers(ctx, p.found.Backend)
	if err != nil {
		return runtimeapi.ServerState{}, err
	}
	row, known := all.Find(p.found.Backend, p.found.Server)
	if !known {
		return row, fmt.Errorf("haproxy %s: %w: %s", p.instance.Name(), runtimeapi.ErrNoSuchServer, p.found.Name())
	}
	return row, nil
}

// giveBack reinstates every server, trying again where HAProxy does not answer.
func (d Direct) giveBack(ctx context.Context, places []*place) error {
	ctx, cancel := context.WithTimeout(ctx, reinstateIn)
	defer cancel()
	var failed error
	for ctx.Err() == nil && len(places) > 0 {
		var left []*place
		failed = nil
		for _, p := range places {
			err := p.reinstate(ctx)
			switch {
			case errors.Is(err, runtimeapi.ErrNoSuchServer):
				d.Say(err.Error() + ": there is nothing to give back")
			case err != nil:
				left, failed = append(left, p), errors.Join(failed, err)
			default:
				d.Say(fmt.Sprintf("%s on haproxy %s is its checks' again, %s", p.found.Name(), p.instance.Name(), was(p.found)))
			}
		}
		if places = left; len(left) > 0 {
			select {
			case <-time.After(lookEvery / 2):
			case <-ctx.Done():
			}
		}
	}
	if len(places) > 0 {
		return fmt.Errorf("not given back: %w; say to each of these HAProxies: %s", failed, undo(places))
	}
	return nil
}

// reinstate reads back that the checks run again which did; what they make of the server
// is then theirs.
func (p *place) reinstate(ctx context.Context) error {
	if _, err := p.look(ctx); err != nil {
		return err
	}
	if err := p.instance.Reinstate(ctx, p.found); err != nil {
		return err
	}
	now, err := p.look(ctx)
	if err == nil && (now.Health() != p.found.Health() || now.Agent() != p.found.Agent()) {
		err = fmt.Errorf("haproxy %s: %w: the checks of %s", p.instance.Name(), runtimeapi.ErrNotApplied, p.found.Name())
	}
	return err
}

// undo are the commands that give the servers back.
func undo(places []*place) string {
	var all []string
	said := map[string]bool{}
	for _, p := range places {
		line := strings.Join(p.found.Reinstating(), "; ")
		if !said[line] {
			said[line] = true
			all = append(all, line)
		}
	}
	return strings.Join(all, "; ")
}
