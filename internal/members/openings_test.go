package members

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"tier-agent/test/guarantee"
)

func opening(haproxy, server string) Opening {
	return Opening{HAProxy: haproxy, Server: server, Address: "192.0.2.1:1", PID: 7}
}

func TestOpeningsAreThereAfterARestart(t *testing.T) {
	dir := t.TempDir()
	o, err := Open(dir)
	require.NoError(t, err)
	held := opening("edge", "gpu/gpu10")
	held.Held = true
	require.NoError(t, o.Keep([]Opening{held, opening("edge", "gpu/gpu9"), opening("core", "gpu/gpu9")}, nil))
	require.NoError(t, o.Keep(nil, []Place{{"core", "gpu/gpu9"}}))
	require.NoError(t, o.Keep(nil, nil))

	again, err := Open(dir)
	require.NoError(t, err)
	assert.ElementsMatch(guarantee.T(t), []Opening{opening("edge", "gpu/gpu9"), held}, again.Of("edge"))
	assert.Empty(t, again.Of("core"))
	one, known := again.Get(Place{"edge", "gpu/gpu10"})
	assert.True(t, known)
	assert.True(guarantee.T(t), one.Held)
	info, err := os.Stat(filepath.Join(dir, openingsName))
	require.NoError(t, err)
	assert.Equal(t, os.FileMode(0o600), info.Mode())
}

// What somebody holds must not be guessed.
//
// Negative control: with load's errors taken for an empty file, each was accepted.
func TestOpeningsThatCannotBeReadAreAnError(t *testing.T) {
	for name, text := range map[string]string{
		"cut short":     `{"version": 1, "openings": [`,
		"no JSON":       "openings",
		"another key":   `{"version": 1, "openings": [], "more": 1}`,
		"another time":  `{"version": 2, "openings": []}`,
		"no openings":   `{"version": 1}`,
		"no server":     `{"version": 1, "openings": [{"haproxy": "edge"}]}`,
		"two documents": `{"version": 1, "openings": []} {}`,
		"more behind":   `{"version": 1, "openings": []} ]`,
		"nothing":       "",
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			require.NoError(t, os.WriteFile(filepath.Join(dir, openingsName), []byte(text), 0o600))
			_, err := Open(dir)
			require.ErrorIs(guarantee.T(t), err, ErrCorrupt)
			assert.ErrorContains(t, err, "move the file away")
		})
	}
}

// Negative control: with older left false after a failure, the second Keep wrote
// nothing and said that all was well.
func TestOpeningsThatCouldNotBeWrittenAreWrittenLater(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "state")
	require.NoError(t, os.Mkdir(dir, 0o700))
	o, err := Open(dir)
	require.NoError(t, err)
	require.NoError(t, os.Remove(dir))
	require.Error(t, o.Keep([]Opening{opening("edge", "gpu/gpu9")}, nil))
	require.Error(t, o.Keep(nil, nil), "not written yet")
	require.NoError(t, os.Mkdir(dir, 0o700))
	require.NoError(t, o.Keep(nil, nil))
	again, err := Open(dir)
	require.NoError(t, err)
	assert.Equal(t, []Opening{opening("edge", "gpu/gpu9")}, again.Of("edge"))
}

// What something else has changed opens no member: all of them are held.
func TestOpeningsThatSomethingElseHasChanged(t *testing.T) {
	dir := t.TempDir()
	o, err := Open(dir)
	require.NoError(t, err)
	require.NoError(t, o.Keep([]Opening{{HAProxy: "edge", Server: "b/s1", Address: "10.0.0.1:80", PID: 42}}, nil))
	text, err := os.ReadFile(o.path)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(o.path, bytes.Replace(text, []byte("42"), []byte("43"), 1), 0o600))
	o, err = Open(dir)
	require.ErrorIs(t, err, ErrChanged)
	one, known := o.Get(Place{"edge", "b/s1"})
	assert.True(t, known && one.Held)
}
