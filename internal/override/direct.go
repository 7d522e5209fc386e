package override

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
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

// ErrOverruled: the checks of a server are disabled, and it is up. What was there before that
// cannot be given back.
var ErrOverruled = errors.New("is up with its checks disabled: another override --direct runs, or was killed")

// Direct makes HAProxies send requests to servers although their checks, which ask a
// tier-agent that is gone, say down. It needs nothing but the Runtime API, and lasts no
// longer than its Run.
type Direct struct {
	HAProxy []*runtimeapi.Instance
	Servers []string // "backend/server"
	For     time.Duration
	Say     func(text string) // told what is done, and what cannot be; one call at a time
}

// haproxy is one of them, with the servers that are to be opened there.
type haproxy struct {
	*runtimeapi.Instance
	say    func(string)
	places []*place
	failed string // what was wrong with it at the last look
}

// place is one server of one HAProxy, as it was found.
type place struct {
	found  runtimeapi.ServerState
	opened bool   // has been, once
	failed string // what was wrong with it at the last look
}

// Run opens the servers, keeps them open until the time is over or ctx ends, and gives
// them back as they were found, whatever has become of ctx. With an error at the start
// nothing has changed; one at the end says what is left, and how to mend it.
func (d Direct) Run(ctx context.Context) error {
	all, err := d.find(ctx)
	if err != nil {
		return err
	}
	began := time.Now()
	d.Say("while this runs, HAProxy sends requests to these servers whatever tier-agent or an engine says; if this is killed, say to each HAProxy: " + undo(all))
	for ctx.Err() == nil {
		// The clock that says more counts: one stands still in a machine that is
		// suspended, the other may be set back.
		age, ok := fence.Age(began, time.Now())
		if !ok || age >= d.For {
			break
		}
		_ = each(all, func(h *haproxy) error { h.keep(ctx); return nil })
		wait := time.NewTimer(max(min(lookEvery, d.For-age), time.Millisecond))
		select {
		case <-wait.C:
		case <-ctx.Done():
			wait.Stop()
		}
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), reinstateIn)
	defer cancel()
	return each(all, func(h *haproxy) error { return h.giveBack(ctx) })
}

// each does something at all HAProxies at once: one that hangs delays no other.
func each(all []*haproxy, do func(*haproxy) error) error {
	failed := make([]error, len(all))
	var wg sync.WaitGroup
	for n, h := range all {
		wg.Go(func() { failed[n] = do(h) })
	}
	wg.Wait()
	return errors.Join(failed...)
}

// find looks at every server everywhere, and refuses all where one may not be opened.
func (d Direct) find(ctx context.Context) (all []*haproxy, err error) {
	var mu sync.Mutex
	say := func(text string) {
		mu.Lock()
		defer mu.Unlock()
		d.Say(text)
	}
	for _, i := range d.HAProxy {
		all = append(all, &haproxy{Instance: i, say: say})
	}
	return all, each(all, func(h *haproxy) error { return h.find(ctx, d.Servers) })
}

func (h *haproxy) find(ctx context.Context, servers []string) error {
	shown, err := h.Servers(ctx, "")
	if err != nil {
		return fmt.Errorf("%w; leave it out if it is gone", err)
	}
	var problems []error
	for _, name := range servers {
		backend, server, _ := strings.Cut(name, "/")
		row, known := shown.Find(backend, server)
		switch {
		case !known:
			problems = append(problems, fmt.Errorf("haproxy %s has no server %s", h.Name(), name))
		case row.Admin&runtimeapi.DNSMaint != 0:
			problems = append(problems, fmt.Errorf("%s on haproxy %s has no address: its name does not resolve", name, h.Name()))
		case !row.Admin.Open():
			problems = append(problems, fmt.Errorf("%s on haproxy %s is %s, %w; if it is to serve all the same, say there: set server %s state ready", name, h.Name(), row.Admin, ErrClosed, name))
		}
		if known && row.HasCheck() && row.Overruled() {
			problems = append(problems, fmt.Errorf("%s on haproxy %s %w; if it is none, say there: enable health %s; enable agent %s", name, h.Name(), ErrOverruled, name, name))
		}
		h.places = append(h.places, &place{found: row})
	}
	return errors.Join(problems...)
}

