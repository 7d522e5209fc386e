package tier

import (
	"time"

	"tier-agent/internal/fence"
)

// sight is what the newest probe that counted saw of a server, over invalidations. It is
// for people, for whoever looks for failures that came together, and for the looks of a
// quiesced server in HAProxy: nothing is admitted by it. Once published it is not changed.
type sight struct {
	state State
	since time.Time // when the first probe began that saw no other state
	issue uint64
}

// saw notes the probe of an accepted verdict. Of two at once the later issued
// stays, as in the fence.
func (s *state) saw(seen State, v fence.Verdict) {
	next := &sight{state: seen, since: v.Started, issue: v.Issue}
	for {
		last := s.sight.Load()
		switch {
		case last == nil:
		case last.issue > next.issue:
			return
		case last.state == seen:
			next.since = last.since
		}
		if s.sight.CompareAndSwap(last, next) {
			return
		}
	}
}

// looksReady reports whether that was ready.
func (s *state) looksReady() bool {
	seen := s.sight.Load()
	return seen != nil && seen.state == StateReady
}
