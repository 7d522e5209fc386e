package durable

import (
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"time"
)

// ErrSlow: the disk has not taken it in time. It may yet, and what is to be written after it
// waits for that.
var ErrSlow = errors.New("it was not written in time: the disk hangs, or has very much to do")

// Within is how long a write is waited for.
const Within = 2 * time.Second

// File is replaced as a whole, as WriteFile does, for its owner alone, in the order in which
// Replace is called. A
// disk that hangs keeps one goroutine, and whoever waits for no longer than Within. It is
// safe for concurrent use.
type File struct {
	path string

	mu    sync.Mutex // protects the rest; nothing is written under it
	next  *replacement
	busy  bool      // a goroutine writes
	since time.Time // it has begun that write
}

// replacement is the newest text that nobody has begun to write.
type replacement struct {
	text []byte
	done chan struct{} // closed when it is written, or could not be
	err  error
}

// NewFile is the file at path.
func NewFile(path string) *File { return &File{path: path} }

// Replace has the file replaced by value in JSON, or by what a later Replace gives, and
// returns a function that waits for that, once. It does not block: a lock may be held that
// orders calls, and must not be while the function waits.
func (f *File) Replace(value any) (wait func() error) {
	text, err := json.MarshalIndent(value, "", "  ")
	if err != nil {
		return func() error { return err }
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.next == nil {
		f.next = &replacement{done: make(chan struct{})}
	}
	mine := f.next
	mine.text = sealed(text)
	if !f.busy {
		f.busy, f.since = true, time.Now()
		go f.write()
	}
	return func() error {
		late := time.NewTimer(f.patience())
		defer late.Stop()
		select {
		case <-mine.done:
			return mine.err
		case <-late.C:
			return fmt.Errorf("%s: %w", f.path, ErrSlow)
		}
	}
}

// patience is how long a write is worth waiting for: of a disk that has hung for Within
// already, not at all.
func (f *File) patience() time.Duration {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.busy && time.Since(f.since) > Within {
		return 0
	}
	return Within
}

// write writes what there is to write, and ends.
func (f *File) write() {
	for {
		f.mu.Lock()
		mine := f.next
		if f.next = nil; mine == nil {
			f.busy = false
			f.mu.Unlock()
			return
		}
		f.since = time.Now()
		f.mu.Unlock()
		mine.err = WriteFile(f.path, mine.text, 0o600)
		close(mine.done)
	}
}
