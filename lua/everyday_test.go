//go:build !faults

package lua_test

const selections = 10_000 // of each strategy (P18); make proof makes 100,000
