package durable

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"slices"
	"strings"
	"sync"

	strict "github.com/go-json-experiment/json"
)

const (
	tableVersion = 1
	maxTable     = 4 << 20 // bytes, as many as the configuration may have, which names what records are about
)

// Table is a small file of records, each with a key of its own, and what it holds in
// memory. It is safe for concurrent use.
type Table[R comparable] struct {
	path string // empty: in memory alone
	file *File
	list string // the name of the records in the file
	key  func(R) string

	mu      sync.Mutex // protects the rest; the file is written without it
	records map[string]R
	changes int // of records
	written int // how many of them the file has
}

// OpenTable reads the file at path, {"version": 1, list: [...]}. One that is not there has
// no record. With an error, which says what is wrong in the file, the table is empty and of
// use all the same. An empty path keeps the records in memory alone.
func OpenTable[R comparable](path, list string, key func(R) string, check func(R) error) (*Table[R], error) {
	t := &Table[R]{path: path, file: NewFile(path), list: list, key: key, records: map[string]R{}}
	if path == "" {
		return t, nil
	}
	records, err := t.read(check)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return t, err
	}
	for _, r := range records {
		if _, twice := t.records[key(r)]; twice {
			t.records = map[string]R{}
			return t, fmt.Errorf("%s: %q is there twice", list, key(r))
		}
		t.records[key(r)] = r
	}
	return t, nil
}

func (t *Table[R]) read(check func(R) error) ([]R, error) {
	var file map[string]json.RawMessage
	if err := ReadJSON(t.path, maxTable, &file); err != nil {
		return nil, err
	}
	var version int
	var records []R
	if err := errors.Join(take(file, "version", &version), take(file, t.list, &records)); err != nil {
		return nil, err
	}
	switch {
	case version != tableVersion:
		return nil, fmt.Errorf("version %d, this tier-agent reads %d", version, tableVersion)
	case len(file) > 0:
		return nil, fmt.Errorf("unknown field %q", slices.Sorted(maps.Keys(file))[0])
	case records == nil:
		return nil, fmt.Errorf("%q is null", t.list)
	}
	for _, r := range records {
		if err := check(r); err != nil {
			return nil, err
		}
	}
	return records, nil
}

// take decodes one field of a file, and takes it out there.
func take(file map[string]json.RawMessage, name string, into any) error {
	text, there := file[name]
	if !there {
		return fmt.Errorf("%q is missing", name)
	}
	delete(file, name)
	if err := strict.Unmarshal(text, into, strict.RejectUnknownMembers(true)); err != nil {
		return fmt.Errorf("%q: %w", name, err)
	}
	return nil
}

// All are the records, in the order of their keys.
func (t *Table[R]) All() []R {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.sorted()
}

// Get returns the record with that key.
func (t *Table[R]) Get(key string) (R, bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	r, known := t.records[key]
	return r, known
}

// Put writes a record in place of the one with its key. With an error it holds in memory
// all the same, and a Flush writes it.
func (t *Table[R]) Put(r R) error {
	return t.change(func() {
		if was, known := t.records[t.key(r)]; !known || was != r {
			t.records[t.key(r)] = r
			t.changes++
		}
	})
}

// Drop ends the records with those keys. With an error they have ended all the same, and
// the file says otherwise until a Flush.
func (t *Table[R]) Drop(keys ...string) error {
	return t.change(func() {
		for _, key := range keys {
			if _, known := t.records[key]; known {
				delete(t.records, key)
				t.changes++
			}
		}
	})
}

// Flush writes the file where it says something else.
func (t *Table[R]) Flush() error { return t.change(func() {}) }

// change makes a change, and waits until the file has it.
func (t *Table[R]) change(make func()) error {
	t.mu.Lock()
	make()
	changes := t.changes
	if t.path == "" {
		t.written = changes
	}
	if changes == t.written {
		t.mu.Unlock()
		return nil
	}
	wait := t.file.Replace(map[string]any{"version": tableVersion, t.list: t.sorted()})
	t.mu.Unlock()
	if err := wait(); err != nil {
		return err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.written = max(t.written, changes)
	return nil
}

func (t *Table[R]) sorted() []R {
	all := make([]R, 0, len(t.records))
	for _, r := range t.records {
		all = append(all, r)
	}
	slices.SortFunc(all, func(a, b R) int { return strings.Compare(t.key(a), t.key(b)) })
	return all
}
