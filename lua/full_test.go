//go:build faults

package lua_test

const selections = 100_000 // of each strategy (P18)
