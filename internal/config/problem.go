package config

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

// maxEcho is the longest piece of the file that a message repeats, in characters,
// quotes included.
const maxEcho = 64

// maxProblems bounds the list: a file of 4 MiB can hold a million mistakes, and
// nobody reads beyond the first screens.
const maxProblems = 1000

// Problem is one thing that is wrong in a file.
type Problem struct {
	File    string
	Line    int    // from 1
	Column  int    // from 1, in characters
	Path    string // of the key, such as tiers[0].servers[1].url; empty for the file as a whole
	Message string // what is wrong
	Remedy  string // what would be right
}

func (p Problem) String() string {
	path := ""
	if p.Path != "" {
		path = p.Path + ": "
	}
	return fmt.Sprintf("%s:%d:%d: %s%s; %s", p.File, p.Line, p.Column, path, p.Message, p.Remedy)
}

// Problems is all that is wrong in a file.
type Problems []Problem

// Error lists the problems by their place, one a line.
func (p Problems) Error() string {
	sorted := slices.Clone(p)
	sorted.sort()
	lines := make([]string, len(sorted))
	for i, problem := range sorted {
		lines[i] = problem.String()
	}
	return strings.Join(lines, "\n")
}

func (p Problems) sort() {
	slices.SortStableFunc(p, func(a, b Problem) int {
		return cmp.Or(
			cmp.Compare(a.Line, b.Line),
			cmp.Compare(a.Column, b.Column),
			cmp.Compare(a.Path, b.Path),
			cmp.Compare(a.Message, b.Message),
		)
	})
}

// quote makes a piece of the file safe to print: quoted, escaped, and no longer
// than maxEcho characters.
func quote(s string) string {
	q := strconv.Quote(s)
	if utf8.RuneCountInString(q) <= maxEcho {
		return q
	}
	runes := []rune(s[:min(len(s), maxEcho*utf8.UTFMax)])
	// Escapes widen the text, so what fits is found by trying.
	for n := min(len(runes), maxEcho); n > 0; n-- {
		q = strconv.Quote(string(runes[:n]) + "…")
		if utf8.RuneCountInString(q) <= maxEcho {
			break
		}
	}
	return q
}
