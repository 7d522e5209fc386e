package members

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"sync"

	"tier-agent/internal/durable"
)

// ErrChanged: the file is whole, and something else has changed it. It opens nothing.
var ErrChanged = errors.New("the openings were changed by something else than tier-agent")

// ErrCorrupt: the file is there and is not what Openings writes.
var ErrCorrupt = errors.New("the openings cannot be read")

const (
	openingsName = "members.json"
	version      = 1
	maxFile      = 16 << 20 // bytes; fifty thousand openings fit
)

// Place is one server of one HAProxy.
type Place struct{ HAProxy, Server string } // Server is "backend/server"

// Opening is what is known of a place that tier-agent has opened or seen open.
type Opening struct {
	HAProxy string `json:"haproxy"`
	Server  string `json:"server"`
	// Address is that of the member for which the place was open.
	Address string `json:"address"`
	// PID is the process of HAProxy in which it was seen so, and Started its start in
	// seconds since 1970, 0 where HAProxy does not say: in a container the worker has
	// the same id after each restart.
	PID     int   `json:"pid"`
	Started int64 `json:"started,omitempty"`
	// Held: somebody has put it in maintenance since. That is theirs, whoever comes to
	// have the place.
	Held bool `json:"held,omitempty"`
}

// Place is the opening's.
func (o Opening) Place() Place { return Place{o.HAProxy, o.Server} }

// Openings are kept in a state directory that one process holds. Without them a
// server that somebody has put in maintenance could not be told from one that has
// started so, as a newcomer does. They are safe for concurrent use.
type Openings struct {
	path string
	file *durable.File

	mu      sync.Mutex // protects the rest; the file is written without it
	all     map[Place]Opening
	changes int // of all
	written int // how many of them the file has
}

type openingsFile struct {
	Version  int       `json:"version"`
	Openings []Opening `json:"openings"`
}

// Open loads what is in the directory, which has to be there. A file that is not
// there is an empty one. Every error says what to do; with ErrChanged it is of use all the
// same.
func Open(dir string) (*Openings, error) {
	path := filepath.Join(dir, openingsName)
	o := &Openings{path: path, file: durable.NewFile(path), all: map[Place]Opening{}}
	err := o.load()
	if errors.Is(err, durable.ErrSum) {
		for p, one := range o.all {
			one.Held = true
			o.all[p] = one
		}
		return o, fmt.Errorf("%w: %s: %w: what is in maintenance there is taken to be so on purpose", ErrChanged, o.path, err)
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("%w: %s: %w: see in HAProxy which members are in maintenance on purpose, then move the file away, and quiesce those", ErrCorrupt, o.path, err)
	}
	return o, nil
}

// Get returns what is known of a place.
func (o *Openings) Get(p Place) (Opening, bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	one, known := o.all[p]
	return one, known
}

// Of returns what is known of one HAProxy's places.
func (o *Openings) Of(haproxy string) []Opening {
	o.mu.Lock()
	defer o.mu.Unlock()
	var all []Opening
	for p, one := range o.all {
		if p.HAProxy == haproxy {
			all = append(all, one)
		}
	}
	return all
}

// Keep writes what is new and forgets what is gone, in one step. What cannot be
// written holds in memory all the same, and each Keep tries again.
func (o *Openings) Keep(changed []Opening, gone []Place) error {
	o.mu.Lock()
	if len(changed)+len(gone) > 0 {
		o.changes++
	}
	for _, p := range gone {
		delete(o.all, p)
	}
	for _, one := range changed {
		o.all[one.Place()] = one
	}
	changes := o.changes
	if changes == o.written {
		o.mu.Unlock()
		return nil
	}
	file := openingsFile{Version: version, Openings: []Opening{}}
	for _, one := range o.all {
		file.Openings = append(file.Openings, one)
	}
	slices.SortFunc(file.Openings, func(a, b Opening) int {
		return cmp.Or(cmp.Compare(a.HAProxy, b.HAProxy), natural(a.Server, b.Server))
	})
	wait := o.file.Replace(file)
	o.mu.Unlock()
	if err := wait(); err != nil {
		return err
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	o.written = max(o.written, changes)
	return nil
}

func (o *Openings) load() error {
	var file openingsFile
	read := durable.ReadJSON(o.path, maxFile, &file)
	if read != nil && !errors.Is(read, durable.ErrSum) {
		return read
	}
	switch {
	case file.Version != version:
		return fmt.Errorf("version %d, this tier-agent reads %d", file.Version, version)
	case file.Openings == nil:
		return errors.New(`"openings" is missing`)
	}
	for _, one := range file.Openings {
		if one.HAProxy == "" || one.Server == "" {
			return errors.New("an opening without haproxy or server")
		}
		o.all[one.Place()] = one
	}
	return read
}
