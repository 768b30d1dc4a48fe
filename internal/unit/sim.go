package unit

import (
	"cmp"
	"context"
	"slices"
	"time"

	"berth"
)

// Fault is what a simulated unit does wrong.
type Fault string

// The faults.
const (
	FaultNone     Fault = ""          // it does well; after FaultSilent it comes back with what it ran
	FaultSilent   Fault = "silent"    // it says nothing and does nothing, and its conferences go on
	FaultHalfDead Fault = "half-dead" // its heartbeats go on and its commands hang
	FaultRefuse   Fault = "refuse"    // it refuses to create, recover and adopt
	FaultSlow     Fault = "slow"      // its commands take SimOptions.Slow
)

// Faults lists all faults.
func Faults() []Fault { return []Fault{FaultNone, FaultSilent, FaultHalfDead, FaultRefuse, FaultSlow} }

// SimOptions describe a simulated media server.
type SimOptions struct {
	// Incarnation is that of its first run.
	Incarnation berth.Incarnation
	// Delay is how long each command takes, Slow how long with FaultSlow; 0 is 2 s.
	Delay, Slow time.Duration
}

// Sim is a driver with a media server of its own, in memory. Its state goes round in a channel: who has it is the owner.
type Sim struct {
	opts  SimOptions
	state chan *simState
}

type simState struct {
	fault       Fault
	incarnation berth.Incarnation
	copies      map[string]Copy
	changed     chan struct{} // closed and made anew with each fault
}

const slowByDefault = 2 * time.Second

// NewSim makes a media server that has just been started.
func NewSim(o SimOptions) *Sim {
	s := &Sim{opts: o, state: make(chan *simState, 1)}
	if s.opts.Slow <= 0 {
		s.opts.Slow = slowByDefault
	}
	s.state <- &simState{
		incarnation: o.Incarnation, copies: map[string]Copy{}, changed: make(chan struct{}),
	}
	return s
}

func (s *Sim) do(f func(*simState)) {
	st := <-s.state
	defer func() { s.state <- st }()
	f(st)
}

// Fail has the server do something wrong from now on, or well again.
func (s *Sim) Fail(f Fault) {
	s.do(func(st *simState) {
		st.fault = f
		close(st.changed)
		st.changed = make(chan struct{})
	})
}

// Fault is what it does wrong now.
func (s *Sim) Fault() (f Fault) {
	s.do(func(st *simState) { f = st.fault })
	return f
}

// Restart is another run of the server: what it ran is lost (C14).
func (s *Sim) Restart() {
	s.do(func(st *simState) {
		st.incarnation.PID++
		st.incarnation.StartedAt = max(st.incarnation.StartedAt+1, time.Now().UnixMilli())
		clear(st.copies)
	})
}

// Put has the server run a copy that nobody asked for, or another one of its number.
func (s *Sim) Put(c Copy) { s.do(func(st *simState) { st.copies[c.E164] = c }) }

// End ends a copy on purpose, as its people would.
func (s *Sim) End(e164 string) { s.do(func(st *simState) { delete(st.copies, e164) }) }

// Copies is what the server runs, by number.
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

// Incarnation is that of the server, not of the process it is simulated in.
func (s *Sim) Incarnation(context.Context) (inc berth.Incarnation, err error) {
	s.do(func(st *simState) {
		if inc = st.incarnation; st.fault == FaultSilent {
			err = ErrUnresponsive
		}
	})
	return inc, err
}

// answer waits as long as the server takes for a command, then runs f. begins: the command may be refused.
func (s *Sim) answer(ctx context.Context, begins bool, f func(*simState)) error {
	takes := s.opts.Delay
	if s.Fault() == FaultSlow {
		takes += s.opts.Slow
	}
	if takes > 0 && !wait(ctx, takes) {
		return ctx.Err()
	}
	if begins && s.Fault() == FaultRefuse {
		return refuse("refused by a simulated fault")
	}
	return s.look(ctx, f)
}

// look runs f, at once unless the server hangs: then it answers when the fault ends.
func (s *Sim) look(ctx context.Context, f func(*simState)) error {
	for {
		var hang chan struct{}
		s.do(func(st *simState) {
			if st.fault == FaultSilent || st.fault == FaultHalfDead {
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

// List is what the server runs.
func (s *Sim) List(ctx context.Context) (inc berth.Incarnation, out []Copy, err error) {
	err = s.look(ctx, func(st *simState) {
		inc = st.incarnation
		for _, c := range st.copies {
			out = append(out, c)
		}
	})
	return inc, out, err
}

// Find is the copy of a number.
func (s *Sim) Find(ctx context.Context, e164 string) (c Copy, ok bool, err error) {
	err = s.look(ctx, func(st *simState) { c, ok = st.copies[e164] })
	return c, ok, err
}

// Create starts a copy.
func (s *Sim) Create(ctx context.Context, c berth.UnitConference) error {
	return s.answer(ctx, true, func(st *simState) { st.copies[c.E164] = Copy{UnitCopy: copyOf(c)} })
}

// Mark writes another epoch on a copy.
func (s *Sim) Mark(ctx context.Context, c berth.UnitCopy) error {
	return s.answer(ctx, true, func(st *simState) { st.copies[c.E164] = Copy{c, st.copies[c.E164].Participants} })
}

// Delete ends a copy.
func (s *Sim) Delete(ctx context.Context, e164 string) error {
	return s.answer(ctx, false, func(st *simState) { delete(st.copies, e164) })
}

// Live tells how many take part.
func (s *Sim) Live(ctx context.Context, e164 string) (Live, error) {
	var people int
	if err := s.look(ctx, func(st *simState) { people = st.copies[e164].Participants }); err != nil {
		return nil, err
	}
	return live(map[string]any{"participantCount": people, "simulated": true})
}
