package activation

import (
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"tier-agent/test/guarantee"
)

func names(all ...string) func() []string { return func() []string { return all } }

func open(t testing.TB, dir string) *Store {
	t.Helper()
	s, err := Open(dir)
	require.NoError(t, err)
	return s
}

// Control: with Sorted taken out of Save, the file was not in order.
func TestWhatIsSavedIsThereAfterAStart(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir)
	assert.False(t, s.Has("a"), "no file: nothing has been ready")
	require.NoError(t, s.Save(names()))
	assert.NoFileExists(t, s.path, "nor is there anything to write")
	require.NoError(t, s.Save(names("c", "b", "a")))
	text, err := os.ReadFile(filepath.Join(dir, "activated.json"))
	require.NoError(t, err)
	assert.True(t, strings.HasPrefix(string(text), "{\n  \"version\": 1,\n  \"tiers\": [\n    \"a\",\n    \"b\",\n    \"c\"\n  ]\n}\n"), "%s", text)
	info, err := os.Stat(s.path)
	require.NoError(t, err)
	assert.Equal(t, fs.FileMode(0o600), info.Mode())

	s = open(t, dir)
	for name, want := range map[string]bool{"a": true, "b": true, "c": true, "d": false, "": false} {
		assert.Equal(guarantee.T(t), want, s.Has(name), name)
	}
	require.NoError(t, s.Save(names("b")))
	s = open(t, dir)
	assert.False(t, s.Has("a"), "what is no longer named is forgotten")
	assert.True(t, s.Has("b"))
	require.NoError(t, s.Save(names()))
	assert.False(t, open(t, dir).Has("b"))
}

// Control: with the comparison taken out of Save, the file was another one.
func TestWhatIsThereAlreadyIsNotWritten(t *testing.T) {
	s := open(t, t.TempDir())
	require.NoError(t, s.Save(names("a", "b")))
	before, err := os.Stat(s.path)
	require.NoError(t, err)
	require.NoError(t, s.Save(names("b", "a")))
	after, err := os.Stat(s.path)
	require.NoError(t, err)
	assert.True(t, os.SameFile(before, after))
}

// To guess that nothing has been ready would close healthy tiers (G9).
//
// Control: with s.all taken out of Has, none had been.
func TestG9_AFileThatCannotBeReadDelaysNoTier(t *testing.T) {
	for what, text := range map[string]string{
		"empty":             "",
		"cut":               `{"version":1,"tiers":["a"`,
		"more behind it":    `{"version":1,"tiers":[]} {}`,
		"another version":   `{"version":2,"tiers":[]}`,
		"no version":        `{"tiers":[]}`,
		"no tiers":          `{"version":1}`,
		"null":              `null`,
		"an unknown key":    `{"version":1,"tiers":[],"more":1}`,
		"a tier of no name": `{"version":1,"tiers":[""]}`,
		"too large":         `{"version":1,"tiers":["` + strings.Repeat("x", maxFile) + `"]}`,
	} {
		dir := t.TempDir()
		path := filepath.Join(dir, fileName)
		require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
		s, err := Open(dir)
		require.ErrorIs(t, err, ErrUnknown, what)
		assert.ErrorContains(t, err, path+": ")
		assert.ErrorContains(t, err, "stop tier-agent and remove it")
		assert.True(guarantee.T(t), s.Has("a"), what)

		require.NoError(t, s.Save(names()), what)
		s = open(t, dir)
		assert.False(t, s.Has("a"), "written anew, also where there is nothing to say: %s", what)
	}
}

func TestADirectoryInThePlaceOfTheFile(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, os.Mkdir(filepath.Join(dir, fileName), 0o700))
	s, err := Open(dir)
	require.ErrorIs(t, err, ErrUnknown)
	assert.True(t, s.Has("a"))
	require.ErrorIs(t, s.Save(names("a")), ErrNotDurable)
	require.NoError(t, os.Remove(s.path))
	require.NoError(t, s.Save(names("a")), "the next attempt writes")
	assert.True(t, open(t, dir).Has("a"))
	assert.False(t, open(t, dir).Has("b"))
}

// Control: with kept left true after a failure, the second Save wrote nothing.
func TestWhatCouldNotBeWrittenIsWrittenLater(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "state")
	require.NoError(t, os.Mkdir(dir, 0o700))
	s := open(t, dir)
	require.NoError(t, s.Save(names("a")))
	require.NoError(t, os.RemoveAll(dir))
	require.ErrorIs(t, s.Save(names("a", "b")), ErrNotDurable)
	require.NoError(t, os.Mkdir(dir, 0o700))
	require.NoError(t, s.Save(names("a")), "as before, but nobody knows what is there")
	assert.True(guarantee.T(t), open(t, dir).Has("a"))
}

// The last Save to return has asked last: an older answer never stands over a
// newer one.
//
// Control: with now called before the lock is taken, the second had asked at once.
func TestSavesTakeTurns(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir)
	var wg sync.WaitGroup
	asking, answer, second := make(chan struct{}), make(chan struct{}), make(chan struct{})
	wg.Go(func() {
		assert.NoError(t, s.Save(func() []string {
			close(asking)
			<-answer
			return []string{"a"}
		}))
	})
	<-asking
	wg.Go(func() {
		assert.NoError(t, s.Save(func() []string {
			close(second)
			return []string{"a", "b"}
		}))
	})
	select {
	case <-second:
		t.Error("the second asks while the first one has not written")
	case <-time.After(100 * time.Millisecond): // only makes the control sharper
	}
	close(answer)
	wg.Wait()
	assert.True(guarantee.T(t), open(t, dir).Has("b"))
}
