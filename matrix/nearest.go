package matrix

import "strings"

// Nearest returns the known word that text is most likely a misspelling of, and
// false where none is close: more than a third of the letters differ and text is
// not its beginning either. Of equally close ones the first of known counts.
func Nearest(text string, known []string) (string, bool) {
	best, least := "", 1+max(1, len(text)/3)
	for _, word := range known {
		if d := distance(text, word); d < least {
			best, least = word, d
		}
	}
	for _, word := range known {
		if best == "" && len(text) >= 3 && strings.HasPrefix(word, text) {
			best = word
		}
	}
	return best, best != ""
}

// suggestion is Nearest as the end of a sentence: `; did you mean "x"?`.
func suggestion(text string, known []string) string {
	if word, ok := Nearest(text, known); ok {
		return `; did you mean "` + word + `"?`
	}
	return ""
}

// distance counts the single letters to add, drop, change or swap with their
// neighbour between a and b. Long texts are nobody's misspelling of a key.
func distance(a, b string) int {
	if len(a) > 64 || len(b) > 64 {
		return 64
	}
	before, last := make([]int, len(b)+1), make([]int, len(b)+1)
	for j := range last {
		last[j] = j
	}
	for i := 1; i <= len(a); i++ {
		row := make([]int, len(b)+1)
		row[0] = i
		for j := 1; j <= len(b); j++ {
			change := 1
			if a[i-1] == b[j-1] {
				change = 0
			}
			row[j] = min(last[j]+1, row[j-1]+1, last[j-1]+change)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				row[j] = min(row[j], before[j-2]+1)
			}
		}
		before, last = last, row
	}
	return last[len(b)]
}
