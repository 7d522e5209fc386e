package config

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func FuzzParse(f *testing.F) {
	files, err := filepath.Glob("testdata/*.yaml")
	require.NoError(f, err)
	require.NotEmpty(f, files)
	for _, file := range files {
		data, err := os.ReadFile(file)
		require.NoError(f, err)
		f.Add(data)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		cfg, err := Parse("f", data)
		if err == nil {
			require.NotEmpty(t, cfg.Tiers)
			for _, tier := range cfg.Tiers {
				require.True(t, len(tier.Servers) > 0 || tier.Members != nil)
				require.Greater(t, tier.Probe.MaxAge, tier.Probe.Interval+tier.Probe.Timeout)
				for _, server := range tier.Servers {
					require.NotNil(t, server.URL)
				}
			}
			return
		}
		require.Nil(t, cfg)
		problems, ok := err.(Problems)
		require.True(t, ok)
		require.NotEmpty(t, problems)
		lines := strings.Split(err.Error(), "\n")
		require.Len(t, lines, len(problems), "every problem is one line")
		for _, p := range problems {
			require.GreaterOrEqual(t, p.Line, 1)
			require.GreaterOrEqual(t, p.Column, 1)
			require.NotEmpty(t, p.Message)
			require.NotEmpty(t, p.Remedy)
		}
	})
}
