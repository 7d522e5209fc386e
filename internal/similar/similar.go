// Package similar finds the word that a mistyped one was probably meant to be. What it
// finds is as few edits away as any other, and never so many that it would be a guess.
package similar

// longest is the longest word that is looked at, in bytes: no name here is longer than
// "backend/server", and what it costs grows with the square.
const longest = 130

// To gives the known word that s was probably meant to be, or "".
func To(s string, known []string) string {
	best, bestDistance := "", 3
	for _, word := range known {
		if word == s || max(len(s), len(word)) > longest {
			continue
		}
		// Two edits turn any word of three letters into any other that shares one.
		if d := distance(s, word); d < bestDistance && 2*d <= len(word) {
			best, bestDistance = word, d
		}
	}
	return best
}

// Hint is " (did you mean WORD?)", for behind s in a message, or "" where To finds none.
func Hint(s string, known []string) string {
	if word := To(s, known); word != "" {
		return " (did you mean " + word + "?)"
	}
	return ""
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
