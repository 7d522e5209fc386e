package intent

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"syscall"

	"tier-agent/internal/durable"
)

var (
	// ErrCorrupt: the file is there and is not what Put writes.
	ErrCorrupt = errors.New("the intents cannot be read")
	// ErrChanged: the file is whole, and something else has changed it. What it closes is
	// closed.
	ErrChanged = errors.New("the intents were changed by something else than tier-agent")
	// ErrLocked: another process holds the state directory.
	ErrLocked = errors.New("another tier-agent uses this state directory")
	// ErrNotDurable: the intents could not be written; what is on disk is as before.
	ErrNotDurable = errors.New("the intents cannot be written")
	// ErrMoved: the record is not the one that the caller began with.
	ErrMoved = errors.New("the intent has been changed by somebody else")
)

const (
	fileName = "intents.json"
	lockName = "lock"
	version  = 1
	maxFile  = 16 << 20 // bytes; ten thousand records of ten HAProxies fit
)

type file struct {
	Version int      `json:"version"`
	Serial  uint64   `json:"serial"` // the highest ever given, also to dropped records
	Intents []Record `json:"intents"`
}

// Store is the state directory's intents. It is safe for concurrent use.
type Store struct {
	dir  string
	lock *os.File
	file *durable.File

	mu      sync.Mutex // protects the rest, and orders what is to be written; the file is written without it
	serial  uint64
	records map[Key]Record
}

// Open takes the directory, makes it where it is missing, and loads what is in
// it. Every error says what to do. With ErrChanged the store is of use all the same, and
// with ErrNotDurable where it is not nil: what there was is known, and the disk is full. It writes the file once, so that a directory
// that cannot be written is noticed at the start.
func Open(dir string) (*Store, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("%w: %w: make the state directory for tier-agent's user, or set state_dir", ErrNotDurable, err)
	}
	lock, err := takeLock(filepath.Join(dir, lockName))
	if err != nil {
		return nil, err
	}
	s := &Store{dir: dir, lock: lock, records: map[Key]Record{}}
	s.file = durable.NewFile(s.path())
	err = s.load()
	changed, found := errors.Is(err, ErrChanged), len(s.records) > 0 || s.serial > 0
	if err == nil || changed {
		err = errors.Join(err, written(s.write()))
	}
	if changed || found && errors.Is(err, ErrNotDurable) {
		return s, err // of use all the same
	}
	if err != nil {
		lock.Close()
		return nil, err
	}
	return s, nil
}

// Close gives the directory back.
func (s *Store) Close() error { return s.lock.Close() }

// All returns the records, oldest first.
func (s *Store) All() []Record {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.sorted()
}

// Get returns the record of a target.
func (s *Store) Get(k Key) (Record, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	r, ok := s.records[k]
	return r.Clone(), ok
}

// Put writes a record under a new serial number and returns it as written. With
// ErrNotDurable the record holds in memory all the same, so that what is closed
// stays closed while this process lives.
func (s *Store) Put(r Record) (Record, error) {
	s.mu.Lock()
	s.serial++
	r = r.Clone()
	r.Serial = s.serial
	s.records[r.Key()] = r
	wait := s.write()
	s.mu.Unlock()
	return r.Clone(), written(wait)
}

// Drop removes the record of a target, if it is still the one with that serial
// number; otherwise, and where it cannot be written, the record stays.
func (s *Store) Drop(k Key, serial uint64) error {
	s.mu.Lock()
	r, ok := s.records[k]
	if !ok || r.Serial != serial {
		s.mu.Unlock()
		return fmt.Errorf("%w: serial %d, not %d", ErrMoved, r.Serial, serial)
	}
	delete(s.records, k)
	wait := s.write()
	s.mu.Unlock()
	err := written(wait)
	if err != nil {
		s.mu.Lock()
		defer s.mu.Unlock()
		if _, another := s.records[k]; !another {
			s.records[k] = r
		}
	}
	return err
}

