package berth

import "slices"

// transitions lists the statuses that can follow each status, none after a final one. The empty status is that before the first.
type transitions[S ~string] map[S][]S

// allow reports whether next can follow status.
func (t transitions[S]) allow(status, next S) bool { return slices.Contains(t[status], next) }

// add lists next after status once, and returns it.
func (t transitions[S]) add(status, next S) S {
	if !t.allow(status, next) {
		t[status] = append(t[status], next)
	}
	return next
}
