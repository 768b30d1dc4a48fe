package fleet

import (
	"context"
	"maps"
	"math/rand/v2"
	"slices"
	"time"

	"berth"
	"berth/internal/health"
	"berth/internal/pause"
	"berth/internal/redisconn"
)

const (
	// maxCapacityEvents is how many units with free slots the listener may be ahead of their delivery.
	maxCapacityEvents = 1024
	// maxDelay is the longest random delay of a delivery: processes with a longer one find the slots taken.
	maxDelay = 50 * time.Millisecond
)

// listen wakes the delivery of notices and of free capacity. Messages may be lost, so each connection triggers a full check.
func (s *Sweeper) listen(ctx context.Context) {
	outbox, free := s.fleet.scripts.Keys().OutboxFilled(), s.fleet.scripts.Keys().NodeFree()
	channels := []string{outbox}
	if s.opt.OnCapacity != nil {
		channels = append(channels, free)
	}
	redisconn.NewListener(s.fleet.scripts, redisconn.ListenerOptions{
		Name: "fleet hints", Channels: channels, Tick: s.fleet.opt.Tick, Logger: s.opt.Logger,
	}).Handle(ctx, func(e redisconn.Event) {
		switch e := e.(type) {
		case redisconn.Up:
			s.wake()
			s.reportCapacity(ctx, "")
		case redisconn.Message:
			if e.Channel == outbox {
				s.wake()
			} else if s.isKnownUnit(e.Payload) {
				s.reportCapacity(ctx, e.Payload)
			}
		}
	})
}

// wake makes deliver read the outbox now.
func (s *Sweeper) wake() {
	select {
	case s.filled <- struct{}{}:
	default:
	}
}

// isKnownUnit reports whether a node is a media unit of the snapshot. The capacity of a unit that has just registered is
// reported by its link, as soon as the link knows which conferences the unit runs.
func (s *Sweeper) isKnownUnit(id string) bool {
	n := s.fleet.Snapshot().Nodes[id]
	return n.Kind == berth.NodeMedia && n.State != berth.NodeDead
}

func (s *Sweeper) reportCapacity(ctx context.Context, id string) {
	select {
	case s.capacity <- id:
	case <-ctx.Done():
	}
}

// deliverCapacity calls OnCapacity until ctx ends, and retries what failed.
func (s *Sweeper) deliverCapacity(ctx context.Context) {
	if s.opt.OnCapacity == nil {
		return
	}
	outages := outage{logger: s.opt.Logger, task: "free capacity of units", of: health.Redis, after: 3}
	due := map[string]bool{}
	wait := time.Duration(0)
	for {
		if len(due) == 0 {
			select {
			case id := <-s.capacity:
				s.addUnits(due, id)
				wait = rand.N(maxDelay)
			case <-ctx.Done():
				return
			}
		}
		if !pause.For(ctx, wait) {
			return
		}
		for more := true; more; {
			select {
			case id := <-s.capacity:
				s.addUnits(due, id)
			default:
				more = false
			}
		}
		if len(due) == 0 { // there are no units
			continue
		}
		callCtx, cancel := context.WithTimeout(ctx, callbackTimeout)
		err := s.opt.OnCapacity(callCtx, slices.Sorted(maps.Keys(due)))
		cancel()
		outages.note(ctx, err)
		if wait = s.opt.Every; err == nil {
			clear(due)
		}
	}
}

// addUnits adds a unit, or all known units for an empty id.
func (s *Sweeper) addUnits(due map[string]bool, id string) {
	if id != "" {
		due[id] = true
		return
	}
	for id := range s.fleet.Snapshot().Nodes {
		if s.isKnownUnit(id) {
			due[id] = true
		}
	}
}
