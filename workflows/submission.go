package workflows

import (
	"cmp"
	"errors"

	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	"berth"
)

// submission is the outcome of the update that a workflow was started for. Equal requests share the update, and so the reply.
type submission struct {
	id      string // SubmissionID of the first request
	settled bool   // the update can return: the work is accepted or refused
	refusal error
}

// wait returns nil once the work is accepted, or the refusal, also where the run is cancelled. Temporal keeps the refusal after the
// end of the run. It names the first request, which may arrive after the work was refused: it does not decide a later one, which
// may start the next run.
func (s *submission) wait(ctx workflow.Context, id string) error {
	s.id = cmp.Or(s.id, id)
	ctx, cancel := workflow.NewDisconnectedContext(ctx)
	defer cancel()
	if err := workflow.Await(ctx, func() bool { return s.settled }); err != nil || s.refusal == nil {
		return err
	}
	code, message := berth.CodeUnavailable, "the request was not accepted; retry"
	if app, ok := errors.AsType[*temporal.ApplicationError](s.refusal); ok {
		code, message = berth.Code(app.Type()), app.Message()
	}
	return refuseFor(s.id, code, message, refusalDetail(s.refusal))
}
