package activities

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"berth"
	"berth/internal/breaker"
	"berth/internal/ledger"
	"berth/internal/llm"
	"berth/internal/template"
)

func (s *step) newCall(messages []llm.Message) llm.Call {
	return llm.Call{
		Model: s.in.Step.Model, Upstream: s.upstream, Messages: messages, JSON: s.spec.Schema != nil, MaxTokens: s.spec.MaxOutputTokens,
		Labels: s.labels(),
	}
}

// labels describe the call in logs.
func (s *step) labels() []any {
	return []any{"task", s.in.ID, "step", s.in.Step.Name, "fence", s.attempt.Fence}
}

// call asks the model and returns the result to store.
func (s *step) call(ctx context.Context, call llm.Call) (berth.Asset, error) {
	if s.Options.Debug {
		if err := s.writer.Event(berth.Event{Type: berth.EventDebug, Message: fmt.Sprintf("%d messages to %s", len(call.Messages), s.in.Step.Model)}); err != nil {
			return berth.Asset{}, err
		}
	}
	switch {
	case s.in.Forwarded != nil:
		return s.forward(ctx, call)
	case s.spec.Schema != nil:
		return s.structured(ctx, call)
	case s.in.Step.Mode == berth.ModeStream:
		return s.stream(ctx, call)
	default:
		return s.plain(ctx, call)
	}
}

// ask makes one provider call within the step's slot and passes its text to onText as it arrives.
func (s *step) ask(ctx context.Context, call llm.Call, onText func(llm.Delta) error) (string, error) {
	begun, start := false, time.Now()
	res, err := s.Models.Stream(ctx, call, func(d llm.Delta) error {
		if err := s.awaitStart(); err != nil {
			return err
		}
		if !begun {
			begun = true
			s.Breaker.Begun(ctx, s.reported(time.Since(start)))
		}
		if d.Reasoning != "" && !s.reasoned {
			s.reasoned = true
			if err := s.writer.Event(berth.Event{Type: berth.EventStageProgress, Message: text(s.in.Locale, msgThinking)}); err != nil {
				return err
			}
		}
		if d.Content == "" && !d.Withdrawn || onText == nil {
			return s.writer.Err()
		}
		s.shown = true
		return onText(d)
	})
	s.made(ctx, res, err, start)
	return res.Text, err
}

// made records the result of a call of a provider.
func (s *step) made(ctx context.Context, res llm.Result, err error, start time.Time) {
	s.last, s.why = res, ""
	if failed, ok := errors.AsType[*llm.CallError](err); ok && context.Cause(ctx) == nil {
		s.why = failed.Cause
	}
	s.calls++
	if res.Usage != (berth.Usage{}) {
		s.bought++
	}
	shows := err
	if err != nil && res.FirstToken == 0 && errors.Is(context.Cause(ctx), context.DeadlineExceeded) {
		shows = breaker.ErrNoAnswer
	}
	s.Breaker.Report(ctx, s.reported(time.Since(start)), shows)
}

// reported describes the present call for the breaker.
func (s *step) reported(took time.Duration) breaker.Call {
	m, _ := s.Catalog(s.in.Step.Model).Model(s.in.Step.Model)
	u, ok := m.Upstream(s.upstream)
	if !ok {
		u.Name = s.upstream
	}
	return breaker.Call{Model: s.in.Step.Model, Upstream: u, Task: s.in.Ref(), Took: took}
}

// stream publishes the answer token by token, with the stages and items that the model marks.
func (s *step) stream(ctx context.Context, call llm.Call) (berth.Asset, error) {
	parser := s.template.NewStageParser()
	var all strings.Builder
	handle := func(parts []template.Piece) error {
		for _, p := range parts {
			if err := s.part(p, &all); err != nil {
				return err
			}
		}
		return nil
	}
	_, err := s.ask(ctx, call, func(d llm.Delta) error {
		if d.Withdrawn {
			parser = s.template.NewStageParser()
			all.Reset()
			if err := s.withdraw(msgThought); err != nil {
				return err
			}
		}
		return handle(parser.Feed(d.Content))
	})
	if err == nil {
		err = handle(parser.Close())
	}
	if err != nil {
		return berth.Asset{}, err
	}
	s.answer.Text = strings.TrimSpace(all.String())
	if s.answer.Text == "" {
		return berth.Asset{}, s.unusable(llm.CauseEmpty, "only marks of stages", nil)
	}
	b, err := json.Marshal(s.answer)
	if err != nil {
		return berth.Asset{}, fmt.Errorf("encode answer: %w", err)
	}
	return s.result(berth.AnswerMediaType, b), nil
}

// withdraw notifies readers that the text so far is not the answer, and why.
func (s *step) withdraw(why message) error {
	s.answer.Items, s.stage = nil, s.firstStage()
	s.writer.SetStage(s.stage)
	return s.writer.Event(berth.Event{
		Type: berth.EventReset, Attempt: s.attempt.Fence, Message: text(s.in.Locale, why), Status: berth.TaskStreaming,
	})
}

