//go:build faults

package tests

import "testing"

// FI9: as TestEnvironment_Mistake_DoctorProcessAndUserSeeIt, with disks that are full or read-only, which only root can mount.
func TestEnvironment_DiskMistake_DoctorProcessAndUserSeeIt(t *testing.T) {
	s := shareStack(t)
	for _, e := range environmentsOfRoot(newPlace(t)) {
		t.Run(e.title(), func(t *testing.T) {
			t.Parallel()
			e.check(t, s)
		})
	}
}
