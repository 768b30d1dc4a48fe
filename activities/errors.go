package activities

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"time"

	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/temporal"

	"berth"
	"berth/internal/lease"
	"berth/internal/ledger"
	"berth/internal/llm"
	"berth/internal/openai"
	"berth/internal/stream"
)

// errStopping ends a call because this worker is shutting down; the step runs again on another worker immediately.
var errStopping = errors.New("worker is shutting down")

// ErrDisconnected ends a call because this worker cannot reach Redis or the database; the step runs again on another worker
// immediately.
var ErrDisconnected = fmt.Errorf("a dependency is unavailable: %w", errStopping)

// errEnded ends a call because its task has ended meanwhile: it was cancelled or reached its deadline.
var errEnded = errors.New("task has ended")

// translate returns the failure of a step as the application error by which Temporal decides about a retry. Its type is the
// code.
func translate(ctx context.Context, err error) error {
	if err == nil {
		return nil
	}
	var call *llm.CallError
	var known *berth.Error
	var request *openai.Error
	switch cause := context.Cause(ctx); {
	case errors.Is(cause, errEnded), errors.Is(err, errEnded), errors.Is(err, stream.ErrEnded):
		return final(berth.CodeCancelled, "already ended", err)
	case errors.Is(cause, errStopping), errors.Is(err, errStopping):
		return again(berth.CodeUnavailable, "the worker stopped, and no other one has begun the call yet", time.Millisecond, err)
	case errors.Is(cause, lease.ErrHeldTooLong), errors.Is(err, lease.ErrHeldTooLong):
		return final(berth.CodeDeadlineExceeded, "the model did not answer in time", err)
	case errors.Is(cause, lease.ErrLost), errors.Is(err, lease.ErrLost):
		return unavailable("the model's slot was lost", err)
	case errors.Is(err, ledger.ErrNoTask): // an older database was restored: the reconciliation writes the row again
		return unavailable("the database was restored to an earlier state", err)
	case errors.Is(err, stream.ErrFenced):
		return final(berth.CodeConflict, "a later attempt is running", err)
	case errors.As(err, &call):
		if call.Retryable {
			return again(call.Code, call.Message, call.RetryAfter, err)
		}
		return final(call.Code, call.Message, err)
	case errors.As(err, &request) && request.Final: // such as a conversation of which a response was deleted meanwhile
		return final(berth.CodeInvalid, request.Message, err)
	case errors.As(err, &known):
		if known.Code == berth.CodeUnavailable || known.Code == berth.CodeInternal {
			return again(known.Code, known.Message, 0, err)
		}
		return final(known.Code, known.Message, err)
	case ctx.Err() != nil:
		return ctx.Err()
	default:
		return again(berth.CodeInternal, "the attempt failed unexpectedly", 0, err)
	}
}

// callCode returns the code of a call whose answer is not used, for the usage log.
func callCode(ctx context.Context, err error) berth.Code {
	var app *temporal.ApplicationError
	if errors.Is(err, ledger.ErrFinal) || !errors.As(translate(ctx, err), &app) { // the task has ended, or its workflow ends the step
		return berth.CodeCancelled
	}
	return berth.Code(app.Type())
}

// Delays after a fault that is not the task's, such as an unavailable provider or database.
const (
	firstRetryDelay = 500 * time.Millisecond
	maxRetryDelay   = 5 * time.Second
)

// stepFault returns the failure of a step as an application error. A fault that Temporal retries gets its delay: what the
// provider requested, after which the tasks return in their fair order, or else a backoff with jitter. A failed call is final once the
// step has bought its maximum of answers. Other faults are not: the answer of this attempt may be held for the next one.
func stepFault(ctx context.Context, err error, bought, most int) error {
	var app *temporal.ApplicationError
	if err != nil && errors.Is(ctx.Err(), context.DeadlineExceeded) {
		// The deadline of the task. Temporal's own timeout states the fault of the previous attempt, which this one does not know.
		return activity.ErrResultPending
	}
	failed := err
	if err = translate(ctx, err); !errors.As(err, &app) {
		return err
	}
	_, ofCall := errors.AsType[*llm.CallError](failed)
	switch {
	case app.NonRetryable(), errors.Is(context.Cause(ctx), errStopping), errors.Is(failed, errStopping):
		return err
	case ofCall && bought >= most:
		return final(berth.Code(app.Type()), app.Message()+"; berth tried "+times(bought), app.Unwrap())
	default:
		delay := max(app.NextRetryDelay(), firstRetryDelay)
		if app.NextRetryDelay() == 0 {
			delay = retryDelay(int(activity.GetInfo(ctx).Attempt), rand.Float64())
		}
		return again(berth.Code(app.Type()), app.Message(), delay, app.Unwrap())
	}
}

// times returns how often something was done, as users read it.
func times(n int) string {
	switch n {
	case 1:
		return "once"
	case 2:
		return "twice"
	case 3:
		return "three times"
	default:
		return fmt.Sprintf("%d times", n)
	}
}

// retryDelay returns the delay after a fault: it doubles with every attempt, and up to half of it is added at random, so that
// tasks that failed together do not return together.
func retryDelay(attempt int, random float64) time.Duration {
	delay := min(firstRetryDelay<<min(max(attempt-1, 0), 10), maxRetryDelay)
	return delay + time.Duration(random*float64(delay)/2)
}

// refused returns the error of a placement as an application error whose type is the code and whose detail is the
// berth.Refusal. Temporal does not retry it: the workflow decides whether it can wait. An error without a code means that
// the outcome is unknown.
func refused(err error) error {
	detail, message := &berth.Refusal{Code: berth.CodeUnavailable}, "the fleet's state is unavailable; retry in a few seconds"
	var refusal *berth.Refusal
	var known *berth.Error
	switch {
	case err == nil:
		return nil
	case errors.As(err, &refusal):
		detail, message, err = refusal, refusal.Error(), nil
	case errors.As(err, &known):
		detail, message = &berth.Refusal{Code: known.Code}, known.Message
	}
	return temporal.NewApplicationErrorWithOptions(message, string(detail.Code), temporal.ApplicationErrorOptions{
		NonRetryable: true, Cause: hideCause(err), Details: []any{*detail},
	})
}

// unavailable returns a failure of Redis, the database or Temporal. Temporal retries it.
func unavailable(message string, err error) error {
	return again(berth.CodeUnavailable, message, 0, err)
}

// again returns a failure that Temporal retries, after the given pause if it is positive.
func again(code berth.Code, message string, after time.Duration, err error) error {
	return temporal.NewApplicationErrorWithOptions(message, string(code), temporal.ApplicationErrorOptions{
		Cause: hideCause(err), NextRetryDelay: after,
	})
}

// final returns a failure that Temporal does not retry.
func final(code berth.Code, message string, err error) error {
	return temporal.NewNonRetryableApplicationError(message, string(code), hideCause(err))
}

// hideCause returns an error with the text of err, cut to a length that suits a history.
func hideCause(err error) error {
	if err == nil {
		return nil
	}
	text := err.Error()
	if len(text) > 500 {
		text = text[:500] + "…"
	}
	return errors.New(strings.ToValidUTF8(text, "\uFFFD")) // protobuf requires it
}
