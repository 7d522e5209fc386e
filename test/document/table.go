// Package document lets a test hold a table of docs/readiness.md to what the code
// says.
package document

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// Table compares the table below heading, which is its first two lines, with rows, a
// line each. With update it writes them there instead. The test is in a folder two
// below the repository's.
func Table(t *testing.T, heading, rows string, update bool) {
	t.Helper()
	path := filepath.Join("..", "..", "docs", "readiness.md")
	text, err := os.ReadFile(path)
	require.NoError(t, err)
	before, rest, _ := strings.Cut(string(text), heading)
	_, after, found := strings.Cut(rest, "\n\n")
	require.True(t, found, "the table stands in the document, and ends with an empty line")
	whole := before + heading + rows + "\n" + after
	if update {
		require.NoError(t, os.WriteFile(path, []byte(whole), 0o644))
		return
	}
	assert.Equal(t, whole, string(text), "in the folder of the test, go test -run %s -update writes it anew", t.Name())
}
