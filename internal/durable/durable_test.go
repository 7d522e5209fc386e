package durable

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// A caller logs a failure once, and again when its text changes. The three are a folder
// that is none, one that is missing, and a rename onto a folder.
//
// Control: without about each text had the random name of a temporary file.
func TestTheSameFailureHasTheSameText(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "file"), nil, 0o600))
	require.NoError(t, os.MkdirAll(filepath.Join(dir, "folder", "full"), 0o700))
	for path, want := range map[string]error{
		"file/state": syscall.ENOTDIR, "none/state": fs.ErrNotExist, "folder": syscall.EEXIST,
	} {
		path = filepath.Join(dir, path)
		first := WriteFile(path, []byte("x"), 0o600)
		require.Error(t, first, path)
		assert.EqualError(t, WriteFile(path, []byte("x"), 0o600), first.Error())
		assert.Contains(t, first.Error(), " "+path+": ", "the file is named")
		assert.True(t, errors.Is(first, want), "%v", first)
	}
}

// A process that was killed in the middle of a write has left its temporary file.
//
// Control: with Clear left out of ReadJSON, it stayed.
func TestWhatAKillHasLeftIsCleared(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "intents.json")
	ours := path[:len(dir)+1] + ".intents.json123456789"
	others := []string{"intents.json.old", ".intents.json", ".intents.json12x", ".other.json1", "intents.json1"}
	for _, name := range others {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), nil, 0o600))
	}
	require.NoError(t, os.WriteFile(ours, nil, 0o600))
	var read document
	require.ErrorIs(t, ReadJSON(path, 100, &read), fs.ErrNotExist)
	assert.NoFileExists(t, ours)
	for _, name := range others {
		assert.FileExists(t, filepath.Join(dir, name))
	}
}
