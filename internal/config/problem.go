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

// nearest gives the known word that s was probably meant to be, or "".
func nearest(s string, known []string) string {
	best, bestDistance := "", 3
	if len(s) > maxEcho {
		return ""
	}
	for _, word := range known {
		// Two edits turn any word of three letters into any other that shares one.
		if d := distance(s, word); d < bestDistance && 2*d <= len(word) {
			best, bestDistance = word, d
		}
	}
	return best
}

// distance counts the insertions, deletions, replacements and swaps of
// neighbours that turn a into b.
func distance(a, b string) int {
	before, last, row := []int(nil), []int(nil), make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		before, last, row = last, row, make([]int, len(b)+1)
		row[0] = i + 1
		for j := range len(b) {
			replace := last[j]
			if a[i] != b[j] {
				replace++
			}
			row[j+1] = min(replace, last[j+1]+1, row[j]+1)
			if i > 0 && j > 0 && a[i] == b[j-1] && a[i-1] == b[j] {
				row[j+1] = min(row[j+1], before[j-1]+1)
			}
		}
	}
	return row[len(b)]
}