// Move takes records away and puts others there, each under a new serial number, in one
// write: those that change places need the place of each other. With ErrNotDurable it
// holds in memory all the same.
func (s *Store) Move(from []Key, to []Record) error {
	s.mu.Lock()
	for _, k := range from {
		delete(s.records, k)
	}
	for _, r := range to {
		s.serial++
		r = r.Clone()
		r.Serial = s.serial
		s.records[r.Key()] = r
	}
	wait := s.write()
	s.mu.Unlock()
	return written(wait)
}

func (s *Store) sorted() []Record {
	all := make([]Record, 0, len(s.records))
	for _, r := range s.records {
		all = append(all, r.Clone())
	}
	slices.SortFunc(all, func(a, b Record) int { return cmp.Compare(a.Serial, b.Serial) })
	return all
}

func (s *Store) path() string { return filepath.Join(s.dir, fileName) }

func (s *Store) load() error {
	var f file
	err := durable.ReadJSON(s.path(), maxFile, &f)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	changed := errors.Is(err, durable.ErrSum)
	if err == nil || changed {
		err = s.take(f)
	}
	if err == nil && changed {
		s.onlyClose()
		return fmt.Errorf("%w: %s: each is kept as a quiesce that was confirmed, and what it found is not believed, so that a readmit wants --take-hold: see whether all are there that should be", ErrChanged, s.path())
	}
	if err != nil {
		return fmt.Errorf("%w: %s: %w: see which tiers are to be closed, then repair the file or move it away and quiesce those tiers again", ErrCorrupt, s.path(), err)
	}
	return nil
}

// onlyClose leaves of each record what keeps its target closed.
func (s *Store) onlyClose() {
	for k, r := range s.records {
		r.Phase, r.Found, r.Processes, r.Masters, r.Without = Quiesced, nil, nil, nil, nil
		s.records[k] = r
	}
}

func (s *Store) take(f file) error {
	if f.Version != version {
		return fmt.Errorf("version %d, this tier-agent reads %d", f.Version, version)
	}
	if f.Intents == nil {
		return errors.New(`"intents" is missing`)
	}
	s.serial = f.Serial
	for _, r := range f.Intents {
		if err := r.check(); err != nil {
			return err
		}
		if _, twice := s.records[r.Key()]; twice {
			return fmt.Errorf("tier %q has two records of the same target", r.Tier)
		}
		s.records[r.Key()] = r
		s.serial = max(s.serial, r.Serial)
	}
	return nil
}

// write has the file say what the records are now. mu must be held, and not while wait is
// called.
func (s *Store) write() (wait func() error) {
	return s.file.Replace(file{Version: version, Serial: s.serial, Intents: s.sorted()})
}

func written(wait func() error) error {
	if err := wait(); err != nil {
		return fmt.Errorf("%w: %w", ErrNotDurable, err)
	}
	return nil
}

func takeLock(path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR|syscall.O_NOFOLLOW, 0o600)
	if errors.Is(err, syscall.EROFS) {
		f, err = os.OpenFile(path, os.O_RDONLY|syscall.O_NOFOLLOW, 0)
	}
	if errors.Is(err, syscall.ELOOP) {
		return nil, fmt.Errorf("%w: %s is a link: remove it, and see who else may write the state directory", ErrNotDurable, path)
	}
	if err != nil {
		return nil, fmt.Errorf("%w: %w: let tier-agent's user write its state directory, or set state_dir", ErrNotDurable, err)
	}
	// The kernel gives the lock up with the process, however that ends.
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		f.Close()
		if errors.Is(err, syscall.EWOULDBLOCK) {
			return nil, fmt.Errorf("%w: %s: stop it, or give this one a state_dir of its own", ErrLocked, path)
		}
		return nil, fmt.Errorf("locking %s: %w", path, err)
	}
	// Another file may have come to the path meanwhile, which the next one would lock.
	held, err := f.Stat()
	if err == nil {
		var there os.FileInfo
		if there, err = os.Lstat(path); err == nil && !os.SameFile(held, there) {
			err = errors.New("it was replaced while it was locked")
		}
	}
	if err != nil {
		f.Close()
		return nil, fmt.Errorf("locking %s: %w: start again", path, err)
	}
	return f, nil
}
