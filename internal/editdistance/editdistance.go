// Package editdistance compares names, to find the one that was meant by a misspelled one.
package editdistance

import "strings"

// Of returns how many bytes have to be changed, added or removed to make one text the other (Levenshtein).
func Of(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		corner := row[0]
		row[0] = i + 1
		for j := range len(b) {
			change := corner
			if a[i] != b[j] {
				change++
			}
			corner = row[j+1]
			row[j+1] = min(change, row[j]+1, row[j+1]+1)
		}
	}
	return row[len(b)]
}

// Nearest returns the name that a misspelled one probably means, empty if none is near. Case, and an s at the end, do not matter.
func Nearest(misspelled string, names []string) string {
	best, least := "", 0
	for _, name := range names {
		d := Of(strings.ToLower(name), strings.ToLower(misspelled))
		if strings.EqualFold(name, misspelled+"s") || strings.EqualFold(name+"s", misspelled) {
			d = 0
		}
		if d <= 1+len(name)/4 && (best == "" || d < least) {
			best, least = name, d
		}
	}
	return best
}
