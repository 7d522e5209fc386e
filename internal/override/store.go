// Package override keeps on disk which tiers an operator has opened on health alone, by
// whom, why and until when.
//
// Its invariant: what is not known is not in force. A record that is over, or that began
// in the future, is none, and a file that cannot be read has none: that is the opposite of
// a refused start, since without it nothing is open that should not be.
package override

import (
	"errors"
	"fmt"
	"path/filepath"
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

const fileName = "overrides.json"

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

// Store is the state directory's file. It is safe for concurrent use; one goroutine at a
// time may Put.
type Store struct{ table *durable.Table[Record] }

// Open reads the directory's file. With ErrUnreadable, which names the file and says what
// to do, the store is of use all the same: it has no override. The directory is locked by
// whoever holds its intents.
func Open(dir string, now time.Time) (*Store, error) {
	path := filepath.Join(dir, fileName)
	table, err := durable.OpenTable(path, "overrides", func(r Record) string { return r.Tier }, Record.check)
	if err != nil {
		return &Store{table}, fmt.Errorf("%w: %s: %w: no override is in force; the next one that is given replaces the file", ErrUnreadable, path, err)
	}
	for _, r := range table.All() {
		// A clock that was set back would prolong what it is in the middle of.
		if now.Before(r.Since) || !now.Before(r.Until) {
			_ = table.Drop(r.Tier) // a Flush tries again
		}
	}
	return &Store{table}, nil
}

// All are the records, by tier.
func (s *Store) All() []Record { return s.table.All() }

// Put writes a record in place of the tier's last one. With an error, that one stands.
func (s *Store) Put(r Record) error {
	if err := r.check(); err != nil {
		return err
	}
	last, known := s.table.Get(r.Tier)
	err := s.table.Put(r)
	if err == nil {
		return nil
	}
	// What could not be written may have reached the disk all the same: both are written
	// again by a Flush.
	if known {
		_ = s.table.Put(last)
	} else {
		_ = s.table.Drop(r.Tier)
	}
	return notDurable(err)
}

// Drop ends a tier's record. With an error it has ended all the same, and the file says
// otherwise until a Flush.
func (s *Store) Drop(tier string) error { return notDurable(s.table.Drop(tier)) }

// Flush writes the file where it says something else.
func (s *Store) Flush() error { return notDurable(s.table.Flush()) }

func notDurable(err error) error {
	if err != nil {
		return fmt.Errorf("%w: %w", ErrNotDurable, err)
	}
	return nil
}
