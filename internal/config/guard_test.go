package config

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// A file that is refused costs little: each of these is below MaxFileSize, and some took
// seconds and more than a gigabyte.
//
// Control: without crowded, the lists were parsed.
func TestAFileOfNothingButStructureIsRefusedEarly(t *testing.T) {
	for _, text := range []string{"-\n", "[],", "#\n", "- |\n", "'',", "{},", "&a ", "? \n"} {
		data := "[" + strings.Repeat(text, MaxFileSize/len(text)-1)
		_, err := Parse("f", []byte(data))
		var problems Problems
		require.ErrorAs(t, err, &problems, "%q", text)
		assert.Contains(t, err.Error(), ": more than 80000 values; keep to the structure", "%q", text)
	}
	var many strings.Builder
	many.WriteString("tiers:\n")
	for tier := range 100 {
		fmt.Fprintf(&many, "  - name: t%d\n    identity: {id: big}\n    admission: agent-check\n    servers:\n", tier)
		for server := range 100 {
			fmt.Fprintf(&many, "      - {server: b%d/s%d, url: 'http://10.0.%d.%d:80'}\n", tier, server, tier, server)
		}
	}
	_, err := Parse("f", []byte(many.String()))
	assert.NoError(t, err, "ten thousand servers")
}

// Control: with the file read by the caller, the reload waited for ever.
func TestAConfigurationThatCannotBeReadAtOnce(t *testing.T) {
	path := filepath.Join(t.TempDir(), "pipe")
	require.NoError(t, syscall.Mkfifo(path, 0o600))
	_, err := Load(path)
	assert.ErrorContains(t, err, "was not read in 1s: is it a pipe that nobody writes into")
	writer, err := os.OpenFile(path, os.O_WRONLY, 0) // which ends the read that hangs
	require.NoError(t, err)
	require.NoError(t, writer.Close())
}
