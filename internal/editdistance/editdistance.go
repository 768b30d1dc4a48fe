// Package editdistance compares names, to find the one that was meant by a misspelled one.
package editdistance

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
