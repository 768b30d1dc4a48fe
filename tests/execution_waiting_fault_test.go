//go:build faults

package tests

import "testing"

// FF7: as TestExecution_ManyWait_StartInOrder, with ten thousand executions, of which a hundred start.
func TestExecution_TenThousandWait_StartInOrder(t *testing.T) {
	t.Parallel()
	manyExecutionsWait(t, 10_000, 100, false)
}
