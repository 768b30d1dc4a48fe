package unit

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"berth"
	"berth/internal/pause"
)

// Fault is a misbehaviour of a simulated unit.
type Fault string

// The faults.
const (
	FaultNone         Fault = ""             // none; after FaultUnresponsive the unit returns with its conferences
	FaultUnresponsive Fault = "unresponsive" // no heartbeats and no commands; its conferences continue
	FaultHalfDead     Fault = "half-dead"    // heartbeats continue, commands hang
	FaultRefuse       Fault = "refuse"       // refuses to create, recover and adopt
	FaultSlow         Fault = "slow"         // commands take SimOptions.Slow
)

// Faults lists all faults.
func Faults() []Fault {
	return []Fault{FaultNone, FaultUnresponsive, FaultHalfDead, FaultRefuse, FaultSlow}
}

// SimOptions describe a simulated media server.
type SimOptions struct {
	// Incarnation is that of the first run.
	Incarnation berth.Incarnation
	// Delay is how long each command takes, Slow what FaultSlow adds; 0 is 2 s.
	Delay, Slow time.Duration
}

// Sim is a driver with a simulated media server in memory.
type Sim struct {
	opts  SimOptions
	mu    sync.Mutex
	state simState
}

type simState struct {
	fault       Fault
	incarnation berth.Incarnation
	copies      map[string]Copy
	changed     chan struct{} // closed and replaced with each fault
}

const slowByDefault = 2 * time.Second

// NewSim returns a media server that has just started.
func NewSim(o SimOptions) *Sim {
	s := &Sim{opts: o, state: simState{
		incarnation: o.Incarnation, copies: map[string]Copy{}, changed: make(chan struct{}),
	}}
	if s.opts.Slow <= 0 {
		s.opts.Slow = slowByDefault
	}
	return s
}

func (s *Sim) do(f func(*simState)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f(&s.state)
}

// Fail sets the fault from now on; FaultNone ends it.
func (s *Sim) Fail(f Fault) {
	s.do(func(st *simState) {
		st.fault = f
		close(st.changed)
		st.changed = make(chan struct{})
	})
}

// Fault returns the current fault.
func (s *Sim) Fault() (f Fault) {
	s.do(func(st *simState) { f = st.fault })
	return f
}

// Restart starts another run of the server: its conferences are lost.
func (s *Sim) Restart() {
	s.do(func(st *simState) {
		st.incarnation.PID++
		st.incarnation.StartedAt = max(st.incarnation.StartedAt+1, time.Now().UnixMilli())
		clear(st.copies)
	})
}

// Put adds a copy without a command, or replaces the copy of its number.
func (s *Sim) Put(c Copy) { s.do(func(st *simState) { st.copies[c.E164] = c }) }

// End ends a copy on purpose, as its participants would.
func (s *Sim) End(e164 string) { s.do(func(st *simState) { delete(st.copies, e164) }) }

// Copies returns the server's conferences, sorted by number.
func (s *Sim) Copies() []Copy {
	out := []Copy{}
	s.do(func(st *simState) {
		for _, c := range st.copies {
			out = append(out, c)
		}
	})
	slices.SortFunc(out, func(a, b Copy) int { return cmp.Compare(a.E164, b.E164) })
	return out
}

// Check returns nil: a simulated server has no configuration.
func (s *Sim) Check(context.Context) error { return nil }

// Watch returns when ctx ends: a simulated server has no connections.
func (s *Sim) Watch(ctx context.Context) { <-ctx.Done() }

// Fence restarts the server.
func (s *Sim) Fence(context.Context) error {
	s.Restart()
	return nil
}

// Incarnation returns that of the simulated server, not of this process.
func (s *Sim) Incarnation(context.Context) (inc berth.Incarnation, err error) {
	s.do(func(st *simState) {
		if inc = st.incarnation; st.fault == FaultUnresponsive {
			err = ErrUnresponsive
		}
	})
	return inc, err
}

// run waits as long as a command takes, then runs f. Only commands that start something may be refused.
func (s *Sim) run(ctx context.Context, starts bool, f func(*simState)) error {
	takes := s.opts.Delay
	if s.Fault() == FaultSlow {
		takes += s.opts.Slow
	}
	if takes > 0 && !pause.For(ctx, takes) {
		return ctx.Err()
	}
	if starts && s.Fault() == FaultRefuse {
		return refuse("refused by a simulated fault")
	}
	return s.look(ctx, f)
}

// look runs f, immediately unless the server hangs: then when the fault ends.
func (s *Sim) look(ctx context.Context, f func(*simState)) error {
	for {
		var hang chan struct{}
		s.do(func(st *simState) {
			if st.fault == FaultUnresponsive || st.fault == FaultHalfDead {
				hang = st.changed
			} else {
				f(st)
			}
		})
		if hang == nil {
			return nil
		}
		select {
		case <-hang:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// List returns the server's conferences.
func (s *Sim) List(ctx context.Context) (inc berth.Incarnation, out []Copy, err error) {
	err = s.look(ctx, func(st *simState) {
		inc = st.incarnation
		for _, c := range st.copies {
			out = append(out, c)
		}
	})
	return inc, out, err
}

// Find returns the copy of a number.
func (s *Sim) Find(ctx context.Context, e164 string) (c Copy, ok bool, err error) {
	err = s.look(ctx, func(st *simState) { c, ok = st.copies[e164] })
	return c, ok, err
}

// Create starts a copy, which stays without participants.
func (s *Sim) Create(ctx context.Context, c berth.UnitConference, _ bool) error {
	return s.run(ctx, true, func(st *simState) { st.copies[c.E164] = copyOf(c) })
}

// Mark writes another epoch to a copy.
func (s *Sim) Mark(ctx context.Context, c Copy) error {
	return s.run(ctx, true, func(st *simState) {
		c.Participants = st.copies[c.E164].Participants
		st.copies[c.E164] = c
	})
}

// Delete ends a copy.
func (s *Sim) Delete(ctx context.Context, e164 string) error {
	return s.run(ctx, false, func(st *simState) { delete(st.copies, e164) })
}

// Live returns the number of participants.
func (s *Sim) Live(ctx context.Context, e164 string) (Live, error) {
	var c Copy
	var ok bool
	if err := s.look(ctx, func(st *simState) { c, ok = st.copies[e164] }); err != nil {
		return nil, err
	}
	if !ok { // not a report of 0 participants: it ended after it was listed
		return nil, errors.New("the copy has ended")
	}
	return live(map[string]any{"participantCount": c.Participants, "simulated": true})
}
