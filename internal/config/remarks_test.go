package config

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// Controls: each remark taken out by itself was missed in the golden file; with the
// question of the network left out of instanceRemarks, "elsewhere" had one more.
func TestRemarks(t *testing.T) {
	const file = "testdata/valid-remarks.yaml"
	cfg, err := Load(file)
	require.NoError(t, err)
	got := cfg.Remarks.Error() + "\n"
	golden := strings.TrimSuffix(file, ".yaml") + ".golden"
	if *update {
		require.NoError(t, os.WriteFile(golden, []byte(got), 0o644))
	}
	want, err := os.ReadFile(golden)
	require.NoError(t, err)
	assert.Equal(t, string(want), got)

	later := cfg.Remark("tiers[3].servers[0].server", "is not there", "see")
	assert.Equal(t, file+":25:24: tiers[3].servers[0].server: is not there; see", later.String())
}

// What is shipped needs no remark.
func TestNoRemarksOnWhatIsShipped(t *testing.T) {
	for _, pattern := range []string{"../../haproxy/*.yaml", "../../compose/*.yaml"} {
		files, err := filepath.Glob(pattern)
		require.NoError(t, err)
		require.NotEmpty(t, files)
		for _, file := range files {
			cfg, err := Load(file)
			require.NoError(t, err)
			assert.Empty(t, cfg.Remarks)
		}
	}
}