// keep makes servers take requests where they do not. One that somebody drains or puts in
// maintenance meanwhile stays closed: its admin state is not touched.
func (h *haproxy) keep(ctx context.Context) {
	all, err := h.Servers(ctx, "")
	if ctx.Err() != nil {
		return
	}
	text := ""
	if err != nil {
		text = err.Error()
	}
	h.sayNew(&h.failed, text)
	if err != nil {
		return
	}
	for _, p := range h.places {
		text := h.keepOpen(ctx, p, all)
		if ctx.Err() != nil {
			return
		}
		h.sayNew(&p.failed, text)
	}
}

// keepOpen returns what is wrong, if anything.
func (h *haproxy) keepOpen(ctx context.Context, p *place, all runtimeapi.ServersState) string {
	name := p.found.Name()
	shown, known := all.Find(p.found.Backend, p.found.Server)
	if !known {
		return fmt.Sprintf("haproxy %s has no server %s any more", h.Name(), name)
	}
	if !shown.Admin.Open() {
		return fmt.Sprintf("%s on haproxy %s is %s meanwhile, and stays so", name, h.Name(), shown.Admin)
	}
	if !shown.Overruled() || !p.opened {
		if err := h.Overrule(ctx, shown); err != nil {
			return err.Error()
		}
		h.say(fmt.Sprintf("%s on haproxy %s: %s, now open", name, h.Name(), was(shown)))
		p.opened = true
	}
	if shown.Weight == 0 {
		return fmt.Sprintf("%s on haproxy %s has weight 0 and gets no requests; say there: set server %s weight 100%%", name, h.Name(), name)
	}
	return ""
}

func (h *haproxy) sayNew(last *string, text string) {
	if text != "" && text != *last {
		h.say(text)
	}
	*last = text
}

func was(s runtimeapi.ServerState) string {
	if s.Operational == runtimeapi.OpRunning {
		return "up with its checks"
	}
	return "down by its checks"
}

// giveBack reinstates every server, trying again where HAProxy does not answer.
func (h *haproxy) giveBack(ctx context.Context) error {
	for {
		var left []*place
		var failed error
		for _, p := range h.places {
			switch gone, err := h.reinstate(ctx, p); {
			case err != nil:
				left, failed = append(left, p), errors.Join(failed, err)
			case gone:
				h.say(fmt.Sprintf("haproxy %s has no server %s any more", h.Name(), p.found.Name()))
			default:
				h.say(fmt.Sprintf("%s on haproxy %s is its checks' again, %s", p.found.Name(), h.Name(), was(p.found)))
			}
		}
		if h.places = left; len(left) == 0 {
			return nil
		}
		select {
		case <-time.After(lookEvery / 2):
		case <-ctx.Done():
			return fmt.Errorf("not given back: %w; say to haproxy %s: %s", failed, h.Name(), undo([]*haproxy{h}))
		}
	}
}

// reinstate reads back that the checks run again which did; what they make of the server
// is then theirs. A server that a reload has taken away is gone, and there is nothing to give
// back.
func (h *haproxy) reinstate(ctx context.Context, p *place) (gone bool, err error) {
	all, err := h.Servers(ctx, "")
	if err != nil {
		return false, err
	}
	if _, known := all.Find(p.found.Backend, p.found.Server); !known {
		return true, nil
	}
	if err := h.Reinstate(ctx, p.found); err != nil {
		return false, err
	}
	if all, err = h.Servers(ctx, p.found.Backend); err != nil {
		return false, err
	}
	if now, _ := all.Find(p.found.Backend, p.found.Server); now.Health() != p.found.Health() || now.Agent() != p.found.Agent() {
		return false, fmt.Errorf("haproxy %s: %w: the checks of %s", h.Name(), runtimeapi.ErrNotApplied, p.found.Name())
	}
	return false, nil
}

// undo are the commands that give the servers back.
func undo(all []*haproxy) string {
	var commands []string
	for _, h := range all {
		for _, p := range h.places {
			for _, command := range p.found.Reinstating() {
				if !slices.Contains(commands, command) {
					commands = append(commands, command)
				}
			}
		}
	}
	return strings.Join(commands, "; ")
}
