// Package editdistance compares names, to find the one that was meant by a misspelled one.
package editdistance

import "strings"

// Of returns how many bytes have to be changed, added, removed, or exchanged with the next one to make one text the other, where each byte is
// touched once (optimal string alignment).
func Of(a, b string) int {
	before, row := make([]int, len(b)+1), make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		next := make([]int, len(b)+1)
		next[0] = i + 1
		for j := range len(b) {
			change := row[j]
			if a[i] != b[j] {
				change++
			}
			next[j+1] = min(change, row[j+1]+1, next[j]+1)
			if i > 0 && j > 0 && a[i] == b[j-1] && a[i-1] == b[j] {
				next[j+1] = min(next[j+1], before[j-1]+1)
			}
		}
		before, row = row, next
	}
	return row[len(b)]
}

// Nearest returns the name that a misspelled one probably means, empty if none is near. Case, and an s at the end, do not matter.
func Nearest(misspelled string, names []string) string {
	best, least := "", 0
	for _, name := range names {
		if len(misspelled) > 2*len(name)+1 {
			continue
		}
		d := Of(strings.ToLower(name), strings.ToLower(misspelled))
		if strings.EqualFold(name, misspelled+"s") || strings.EqualFold(name+"s", misspelled) {
			d = 0
		}
		if d <= 1+(len(name)-1)/4 && d < len(name) && (best == "" || d < least) {
			best, least = name, d
		}
	}
	return best
}
