package runtimeapi

import (
	"context"
	"fmt"
	"slices"
	"strings"
)

// tablesAtOnce is how many tables one exchange asks about: their commands have to fit
// into one line.
const tablesAtOnce = 16

// StickTables names the stick tables that store servers, of those that wanted is true of:
// by them clients are sent back to a server. A table has the name of its section, or
// "section/table" in a peers section; which backends use it no command shows.
//
// HAProxy does not list what a table stores. It refuses a filter on what is not stored,
// and one that nothing passes has an answer of one line, however full the table is
// (measured on 2.6, 3.0 and 3.2).
func (i *Instance) StickTables(ctx context.Context, wanted func(table string) bool) ([]string, error) {
	names, err := i.stickTables(ctx, wanted)
	return names, i.wrap(err)
}

func (i *Instance) stickTables(ctx context.Context, wanted func(table string) bool) ([]string, error) {
	list, err := i.exchange(ctx, reading, "show table")
	if err != nil {
		return nil, err
	}
	all, err := parseTables(list.texts[0])
	if err != nil {
		return nil, err
	}
	var asked, storing []string
	for _, name := range all {
		if section, table, peers := strings.Cut(name, "/"); wanted(name) && ValidName(section) && (!peers || ValidName(table)) {
			asked = append(asked, name)
		}
	}
	for batch := range slices.Chunk(asked, tablesAtOnce) {
		commands := make([]string, len(batch))
		for n, name := range batch {
			commands[n] = "show table " + name + " data.server_id lt 0"
		}
		a, err := i.exchange(ctx, reading, commands...)
		if err != nil {
			return nil, err
		}
		for n, text := range a.texts {
			if strings.HasPrefix(text, "# table: "+batch[n]+",") {
				storing = append(storing, batch[n])
			}
		}
	}
	return storing, nil
}

// parseTables reads the names of `show table`: a line "# table: NAME, type: ..." for each.
func parseTables(text string) ([]string, error) {
	var all []string
	for line := range strings.Lines(text) {
		if strings.TrimSpace(line) == "" {
			continue
		}
		name, is := strings.CutPrefix(line, "# table: ")
		name, _, whole := strings.Cut(name, ",")
		if !is || !whole {
			return nil, fmt.Errorf("%w: list of stick tables: %q", ErrMalformed, clean(line))
		}
		all = append(all, name)
	}
	return all, nil
}
