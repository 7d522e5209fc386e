package accept

import (
	"sync"
	"time"
)

// Throttle lets one line a minute into the log, where every connection may bring
// one. Its zero value lets the first one through.
type Throttle struct {
	mu   sync.Mutex // protects last
	last time.Time
}

// Allow reports whether a line may be written now. It goes by the monotonic clock:
// a wall clock that is set back must not keep the log silent.
func (t *Throttle) Allow() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	now := time.Now()
	if !t.last.IsZero() && now.Sub(t.last) < time.Minute {
		return false
	}
	t.last = now
	return true
}
