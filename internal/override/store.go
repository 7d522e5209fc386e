// Package override keeps on disk which tiers an operator has opened on health alone, by
// whom, why and until when.
//
// Its invariant: what is not known is not in force. A record that is over, or that began
// in the future, is none, and a file that cannot be read has none: that is the opposite of
// a refused start, since without it nothing is open that should not be.
package override

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"tier-agent/internal/durable"
)

// How long an override may be.
const (
	Shortest = time.Minute
	Longest  = 24 * time.Hour
)

var (
	// ErrUnreadable: the file is there, and what it says cannot be known.
	ErrUnreadable = errors.New("the overrides cannot be read")
	// ErrNotDurable: the overrides could not be written.
	ErrNotDurable = errors.New("the overrides cannot be written")
)

const (
	fileName = "overrides.json"
	version  = 1
	maxFile  = 4 << 20 // bytes, as many as the configuration may have, which names the tiers
)

type file struct {
	Version   int      `json:"version"`
	Overrides []Record `json:"overrides"`
}

// Record is one override.
type Record struct {
	Tier   string    `json:"tier"`
	Reason string    `json:"reason"`
	Who    string    `json:"who"`
	Since  time.Time `json:"since"`
	Until  time.Time `json:"until"`
}

func (r Record) check() error {
	switch lasts := r.Until.Sub(r.Since); {
	case r.Tier == "":
		return errors.New("an override names no tier")
	case r.Reason == "":
		return fmt.Errorf("the override of tier %q has no reason", r.Tier)
	case r.Since.IsZero() || lasts < Shortest || lasts > Longest:
		return fmt.Errorf("the override of tier %q lasts from %v to %v: that may be %v to %v", r.Tier, r.Since, r.Until, Shortest, Longest)
	}
	return nil
}

// Store is the state directory's file. It is safe for concurrent use.
type Store struct {
	path string

	mu      sync.Mutex // protects the rest, and is held while the file is written
	differs bool       // the file says something else
	records map[string]Record
}

// Open reads the directory's file. With ErrUnreadable, which names the file and says what
// to do, the store is of use all the same: it has no override. The directory is locked by
// whoever holds its intents.
func Open(dir string, now time.Time) (*Store, error) {
	s := &Store{path: filepath.Join(dir, fileName), records: map[string]Record{}}
	err := s.load(now)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		s.records, s.differs = map[string]Record{}, false
		return s, fmt.Errorf("%w: %s: %w: no override is in force; the next one that is given replaces the file", ErrUnreadable, s.path, err)
	}
	return s, nil
}

func (s *Store) load(now time.Time) error {
	var f file
	if err := durable.ReadJSON(s.path, maxFile, &f); err != nil {
		return err
	}
	switch {
	case f.Version != version:
		return fmt.Errorf("version %d, this tier-agent reads %d", f.Version, version)
	case f.Overrides == nil:
		return errors.New(`"overrides" is missing`)
	}
	for _, r := range f.Overrides {
		if err := r.check(); err != nil {
			return err
		}
		if _, twice := s.records[r.Tier]; twice {
			return fmt.Errorf("tier %q has two overrides", r.Tier)
		}
		s.records[r.Tier] = r
	}
	// A clock that was set back would prolong what it is in the middle of.
	maps.DeleteFunc(s.records, func(_ string, r Record) bool { return now.Before(r.Since) || !now.Before(r.Until) })
	s.differs = len(s.records) < len(f.Overrides)
	return nil
}

// All are the records, by tier.
func (s *Store) All() []Record {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.sorted()
}

// Put writes a record in place of the tier's last one. With an error, that one stands.
func (s *Store) Put(r Record) error {
	if err := r.check(); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	last, known := s.records[r.Tier]
	s.records[r.Tier] = r
	err := s.write()
	if err == nil {
		return nil
	}
	s.differs = true // what could not be written may have reached the disk all the same
	if delete(s.records, r.Tier); known {
		s.records[r.Tier] = last
	}
	return err
}

// Drop ends a tier's record. With an error it has ended all the same, and the file says
// otherwise until a Flush.
func (s *Store) Drop(tier string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, known := s.records[tier]; known {
		delete(s.records, tier)
		s.differs = true
	}
	return s.flush()
}

// Flush writes the file where it says something else.
func (s *Store) Flush() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.flush()
}

func (s *Store) flush() error {
	if !s.differs {
		return nil
	}
	return s.write()
}

func (s *Store) write() error {
	if err := durable.WriteJSON(s.path, file{Version: version, Overrides: s.sorted()}); err != nil {
		return fmt.Errorf("%w: %w", ErrNotDurable, err)
	}
	s.differs = false
	return nil
}

func (s *Store) sorted() []Record {
	all := make([]Record, 0, len(s.records))
	for _, r := range s.records {
		all = append(all, r)
	}
	slices.SortFunc(all, func(a, b Record) int { return cmp.Compare(a.Tier, b.Tier) })
	return all
}
