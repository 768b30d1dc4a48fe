package sim

import (
	"maps"
	"slices"
	"time"
)

// Fault kinds.
const (
	Fault429     = "429"      // refused with Retry-After
	Fault500     = "500"      // refused
	Fault401     = "401"      // refused: the key
	FaultStall   = "stall"    // nothing more after `after` tokens, until the caller leaves
	FaultCut     = "cut"      // the connection is cut after `after` tokens (0: in the middle)
	FaultSlow    = "slow"     // every token takes delayMs (default 100)
	FaultEndless = "endless"  // the answer is repeated until the caller leaves
	FaultBadJSON = "bad_json" // the answer breaks off in its middle but ends as if complete
	FaultNoUsage = "no_usage" // no usage is reported
)

// FaultKinds lists every kind.
func FaultKinds() []string {
	return []string{
		Fault429, Fault500, Fault401, FaultStall, FaultCut, FaultSlow, FaultEndless, FaultBadJSON, FaultNoUsage,
	}
}

// Fault is a misbehaviour on demand, for the next calls of a model.
type Fault struct {
	Model         string `json:"model,omitempty"` // empty: any
	Kind          string `json:"kind"`
	Times         int    `json:"times,omitempty"`         // how many calls; 0 means 1, -1 until cleared
	After         int    `json:"after,omitempty"`         // tokens before stall or cut
	DelayMs       int    `json:"delayMs,omitempty"`       // per token, for slow
	RetryAfterSec int    `json:"retryAfterSec,omitempty"` // for 429; 0 means 1
}

// Counts are the calls of one model, or of all.
type Counts struct {
	Calls        int `json:"calls"`        // begun, refused ones included
	InFlight     int `json:"inFlight"`     // being answered now
	PeakInFlight int `json:"peakInFlight"` // the most that were at once
	Completed    int `json:"completed"`
	Cancelled    int `json:"cancelled"` // the caller left before the end
	Refused      int `json:"refused"`   // answered 429 because the cap was reached
	Faults       int `json:"faults"`    // faults played
}

// Stats is what GET /sim/stats answers.
type Stats struct {
	Total  Counts            `json:"total"`
	Models map[string]Counts `json:"models"`
}

// board counts calls and hands out faults. Its state travels through a channel of one place: whoever took it owns
// it until it is put back.
type board struct{ place chan *boardState }

type boardState struct {
	next   int
	total  Counts
	models map[string]*Counts
	faults []Fault
}

func newBoard(faults []Fault) *board {
	b := &board{place: make(chan *boardState, 1)}
	s := &boardState{models: map[string]*Counts{}}
	for _, f := range faults {
		s.faults = append(s.faults, f.withDefaults())
	}
	b.place <- s
	return b
}

func (b *board) with(f func(*boardState)) {
	s := <-b.place
	defer func() { b.place <- s }()
	f(s)
}

func (s *boardState) of(model string) []*Counts {
	c, ok := s.models[model]
	if !ok {
		c = &Counts{}
		s.models[model] = c
	}
	return []*Counts{&s.total, c}
}

// begin counts a call in; it is refused when limit (0: none) calls of the model are being answered.
func (b *board) begin(model string, limit int) (number int, ok bool) {
	b.with(func(s *boardState) {
		s.next++
		number = s.next
		cs := s.of(model)
		ok = limit <= 0 || cs[1].InFlight < limit
		for _, c := range cs {
			c.Calls++
			if !ok {
				c.Refused++
				continue
			}
			c.InFlight++
			c.PeakInFlight = max(c.PeakInFlight, c.InFlight)
		}
	})
	return number, ok
}

// outcome is how a call that was counted in ended.
type outcome int

const (
	failed   outcome = iota // refused or broken off by us
	complete                // written to its end
	left                    // the caller went away before
)

func (b *board) end(model string, out outcome) {
	b.with(func(s *boardState) {
		for _, c := range s.of(model) {
			c.InFlight--
			switch out {
			case complete:
				c.Completed++
			case left:
				c.Cancelled++
			case failed:
			}
		}
	})
}

// take is the fault the next call of the model has to play, if any; it is counted down.
func (b *board) take(model string) (fault Fault, ok bool) {
	b.with(func(s *boardState) {
		i := slices.IndexFunc(s.faults, func(f Fault) bool { return f.Model == "" || f.Model == model })
		if i < 0 {
			return
		}
		fault, ok = s.faults[i], true
		if s.faults[i].Times--; s.faults[i].Times == 0 {
			s.faults = slices.Delete(s.faults, i, i+1)
		}
	})
	return fault, ok
}

func (b *board) played(model string) {
	b.with(func(s *boardState) {
		for _, c := range s.of(model) {
			c.Faults++
		}
	})
}

func (b *board) addFault(f Fault) {
	b.with(func(s *boardState) { s.faults = append(s.faults, f.withDefaults()) })
}

func (b *board) clearFaults() { b.with(func(s *boardState) { s.faults = nil }) }

func (b *board) listFaults() (out []Fault) {
	b.with(func(s *boardState) { out = append([]Fault{}, s.faults...) })
	return out
}

func (b *board) stats() (out Stats) {
	b.with(func(s *boardState) {
		out = Stats{Total: s.total, Models: map[string]Counts{}}
		for _, model := range slices.Sorted(maps.Keys(s.models)) {
			out.Models[model] = *s.models[model]
		}
	})
	return out
}

func (f Fault) withDefaults() Fault {
	if f.Times == 0 {
		f.Times = 1
	}
	if f.Model == "*" {
		f.Model = ""
	}
	if f.DelayMs <= 0 {
		f.DelayMs = 100
	}
	if f.RetryAfterSec <= 0 {
		f.RetryAfterSec = 1
	}
	return f
}

func (f Fault) delay() time.Duration { return time.Duration(f.DelayMs) * time.Millisecond }
