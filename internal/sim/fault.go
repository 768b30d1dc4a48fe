package sim

import (
	"cmp"
	"net/http"
	"slices"
	"sync"
)

// Fault kinds.
const (
	Fault429     = "429"      // refused with Retry-After
	Fault500     = "500"      // refused
	Fault401     = "401"      // refused: invalid key
	FaultStall   = "stall"    // no output after `after` tokens until the caller leaves
	FaultCut     = "cut"      // the connection breaks after `after` tokens (0: in the middle)
	FaultSlow    = "slow"     // every token takes delayMs (default 100)
	FaultEndless = "endless"  // the answer repeats until the caller leaves
	FaultBadJSON = "bad_json" // the answer stops in the middle but ends as if complete
	FaultNoUsage = "no_usage" // no usage is reported
)

var faultKinds = []string{
	Fault429, Fault500, Fault401, FaultStall, FaultCut, FaultSlow, FaultEndless, FaultBadJSON, FaultNoUsage,
}

// Fault is a misbehaviour on demand, for the next calls of a model.
type Fault struct {
	Model         string `json:"model,omitempty"` // empty: any model
	Kind          string `json:"kind"`
	Times         int    `json:"times,omitempty"`         // number of calls; 0 means 1, -1 until cleared
	After         int    `json:"after,omitempty"`         // tokens before stall or cut
	DelayMs       int    `json:"delayMs,omitempty"`       // per token, for slow
	RetryAfterSec int    `json:"retryAfterSec,omitempty"` // for 429; 0 means 1
}

// refusal returns the error of a fault that refuses the call, nil for all others.
func (f Fault) refusal() *apiError {
	switch f.Kind {
	case Fault429:
		return rateLimited(f.RetryAfterSec, "rate limit reached (fault on demand)")
	case Fault500:
		return failure(http.StatusInternalServerError, "internal_error", "internal error (fault on demand)")
	case Fault401:
		return failure(http.StatusUnauthorized, "invalid_api_key", "the API key is not valid (fault on demand)")
	default:
		return nil
	}
}

// Counts are the calls of one model, or of all.
type Counts struct {
	Calls        int `json:"calls"` // including refused ones
	InFlight     int `json:"inFlight"`
	PeakInFlight int `json:"peakInFlight"`
	Completed    int `json:"completed"`
	Cancelled    int `json:"cancelled"` // the caller left before the end
	Refused      int `json:"refused"`   // over Options.Concurrency
	Faults       int `json:"faults"`    // faults applied
}

// Stats is the response of GET /sim/stats.
type Stats struct {
	Total  Counts            `json:"total"`
	Models map[string]Counts `json:"models"`
}

// callLog counts calls and holds the pending faults.
type callLog struct {
	mu     sync.Mutex
	next   int
	total  Counts
	models map[string]*Counts
	faults []Fault
}

func (l *callLog) locked(f func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	f()
}

// count applies f to the counts of the model and of all models. The lock must be held.
func (l *callLog) count(model string, f func(*Counts)) {
	if l.models[model] == nil {
		l.models[model] = &Counts{}
	}
	f(&l.total)
	f(l.models[model])
}

// begin counts a call and numbers it; ok is false when limit (0: none) calls of the model are in flight.
func (l *callLog) begin(model string, limit int) (number int, ok bool) {
	l.locked(func() {
		l.next++
		number, ok = l.next, limit <= 0 || l.models[model] == nil || l.models[model].InFlight < limit
		l.count(model, func(c *Counts) {
			c.Calls++
			if !ok {
				c.Refused++
				return
			}
			c.InFlight++
			c.PeakInFlight = max(c.PeakInFlight, c.InFlight)
		})
	})
	return number, ok
}

// end counts the end of an accepted call: completed, cancelled because the caller left, or neither, when the simulator
// refused or cut it.
func (l *callLog) end(model string, completed, cancelled bool) {
	l.locked(func() {
		l.count(model, func(c *Counts) {
			c.InFlight--
			switch {
			case completed:
				c.Completed++
			case cancelled:
				c.Cancelled++
			}
		})
	})
}

// nextFault takes the fault that applies to the model's next call; its kind is empty when there is none.
func (l *callLog) nextFault(model string) (f Fault) {
	l.locked(func() {
		i := slices.IndexFunc(l.faults, func(f Fault) bool { return f.Model == "" || f.Model == model })
		if i < 0 {
			return
		}
		f = l.faults[i]
		if l.faults[i].Times--; l.faults[i].Times == 0 {
			l.faults = slices.Delete(l.faults, i, i+1)
		}
		l.count(model, func(c *Counts) { c.Faults++ })
	})
	return f
}

// addFault adds a fault with its defaults.
func (l *callLog) addFault(f Fault) {
	f.Times = cmp.Or(f.Times, 1)
	if f.DelayMs <= 0 {
		f.DelayMs = 100
	}
	f.RetryAfterSec = max(f.RetryAfterSec, 1)
	l.locked(func() { l.faults = append(l.faults, f) })
}

func (l *callLog) clearFaults() { l.locked(func() { l.faults = nil }) }

func (l *callLog) stats() (out Stats) {
	l.locked(func() {
		out = Stats{Total: l.total, Models: map[string]Counts{}}
		for model, c := range l.models {
			out.Models[model] = *c
		}
	})
	return out
}
