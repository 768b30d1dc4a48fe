package api

import (
	"context"
	"errors"
	"time"

	"go.temporal.io/api/serviceerror"
	"go.temporal.io/sdk/temporal"

	"berth"
)

// errNotRunning is a workflow that does not run, whether it ever did or not.
var errNotRunning = errors.New("the workflow does not run")

// asked translates what came of asking a workflow: errNotRunning, what its validator or handler refused with, or, when it
// could not be reached, CodeUnavailable in the words of away.
func asked(err error, away string) error {
	var started *serviceerror.WorkflowExecutionAlreadyStarted
	var gone *serviceerror.NotFound
	var app *temporal.ApplicationError
	switch {
	case err == nil:
		return nil
	case errors.As(err, &started), errors.As(err, &gone):
		return errNotRunning
	case errors.As(err, &app):
		return refusedBy(app, err)
	default:
		return berth.Errorf(berth.CodeUnavailable, "%s", away).With(err)
	}
}

// refusedBy is an application error as the API answers it: its type is the code.
func refusedBy(app *temporal.ApplicationError, err error) error {
	var detail berth.Refusal
	if app.HasDetails() {
		_ = app.Details(&detail) // without one there are no reasons to show
	}
	var out error
	code := berth.Code(app.Type())
	if code == berth.ErrorRefused { // a unit's NACK, as it was passed on
		code = berth.CodeUnitRefused
	}
	switch code {
	case berth.CodeNodeFull, berth.CodeNoNode:
		out = &RefusedError{Code: code, Message: app.Message(), Reasons: detail.Reasons, Missing: detail.Missing}
	default:
		cause := app.Unwrap() // without the message, which is ours now
		if _, known := statuses[code]; !known {
			code, cause = berth.CodeInternal, err
		}
		out = berth.Errorf(code, "%s", app.Message()).With(cause)
	}
	if detail.SubmissionID == "" {
		return out
	}
	return &refusedUpdate{out, detail.SubmissionID}
}

// refusedUpdate is a refusal that Temporal keeps as an update's outcome, and whose it is.
type refusedUpdate struct {
	err          error
	submissionID string
}

func (e *refusedUpdate) Error() string { return e.err.Error() }

func (e *refusedUpdate) Unwrap() error { return e.err }

// oldRefusal tells an earlier submission's refusal, which says nothing of now, from one's own.
func oldRefusal(err error, submissionID string) bool {
	var refusal *refusedUpdate
	return errors.As(err, &refusal) && refusal.submissionID != submissionID
}

// hold waits; CodeUnavailable when the request has no time left.
func hold(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return berth.Errorf(berth.CodeUnavailable, "no answer in time; ask again").With(ctx.Err())
	}
}
