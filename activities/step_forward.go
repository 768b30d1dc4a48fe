package activities

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/temporal"

	"berth"
	"berth/internal/failover"
	"berth/internal/ledger"
	"berth/internal/llm"
	"berth/internal/openai"
	"berth/internal/responses"
	"berth/internal/template"
	"berth/lua"
	"berth/workflows"
)

// forwarding has a template of one step without a prompt: that of a forwarded request.
var forwarding = &template.Template{
	Name: berth.TemplateChat, Steps: []template.Step{{ID: string(berth.StepChat), Mode: berth.ModeStream}},
}

const (
	// maxForwards is how many attempts at a forwarded request call the upstreams of its model. Its client waits.
	maxForwards = 3
	// readEvents is how many events of a stream are read together.
	readEvents = 500
)

// request returns the call of a forwarded request, and the upstreams of its model that do not accept it.
func (s *step) request(ctx context.Context) (call llm.Call, excluded []string, err error) {
	asset, err := s.Ledger.GetAsset(ctx, s.in.UserID, s.in.Variables[berth.VariableRequest])
	if err != nil {
		return call, nil, fmt.Errorf("request: %w", err)
	}
	r, err := s.forwarded(ctx, asset.Content)
	if err != nil { // it was checked by another version of berth
		return call, nil, err
	}
	models := s.Catalog(s.in.Step.Model)
	if model, ok := models.Model(s.in.Step.Model); ok {
		if excluded, err = r.Check(model); err != nil {
			return call, nil, err
		}
	}
	f := s.in.Forwarded
	call = r.Call(s.in.Step.Model, llm.Shown{ID: s.in.ID, Created: f.Created, ServiceTier: f.ServiceTier})
	call.Labels = s.labels()
	return call, excluded, nil
}

// forwarded returns the request that a body has, that of a response with the conversation that it continues.
func (s *step) forwarded(ctx context.Context, body []byte) (r *openai.Request, err error) {
	if s.in.Forwarded.Response == nil {
		return openai.ParseChat(body)
	}
	if s.response, err = responses.Parse(body); err != nil {
		return nil, err
	}
	earlier, err := responses.Earlier(ctx, s.Ledger, s.in.UserID, s.response)
	if err != nil {
		return nil, err
	}
	return s.response.Forwarded(earlier)
}

// prepare returns the call of the step, ready to be made.
func (s *step) prepare(ctx context.Context) (call llm.Call, err error) {
	var excluded []string
	if s.in.Forwarded != nil {
		call, excluded, err = s.request(ctx)
	} else {
		var messages []llm.Message
		messages, err = s.prompt(ctx)
		call = s.newCall(messages)
	}
	if err != nil {
		return call, err
	}
	if call, err = s.Models.Prepare(call); err != nil {
		return call, err
	}
	s.tried = failover.Call{Model: call.Model, Excluded: append(s.Catalog(s.in.Step.Model).Unkeyed(call.Model), excluded...)}
	return call, s.checkContext()
}

// forward makes the call of a forwarded request. It publishes the chunks of a stream, or the events of a response, as tokens of one line each. Before the
// first, the task gets the status STREAMING: from then on no attempt makes the call again, but that of a response of which no client can have read
// anything.
func (s *step) forward(ctx context.Context, call llm.Call) (berth.Asset, error) {
	var all bytes.Buffer
	publish := func(line []byte) error {
		all.Write(line)
		all.WriteByte('\n')
		return s.writer.Token(string(line) + "\n")
	}
	object, begin, end := publish, func() error { return nil }, func() error { return nil }
	if s.in.Forwarded.Response != nil {
		w := responses.NewWriter(s.response, responses.HeadOf(s.response, berth.TaskPlan{TaskRequest: s.in.TaskRequest, Forwarded: s.in.Forwarded}), publish)
		object, end = w.Take, func() error { return w.End(nil) }
		begin = func() error {
			if err := w.Begin(); err != nil {
				return err
			}
			return w.Started()
		}
	}
	begun, start := false, time.Now()
	res, err := s.Models.Forward(ctx, call, func(chunk []byte) error {
		if err := s.awaitStart(); err != nil {
			return err
		}
		first := !begun
		if first {
			begun = true
			s.Breaker.Begun(ctx, s.reported(time.Since(start)))
		}
		if !call.Raw.Stream {
			all.Write(chunk)
			return nil
		}
		if first {
			if err := s.claim(ctx, ledger.CallStart{Call: s.calls, Provider: s.provider, Upstream: s.upstream, Status: berth.TaskStreaming}); err != nil {
				return err
			}
			s.shown = true
			if err := begin(); err != nil {
				return err
			}
		}
		return object(chunk)
	})
	s.made(ctx, res, err, start)
	if failed, ok := errors.AsType[*llm.CallError](err); ok && s.shown && failed.Retryable && !s.mayRepeat(ctx) {
		last := *failed
		s.brokeOff, last.Retryable, err = true, false, &last
	}
	if err == nil {
		err = end()
	}
	if err != nil {
		return berth.Asset{}, err
	}
	mediaType := berth.JSONMediaType
	if call.Raw.Stream {
		mediaType = berth.ChunksMediaType
	}
	return s.result(mediaType, all.Bytes()), nil
}

// mayRepeat reports whether the answer may be made again although something of it was published. If the database does not say, the next attempt knows.
func (s *step) mayRepeat(ctx context.Context) bool {
	if !s.in.Forwarded.MayRepeat() {
		return false
	}
	row, err := s.Ledger.GetTask(ctx, s.in.Ref())
	return err != nil || row.Forwarded.MayRepeat()
}

