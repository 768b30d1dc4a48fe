//go:build faults

package tests

import (
	"maps"
	"slices"
	"testing"

	"berth/internal/testdb"
)

// C20, P4: every way to partition a controller, with every way to lose a unit. The database is PostgreSQL, because a process that
// is stopped while it writes to SQLite blocks all writers.
func TestPartition_EveryLinkAndFault_OneOwnerIsAccepted(t *testing.T) {
	partitioned(t, func(p *partition) {
		p.again()
		for _, link := range slices.Sorted(maps.Keys(linkFaults)) {
			for _, fault := range slices.Sorted(maps.Keys(unitFaults)) {
				p.round(link, fault)
			}
			if link != "stopped" {
				p.restart(link)
			}
		}
	}, with("BERTH_DATABASE="+testdb.Postgres(t)))
}
