//go:build faults

package tests

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	"berth"
	"berth/client"
)

// finish is how a conference of the load ends.
type finish string

const (
	byUsers    finish = "released by its users"
	byOperator finish = "ended by an administrator"
	byClock    finish = "at its end time"
	byUnit     finish = "ended on its unit"
	kept       finish = "kept"
)

// met is an accepted conference, or the reason why the test has failed.
type met struct {
	id, e164 string
	finish   finish
	err      error
}

const (
	// rooms is how many numbers there are. Each has one conference after the other, except the first keptRooms, whose
	// conferences stay open.
	rooms     = 9
	keptRooms = 4
	// thinks is the pause between two requests.
	thinks = 200 * time.Millisecond
)

// host opens one conference after the other with one number until ctx ends. A reader follows each until it has ended or
// listening ends.
func (l *load) host(ctx, listening context.Context, n uint64) {
	rng := rand.New(rand.NewPCG(l.seed, 2000+n))
	r := &room{
		load: l, rng: rng, listening: listening, number: fmt.Sprint(8650000001 + n),
		apis: l.apis(fmt.Sprintf("host-%d", n)), operators: l.apis("op", "operator"),
	}
	for i := 0; ctx.Err() == nil; i++ {
		m := met{e164: r.number, finish: []finish{byUsers, byOperator, byClock, byUnit}[rng.IntN(4)]}
		if n < keptRooms {
			m.finish = kept
		}
		spec := client.ConferenceSpec{E164: r.number, Title: fmt.Sprintf("%d, %s", i, m.finish), DurationMs: (6 * time.Hour).Milliseconds()}
		if m.finish == byClock {
			spec.DurationMs = 3000 + rng.Int64N(8000)
		}
		m.id, m.err = r.open(spec)
		if p := refusedFor(m.err); p != nil && p.Code == berth.CodeEnded && m.finish == byClock {
			continue // a fault lasted longer than the conference, which was never open
		}
		if m.err == nil && m.finish != kept {
			m.err = r.hold(ctx, m)
		}
		l.met <- m
		if m.err != nil || m.finish == kept {
			return
		}
	}
}

// room is one number with the user of its conferences.
type room struct {
	*load
	rng             *rand.Rand
	listening       context.Context
	number          string
	apis, operators []*client.Client
}

// open creates a conference and starts a reader of its events.
func (r *room) open(spec client.ConferenceSpec) (id string, err error) {
	for until := time.Now().Add(requestWait); ; {
		made, err := insist(r.load, r.rng, r.apis, func(ctx context.Context, c *client.Client) (client.Conference, error) {
			return c.CreateConference(ctx, spec)
		})
		if p := refusedFor(err); p != nil && p.Code == berth.CodeConflict && time.Now().Before(until) {
			r.closing.Add(1) // the previous conference has ended, and its run is about to end
			<-time.After(thinks)
			continue
		}
		if err != nil {
			return "", fmt.Errorf("conference %s: %w", r.number, err)
		}
		id = made.ID
		break
	}
	r.readers.Go(func() {
		for ev, err := range r.apis[0].FollowConference(r.listening, r.number, id) {
			if err != nil {
				if r.listening.Err() == nil {
					r.met <- met{err: fmt.Errorf("listener of %s: %w", id, err)}
				}
				return
			}
			if ev.ConferenceID == id {
				r.sent <- ev
			}
		}
	})
	return id, nil
}

// hold waits for some time, ends the conference in the given way, and waits for its end.
func (r *room) hold(ctx context.Context, m met) error {
	select {
	case <-time.After(time.Duration(500+r.rng.IntN(6000)) * time.Millisecond):
	case <-ctx.Done():
	}
	end := func(by []*client.Client) error {
		_, err := insist(r.load, r.rng, by, func(ctx context.Context, c *client.Client) (client.Conference, error) {
			return c.EndConference(ctx, r.number)
		})
		if p := refusedFor(err); p != nil && p.Code == berth.CodeConflict {
			return nil // a reply was lost: it has ended
		}
		return err
	}
	var err error
	switch m.finish {
	case byUsers:
		err = end(r.apis)
	case byOperator:
		err = end(r.operators)
	}
	if err != nil {
		return fmt.Errorf("end of %s: %w", m.id, err)
	}
	var last client.ConferenceState
	for until := time.Now().Add(requestWait); time.Now().Before(until); <-time.After(thinks) {
		if m.finish == byUnit {
			r.leave(r.number)
		}
		current, err := insist(r.load, r.rng, r.apis, func(ctx context.Context, c *client.Client) (client.ConferenceState, error) {
			return c.Conference(ctx, r.number, m.id)
		})
		if err != nil {
			return fmt.Errorf("conference %s: %w", m.id, err)
		}
		if current.Status.Final() {
			return nil
		}
		last = current
	}
	return fmt.Errorf("conference %s of %s does not end, %s: it is %s on %+v, %q", m.id, m.e164, m.finish, last.Status, last.Owner, last.Waiting)
}
