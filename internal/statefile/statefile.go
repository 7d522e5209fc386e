// Package statefile keeps the server-state file that HAProxy loads when it
// starts and reloads, so that what must take nothing starts so.
//
// Its invariant: the file has the rows that Compose gives, and is replaced whole or
// not at all. A row says how a server starts and by which port, and nothing else that
// a configuration says: an edited one is followed at the next reload.
package statefile

import (
	"os"
	"slices"
	"strings"

	"tier-agent/internal/durable"
	"tier-agent/internal/runtimeapi"
)

// File is one HAProxy's server-state file. It is not safe for concurrent use:
// whoever reads that HAProxy's dumps writes its file.
type File struct {
	path    string
	compose func(Shown) []Row
	shown   Shown
	text    string // what the file says; "" before the first write
	rows    []Row
	info    os.FileInfo // of the file last written

	started  bool   // a process has started since the last Keep
	suspect  string // a server that the file closed and that process shows open
	unloaded bool   // it has not loaded the file
}

// New returns the file at path, whose rows compose gives.
func New(path string, compose func(Shown) []Row) *File {
	return &File{path: path, compose: compose}
}

// Keep makes the file say how the servers are to start, given what HAProxy shows, or
// nil where it cannot be read: what it showed last counts then, and before that what
// the file says. It writes only where the file says something else, and says whether
// it did.
func (f *File) Keep(dump *runtimeapi.ServersState) (bool, error) {
	if f.shown.Had == nil {
		f.remember()
	}
	if dump != nil {
		f.shown.Servers, f.shown.Live = dump.Servers, true
	}
	f.shown.Unread = dump == nil
	rows := f.compose(f.shown)
	var text strings.Builder
	text.WriteString("1\n" + header + "\n")
	for _, row := range rows {
		text.WriteString(row.String() + "\n")
	}
	if text.String() == f.text && f.untouched() {
		return false, nil
	}
	// HAProxy may run as another user, and what is in the file is no secret.
	if err := durable.WriteFile(f.path, []byte(text.String()), 0o644); err != nil {
		return false, err
	}
	f.text, f.rows, f.shown.Had = text.String(), rows, map[string]bool{}
	for _, row := range rows {
		f.shown.Had[row.Name()] = true
	}
	f.info, _ = os.Stat(f.path) // without it the file is written again next time
	return true, nil
}

// maxFile bounds what is read of a file that somebody else may have written.
const maxFile = 16 << 20

// remember takes what the file says of the servers. One that cannot be read says
// nothing: it is about to be written.
func (f *File) remember() {
	f.shown.Had = map[string]bool{}
	durable.Clear(f.path)
	info, err := os.Stat(f.path)
	if err != nil || !info.Mode().IsRegular() || info.Size() > maxFile {
		return
	}
	text, err := os.ReadFile(f.path)
	if err != nil {
		return
	}
	f.shown.Servers = parse(string(text))
	for _, s := range f.shown.Servers {
		f.shown.Had[s.Name()] = true
	}
}

// untouched reports whether the file is the one last written. Reload scripts
// that dump every server's state into it are common, and bring old ports back.
func (f *File) untouched() bool {
	now, err := os.Stat(f.path)
	return err == nil && f.info != nil && os.SameFile(f.info, now) && now.ModTime().Equal(f.info.ModTime()) && now.Size() == f.info.Size()
}

// Started notes what a process that has started since the last Keep shows of the
// servers that the file closed.
func (f *File) Started(dump runtimeapi.ServersState) {
	f.started, f.suspect, f.unloaded = true, "", false
	for _, row := range f.rows {
		is, there := dump.Find(row.Backend, row.Server)
		if there && row.Admin.Forced() && !is.Admin.Forced() {
			f.suspect = row.Name()
			return
		}
	}
}

// Forgotten names a server that the file closed and that a process has come up with
// open: it has not loaded the file. One that is not to be closed any more may have been
// opened since, so the Keep after the one that met the process decides.
func (f *File) Forgotten() string {
	if !f.unloaded && !f.started {
		f.unloaded = slices.ContainsFunc(f.rows, func(r Row) bool { return r.Name() == f.suspect && r.Admin.Forced() })
		if !f.unloaded {
			f.suspect = ""
		}
	}
	f.started = false
	if f.unloaded {
		return f.suspect
	}
	return ""
}

// Path is where the file is.
func (f *File) Path() string { return f.path }
