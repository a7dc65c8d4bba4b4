package config

import (
	"fmt"
	"slices"
	"strings"
)

// Nearest returns the candidate that word was probably meant to be: the one with the fewest typing errors, otherwise one that word
// lacks the section of, otherwise one that begins with word. It returns "" if none is near.
func Nearest(word string, candidates []string) string {
	w := normal(word)
	best, least := "", len(w)/5+2
	for _, c := range candidates {
		if d := distance(w, normal(c), least); d < least {
			best, least = c, d
		}
	}
	if best != "" {
		return best
	}
	if i := slices.IndexFunc(candidates, func(c string) bool { return strings.HasSuffix(normal(c), "."+w) }); i >= 0 {
		return candidates[i]
	}
	if i := slices.IndexFunc(candidates, func(c string) bool { return w != "" && strings.HasPrefix(normal(c), w) }); i >= 0 {
		return candidates[i]
	}
	return ""
}

// Suggest returns "; did you mean X?" for the nearest of the candidates, formatted with form; "" if none is near.
func Suggest(word string, candidates []string, form string) string {
	near := Nearest(word, candidates)
	if near == "" {
		return ""
	}
	return fmt.Sprintf("; did you mean "+form+"?", near)
}

func normal(s string) string { return strings.ReplaceAll(strings.ToLower(s), "_", "-") }

// distance returns the number of insertions, deletions, replacements and swaps of neighbours that turn a into b, or limit if that is less.
func distance(a, b string, limit int) int {
	if len(a)-len(b) >= limit || len(b)-len(a) >= limit {
		return limit
	}
	before, last, row := make([]int, len(b)+1), make([]int, len(b)+1), make([]int, len(b)+1)
	for j := range last {
		last[j] = j
	}
	for i := 1; i <= len(a); i++ {
		row[0] = i
		for j := 1; j <= len(b); j++ {
			replace := last[j-1]
			if a[i-1] != b[j-1] {
				replace++
			}
			row[j] = min(replace, last[j]+1, row[j-1]+1)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				row[j] = min(row[j], before[j-2]+1)
			}
		}
		before, last, row = last, row, before
	}
	return min(last[len(b)], limit)
}
