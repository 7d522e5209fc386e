// Package activation keeps on disk which tiers have been ready since they
// appeared, so that a restart of tier-agent asks no more of a tier than before.
//
// Its invariant: where it is not known whether a tier has been ready, it counts
// as one that has. A file that cannot be read is no error of a start, as it is
// for the intents: those say what must not be opened, and nothing else does. This
// one only spares a tier that has served, and is there only where tier-agent has
// run before. To refuse the start for it, or to take it for empty, would close
// healthy tiers; taken for full it opens none below its min_ready.
package activation

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"sync"

	"tier-agent/internal/durable"
)

var (
	// ErrUnknown: the file is there, and what it says cannot be known.
	ErrUnknown = errors.New("which tiers have been ready before is not known")
	// ErrNotDurable: the file could not be written; what is on disk is as before.
	ErrNotDurable = errors.New("which tiers have been ready could not be written")
)

const (
	fileName = "activated.json"
	version  = 1
	maxFile  = 4 << 20 // bytes, as many as the configuration may have, which names the tiers
)

type file struct {
	Version int      `json:"version"`
	Tiers   []string `json:"tiers"` // names, sorted
}

// Store is the state directory's file. It is safe for concurrent use.
type Store struct {
	path string
	file *durable.File

	all   bool       // the file could not be read: every tier has been ready
	mu    sync.Mutex // protects the rest, and is held while the file is written
	kept  bool       // tiers is what the file says
	tiers []string   // sorted
}

// Open reads the directory's file; where there is none, no tier has been ready.
// With ErrUnknown, which says what to do, the store is of use all the same: it
// says of every tier that it has been. The directory is locked by whoever holds
// its intents.
func Open(dir string) (*Store, error) {
	path := filepath.Join(dir, fileName)
	s := &Store{path: path, file: durable.NewFile(path), kept: true}
	tiers, err := load(s.path)
	s.tiers = tiers
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		s.all, s.kept = true, false
		return s, fmt.Errorf("%w: %s: %w: each tier counts as one that has been, so that activation_min delays none; the file is written anew, and to have tiers wait for activation_min stop tier-agent and remove it", ErrUnknown, s.path, err)
	}
	return s, nil
}

// Has reports whether the tier has been ready, as the file has it.
func (s *Store) Has(tier string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, found := slices.BinarySearch(s.tiers, tier)
	return found || s.all
}

// Save makes what now returns the whole of the file, where it says anything else.
// now is asked in turn: the last Save to return has asked last.
func (s *Store) Save(now func() []string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	tiers := slices.Sorted(slices.Values(now()))
	if s.kept && slices.Equal(s.tiers, tiers) {
		return nil
	}
	if tiers == nil {
		tiers = []string{} // not null
	}
	if err := s.file.Replace(file{Version: version, Tiers: tiers})(); err != nil {
		// It may have been replaced all the same: the next Save has to write.
		s.kept = false
		return fmt.Errorf("%w: %w", ErrNotDurable, err)
	}
	s.kept, s.tiers = true, tiers
	return nil
}

// load returns the names, sorted.
func load(path string) ([]string, error) {
	var f file
	if err := durable.ReadJSON(path, maxFile, &f); err != nil {
		return nil, err
	}
	switch {
	case f.Version != version:
		return nil, fmt.Errorf("version %d, this tier-agent reads %d", f.Version, version)
	case f.Tiers == nil:
		return nil, errors.New(`"tiers" is missing`)
	case slices.Contains(f.Tiers, ""):
		return nil, errors.New("a tier has no name")
	}
	slices.Sort(f.Tiers)
	return f.Tiers, nil
}
