package fleet

import (
	"context"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"berth"
	"berth/internal/pause"
	"berth/internal/redisconn"
)

const (
	// roomyMost are the units that the listener may be ahead of who tells of their room.
	roomyMost = 1024
	// outOfStep is the longest pause before room is told of: those that pause longer find it taken.
	outOfStep = 50 * time.Millisecond
)

// listen is the goroutine that hears what makes a look worth while before its time. A message may be lost: after each
// connection everything is looked at.
func (s *Sweeper) listen(ctx context.Context) {
	outbox, free := s.fleet.scripts.Keys().OutboxFilled(), s.fleet.scripts.Keys().NodeFree()
	channels := []string{outbox}
	if s.opt.OnCapacity != nil {
		channels = append(channels, free)
	}
	l := redisconn.NewListener(s.fleet.scripts, redisconn.ListenerOptions{
		Name: "fleet hints", Channels: channels, Ping: s.fleet.opt.Ping, Logger: s.opt.Logger,
	})
	var listening sync.WaitGroup
	listening.Go(func() { l.Run(ctx) })
	defer listening.Wait()
	for {
		select {
		case <-ctx.Done():
			return
		case e := <-l.Events():
			switch e := e.(type) {
			case redisconn.Up:
				s.wake()
				s.room(ctx, "")
			case redisconn.Message:
				if e.Channel == outbox {
					s.wake()
				} else if s.lives(e.Payload) {
					s.room(ctx, e.Payload)
				}
			}
		}
	}
}

// wake has the outbox looked at now.
func (s *Sweeper) wake() {
	select {
	case s.filled <- struct{}{}:
	default: // it is awake
	}
}

// lives tells whether a node is a unit that was there before. One that was not has registered: its link tells of its room,
// once it is known what it runs already (C15).
func (s *Sweeper) lives(id string) bool {
	n := s.fleet.Snapshot().Nodes[id]
	return n.Kind == berth.NodeMedia && n.State != berth.NodeDead
}

func (s *Sweeper) room(ctx context.Context, id string) {
	select {
	case s.roomy <- id:
	case <-ctx.Done():
	}
}

// tellOfRoom is the goroutine of OnCapacity. What it could not tell it tries again.
func (s *Sweeper) tellOfRoom(ctx context.Context) {
	if s.opt.OnCapacity == nil {
		return
	}
	away := outage{logger: s.opt.Logger, part: "room of units", after: 3}
	due := map[string]bool{}
	wait := time.Duration(0)
	for {
		if len(due) == 0 {
			select {
			case id := <-s.roomy:
				s.add(due, id)
				wait = rand.N(outOfStep)
			case <-ctx.Done():
				return
			}
		}
		if !pause.For(ctx, wait) {
			return
		}
		for more := true; more; {
			select {
			case id := <-s.roomy:
				s.add(due, id)
			default:
				more = false
			}
		}
		if len(due) == 0 { // there are no units
			continue
		}
		telling, cancel := context.WithTimeout(ctx, callbackTimeout)
		err := s.opt.OnCapacity(telling, slices.Sorted(maps.Keys(due)))
		cancel()
		away.note(ctx, err)
		if wait = s.opt.Every; err == nil {
			clear(due)
		}
	}
}

// add adds a unit, or all that live.
func (s *Sweeper) add(due map[string]bool, id string) {
	if id != "" {
		due[id] = true
		return
	}
	for id := range s.fleet.Snapshot().Nodes {
		if s.lives(id) {
			due[id] = true
		}
	}
}
