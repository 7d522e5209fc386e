// Package durable replaces files so that after a kill or a loss of power the
// old one is there whole, or the new one.
package durable

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/google/renameio/v2"
)

// WriteFile replaces the file at path: temporary file beside it, fsync, rename,
// fsync of the folder. The permissions are exactly perm, whatever the umask. The
// text of its error is the same each time that the same thing goes wrong.
func WriteFile(path string, data []byte, perm os.FileMode) error {
	dir := filepath.Dir(path)
	if err := renameio.WriteFile(path, data, perm, renameio.WithStaticPermissions(perm), renameio.WithTempDir(dir)); err != nil {
		return about(path, err)
	}
	// Without this a power loss can bring the old file back.
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer d.Close()
	return d.Sync()
}

// Clear removes the temporary files that processes have left beside the file at path, which
// were killed in the middle of WriteFile. No other may be writing it. What cannot be removed
// does no harm.
func Clear(path string) {
	dir, base := filepath.Dir(path), filepath.Base(path)
	entries, _ := os.ReadDir(dir) // without it nothing is removed
	for _, e := range entries {
		digits, ours := strings.CutPrefix(e.Name(), "."+base)
		if _, err := strconv.ParseUint(digits, 10, 64); ours && err == nil && e.Type().IsRegular() {
			_ = os.Remove(filepath.Join(dir, e.Name()))
		}
	}
}

// about names the file at path in place of the temporary one, whose name is random: a
// caller who logs what has changed would take each failure for a new one.
func about(path string, err error) error {
	if file, ok := errors.AsType[*fs.PathError](err); ok {
		return &fs.PathError{Op: file.Op, Path: path, Err: file.Err}
	}
	if link, ok := errors.AsType[*os.LinkError](err); ok {
		return &fs.PathError{Op: link.Op, Path: path, Err: link.Err}
	}
	return err
}
