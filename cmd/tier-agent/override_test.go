package main

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestOverrideUsage(t *testing.T) {
	for _, c := range []struct {
		args []string
		says string
	}{
		{[]string{"heavy"}, "--for is missing: say how long, 1m0s to 24h0m0s"},
		{[]string{"heavy", "--for", "30m"}, "--reason is missing"},
		{[]string{"heavy", "--for", "30s", "--reason", "x"}, "--for 30s: give 1m0s to 24h0m0s"},
		{[]string{"heavy", "--for", "25h", "--reason", "x"}, "--for 25h0m0s: give"},
		{[]string{"heavy", "--for", "30m", "--reason", "two words"}, `--reason "two words"`},
		{[]string{"--for", "30m", "--reason", "x"}, "takes 1 argument (TIER), not 0"},
		{[]string{"heavy", "--end", "--for", "30m"}, "--end goes with a tier and nothing else"},
		{[]string{"heavy", "--haproxy", "unix:/s", "--for", "30m", "--reason", "x"}, "--haproxy goes with --direct"},
		{[]string{"--direct", "heavy/h1", "--for", "30m", "--reason", "x"}, "--direct wants at least one --haproxy and one backend/server"},
		{[]string{"--direct", "--haproxy", "/s", "heavy/h1", "--for", "30m", "--reason", "x"}, `--haproxy "/s" is not an address: write unix:/absolute/path or tcp:host:port`},
		{[]string{"--direct", "--haproxy", "unix:/s", "heavy", "--for", "30m", "--reason", "x"}, `"heavy" is no server: give backend/server, as HAProxy has it`},
		{[]string{"--direct", "--haproxy", "unix:/s", "heavy/h1;x", "--for", "30m", "--reason", "x"}, `"heavy/h1;x" is no server`},
	} {
		s := cli(append([]string{"override"}, c.args...)...)
		assert.Equal(t, exitUsage, s.code, c.args)
		assert.Contains(t, s.err, c.says)
	}
}
