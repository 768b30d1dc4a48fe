package lua_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// check runs a property with so many sequences of random actions. It returns "" or what was wrong.
func check(t *testing.T, n int, property func(*rapid.T) string) {
	t.Helper()
	start := time.Now()
	for range n / 100 { // rapid runs a hundred at a time
		rapid.Check(t, func(rt *rapid.T) {
			if wrong := property(rt); wrong != "" {
				rt.Fatal(wrong)
			}
		})
	}
	t.Logf("%d sequences, %s per 1,000", n, (time.Since(start) * 1000 / time.Duration(n)).Round(100*time.Millisecond))
}

// findFault returns the first of so many sequences for which a property does not hold, which a variant has to have.
func findFault(t *testing.T, n int, property func(*rapid.T) string) {
	t.Helper()
	sequences := rapid.Custom(property)
	for seed := range n {
		if wrong := sequences.Example(seed); wrong != "" {
			t.Logf("sequence %d: %s", seed, wrong[strings.LastIndexByte(wrong, '\n')+1:])
			return
		}
	}
	t.Fatalf("none of %d sequences shows the fault of the variant", n)
}

// pickOne draws one of the items, and skips the action where there is none.
func pickOne[T any](t *rapid.T, name string, items []T) T {
	if len(items) == 0 {
		t.Skip("none")
	}
	return items[rapid.IntRange(0, len(items)-1).Draw(t, name)]
}

func poolRoomProperty(t *testing.T, replace ...string) func(*rapid.T) string {
	o := newOwnTime(t, replace...)
	return func(t *rapid.T) string {
		d := newPoolRoom(t, o)
		t.Repeat(d.actions())
		d.drain()
		return d.wrong
	}
}

func modelRoomProperty(t *testing.T, replace ...string) func(*rapid.T) string {
	o := newOwnTime(t, append(slices.Clone(fewAhead), replace...)...)
	return func(t *rapid.T) string {
		m := newModelRoom(t, o)
		t.Repeat(m.actions())
		m.drain()
		return m.wrong
	}
}

// FA1, P20: whatever happens, a model that could grant a slot to a task that waits does so within one sweep, and no limit is exceeded.
func TestRoom_AnySequenceOfActions_NeverIdleWhileEligibleWaits(t *testing.T) {
	t.Parallel()
	check(t, sequences, modelRoomProperty(t))
}

// This verifies the test above.
func TestRoom_BrokenVariants_AreIdle(t *testing.T) {
	t.Parallel()
	for name, replace := range map[string][]string{
		"flows that were set aside do not return": {"if waits and not is_listed(node, member) then", "if false then"},
		"a user's limit is not checked":           {"if used < limit then return false end", "if used < limit + 1 then return false end"},
		"an upstream's cap is not checked":        {"used_of(room, u) >= u.cap", "used_of(room, u) > u.cap"},
		"a lease hides those behind it":           {"if u or not room.upstreams[2] then return first, u end", "if true then return first, u end"},
		"expired slots stay":                      {"for _, lease in ipairs(dead) do unhold(", "for _, lease in ipairs({}) do unhold("},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			findFault(t, 300, modelRoomProperty(t, replace...))
		})
	}
}

// P20: whatever happens, a node that could serve an execution that waits does so within one sweep, and no node has more work than slots.
func TestHandover_AnySequenceOfActions_NeverIdleWhileEligibleWaits(t *testing.T) {
	t.Parallel()
	check(t, sequences, poolRoomProperty(t))
}

// This verifies the test above.
func TestHandover_BrokenVariants_AreIdle(t *testing.T) {
	t.Parallel()
	for name, replace := range map[string][]string{
		"sweeps hand over nothing":      {"serve(pools, '', nil)", "do end"},
		"the first waiter hides others": {"request.skipped = skipped", "request.skipped = {}"},
		"slots are not counted":         {"if leases >= node.max or ", "if ", "if leases < tonumber(max) then", "if leases <= tonumber(max) then"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			findFault(t, 300, poolRoomProperty(t, replace...))
		})
	}
}
