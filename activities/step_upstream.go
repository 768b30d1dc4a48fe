package activities

import (
	"context"
	"errors"

	"berth"
	"berth/internal/lease"
	"berth/internal/ledger"
	"berth/internal/llm"
)

// callUpstreams makes the call in the slot. While its upstream fails it and another one of the model may serve it, the call is made there.
func (s *step) callUpstreams(ctx context.Context, slot *lease.Slot, call llm.Call) (berth.Asset, error) {
	for {
		call.Upstream, s.upstream = slot.Upstream(), slot.Upstream()
		s.lease.Store(new(slot.Lease())) // until the answer is recorded
		output, failed, err := s.callInSlot(slot, call)
		if failed == nil || s.in.Forwarded != nil && s.shown {
			return output, err
		}
		if slot, err = s.another(ctx, slot.Ticket(), call, failed); err != nil {
			return berth.Asset{}, err
		}
	}
}

// callInSlot calls the upstream of the slot within the slot's lease and the step's timeout, and releases the slot. The provider is called while
// the start of the call is recorded. Nothing that it returns is published before that has succeeded, and where the task has ended or a later
// attempt owns it, the call is cancelled. failed is set if the error is that of the call.
func (s *step) callInSlot(slot *lease.Slot, call llm.Call) (output berth.Asset, failed *llm.CallError, err error) {
	defer slot.Release()
	if err := s.checkContext(); err != nil { // the routing may have changed while the call waited
		return output, nil, err
	}
	if s.provider, err = s.Models.ServedBy(call); err != nil { // such as an upstream that another process has in its routing file
		failed, _ = errors.AsType[*llm.CallError](err)
		return output, failed, err
	}
	ctx, cancel := context.WithTimeout(slot.Context(), min(s.in.Timeout, s.Options.CallTimeout))
	defer cancel()
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	started := make(chan struct{})
	s.started = started
	start := ledger.CallStart{Call: s.calls, Provider: s.provider, Upstream: s.upstream}
	go func() {
		defer close(started)
		if err := s.start(ctx, start); err != nil {
			s.startErr = cause(ctx, err)
			stop(s.startErr)
		}
	}()
	output, err = s.call(ctx, call)
	<-started
	switch {
	case s.startErr != nil:
		err = s.startErr
	case err != nil:
		if context.Cause(ctx) == nil {
			failed, _ = errors.AsType[*llm.CallError](err)
		}
		err = cause(ctx, err)
	default:
		return output, nil, nil
	}
	code := callCode(ctx, err)
	slot.Release()
	s.logCall(ctx, code)
	return berth.Asset{}, failed, err
}

// awaitStart returns once the start of the call is recorded, or why it could not be.
func (s *step) awaitStart() error {
	<-s.started
	return s.startErr
}

// another returns a slot of another upstream for a call that failed, in the position of that call. Where no other one may serve the call
// now, it returns why the step fails.
func (s *step) another(ctx context.Context, ticket string, call llm.Call, failed *llm.CallError) (*lease.Slot, error) {
	s.tried.Failed(s.Catalog(s.in.Step.Model), call.Upstream, failed)
	switch {
	case failed.Scope == llm.ScopeRequest:
		return nil, s.failed(failed)
	case !s.tried.Untried(s.Catalog(s.in.Step.Model)) || !s.mayBuy() || s.in.Forwarded != nil && s.allPaused(ctx, failed):
		return nil, s.failed(s.tried.Decisive())
	case s.lost.Load(): // the next attempt makes it
		return nil, s.failed(failed)
	}
	s.lease.Store(nil)
	if err := s.withdrawShown(); err != nil {
		return nil, err
	}
	slot, err := s.acquire(ctx, call, ticket)
	if err == nil && s.tried.Excludes(slot.Upstream()) { // the others are paused
		slot.Release()
		err = s.failed(s.tried.Paused(ctx, s.Scripts, s.Catalog(s.in.Step.Model).Limits(s.in.Step.Model, 0)))
	}
	if err != nil {
		return nil, err
	}
	s.Logger.InfoContext(ctx, "call made on another upstream", "task", s.in.ID, "step", s.in.Step.Name, "fence", s.attempt.Fence,
		"model", call.Model, "failed", call.Upstream, "upstream", slot.Upstream(), "kind", failed.Cause)
	return slot, nil
}

// failed returns the error of a call that is not made on another upstream, and notifies readers when the step will be repeated.
func (s *step) failed(call *llm.CallError) error {
	if late := call.Before(s.in.DeadlineAt); late != call {
		return late
	}
	if call.Retryable && s.mayBuy() {
		if err := s.writer.Event(berth.Event{
			Type: berth.EventStageProgress, Code: call.Code, Message: text(s.in.Locale, msgRetry) + ": " + call.Message,
		}); err != nil {
			s.Logger.Debug("retry notice not published", "task", s.in.ID, "error", err)
		}
	}
	return call
}
