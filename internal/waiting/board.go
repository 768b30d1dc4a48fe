package waiting

import (
	"context"
	"log/slog"
	"slices"
	"sync/atomic"
	"time"

	"berth/lua"
)

const (
	// PositionEvery is the interval at which the positions of watched tasks are read.
	PositionEvery = time.Second
	// maxRead is how many waiters one call to Redis reads.
	maxRead = 500
)

// Board reads the positions of the waiting tasks that readers of this process watch, all together.
type Board struct {
	scripts *lua.Scripts
	logger  *slog.Logger
	changes chan change
	done    chan struct{}
}

type change struct {
	watch *Watch
	added bool
}

// Position is where a task waits.
type Position struct {
	Waiter lua.ModelWaiter
	lua.Wait
}

// Watch is one reader's interest in the position of a task.
type Watch struct {
	board    *Board
	expected atomic.Pointer[expectation]
}

// expectation is which waiters of a task may wait, and which did when they were last read. A later expectation has no part of it: what
// a call to Redis returns that began before is out of date.
type expectation struct {
	waiters []lua.ModelWaiter
	keys    []lua.ModelWaiterKey // of waiters
	latest  atomic.Pointer[Position]
}

// NewBoard returns a board, which reads positions while Run runs.
func NewBoard(scripts *lua.Scripts, logger *slog.Logger) *Board {
	return &Board{scripts: scripts, logger: logger, changes: make(chan change, 64), done: make(chan struct{})}
}

// Watch begins to watch a task, of which at most one waiter waits.
func (b *Board) Watch() *Watch {
	w := &Watch{board: b}
	w.Expect(nil)
	b.send(change{w, true})
	return w
}

// Close ends the watch.
func (w *Watch) Close() { w.board.send(change{w, false}) }

// Expect replaces the waiters that may wait. Without any the task is not read.
func (w *Watch) Expect(waiters []lua.ModelWaiter) {
	e := &expectation{waiters: waiters}
	for _, waiter := range waiters {
		e.keys = append(e.keys, waiter.Key())
	}
	w.expected.Store(e)
}

// Position returns where the task waited when it was last read; nil if it did not wait, or was not read since the last Expect.
func (w *Watch) Position() *Position { return w.expected.Load().latest.Load() }

func (b *Board) send(c change) {
	select {
	case b.changes <- c:
	case <-b.done:
	}
}

// Run reads the positions until ctx ends.
func (b *Board) Run(ctx context.Context) error {
	defer close(b.done)
	watches := map[*Watch]bool{}
	tick := time.NewTicker(PositionEvery)
	defer tick.Stop()
	for {
		select {
		case c := <-b.changes:
			if c.added {
				watches[c.watch] = true
			} else {
				delete(watches, c.watch)
			}
		case <-tick.C:
			b.read(ctx, watches)
		case <-ctx.Done():
			return nil
		}
	}
}

// read updates the positions of all watched tasks. Those of a call that fails stay as they were.
func (b *Board) read(ctx context.Context, watches map[*Watch]bool) {
	keys := make([]lua.ModelWaiterKey, 0, maxRead)
	var expected []*expectation
	flush := func() {
		if len(keys) > 0 {
			b.readSome(ctx, keys, expected)
		}
		keys, expected = keys[:0], expected[:0]
	}
	for w := range watches {
		e := w.expected.Load()
		if len(keys)+len(e.keys) > maxRead {
			flush()
		}
		keys, expected = append(keys, e.keys...), append(expected, e)
	}
	flush()
}

// readSome reads the positions of all waiters of some expectations, whose keys are given in the same order.
func (b *Board) readSome(ctx context.Context, keys []lua.ModelWaiterKey, expected []*expectation) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	waits, err := b.scripts.ReadPositions(ctx, keys)
	if err != nil {
		b.logger.DebugContext(ctx, "positions of waiting tasks not read; retrying", "error", err)
		return
	}
	for _, e := range expected {
		e.update(waits[:len(e.waiters)])
		waits = waits[len(e.waiters):]
	}
}

// update stores what was read of each waiter. Most readings change nothing, and then cost no memory.
func (e *expectation) update(waits []lua.Wait) {
	i := slices.IndexFunc(waits, func(w lua.Wait) bool { return w.Position >= 0 })
	if i < 0 {
		e.latest.Store(nil)
		return
	}
	if last := e.latest.Load(); last == nil || last.Waiter != e.waiters[i] || last.Wait != waits[i] {
		e.latest.Store(&Position{Waiter: e.waiters[i], Wait: waits[i]})
	}
}
