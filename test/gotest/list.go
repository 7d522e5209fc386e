package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// list is dir/failed, and the logs beside it.
type list struct{ dir string }

func (l list) path() string          { return filepath.Join(l.dir, "failed") }
func (l list) logs(of string) string { return filepath.Join(l.dir, "failed.logs", of) }

// begin leaves each part as unfinished, so that one which never ran counts as failed.
func (l list) begin(parts []string) error {
	if err := os.RemoveAll(l.logs("")); err != nil {
		return err
	}
	var all []failure
	for _, part := range parts {
		all = append(all, failure{part: part, pkg: "-", why: whyUnfinished})
	}
	return l.write(all)
}

// replace puts a part's failures in the place of its earlier ones.
func (l list) replace(part string, now []failure) error {
	all, err := l.read()
	if err != nil {
		return err
	}
	kept := all[:0]
	for _, f := range all {
		if f.part != part {
			kept = append(kept, f)
		}
	}
	dir := l.logs(part)
	if err := os.RemoveAll(dir); err != nil {
		return err
	}
	for n := range now {
		now[n].part = part
		if now[n].output == "" {
			continue
		}
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return err
		}
		now[n].log = filepath.Join(dir, fmt.Sprintf("%d.log", n+1))
		if err := os.WriteFile(now[n].log, []byte(now[n].output), 0o644); err != nil {
			return err
		}
	}
	return l.write(append(kept, now...))
}

func (l list) write(all []failure) error {
	var text strings.Builder
	for _, f := range all {
		fmt.Fprintf(&text, "%s\t%s\t%s\t%s\t%s\n", f.part, f.pkg, f.test, f.why, f.log)
	}
	return os.WriteFile(l.path(), []byte(text.String()), 0o644)
}

func (l list) read() ([]failure, error) {
	text, err := os.ReadFile(l.path())
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var all []failure
	for line := range strings.Lines(string(text)) {
		fields := strings.Split(strings.TrimSuffix(line, "\n"), "\t")
		if len(fields) != 5 {
			return nil, fmt.Errorf("%s: %q is not part, package, test, why and log", l.path(), line)
		}
		all = append(all, failure{part: fields[0], pkg: fields[1], test: fields[2], why: fields[3], log: fields[4]})
	}
	return all, nil
}
