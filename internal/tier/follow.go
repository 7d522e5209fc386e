package tier

import (
	"context"
	"slices"
	"sync"
	"time"
)

// watcher makes one kind of probe of one server, until it is stopped or the
// monitor ends.
type watcher struct {
	kind
	server *server
	stop   chan struct{} // closed: no further probe begins
	ended  chan struct{} // closed: nor is one out
	early  chan struct{} // of one place: a probe may be wanted before its time
}

// watchers are the monitor's. The zero value takes none: before begin, and after
// wait.
type watchers struct {
	mu      sync.Mutex // protects the rest
	ctx     context.Context
	all     map[string]*watcher   // by the name of the fence's member
	leaving map[string][]*watcher // stopped ones that may have a probe out still
	running sync.WaitGroup
}

func (ws *watchers) begin(ctx context.Context) {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	ws.ctx, ws.all, ws.leaving = ctx, map[string]*watcher{}, map[string][]*watcher{}
}

// wait returns when the last watcher has ended; none begins any more.
func (ws *watchers) wait() {
	ws.mu.Lock()
	ws.ctx = nil
	ws.mu.Unlock()
	ws.running.Wait()
}

// Follow makes Run probe what the model has now: after a Replace. Watchers of
// servers that stay as they are go on as if nothing had been. Those of servers
// that are gone, or that are to be probed in another way, begin no more probes; a
// probe that is out is let end, and what it saw of something that is gone is
// refused by the fence. Only then is the server probed that has taken its place.
//
// The channel is closed once every newcomer has been probed once.
func (m *Monitor) Follow() (firstRound <-chan struct{}) {
	ws := &m.watchers
	ws.mu.Lock()
	defer ws.mu.Unlock()
	done := make(chan struct{})
	if ws.ctx == nil || ws.ctx.Err() != nil {
		close(done)
		return done
	}
	v := m.model.view.Load()
	ws.part(v)
	var first sync.WaitGroup
	newcomers := 0
	for _, t := range v.order {
		for _, s := range t.servers {
			// Spread over at most one interval: later would be a missed probe.
			offset := min(time.Duration(newcomers)*startSpacing, t.spec.Interval)
			added := false
			for _, k := range s.kinds() {
				if ws.all[k.member] != nil {
					continue
				}
				w := &watcher{kind: k, server: s, stop: make(chan struct{}), ended: make(chan struct{}), early: make(chan struct{}, 1)}
				ws.all[k.member] = w
				added = true
				ctx, before := ws.ctx, slices.Clone(ws.leaving[k.member])
				first.Add(1)
				ws.running.Go(func() {
					probed := sync.OnceFunc(first.Done)
					defer close(w.ended)
					defer probed()
					if w.after(ctx, before) {
						m.watch(ctx, w, offset, probed)
					}
				})
			}
			if added {
				newcomers++
			}
		}
	}
	if newcomers == 0 {
		close(done)
		return done
	}
	ws.running.Go(func() {
		first.Wait()
		close(done)
	})
	return done
}

// part stops the watchers that have nothing to watch in v, or something else. mu
// must be held.
func (ws *watchers) part(v *view) {
	for name, leaving := range ws.leaving {
		left := slices.DeleteFunc(leaving, func(w *watcher) bool { return closed(w.ended) })
		if ws.leaving[name] = left; len(left) == 0 {
			delete(ws.leaving, name)
		}
	}
	for name, w := range ws.all {
		if s := v.servers[w.server.name]; s == nil || !s.probedAlike(w.server, w.exercise) || s.state != w.server.state {
			close(w.stop)
			delete(ws.all, name)
			ws.leaving[name] = append(ws.leaving[name], w)
		}
	}
}

// after waits until all that watched the server before have ended. It reports
// false where w is to end itself: then who comes next waits for both.
func (w *watcher) after(ctx context.Context, before []*watcher) bool {
	for _, one := range before {
		select {
		case <-one.ended:
		case <-w.stop:
			return false
		case <-ctx.Done():
			return false
		}
	}
	return true
}

func closed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}