// withdrawShown withdraws what readers have of an answer that failed. Nothing else of the call has reached them.
func (s *step) withdrawShown() error {
	s.reasoned = false
	if !s.shown {
		return nil
	}
	s.shown = false
	return s.withdraw(msgReset)
}

func (s *step) part(p template.Piece, all *strings.Builder) error {
	switch {
	case p.Stage == s.stage:
		return nil // already announced
	case p.Stage != "":
		s.stage = p.Stage
		s.writer.SetStage(p.Stage)
		return s.writer.Event(berth.Event{Type: berth.EventStageProgress, Stage: p.Stage, Message: s.stageText(p.Stage)})
	case p.Item != nil:
		if slices.ContainsFunc(s.answer.Items, func(q berth.Item) bool { return q.Kind == p.Item.Kind && bytes.Equal(q.Value, p.Item.Value) }) {
			return nil // the model repeats itself
		}
		s.answer.Items = append(s.answer.Items, *p.Item)
		return s.writer.Event(berth.Event{Type: berth.EventStageProgress, Items: []berth.Item{*p.Item}})
	default:
		all.WriteString(p.Text)
		return s.writer.Token(p.Text)
	}
}

// plain returns the text of an answer.
func (s *step) plain(ctx context.Context, call llm.Call) (berth.Asset, error) {
	answer, err := s.ask(ctx, call, nil)
	if err != nil {
		return berth.Asset{}, err
	}
	if text := strings.TrimSpace(answer); text == "" || slices.Contains(s.spec.Empty, text) {
		if s.in.Step.Mode == berth.ModeVision {
			return berth.Asset{}, berth.Errorf(berth.CodeUnreadableImage, "no text could be read from the image")
		}
		return berth.Asset{}, s.unusable(llm.CauseEmpty, "the answer says that there is nothing to answer", nil)
	}
	return s.result(berth.TextMediaType, []byte(answer)), nil
}

// maxContinuations bounds how often the rest of a truncated answer is requested.
const maxContinuations = 2

// structured validates an answer against its step's schema. The rest of a truncated answer is requested if the
// template permits it, and an answer that does not match is requested again with what was wrong.
func (s *step) structured(ctx context.Context, call llm.Call) (berth.Asset, error) {
	answer, err := s.ask(ctx, call, nil)
	for continued := 0; err == nil; {
		data, mismatch := llm.ValidateOutput(s.template.Output(string(s.in.Step.Name)), []byte(answer))
		switch {
		case mismatch == nil:
			return s.result(berth.JSONMediaType, data), nil
		case s.last.FinishReason == berth.FinishLength:
			// A repair would reach the same limit.
			if s.spec.Truncated != berth.TruncatedContinues || continued == maxContinuations || !s.mayBuy() {
				return berth.Asset{}, s.unusable(llm.CauseTokens, "", mismatch)
			}
			continued++
			messages, failed := llm.ContinuePrompt(ctx, s.in.Locale, answer)
			if failed != nil {
				return berth.Asset{}, failed
			}
			var rest string
			rest, err = s.askAgain(ctx, msgContinue, append(slices.Clip(call.Messages), messages...))
			answer += rest
		default:
			if !s.mayBuy() {
				return berth.Asset{}, s.unusable(llm.CauseFormat, "", mismatch)
			}
			repair, failed := llm.RepairPrompt(ctx, s.in.Locale, string(s.spec.Schema), answer, mismatch.Error())
			if failed != nil {
				return berth.Asset{}, failed
			}
			answer, err = s.askAgain(ctx, msgRepair, append(slices.Clip(call.Messages), repair))
		}
	}
	return berth.Asset{}, err
}

// askAgain logs the last call, whose answer is not complete, and makes the next one.
func (s *step) askAgain(ctx context.Context, why message, messages []llm.Message) (string, error) {
	if s.why = llm.CauseFormat; s.last.FinishReason == berth.FinishLength {
		s.why = llm.CauseTokens
	}
	s.logCall(ctx, berth.CodeInvalidOutput)
	if err := s.claim(ctx, ledger.CallStart{Call: s.calls, Provider: s.provider, Upstream: s.upstream}); err != nil {
		return "", err
	}
	if err := s.writer.Event(berth.Event{Type: berth.EventStageProgress, Message: text(s.in.Locale, why)}); err != nil {
		return "", err
	}
	return s.ask(ctx, s.newCall(messages), nil)
}

// unusable returns the error for an answer that cannot be used.
func (s *step) unusable(why llm.Cause, reason string, err error) *llm.CallError {
	s.why = why
	return s.Models.Unusable(s.in.Step.Model, s.upstream, why, reason, err)
}

func (s *step) result(mediaType string, content []byte) berth.Asset {
	return berth.Asset{
		UserID: s.in.UserID, Kind: berth.AssetResult, MediaType: mediaType, Content: content, Size: int64(len(content)),
	}
}
