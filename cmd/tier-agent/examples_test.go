package main

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// What the documents show of an exercise, put where they say, is accepted.
//
// Negative control: with "interval: 1m" in operations.md made "every: 1m", the
// second was refused.
func TestTheExercisesOfTheDocumentsAreAccepted(t *testing.T) {
	shipped, err := os.ReadFile("../../haproxy/tier-agent.yaml")
	require.NoError(t, err)
	commented := regexp.MustCompile(`(?m)(^    # exercise:\n(?:^    #   .*\n)+)`)
	require.Len(t, commented.FindAll(shipped, -1), 1)
	operations, err := os.ReadFile("../../docs/operations.md")
	require.NoError(t, err)
	block := regexp.MustCompile("(?s)```\n(    exercise:\n.*?)```").FindSubmatch(operations)
	require.NotNil(t, block)

	for name, exercise := range map[string]string{
		"tier-agent.yaml": strings.ReplaceAll(string(commented.Find(shipped)), "    # ", "    "),
		"operations.md":   string(block[1]),
	} {
		file := filepath.Join(t.TempDir(), "tier-agent.yaml")
		text := commented.ReplaceAllLiteralString(string(shipped), exercise)
		require.Contains(t, text, "\n    exercise:\n")
		require.NoError(t, os.WriteFile(file, []byte(text), 0o600))
		s := cli("check-config", "-c", withSecrets(t, file))
		assert.Equal(t, exitDone, s.code, "%s: %s%s", name, s.out, s.err)
	}
}