// interrupted ends a forwarded request of which an earlier attempt has passed on a part: its worker was lost. What had arrived is charged.
func (s *step) interrupted(ctx context.Context) error {
	s.brokeOff = true
	calls, err := s.Ledger.ModelCalls(ctx, s.in.Ref())
	if err != nil {
		return err
	}
	for i := len(calls) - 1; i >= 0; i-- {
		if calls[i].Fence == s.attempt.Fence || calls[i].Provider == "" {
			continue
		}
		if calls[i].Code != berth.CodeInterrupted { // the worker that passed on something has recorded what that was
			if calls[i].Code == berth.CodeProviderUnavailable {
				return berth.Errorf(calls[i].Code, "the answer broke off after a part of it was read")
			}
			break
		}
		arrived, err := s.published(ctx, channel(s.in.UserID, s.in.ServiceID, s.in.ID))
		if err != nil {
			return err
		}
		call, _, err := s.request(ctx)
		if err != nil {
			return err
		}
		if s.response != nil {
			arrived = responses.Chunks(arrived)
		}
		s.provider, s.upstream = calls[i].Provider, calls[i].Upstream
		s.last = llm.Result{Provider: s.provider, Upstream: s.upstream, Usage: call.Raw.Estimate(arrived)}
		last := calls[i]
		last.Usage, last.CostMicros, last.Credits, last.Code = s.last.Usage, s.cost(), s.credits(), berth.CodeUnavailable // this outcome is final
		if err := s.Ledger.FailedCall(ctx, last); err != nil {
			return err
		}
		break
	}
	return berth.Errorf(berth.CodeInterrupted, "the answer was interrupted: the worker that received it stopped")
}

// keepEvents stores the events of a response that has failed or was cancelled: those that its readers may have, and the last one.
func (a *Tasks) keepEvents(ctx context.Context, row berth.Task) error {
	request, err := a.Ledger.GetAsset(ctx, row.UserID, row.Variables[berth.VariableRequest])
	if err != nil {
		return err
	}
	r, err := responses.Parse(request.Content)
	if err != nil {
		return err
	}
	published, err := a.published(ctx, channel(row.UserID, row.ServiceID, row.ID))
	if err != nil {
		return err
	}
	log := bytes.NewBuffer(published[:bytes.LastIndexByte(published, '\n')+1])
	w := responses.NewWriter(r, responses.HeadOf(r, row.TaskPlan), func(event []byte) error {
		log.Write(event)
		return log.WriteByte('\n')
	})
	if log.Len() == 0 {
		err = w.Begin()
	} else {
		err = w.Replay(log.Bytes())
	}
	switch {
	case err != nil:
	case row.Status == berth.TaskCancelled:
		err = w.Cancel()
	default:
		err = w.End(openai.ErrorOfTask(row))
	}
	if err != nil {
		return err
	}
	return a.Ledger.SaveEvents(ctx, row.Ref(), berth.Asset{
		Kind: berth.AssetResult, MediaType: berth.ChunksMediaType, Content: log.Bytes(), Size: int64(log.Len()),
	})
}

// published returns the text that was published in a stream, as far as Redis has it.
func (a *Tasks) published(ctx context.Context, ch lua.Channel) ([]byte, error) {
	var out bytes.Buffer
	for after := ""; ; {
		_, events, err := a.Scripts.ReadStream(ctx, ch, after, readEvents)
		if err != nil {
			return nil, berth.Errorf(berth.CodeUnavailable, "Redis unavailable; retry").With(err)
		}
		for _, e := range events {
			var ev berth.Event
			if err := json.Unmarshal([]byte(e.Data), &ev); err != nil {
				continue // of another version
			}
			switch ev.Type {
			case berth.EventReset:
				out.Reset()
			case berth.EventToken, berth.EventTokenBatch:
				out.WriteString(ev.Text)
			}
			after = e.ID
		}
		if len(events) < readEvents {
			return out.Bytes(), nil
		}
	}
}

func (s *step) allPaused(ctx context.Context, failed *llm.CallError) bool {
	model := s.in.Step.Model
	models := s.Catalog(model)
	return failover.AllPaused(ctx, s.Scripts, models.Limits(model, 0), failed, model, models.Unkeyed(model))
}

// fault returns the failure of the step. The final one of a forwarded request has what its client reads.
func (s *step) fault(ctx context.Context, failed error) error {
	err := stepFault(ctx, failed, s.bought, s.Options.MaxAnswers)
	app, ok := errors.AsType[*temporal.ApplicationError](err)
	if s.in.Forwarded == nil || !ok {
		return err
	}
	call, ofCall := errors.AsType[*llm.CallError](failed)
	// A client that waits has more use for the failure than for the end of a pause.
	alone := s.in.Forwarded.Response != nil && s.in.Forwarded.Response.Alone()
	if !app.NonRetryable() && (!ofCall || activity.GetInfo(ctx).Attempt < maxForwards && (alone || !s.allPaused(ctx, call))) {
		return err
	}
	detail, merr := json.Marshal(openai.ErrorOf(failed))
	if merr != nil {
		return fmt.Errorf("encode error: %w", merr)
	}
	return temporal.NewApplicationErrorWithOptions(app.Message(), app.Type(), temporal.ApplicationErrorOptions{
		NonRetryable: true, Cause: app.Unwrap(), Details: []any{workflows.ForwardedFailure{Error: detail, BrokeOff: s.brokeOff}},
	})
}
