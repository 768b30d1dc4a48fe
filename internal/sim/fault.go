package sim

import (
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
	FaultBadJSON = "bad_json" // the answer stops in the middle but ends as if complete
	FaultLength  = "length"   // the token limit is reached after `after` tokens (0: in the middle)
)

var faultKinds = []string{Fault429, Fault500, Fault401, FaultStall, FaultCut, FaultBadJSON, FaultLength}

// Fault is a misbehaviour on demand, for the next calls of a model.
type Fault struct {
	Model         string `json:"model,omitempty"` // empty: any model
	Kind          string `json:"kind"`
	Times         int    `json:"times,omitempty"`         // number of calls; 0 means 1, -1 until cleared
	After         int    `json:"after,omitempty"`         // tokens before stall, cut or length
	RetryAfterSec int    `json:"retryAfterSec,omitempty"` // for 429; 0 means 1
}

// refusal returns the error of a fault that refuses the call, nil for all others.
func (f Fault) refusal() *apiError {
	switch f.Kind {
	case Fault429:
		e := failure(http.StatusTooManyRequests, "rate limit reached (fault on demand)")
		e.retryAfter = max(f.RetryAfterSec, 1)
		return e
	case Fault500:
		return failure(http.StatusInternalServerError, "internal error (fault on demand)")
	case Fault401:
		return failure(http.StatusUnauthorized, "the API key is not valid (fault on demand)")
	default:
		return nil
	}
}

// Counts are the calls of one model, or of all.
type Counts struct {
	Calls        int `json:"calls"`
	InFlight     int `json:"inFlight"`
	PeakInFlight int `json:"peakInFlight"`
	Cancelled    int `json:"cancelled"` // the caller left before the end
}

// Stats is the response of GET /sim/stats.
type Stats struct {
	Total  Counts            `json:"total"`
	Models map[string]Counts `json:"models"`
}

// callLog counts calls and holds the pending faults.
type callLog struct {
	mu     sync.Mutex
	counts Stats
	faults []Fault
}

func (l *callLog) locked(f func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	f()
}

// count applies f to the counts of the model and of all models. The lock must be held.
func (l *callLog) count(model string, f func(*Counts)) {
	f(&l.counts.Total)
	c := l.counts.Models[model]
	f(&c)
	l.counts.Models[model] = c
}

// begin counts and numbers a call, and takes the fault that applies to it; its kind is empty when there is none.
func (l *callLog) begin(model string) (number int, f Fault) {
	l.locked(func() {
		l.count(model, func(c *Counts) {
			c.Calls++
			c.InFlight++
			c.PeakInFlight = max(c.PeakInFlight, c.InFlight)
		})
		number = l.counts.Total.Calls
		i := slices.IndexFunc(l.faults, func(f Fault) bool { return f.Model == "" || f.Model == model })
		if i < 0 {
			return
		}
		f = l.faults[i]
		if l.faults[i].Times--; l.faults[i].Times == 0 {
			l.faults = slices.Delete(l.faults, i, i+1)
		}
	})
	return number, f
}

// end counts the end of a call.
func (l *callLog) end(model string, cancelled bool) {
	l.locked(func() {
		l.count(model, func(c *Counts) {
			c.InFlight--
			if cancelled {
				c.Cancelled++
			}
		})
	})
}
