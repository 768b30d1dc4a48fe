package unit

import (
	"context"
	"log/slog"
	"slices"
	"sync/atomic"
	"time"

	"berth/internal/metrics"
	"berth/internal/pause"
)

const (
	// guardEvery is the interval of the checks of a guard, guardCall the timeout of one.
	guardEvery = 2 * time.Second
	guardCall  = 3 * time.Second
	// endGrace is how long after its end time a conference that berth did not release is ended by the unit.
	endGrace = 3 * time.Second
	// removedAfter is the number of consecutive lists with a foreign room, or with the state of a room that has ended, after which
	// it is removed.
	removedAfter = 2
)

// guard ends what must not run on the media server, without berth: conferences past their end time, rooms that no unit
// manages, and everything when the unit is cut off from berth for too long.
type guard struct {
	commands   *commands
	driver     Driver
	dedicated  bool
	fenceAfter time.Duration
	log        *slog.Logger

	acceptedAt atomic.Int64   // when berth last accepted a heartbeat, in Unix ms; 0 before the first
	foreign    map[string]int // consecutive lists with each foreign room
	abandoned  map[string]int // consecutive lists with each state without a room
}

// accepted notes a heartbeat or registration that berth accepted.
func (g *guard) accepted() { g.acceptedAt.Store(time.Now().UnixMilli()) }

// run checks until ctx ends. It returns true when it has fenced the unit.
func (g *guard) run(ctx context.Context) (fenced bool) {
	for pause.For(ctx, guardEvery) {
		if g.cutOff() {
			return g.fence(ctx)
		}
		g.endExpired(ctx)
		g.removeAbandoned(ctx)
		if g.dedicated {
			g.removeForeign(ctx)
		}
	}
	return false
}

func (g *guard) cutOff() bool {
	acceptedAt := g.acceptedAt.Load()
	return g.fenceAfter > 0 && acceptedAt > 0 && time.Since(time.UnixMilli(acceptedAt)) > g.fenceAfter
}

// fence ends all conferences. It is repeated until it succeeds or ctx ends.
func (g *guard) fence(ctx context.Context) bool {
	for {
		call, cancel := context.WithTimeout(ctx, guardCall)
		err := g.driver.Fence(call)
		cancel()
		if err == nil {
			g.log.Warn("no heartbeat accepted; conferences ended", "for", g.fenceAfter)
			return true
		}
		g.log.Warn("conferences not ended; retrying", "error", err)
		if !pause.For(ctx, guardEvery) {
			return false
		}
	}
}

// endExpired ends conferences that berth has not released in time.
func (g *guard) endExpired(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, guardCall)
	defer cancel()
	now, copies, err := g.driver.List(ctx)
	if err != nil || now != g.commands.incarnation {
		return // the unit's own probes detect a lost link
	}
	for _, c := range copies {
		if !expired(c) {
			continue
		}
		if err := g.commands.endExpired(ctx, c.E164); err != nil {
			g.log.Warn("expired conference not ended; retrying", "conference", c.E164, "error", err)
		}
	}
}

func expired(c Copy) bool { return !c.EndAt.IsZero() && time.Since(c.EndAt) > endGrace }

// foreigner is a driver whose media server may have rooms that no unit created.
type foreigner interface {
	Foreign(ctx context.Context) (numbers []string, err error)
}

// removeForeign removes rooms that are named like a number and that no unit has created, once two lists have shown them.
func (g *guard) removeForeign(ctx context.Context) {
	driver, ok := g.driver.(foreigner)
	if !ok {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, guardCall)
	defer cancel()
	numbers, err := driver.Foreign(ctx)
	if err != nil {
		return // the next check retries
	}
	for _, e164 := range lasting(&g.foreign, numbers) {
		if err := g.driver.Delete(ctx, e164); err != nil {
			g.log.Warn("foreign room not removed; retrying", "room", e164, "error", err)
			continue
		}
		delete(g.foreign, e164)
		metrics.ForeignRooms.Add(ctx, 1)
		g.log.Warn("room removed that no unit had created", "room", e164)
	}
}

// lasting returns the numbers that removedAfter consecutive lists had. counts is by number.
func lasting(counts *map[string]int, numbers []string) (out []string) {
	last := *counts
	*counts = map[string]int{}
	for _, e164 := range slices.Compact(slices.Sorted(slices.Values(numbers))) {
		if (*counts)[e164] = last[e164] + 1; (*counts)[e164] >= removedAfter {
			out = append(out, e164)
		}
	}
	return out
}

// abandoner is a driver that keeps the state of a conference apart from its room.
type abandoner interface {
	Abandoned(ctx context.Context) (numbers []string, err error)
}

// removeAbandoned removes the state of rooms that have ended: a room of the same number that an application creates is not the unit's.
func (g *guard) removeAbandoned(ctx context.Context) {
	driver, ok := g.driver.(abandoner)
	if !ok {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, guardCall)
	defer cancel()
	numbers, err := driver.Abandoned(ctx)
	if err != nil {
		return // the next check retries
	}
	for _, e164 := range lasting(&g.abandoned, numbers) {
		if err := g.commands.forget(ctx, e164); err != nil {
			g.log.Warn("state of an ended room not removed; retrying", "room", e164, "error", err)
		}
	}
}
