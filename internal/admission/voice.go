package admission

import (
	"fmt"
	"sync"
	"sync/atomic"
	"time"
)

// voice says, while a transition runs, for what it waits: whenever it has been silent for
// a while, so that one which is over soon says nothing.
type voice struct {
	tell    func(Progress) // nil: nobody listens
	since   time.Time      // when the transition began
	waiting atomic.Pointer[string]

	turn sync.Mutex // held by who tells something: one at a time. Protects last
	last time.Time  // when something was told
}

// waits notes for what the transition waits from now on.
func (v *voice) waits(format string, args ...any) {
	if v.tell != nil {
		text := fmt.Sprintf(format, args...)
		v.waiting.Store(&text)
	}
}

// say tells what has been seen.
func (v *voice) say(p Progress) {
	if v.tell != nil {
		v.turn.Lock()
		defer v.turn.Unlock()
		v.speak(p)
	}
}

// speak tells something. turn must be held.
func (v *voice) speak(p Progress) {
	p.Seconds = time.Since(v.since).Seconds()
	if text := v.waiting.Load(); text != nil {
		p.Waiting = *text
	}
	v.tell(p)
	v.last = time.Now()
}

// start begins to speak, and returns what ends that: after it nothing is told.
func (v *voice) start(silence time.Duration) (stop func()) {
	if v.tell == nil {
		return func() {}
	}
	v.last = v.since
	end, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		for {
			v.turn.Lock()
			if time.Since(v.last) >= silence {
				v.speak(Progress{})
			}
			next := time.Until(v.last.Add(silence))
			v.turn.Unlock()
			select {
			case <-end:
				return
			case <-time.After(next):
			}
		}
	}()
	return func() {
		close(end)
		<-ended
	}
}
