package runtimeapi

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// storing answers as HAProxy does (recorded from 2.6, 3.0 and 3.2, which agree): tables
// whose names begin with "s" store servers.
func storing(names ...string) map[string]string {
	answers := map[string]string{"show table": ""}
	for _, name := range names {
		line := fmt.Sprintf("# table: %s, type: string, size:10240, used:4\n", name)
		answers["show table"] += line
		answers["show table "+name+" data.server_id lt 0"] = "Filter entry #1: Data type not stored in this table\n\n"
		if strings.HasPrefix(name, "s") {
			answers["show table "+name+" data.server_id lt 0"] = line + "\n"
		}
	}
	answers["show table"] += "\n\n"
	return answers
}

// Control: with tablesAtOnce at 400, the commands of one exchange were more than HAProxy takes.
func TestStickTablesThatStoreServers(t *testing.T) {
	any := func(string) bool { return true }
	for _, c := range []struct {
		names, want []string
		wanted      func(string) bool
	}{
		{names: []string{"counters", "sticky", "speers/t1"}, want: []string{"sticky", "speers/t1"}, wanted: any},
		{names: []string{"sticky", "sothers"}, want: []string{"sticky"}, wanted: func(name string) bool { return name == "sticky" }},
		{names: nil, want: nil, wanted: any},
	} {
		got, err := serve(t, "unix", obey(7, storing(c.names...))).instance(Options{}).StickTables(t.Context(), c.wanted)
		require.NoError(t, err)
		assert.Equal(t, c.want, got)
	}

	var many []string
	for n := range 400 {
		many = append(many, fmt.Sprintf("s%060d", n))
	}
	f := serve(t, "unix", obey(7, storing(many...)))
	got, err := f.instance(Options{}).StickTables(t.Context(), any)
	require.NoError(t, err)
	assert.Equal(t, many, got)
	assert.EqualValues(t, 1+400/tablesAtOnce, f.accepted.Load())
}

// What no table can be called never becomes a command.
func TestStickTablesOfOddNames(t *testing.T) {
	answers := storing("s1")
	answers["show table"] = "# table: s1, type: ip, size:1, used:0\n# table: s2 s3, type: ip, size:1, used:0\n# table: s4/a/b, type: ip, size:1, used:0\n\n"
	got, err := serve(t, "unix", obey(7, answers)).instance(Options{}).StickTables(t.Context(), func(string) bool { return true })
	require.NoError(t, err)
	assert.Equal(t, []string{"s1"}, got)

	answers["show table"] = "Permission denied\n\n"
	_, err = serve(t, "unix", obey(7, answers)).instance(Options{}).StickTables(t.Context(), func(string) bool { return true })
	require.ErrorIs(t, err, ErrMalformed)
	assert.ErrorContains(t, err, `haproxy hap1: `)
}
