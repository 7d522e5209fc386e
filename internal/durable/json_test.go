package durable

import (
	"bytes"
	"encoding/json"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"tier-agent/test/guarantee"
)

type document struct {
	Names []string `json:"names"`
}

func TestJSONIsReadAsItWasWritten(t *testing.T) {
	path := filepath.Join(t.TempDir(), "file")
	var read document
	require.ErrorIs(t, ReadJSON(path, 100, &read), fs.ErrNotExist)
	require.NoError(t, NewFile(path).Replace(document{Names: []string{"a"}})())
	info, err := os.Stat(path)
	require.NoError(t, err)
	assert.Equal(t, fs.FileMode(0o600), info.Mode())
	require.NoError(t, ReadJSON(path, info.Size(), &read), "of exactly as many bytes as it may have")
	assert.Equal(t, document{Names: []string{"a"}}, read)
	assert.EqualError(t, ReadJSON(path, info.Size()-1, &read), "more than 61 bytes")
	require.Error(t, NewFile(path).Replace(func() {})(), "no JSON can say that")
	require.NoError(t, ReadJSON(path, 100, &read), "and what was there is there still")
}

// Controls: with encoding/json in its place, a key twice and one in another case were
// accepted.
func TestJSONThatIsNotOneDocument(t *testing.T) {
	for text, says := range map[string]string{
		``:                          "unexpected EOF",
		`{"names": [`:               `unexpected EOF within "/names"`,
		`{"names": [], "more":1}`:   `unknown object member name "more"`,
		`{"names": [], "names":[]}`: `duplicate object member name "names"`,
		`{"Names": []}`:             `unknown object member name "Names"`,
		`{} {}`:                     "after top-level value",
		`{} ]`:                      "after top-level value",
		"{\"names\": [\"\xff\"]}":   "invalid UTF-8",
	} {
		path := filepath.Join(t.TempDir(), "file")
		require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
		assert.ErrorContains(t, ReadJSON(path, 100, new(document)), says, text)
	}
}

// A file of the version before is read, and kept; that version reads one of this.
//
// Control: with the checksum in a field, the reader of before refused the file.
func TestFilesOfTheVersionBefore(t *testing.T) {
	path := filepath.Join(t.TempDir(), "file")
	old := []byte("{\n  \"names\": [\n    \"a\"\n  ]\n}\n")
	require.NoError(t, os.WriteFile(path, old, 0o600))
	var read document
	require.NoError(t, ReadJSON(path, 1000, &read))
	assert.Equal(t, []string{"a"}, read.Names)
	kept, err := os.ReadFile(path + ".old")
	require.NoError(t, err)
	assert.Equal(t, old, kept)

	require.NoError(t, NewFile(path).Replace(document{Names: []string{"b"}})())
	text, err := os.ReadFile(path)
	require.NoError(t, err)
	// As the version before has read it.
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	require.NoError(t, d.Decode(&read))
	_, err = d.Token()
	require.ErrorIs(t, err, io.EOF)
	assert.Equal(t, []string{"b"}, read.Names)
	require.NoError(t, ReadJSON(path, 1000, &read))
	kept, err = os.ReadFile(path + ".old")
	require.NoError(t, err)
	assert.Equal(t, old, kept, "it stays")
}

// Controls: without the comparison of sums, each change was taken; with head left out, a
// later version was an unknown field.
func TestFilesThatSomethingElseHasChanged(t *testing.T) {
	path := filepath.Join(t.TempDir(), "file")
	require.NoError(t, NewFile(path).Replace(document{Names: []string{"abc"}})())
	text, err := os.ReadFile(path)
	require.NoError(t, err)
	for n, c := range text {
		changed := bytes.Clone(text)
		if changed[n] = c ^ 1; c == '\t' {
			changed[n] = ' '
		}
		require.NoError(t, os.WriteFile(path, changed, 0o600))
		var read document
		assert.Error(guarantee.T(t), ReadJSON(path, 1000, &read), "byte %d", n)
	}
	require.NoError(t, os.WriteFile(path, bytes.Replace(text, []byte("abc"), []byte("abd"), 1), 0o600))
	var read document
	require.ErrorIs(t, ReadJSON(path, 1000, &read), ErrSum)
	assert.Equal(t, []string{"abd"}, read.Names, "for whoever can use it")
	require.NoError(t, os.WriteFile(path, []byte(`{"version":2,"writer":"9.1","names":{}}`), 0o600))
	assert.EqualError(t, ReadJSON(path, 1000, &read), `version 2, written by tier-agent "9.1"; this one reads 1`)
}
