// Package durable replaces files so that after a kill or a loss of power the
// old one is there whole, or the new one.
package durable

import (
	"os"
	"path/filepath"

	"github.com/google/renameio/v2"
)

// WriteFile replaces the file at path: temporary file beside it, fsync, rename,
// fsync of the folder. The permissions are exactly perm, whatever the umask.
func WriteFile(path string, data []byte, perm os.FileMode) error {
	dir := filepath.Dir(path)
	if err := renameio.WriteFile(path, data, perm, renameio.WithStaticPermissions(perm), renameio.WithTempDir(dir)); err != nil {
		return err
	}
	// Without this a power loss can bring the old file back.
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer d.Close()
	return d.Sync()
}
