package llm

import (
	"context"
	"errors"
	"time"

	"golang.org/x/sync/errgroup"
)

// CallCheck is the outcome of a short call of one upstream.
type CallCheck struct {
	Model string
	// Upstream is named as its model, and itself where its name says more.
	Upstream, Provider string
	Took               time.Duration
	// Cause is empty if the model answered.
	Cause Cause
	Fault CheckFault
}

// callsAtOnce is how many short calls are made concurrently.
const callsAtOnce = 16

// CheckCalls makes a call of each upstream that this process can call, whose answer has one token, and returns the outcomes, by provider. Each may
// take so long: a server that loads its model for it takes longer. The calls cost something. When ctx ends, it returns those that have ended.
func (c *Client) CheckCalls(ctx context.Context, within time.Duration) (all []CallCheck) {
	var upstreams []served
	for _, s := range c.catalog("").servers() {
		upstreams = append(upstreams, s.upstreams...)
	}
	ended := make([]*CallCheck, len(upstreams))
	var calls errgroup.Group
	calls.SetLimit(callsAtOnce)
	for i, u := range upstreams {
		calls.Go(func() error {
			if out := c.checkCall(ctx, u, within); ctx.Err() == nil {
				ended[i] = &out
			}
			return nil
		})
	}
	_ = calls.Wait() // they return nil
	for _, out := range ended {
		if out != nil {
			all = append(all, *out)
		}
	}
	return all
}

func (c *Client) checkCall(ctx context.Context, u served, within time.Duration) CallCheck {
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	res, err := c.Stream(ctx, Call{
		Model: u.model, Upstream: u.Name, Messages: []Message{TextMessage(RoleUser, "Hi")}, MaxTokens: 1,
		Timeouts: Timeouts{FirstByte: within, Idle: within},
	}, nil)
	out := CallCheck{Model: u.model, Upstream: u.shown(), Provider: u.servedBy, Took: res.Took}
	failed, ok := errors.AsType[*CallError](err)
	switch {
	case err == nil, ok && failed.Cause == CauseTokens: // a model may think first
	case !ok && errors.Is(err, context.DeadlineExceeded), ok && failed.Cause == CauseTimeout && failed.Status == 0: // whichever of the timers was first
		out.Cause = CauseTimeout
		out.Fault = CheckFault{Said: "no answer within " + within.String(), Advice: "run berth doctor again later: a server that loads its model takes longer"}
	case !ok:
		out.Cause, out.Fault = CauseUnknown, CheckFault{Certain: true, Said: err.Error()}
	default:
		out.Cause, out.Fault = failed.Cause, CheckFault{Certain: !failed.Retryable, Said: failed.words(), Advice: "run berth doctor again later"}
		if failed.Scope == ScopeOperator || failed.Cause == CauseConnection {
			out.Fault.Advice = advise(u, failed)
		}
		if failed.Cause == CauseModel {
			out.Fault.Advice = "correct " + idSetting(u)
		}
	}
	return out
}
