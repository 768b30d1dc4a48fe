package lua

import (
	"context"
	"time"
)

// Codes of report_call.
const (
	CallCounted   = "COUNTED" // nothing changed for other calls
	CallPaused    = "PAUSED"  // the provider requested a pause of the upstream
	BreakerOpened = "OPENED"  // the upstream is paused after failures
	BreakerClosed = "CLOSED"  // a probe is answered
)

// CallOutcome is what a call of a model shows about its provider.
type CallOutcome string

// The outcomes of calls.
const (
	CallOK      CallOutcome = "ok"
	CallFailed  CallOutcome = "failed"
	CallLimited CallOutcome = "limited" // the provider works and has no capacity for the call
	CallBroken  CallOutcome = "broken"  // the upstream cannot serve until an operator acts, such as without credit
	CallBegun   CallOutcome = "begun"   // its answer begins to arrive; followed by another outcome
)

// CallReport is the report of one call.
type CallReport struct {
	Model    string
	Upstream string
	Task     string // for which the call was made
	Outcome  CallOutcome
	Took     time.Duration // since the call began
	// RetryAfter is how long the provider wants no calls, 0 if it did not say. At most MaxPause is respected.
	RetryAfter time.Duration
	Reason     string
}

// The times of a breaker. All processes of a cell use the same.
const (
	// BreakerFailures is the number of consecutive failures that pause an upstream, unless all are of one task. Where another upstream of
	// the model works, one does.
	BreakerFailures = 5
	// BreakerPause is the first pause; it doubles with each probe that fails, up to BreakerMaxPause: a failure may be that of the call, and the next
	// one waits for it.
	BreakerPause    = 2 * time.Second
	BreakerMaxPause = 15 * time.Second
	// MaxPause is the longest pause of an upstream that its provider can request, and the pause after a fault that lasts until an operator acts.
	MaxPause = time.Minute
	// breakerMemory is how long failures count.
	breakerMemory = 10 * time.Minute
)

// ReportCall counts the outcome of a call of a model. It returns CallCounted, CallPaused, BreakerOpened or BreakerClosed, and
// how long no slot of the upstream is granted.
func (s *Scripts) ReportCall(ctx context.Context, c CallReport) (code string, left time.Duration, err error) {
	keys := []string{s.keys.ModelLimits(c.Model), s.keys.ModelBreaker(c.Model, c.Upstream), s.keys.UpstreamHolders(c.Model, c.Upstream)}
	r := s.call(ctx, "report_call", keys,
		string(c.Outcome), c.RetryAfter.Milliseconds(), c.Reason,
		BreakerFailures, millis(BreakerPause), millis(MaxPause), millis(breakerMemory), s.keys.prefix(), c.Model, c.Upstream, c.Task,
		c.Took.Milliseconds(), millis(BreakerMaxPause))
	return r.code(CallCounted, CallPaused, BreakerOpened, BreakerClosed), r.duration(), r.done()
}
