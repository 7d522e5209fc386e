// Package statefile keeps the server-state file that HAProxy loads when it
// starts and reloads, so that what is closed starts closed.
//
// Its invariant: the file has the rows that its keeper names, of closed servers and
// of opened members, each as one running HAProxy process showed it in one whole
// dump, and is replaced whole or not at all. A row carries the server's port, and
// that beats an edited configuration at the next reload (measured on 2.6, 3.0 and
// 3.2); so a server that is open and no member has no row, and follows its
// configuration.
package statefile

import (
	"fmt"
	"os"
	"strings"

	"tier-agent/internal/durable"
	"tier-agent/internal/runtimeapi"
)

// File is one HAProxy's server-state file. It is not safe for concurrent use:
// whoever reads that HAProxy's dumps writes its file.
type File struct {
	path string
	kept string // what the file says, without what changes from second to second; "" before the first write
	rows map[string]runtimeapi.AdminState
	info os.FileInfo // of the file last written
}

// New returns the file at path. It is not read: what HAProxy shows is newer.
func New(path string) *File { return &File{path: path} }

// Keep makes the file say what dump says of the servers for which kept is true. It
// writes only where that differs from what it wrote before, and says whether it did.
// A dump of a process that is being replaced is refused: its admin states are no
// longer anybody's.
func (f *File) Keep(dump runtimeapi.ServersState, kept func(runtimeapi.ServerState) bool) (bool, error) {
	if dump.Info.Stopping {
		return false, fmt.Errorf("process %d is being replaced", dump.Info.PID)
	}
	var text, brief strings.Builder
	text.WriteString("1\n" + dump.Header + "\n")
	rows := map[string]runtimeapi.AdminState{}
	for _, row := range dump.Servers {
		if !kept(row) {
			continue
		}
		text.WriteString(row.Row + "\n")
		rows[row.Name()] = row.Admin
		fmt.Fprintf(&brief, "%s %s %d %d %d %s\n", row.Name(), row.Address, row.Port, row.Admin, row.Operational, row.FQDN)
	}
	brief.WriteString(dump.Header)
	if brief.String() == f.kept && f.untouched() {
		return false, nil
	}
	// HAProxy may run as another user, and what is in the file is no secret.
	if err := durable.WriteFile(f.path, []byte(text.String()), 0o644); err != nil {
		return false, err
	}
	f.kept, f.rows = brief.String(), rows
	f.info, _ = os.Stat(f.path) // without it the file is written again next time
	return true, nil
}

// untouched reports whether the file is the one last written. Reload scripts
// that dump every server's state into it are common, and bring old ports back.
func (f *File) untouched() bool {
	now, err := os.Stat(f.path)
	return err == nil && f.info != nil && os.SameFile(f.info, now) && now.ModTime().Equal(f.info.ModTime()) && now.Size() == f.info.Size()
}

// Forgotten names a server that the file last written said is closed, and that
// the dump of a process which has started since shows open: that process has not
// loaded the file. It is empty where there is none.
func (f *File) Forgotten(dump runtimeapi.ServersState) string {
	for _, row := range dump.Servers {
		if f.rows[row.Name()].Forced() && !row.Admin.Forced() {
			return row.Name()
		}
	}
	return ""
}

// Path is where the file is.
func (f *File) Path() string { return f.path }
