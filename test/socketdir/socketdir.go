// Package socketdir gives tests a folder whose path leaves room for a socket.
package socketdir

import (
	"os"
	"testing"

	"github.com/stretchr/testify/require"
)

// New makes a folder that goes when the test ends. It is not TempDir's: that has the
// test's name in its path, and the path of a socket has 108 bytes (unix(7)), of which
// HAProxy keeps some for itself.
func New(tb testing.TB) string {
	tb.Helper()
	dir, err := os.MkdirTemp("", "ta")
	require.NoError(tb, err)
	tb.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}
