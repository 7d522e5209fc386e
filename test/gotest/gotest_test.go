package main

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// fixture runs go test on a package of testdata, whose tests fail in the way of its name,
// and returns what the list says of it: why and test, a line each.
func fixture(t *testing.T, l list, name string, args ...string) []string {
	t.Helper()
	args = append([]string{"-count=1", "tier-agent/test/gotest/testdata/" + name}, args...)
	require.Error(t, run(t.Context(), io.Discard, l, "unit", args))
	all, err := l.read()
	require.NoError(t, err)
	var said []string
	for _, f := range all {
		assert.Equal(t, "unit", f.part)
		assert.FileExists(t, f.log)
		said = append(said, strings.TrimSpace(f.why+" "+f.test))
	}
	return said
}

func TestOnlyATestThatFailedByItselfIsRunAgain(t *testing.T) {
	for _, c := range []struct {
		name string
		args []string
		want []string
		log  string
	}{
		{"violation", nil, []string{"violation TestLoses/3.2"}, "requests were lost"},
		{"racy", []string{"-race"}, []string{"race TestRacy"}, "DATA RACE"},
		{"panics", nil, []string{"failed TestFailsFirst", "panic TestPanics"}, "and goes on"},
		{"hangs", []string{"-timeout=1s"}, []string{"panic TestHangs"}, "test timed out after 1s"},
		{"unbuilt", nil, []string{"build"}, "undefined: undefined"},
		{"exits", nil, []string{"binary"}, "a goroutine is left"},
		{"property", []string{"-rapid.nofailfile"}, []string{"counterexample TestProperty"}, "is too many"},
	} {
		t.Run(c.name, func(t *testing.T) {
			if c.name == "racy" {
				t.Setenv("CGO_ENABLED", "1")
			}
			l := list{dir: t.TempDir()}
			require.Equal(t, c.want, fixture(t, l, c.name, c.args...))
			text, err := os.ReadFile(filepath.Join(l.logs("unit"), "1.log"))
			require.NoError(t, err)
			assert.Contains(t, string(text), c.log)

			var out strings.Builder
			require.ErrorContains(t, again(t.Context(), &out, l, nil), "never run again")
			assert.NotContains(t, out.String(), "again:")
		})
	}
}

func TestATestThatPassesWhenRunAgainIsListedAsFlaky(t *testing.T) {
	t.Setenv("GOTEST_FIXTURE", t.TempDir())
	l := list{dir: t.TempDir()}
	require.Equal(t, []string{"failed TestFlaky/a_port_[::1]_|_b"}, fixture(t, l, "flaky"))
	var out strings.Builder
	require.NoError(t, again(t.Context(), &out, l, nil))
	flaky, err := os.ReadFile(filepath.Join(l.dir, "flaky"))
	require.NoError(t, err)
	for _, text := range []string{out.String(), string(flaky)} {
		assert.Contains(t, text, "flaky: tier-agent/test/gotest/testdata/flaky TestFlaky/a_port_[::1]_|_b passed when run again (1 of 2)")
		assert.Contains(t, text, "the port was taken")
	}
}

func TestATestThatFailsAgainFailsTheRun(t *testing.T) {
	l := list{dir: t.TempDir()}
	require.Equal(t, []string{"failed TestBroken"}, fixture(t, l, "broken"))
	var out strings.Builder
	require.ErrorContains(t, again(t.Context(), &out, l, nil), "TestBroken failed again, alone, 2 times of 2")
	assert.Equal(t, 2, strings.Count(out.String(), "again: "))
}

// A part that was killed before it could say anything, and a test that is not there any
// more, must not pass for want of a failure.
func TestWhatDidNotRunCountsAsFailed(t *testing.T) {
	l := list{dir: t.TempDir()}
	require.ErrorContains(t, again(t.Context(), io.Discard, l, nil), "what failed was no test")
	require.NoError(t, l.begin([]string{"unit", "integration"}))
	require.NoError(t, run(t.Context(), io.Discard, l, "unit", []string{"tier-agent/test/guarantee"}))
	require.ErrorContains(t, again(t.Context(), io.Discard, l, nil), "integration: unfinished")

	require.NoError(t, l.replace("integration", []failure{{pkg: "tier-agent/test/gotest/testdata/flaky", test: "TestGone", why: whyFailed}}))
	require.ErrorContains(t, again(t.Context(), io.Discard, l, nil), "TestGone failed again")
}

func TestManyFailuresAreNoFlakyTests(t *testing.T) {
	l := list{dir: t.TempDir()}
	var all []failure
	for n := range maxAgain + 1 {
		all = append(all, failure{pkg: "p", test: fmt.Sprint("Test", n), why: whyFailed})
	}
	require.NoError(t, l.replace("unit", all))
	require.ErrorContains(t, again(t.Context(), io.Discard, l, nil), "13 tests failed; more than 12 are not run again")
}
