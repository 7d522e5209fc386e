package config

import (
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// Negative control: without the clone in Error the caller's list is reordered.
func TestProblemsAreSortedByPlace(t *testing.T) {
	problems := Problems{
		{File: "f", Line: 2, Column: 1, Path: "b", Message: "m", Remedy: "r"},
		{File: "f", Line: 1, Column: 9, Path: "a", Message: "m", Remedy: "r"},
		{File: "f", Line: 1, Column: 2, Message: "m", Remedy: "r"},
	}
	assert.Equal(t, "f:1:2: m; r\nf:1:9: a: m; r\nf:2:1: b: m; r", problems.Error())
	assert.Equal(t, 2, problems[0].Line, "Error must not reorder the caller's list")
}

// Negative control: with one round of the loop in quote the escaped ones exceed 64.
func TestQuoteIsBounded(t *testing.T) {
	assert.Equal(t, `"short"`, quote("short"))
	for _, s := range []string{
		strings.Repeat("x", 1<<20), strings.Repeat("\x00", 100), strings.Repeat("é", 63), strings.Repeat("\xff", 80),
		strings.Repeat("\U0001f600", 70), strings.Repeat(`"`, 63),
	} {
		q := quote(s)
		assert.LessOrEqual(t, utf8.RuneCountInString(q), maxEcho)
		assert.NotContains(t, q, "\x00")
		assert.Contains(t, q, "…")
	}
}

// Negative control: without the maxProblems case in add all 5000 are listed.
func TestProblemsAreBounded(t *testing.T) {
	text := "tiers:\n" + strings.Repeat("  - x\n", 5000)
	_, err := Parse("f", []byte(text))
	var problems Problems
	require.ErrorAs(t, err, &problems)
	require.Len(t, problems, maxProblems+1)
	assert.Equal(t, "4000 more problems are not shown", problems[maxProblems].Message)
}

// Negative control: without the wildcard cases in collide, or the localhost case in
// normalHost, the matching lines fail.
func TestListenersCollide(t *testing.T) {
	for _, pair := range []struct {
		a, b string
		want bool
	}{
		{"127.0.0.1:1", "127.0.0.1:1", true},
		{"127.0.0.1:1", "127.0.0.1:2", false},
		{"127.0.0.1:0", "127.0.0.1:0", false},
		{"localhost:1", "127.0.0.1:1", true},
		{"LocalHost.:1", "127.0.0.1:1", true},
		{"localhost:1", "10.0.0.1:1", false},
		{":1", "10.0.0.1:1", true},
		{"0.0.0.0:1", "10.0.0.1:1", true},
		{"[::]:1", "10.0.0.1:1", true},
		{"[::]:1", "0.0.0.0:1", true},
		{"[::1]:1", "[0:0::1]:1", true},
		{"[::ffff:10.0.0.1]:1", "10.0.0.1:1", true},
		{"Host:1", "host:1", true},
		{"127.0.0.1:1", "127.0.0.1:01", true},
	} {
		assert.Equal(t, pair.want, collide(pair.a, pair.b), "%s and %s", pair.a, pair.b)
		assert.Equal(t, pair.want, collide(pair.b, pair.a), "%s and %s", pair.b, pair.a)
	}
}
