package llm

import (
	"context"
	"errors"
	"time"
)

// CallCheck is the outcome of a short call of one upstream.
type CallCheck struct {
	// Upstream is named as its model, and itself where its name says more.
	Upstream, Provider string
	Took               time.Duration
	// Cause is empty if the model answered.
	Cause Cause
	Fault CheckFault
}

// callTimeout bounds the wait for the answer of a short call: a server may load its model for it.
const callTimeout = time.Minute

// CheckCalls makes a call of each upstream that this process can call, whose answer has one token, and passes the outcomes to found. The calls
// cost something.
func (c *Client) CheckCalls(ctx context.Context, found func(CallCheck)) {
	for _, s := range c.catalog("").servers() {
		for _, u := range s.upstreams {
			if ctx.Err() != nil {
				return
			}
			found(c.checkCall(ctx, u))
		}
	}
}

func (c *Client) checkCall(ctx context.Context, u served) CallCheck {
	res, err := c.Stream(ctx, Call{
		Model: u.model, Upstream: u.Name, Messages: []Message{TextMessage(RoleUser, "Hi")}, MaxTokens: 1,
		Timeouts: Timeouts{FirstByte: callTimeout, Idle: callTimeout},
	}, nil)
	out := CallCheck{Upstream: u.shown(), Provider: u.servedBy, Took: res.Took}
	failed, ok := errors.AsType[*CallError](err)
	switch {
	case err == nil, ok && failed.Cause == CauseTokens: // a model may think first
	case !ok:
		out.Cause, out.Fault = CauseUnknown, CheckFault{true, err.Error(), ""}
	default:
		out.Cause, out.Fault = failed.Cause, CheckFault{!failed.Retryable, failed.words(), "run berth doctor again later"}
		if failed.Scope == ScopeOperator || failed.Cause == CauseConnection {
			out.Fault.Advice = advise(u, failed)
		}
		if failed.Cause == CauseModel {
			out.Fault.Advice = "correct " + idSetting(u)
		}
	}
	return out
}
