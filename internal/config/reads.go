package config

import (
	"context"
	"errors"
	"sync"
	"time"

	"golang.org/x/sync/singleflight"
)

var errSlow = errors.New("was not read in time")

// readers have one read of each file under way. One that hangs keeps a thread, for as long as
// it does, and whoever wants the same file waits for that one. It is given up where it has
// hung for a while, since what it hangs at may be gone (umount -l): after a second first, and
// later and later, so that their number stays small.
type readers struct {
	group singleflight.Group

	mu sync.Mutex // protects of
	of map[string]*hangs
}

// hangs is what is known of the reads of one file that have been waited for in vain.
type hangs struct {
	since time.Time // the one under way began to be waited for
	lost  int       // have been given up
}

var reads = readers{of: map[string]*hangs{}}

// mostPatience is 2 to this power, in seconds.
const mostPatience = 12

// read is what do returns, or errSlow at ctx's end. It begins none where ctx has ended.
func (r *readers) read(ctx context.Context, file string, do func() (any, error)) (any, error) {
	if ctx.Err() != nil {
		return nil, errSlow
	}
	began := time.Now()
	select {
	case done := <-r.group.DoChan(file, do):
		r.mu.Lock()
		delete(r.of, file)
		r.mu.Unlock()
		return done.Val, done.Err
	case <-ctx.Done():
		r.hung(file, began)
		return nil, errSlow
	}
}

func (r *readers) hung(file string, began time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	h := r.of[file]
	if h == nil {
		h = &hangs{since: began}
		r.of[file] = h
	}
	if time.Since(h.since) < time.Second<<min(h.lost, mostPatience) {
		return
	}
	r.group.Forget(file)
	h.lost++
	h.since = time.Now()
}
