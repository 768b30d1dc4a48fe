package starter

import (
	"context"
	"errors"

	"go.temporal.io/api/enums/v1"
	"go.temporal.io/api/serviceerror"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/temporal"

	"berth/workflows"
)

// SendRecord starts the workflow that sends the detail record of a conference, unless it was started before. With again it is
// started in any case, and one that still tries ends.
func (s *Starter) SendRecord(ctx context.Context, in workflows.RecordInput, again bool) error {
	return s.deliver(ctx, again, workflows.RecordWorkflow, in, client.StartWorkflowOptions{
		ID: workflows.RecordWorkflowID(in.ConferenceID), StaticSummary: "send the detail record",
		WorkflowIDReusePolicy: enums.WORKFLOW_ID_REUSE_POLICY_REJECT_DUPLICATE,
		TypedSearchAttributes: temporal.NewSearchAttributes(
			temporal.NewSearchAttributeKeyKeyword(workflows.SearchConference).ValueSet(in.ConferenceID)),
	})
}

// SendEvent starts the workflow of a delivery to a webhook, unless it runs. With again one that runs ends, so that the next attempt is now.
func (s *Starter) SendEvent(ctx context.Context, in workflows.WebhookInput, again bool) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	return s.deliver(ctx, again, workflows.WebhookWorkflow, in, client.StartWorkflowOptions{
		ID: workflows.WebhookWorkflowID(in.DeliveryID), StaticSummary: "send an event to a webhook",
		WorkflowIDReusePolicy: enums.WORKFLOW_ID_REUSE_POLICY_ALLOW_DUPLICATE,
	})
}

// deliver starts a workflow that sends something by webhook, unless its options prevent that because it was started before. With again it is
// started in any case, and one that runs ends.
func (s *Starter) deliver(ctx context.Context, again bool, workflow string, in any, o client.StartWorkflowOptions) error {
	o.TaskQueue = workflows.TaskQueueWebhooks
	if again {
		o.WorkflowIDReusePolicy = enums.WORKFLOW_ID_REUSE_POLICY_ALLOW_DUPLICATE
		o.WorkflowIDConflictPolicy = enums.WORKFLOW_ID_CONFLICT_POLICY_TERMINATE_EXISTING
	}
	_, err := s.Client.ExecuteWorkflow(ctx, o, workflow, in)
	if _, started := errors.AsType[*serviceerror.WorkflowExecutionAlreadyStarted](err); started {
		return nil
	}
	return outcome(err)
}
