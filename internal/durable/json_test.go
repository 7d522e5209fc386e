package durable

import (
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
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
	assert.EqualError(t, ReadJSON(path, info.Size()-1, &read), "more than 28 bytes")
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
