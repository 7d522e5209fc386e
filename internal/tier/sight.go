package tier

import (
	"time"

	"tier-agent/internal/fence"
)

// sight is what the newest probe that counted saw of a server. It is for people,
// and for whoever looks for failures that came together: nothing is admitted by
// it. Once published it is not changed.
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
