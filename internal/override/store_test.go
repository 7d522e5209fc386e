package override

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"tier-agent/test/guarantee"
)

var noon = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

func half(tier string) Record {
	return Record{Tier: tier, Reason: "why", Who: "ann", Since: noon, Until: noon.Add(30 * time.Minute)}
}

func open(t *testing.T, dir string, now time.Time) []Record {
	t.Helper()
	s, err := Open(dir, now)
	require.NoError(t, err)
	return s.All()
}

// Control: with DeleteFunc taken out of load, what was over was in force again.
func TestG_ARecordLastsUntilItsEnd(t *testing.T) {
	dir := t.TempDir()
	s, err := Open(dir, noon)
	require.NoError(t, err)
	require.NoError(t, s.Put(half("b")))
	require.NoError(t, s.Put(half("a")))
	assert.Equal(t, []Record{half("a"), half("b")}, s.All())
	assert.Equal(t, s.All(), open(t, dir, noon.Add(30*time.Minute-1)))
	assert.Empty(guarantee.T(t), open(t, dir, noon.Add(30*time.Minute)))
	assert.Empty(guarantee.T(t), open(t, dir, noon.Add(-1)), "a clock that was set back prolongs nothing")

	s, err = Open(dir, noon.Add(time.Hour))
	require.NoError(t, err)
	require.NoError(t, s.Flush())
	assert.Empty(t, open(t, dir, noon), "what was over is no longer in the file")

	require.NoError(t, s.Put(half("a")))
	require.NoError(t, s.Drop("a"))
	assert.Empty(guarantee.T(t), open(t, dir, noon))
}

// Control: with the error of load left out, an edited file was as long as it said.
func TestG_AFileThatCannotBeReadHasNoOverride(t *testing.T) {
	one := `{"tier":"a","reason":"r","who":"w","since":"2026-03-01T12:00:00Z","until":"2026-03-01T12:30:00Z"}`
	for what, text := range map[string]string{
		"empty":           ``,
		"cut":             `{"version":1,"overrides":[` + one,
		"another version": `{"version":2,"overrides":[` + one + `]}`,
		"none":            `{"version":1}`,
		"an unknown key":  `{"version":1,"overrides":[],"more":1}`,
		"twice":           `{"version":1,"overrides":[` + one + `,` + one + `]}`,
		"no tier":         `{"version":1,"overrides":[` + strings.Replace(one, `"a"`, `""`, 1) + `]}`,
		"no reason":       `{"version":1,"overrides":[` + strings.Replace(one, `"r"`, `""`, 1) + `]}`,
		"too long":        `{"version":1,"overrides":[` + strings.Replace(one, `01T12:30`, `02T12:30`, 1) + `]}`,
		"no end":          `{"version":1,"overrides":[` + strings.Replace(one, `,"until":"2026-03-01T12:30:00Z"`, ``, 1) + `]}`,
	} {
		dir := t.TempDir()
		path := filepath.Join(dir, "overrides.json")
		require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
		s, err := Open(dir, noon.Add(time.Minute))
		require.ErrorIs(t, err, ErrUnreadable, what)
		assert.Contains(t, err.Error(), path)
		assert.Empty(guarantee.T(t), s.All(), what)
		require.NoError(t, s.Flush())
		kept, err := os.ReadFile(path)
		require.NoError(t, err)
		assert.Equal(t, text, string(kept), "it is left to be looked at")
		require.NoError(t, s.Put(half("b")))
		assert.Equal(t, []Record{half("b")}, open(t, dir, noon), "and the next one replaces it")
	}
}

// Controls: with Put keeping what it could not write, a was there; without differs, the
// end of b was never written.
func TestWhatCannotBeWritten(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "state")
	require.NoError(t, os.Mkdir(dir, 0o700))
	s, err := Open(dir, noon)
	require.NoError(t, err)
	require.NoError(t, s.Put(half("b")))
	require.NoError(t, os.Rename(dir, dir+"2"))
	require.ErrorIs(t, s.Put(half("a")), ErrNotDurable)
	longer := half("b")
	longer.Until = noon.Add(time.Hour)
	require.ErrorIs(t, s.Put(longer), ErrNotDurable)
	assert.Equal(guarantee.T(t), []Record{half("b")}, s.All(), "what is not on disk is not in force")
	require.ErrorIs(t, s.Drop("b"), ErrNotDurable)
	assert.Empty(guarantee.T(t), s.All(), "what is to end has ended")
	require.NoError(t, os.Rename(dir+"2", dir))
	require.NoError(t, s.Flush())
	assert.Empty(t, open(t, dir, noon))
	require.Error(t, s.Put(Record{Tier: "a", Reason: "r", Since: noon, Until: noon.Add(25 * time.Hour)}))
}
