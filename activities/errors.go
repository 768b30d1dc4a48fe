package activities

import (
	"context"
	"errors"
	"strings"
	"time"

	"go.temporal.io/sdk/temporal"

	"berth"
	"berth/internal/lease"
	"berth/internal/llm"
	"berth/internal/stream"
)

// errStopping ends a call because this worker is going away; the step runs again elsewhere at once.
var errStopping = errors.New("worker is stopping")

// errEnded ends a call because its task was decided meanwhile: cancelled or out of time.
var errEnded = errors.New("task is over")

// translate is the one place where a failure becomes what Temporal acts on: an application error whose type is
// the code, retryable or not (T21). cause is why the call's context ended, if it did.
func translate(ctx context.Context, err error) error {
	if err == nil {
		return nil
	}
	var call *llm.CallError
	var known *berth.Error
	switch cause := context.Cause(ctx); {
	case errors.Is(cause, errEnded), errors.Is(err, errEnded), errors.Is(err, stream.ErrEnded):
		return final(berth.CodeCancelled, "the task is over", err)
	case errors.Is(cause, errStopping):
		return again(berth.CodeUnavailable, "the worker is stopping", time.Millisecond, err)
	case errors.Is(cause, lease.ErrLost), errors.Is(err, lease.ErrLost):
		return again(berth.CodeUnavailable, "the model's slot was lost", 0, err)
	case errors.Is(err, stream.ErrFenced):
		return final(berth.CodeConflict, "a later attempt of this step is running", err)
	case errors.As(err, &call):
		if call.Retryable {
			return again(call.Code, call.Message, call.RetryAfter, err)
		}
		return final(call.Code, call.Message, err)
	case errors.As(err, &known):
		if known.Code == berth.CodeUnavailable || known.Code == berth.CodeInternal {
			return again(known.Code, known.Message, 0, err)
		}
		return final(known.Code, known.Message, err)
	case ctx.Err() != nil:
		return ctx.Err()
	default:
		return again(berth.CodeInternal, "the step failed unexpectedly", 0, err)
	}
}

// final is a failure that trying again would not mend.
func final(code berth.Code, message string, err error) error {
	return temporal.NewNonRetryableApplicationError(message, string(code), hideCause(err))
}

// again is a failure that Temporal retries, after the given pause when one is known.
func again(code berth.Code, message string, after time.Duration, err error) error {
	return temporal.NewApplicationErrorWithOptions(message, string(code), temporal.ApplicationErrorOptions{
		Cause: hideCause(err), NextRetryDelay: after,
	})
}

// hideCause keeps the wrapped text short: histories hold small facts only (T26).
func hideCause(err error) error {
	if err == nil {
		return nil
	}
	text := err.Error()
	if len(text) > 500 {
		text = text[:500] + "…"
	}
	return errors.New(strings.ToValidUTF8(text, "\uFFFD")) // protobuf carries nothing else
}
