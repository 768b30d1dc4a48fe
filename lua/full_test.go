//go:build faults

package lua_test

const (
	selections = 100_000 // of each strategy (P18)
	sequences  = 10_000  // of each property of liveness (P20)
)
