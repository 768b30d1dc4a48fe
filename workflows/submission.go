package workflows

import (
	"cmp"

	"go.temporal.io/sdk/workflow"

	"berth"
)

// submission is the outcome of the update that a workflow was started for. Equal requests share the update, and so the reply.
type submission struct {
	id      string // SubmissionID of the first request
	settled bool   // the update can return: the work is accepted or refused
	refusal error
}

// wait returns nil once the work is accepted, or the refusal.
func (s *submission) wait(ctx workflow.Context, id string) error {
	s.id = cmp.Or(s.id, id)
	if err := workflow.Await(ctx, func() bool { return s.settled }); err != nil {
		return err
	}
	return s.refusal
}

func (s *submission) refuse(code berth.Code, message string, detail berth.Refusal) {
	s.refusal = refuseFor(s.id, code, message, detail)
}
