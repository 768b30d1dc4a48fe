package tests

import (
	"fmt"
	"os"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

// shared is the stack of the tests that do not interfere with one another.
var shared struct {
	mu sync.Mutex
	// tests is the number of tests that use the stack or are going to.
	tests int
	// views is the number of views so far.
	views int
	base  *stack
	// broken is set when the stack could not be started.
	broken bool
}

// sharedLanguages are target languages of shared stacks' users. No other test serves them.
var sharedLanguages = []string{"pt", "it", "de", "nl", "sv", "da", "fi", "pl", "cs", "hu", "ro", "tr", "bg", "el", "uk", "hr", "sk", "lt", "lv", "et", "sl", "mk", "is"}

// shareStack returns the test's view of a stack that other tests use at the same time, and marks the test as parallel.
// The first test that gets here starts the stack and the last one stops it.
//
// Nodes that a view starts translate to the view's own language, and media units and conferences are of the view's own zone.
// The test chooses names of nodes, sessions and conferences that no other test uses. It must not kill what it did not
// start, and must not change the configuration of the fleet or the model.
func shareStack(t *testing.T) *stack {
	t.Helper()
	shared.mu.Lock()
	shared.tests++ // before Parallel: all tests are counted before the first of them continues
	shared.mu.Unlock()
	t.Cleanup(func() { leaveShared(t) })
	t.Parallel()

	shared.mu.Lock()
	defer shared.mu.Unlock()
	require.False(t, shared.broken, "the shared stack could not be started; another test's output has the reason")
	if shared.base == nil {
		startShared(t)
	}
	require.Less(t, shared.views, len(sharedLanguages), "add languages to sharedLanguages")
	view := *shared.base
	view.tb, view.dir, view.started = t, t.TempDir(), nil
	view.language = sharedLanguages[shared.views]
	view.zone = "zone-" + view.language
	shared.views++
	t.Cleanup(func() {
		view.killAll()
		if t.Failed() {
			shared.base.logTails(t)
		}
	})
	return &view
}

// startShared starts the shared stack with the lock held.
func startShared(t *testing.T) {
	t.Helper()
	dir, err := os.MkdirTemp("", "berth-tests-") //nolint:usetesting // the stack outlives the test that starts it
	require.NoError(t, err)
	s := prepareStack(t, dir, with("TURN_TIMEOUT_MS=30000"))
	defer func() {
		if shared.base == nil {
			shared.broken = true
			s.close()
			_ = os.RemoveAll(dir)
		}
	}()
	s.boot()
	shared.base, shared.views = s, 0
}

// leaveShared stops the shared stack after the last test.
func leaveShared(t *testing.T) {
	shared.mu.Lock()
	defer shared.mu.Unlock()
	shared.tests--
	s := shared.base
	if shared.tests > 0 || s == nil {
		return
	}
	shared.base = nil
	defer func() {
		if err := os.RemoveAll(s.dir); err != nil {
			t.Error(fmt.Errorf("remove the shared stack's directory: %w", err))
		}
	}()
	s.tb = t
	s.close()
}
