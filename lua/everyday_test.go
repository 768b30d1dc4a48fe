//go:build !faults

package lua_test

const (
	selections = 10_000 // of each strategy; `make proof` runs 100,000 (P18)
	sequences  = 300    // of each property of liveness; `make proof` runs 10,000 (P20)
)
