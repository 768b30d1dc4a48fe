package starter

import (
	"context"
	"errors"
	"strconv"
	"time"

	"go.temporal.io/api/serviceerror"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/temporal"

	"berth"
	"berth/internal/pause"
)

const (
	// maxRefusals bounds how many refusals of one request are kept. A repeated request is delayed by refusalPause for each
	// of them, at most by maxRefusalPause.
	maxRefusals     = 200
	refusalPause    = 50 * time.Millisecond
	maxRefusalPause = 500 * time.Millisecond
	// maxEarlierRuns is under how many of its update ids a request can have been refused in earlier runs.
	maxEarlierRuns = 4
)

// update is one update of a workflow. Temporal keeps an outcome under the update's id, so equal requests share it. A kept
// refusal would be final: a request that was refused before is sent under the next of the ids id, id~1, id~2, ...
type update struct {
	workflowID string
	name       string
	id         string
	submission string // identifies the caller in the outcome; empty when a refusal is final
	arg        any
	start      *start // nil: the workflow has to be running
}

func (u update) options(n int, stage client.WorkflowUpdateStage) client.UpdateWorkflowOptions {
	return client.UpdateWorkflowOptions{
		WorkflowID: u.workflowID, UpdateID: u.nthID(n), UpdateName: u.name, Args: []any{u.arg}, WaitForStage: stage,
	}
}

// nthID is unambiguous: ids of requests contain no ~.
func (u update) nthID(n int) string {
	if n == 0 {
		return u.id
	}
	return u.id + "~" + strconv.Itoa(n)
}

// send returns the outcome of the update's n-th id.
func send[R any](ctx context.Context, s *Starter, u update, n int) (reply R, err error) {
	o := u.options(n, client.WorkflowUpdateStageCompleted)
	var handle client.WorkflowUpdateHandle
	if u.start == nil {
		handle, err = s.Client.UpdateWorkflow(ctx, o)
	} else {
		handle, err = s.Client.UpdateWithStartWorkflow(ctx, client.UpdateWithStartWorkflowOptions{
			StartWorkflowOperation: s.operation(u.start), UpdateOptions: o,
		})
	}
	if err == nil {
		err = handle.Get(ctx, &reply)
	}
	return reply, outcome(err)
}

// submit returns the outcome of the update, sending it again where earlier requests with its id were refused. For a
// workflow that has ended it is what the update got while the workflow ran, or else errNotRunning.
func submit[R any](ctx context.Context, s *Starter, u update) (R, error) {
	reply, err := send[R](ctx, s, u, 0)
	for n := 0; refusedEarlier(err, u.submission); {
		if reply, n, err = recall[R](ctx, s, u, n+1, 1); isNotRunning(err) {
			// Each refusal stays in the workflow's history: slow down callers that retry too often.
			if !pause.For(ctx, min(time.Duration(n)*refusalPause, maxRefusalPause)) {
				return reply, unavailable(ctx.Err())
			}
			reply, err = send[R](ctx, s, u, n)
		}
	}
	if isNotRunning(err) {
		// The first id need not be the last run's: its refusal may have ended an earlier run.
		reply, _, err = recall[R](ctx, s, u, 0, maxEarlierRuns)
	}
	return reply, err
}

// recall returns the outcome that the update has had under its n-th id or a later one, skipping refusals. After unseen
// ids in a row that the last run has not seen, the error is errNotRunning and next the first of these.
func recall[R any](ctx context.Context, s *Starter, u update, n, unseen int) (reply R, next int, err error) {
	for missing := 0; n < maxRefusals; n++ {
		err := outcome(s.Client.GetWorkflowUpdateHandle(client.GetWorkflowUpdateHandleOptions{
			WorkflowID: u.workflowID, UpdateID: u.nthID(n),
		}).Get(ctx, &reply))
		switch {
		case isNotRunning(err):
			if missing++; missing == unseen {
				return reply, n + 1 - unseen, err
			}
		case refusedEarlier(err, ""): // each refusal has a submission
			missing = 0
		default:
			return reply, n, err
		}
	}
	return reply, n, berth.Errorf(berth.CodeUnavailable, "this request was refused %d times; use another request id", maxRefusals)
}

// errNotRunning is the outcome of a workflow that is not running, whether it ever did or not.
var errNotRunning = errors.New("workflow is not running")

func isNotRunning(err error) bool { return errors.Is(err, errNotRunning) }

func unavailable(err error) error {
	var missing *serviceerror.NamespaceNotFound
	var denied *serviceerror.PermissionDenied
	if errors.As(err, &missing) || errors.As(err, &denied) { // a retry cannot help
		return berth.Errorf(berth.CodeUnavailable, "Temporal refuses the requests of this server: an operator has to correct it (berth doctor)").With(err)
	}
	return berth.Errorf(berth.CodeUnavailable, "Temporal did not confirm the request; retry the same request").With(err)
}

// outcome translates an error of Temporal: errNotRunning, what the workflow refused with, or CodeUnavailable.
func outcome(err error) error {
	var started *serviceerror.WorkflowExecutionAlreadyStarted
	var missing *serviceerror.NotFound
	var app *temporal.ApplicationError
	switch {
	case err == nil:
		return nil
	case errors.As(err, &started), errors.As(err, &missing):
		return errNotRunning
	case errors.As(err, &app):
		return refusal(app, err)
	default:
		return unavailable(err)
	}
}

// refusal translates an application error, whose type is a berth.Code and whose detail may be a berth.Refusal.
func refusal(app *temporal.ApplicationError, err error) error {
	var detail berth.Refusal
	if app.HasDetails() {
		_ = app.Details(&detail) // another detail has no reasons to show
	}
	code := berth.Code(app.Type())
	if code == berth.ErrorRefused { // a media unit's own refusal
		code = berth.CodeUnitRefused
	}
	var out error
	if code == berth.CodeNodeFull || code == berth.CodeNoNode {
		detail.Code, detail.Message = code, app.Message()
		out = &detail
	} else {
		cause := app.Unwrap()
		if code.Info().Status == 0 {
			code, cause = berth.CodeInternal, err
		}
		out = berth.Errorf(code, "%s", app.Message()).With(cause)
	}
	if detail.SubmissionID == "" {
		return out
	}
	return &refusedError{out, detail.SubmissionID}
}

// refusedError is a refusal that Temporal keeps as an update's outcome, with the submission that it answers.
type refusedError struct {
	error

	submission string
}

func (e *refusedError) Unwrap() error { return e.error }

// refusedEarlier reports whether err is the kept refusal of another submission, which does not decide this one.
func refusedEarlier(err error, submission string) bool {
	refused, ok := errors.AsType[*refusedError](err)
	return ok && refused.submission != submission
}
