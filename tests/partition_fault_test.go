//go:build faults

package tests

import (
	"maps"
	"slices"
	"testing"

	"berth/internal/testdb"
)

// Every way of partitioning a controller, with every way of losing a unit (C20, P4). The database is PostgreSQL: a process that is
// stopped while it writes to SQLite keeps everybody from writing.
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
