// Package starter holds every call that starts, updates, queries, signals or cancels a workflow. Its errors carry a
// berth.Code or are a *berth.Refusal; no error type of Temporal leaves it.
package starter

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"
	"unicode/utf8"

	"go.temporal.io/api/enums/v1"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/converter"
	"go.temporal.io/sdk/temporal"

	"berth"
)

// Starter makes the calls. Only Client is needed for everything but tasks.
type Starter struct {
	Client client.Client
	Tasks  TaskReader
	// Deadline limits a task from its acceptance, StepTimeout one of its steps.
	Deadline    time.Duration
	StepTimeout time.Duration
	// Namespace and Converter are those of the client. They are needed to read the inputs of runs.
	Namespace string
	Converter converter.DataConverter
}

// start describes a workflow that an update starts unless it is running.
type start struct {
	id, queue, name string
	input           any
	summary         string // shown in the Temporal UI
	reuse           enums.WorkflowIdReusePolicy
	taskTimeout     time.Duration
	search          map[string]string // search attributes
}

func (s *Starter) operation(w *start) client.WithStartWorkflowOperation {
	return s.Client.NewWithStartWorkflowOperation(s.options(w), w.name, w.input)
}

// options returns the options of a start that joins a running workflow.
func (s *Starter) options(w *start) client.StartWorkflowOptions {
	var attributes []temporal.SearchAttributeUpdate
	for name, value := range w.search {
		attributes = append(attributes, temporal.NewSearchAttributeKeyKeyword(name).ValueSet(value))
	}
	return client.StartWorkflowOptions{
		ID: w.id, TaskQueue: w.queue, WorkflowTaskTimeout: w.taskTimeout, StaticSummary: shorten(w.summary),
		WorkflowIDConflictPolicy: enums.WORKFLOW_ID_CONFLICT_POLICY_USE_EXISTING,
		WorkflowIDReusePolicy:    w.reuse,
		TypedSearchAttributes:    temporal.NewSearchAttributes(attributes...),
	}
}

// maxSummary limits a summary as JSON, in bytes. Temporal rejects more than 400, which includes an encoding by a payload codec.
const maxSummary = 200

// shorten returns the longest beginning of a summary that Temporal accepts. The ids of users are up to 255 bytes.
func shorten(summary string) string {
	for {
		if encoded, err := json.Marshal(summary); err != nil || len(encoded) <= maxSummary {
			return summary
		}
		_, last := utf8.DecodeLastRuneInString(summary)
		summary = summary[:len(summary)-last]
	}
}

// query returns the answer of a workflow's query. Unless closed is unspecified, reject excluded the run because of it.
func query[R any](
	ctx context.Context, s *Starter, workflowID, name string, reject enums.QueryRejectCondition,
) (result R, closed enums.WorkflowExecutionStatus, err error) {
	value, err := s.Client.QueryWorkflowWithOptions(ctx, &client.QueryWorkflowWithOptionsRequest{
		WorkflowID: workflowID, QueryType: name, QueryRejectCondition: reject,
	})
	switch {
	case err != nil:
	case value.QueryRejected != nil:
		return result, value.QueryRejected.GetStatus(), nil
	default:
		err = value.QueryResult.Get(&result)
	}
	return result, closed, unanswered(outcome(err))
}

// resultOf returns the result of a workflow whose last run has ended, or the detail with which that has failed or was cancelled; the
// zero value where there is none. Unlike a query it needs no worker: those of the version that the run was pinned to may be gone.
func resultOf[R any](ctx context.Context, s *Starter, workflowID string) (result R, err error) {
	err = s.Client.GetWorkflow(ctx, workflowID, "").Get(ctx, &result)
	if cancelled, ok := errors.AsType[*temporal.CanceledError](err); ok {
		if err = nil; cancelled.HasDetails() {
			err = cancelled.Details(&result)
		}
	} else if failed, ok := errors.AsType[*temporal.ApplicationError](err); ok {
		if err = nil; failed.HasDetails() {
			err = failed.Details(&result)
		}
	}
	return result, unanswered(outcome(err))
}

// unanswered words CodeUnavailable for a call that may simply be made again.
func unanswered(err error) error {
	if berth.CodeOf(err) == berth.CodeUnavailable {
		return berth.Errorf(berth.CodeUnavailable, "Temporal or the worker of the workflow did not answer in time; retry").With(err)
	}
	return err
}

// signal reports whether the workflow was running to receive the signal.
func (s *Starter) signal(ctx context.Context, workflowID, name string, arg any) (running bool, err error) {
	switch err := outcome(s.Client.SignalWorkflow(ctx, workflowID, "", name, arg)); {
	case err == nil:
		return true, nil
	case isNotRunning(err):
		return false, nil
	default:
		return false, fmt.Errorf("signal %s: %w", workflowID, err)
	}
}

// cancel requests cancellation; CodeConflict when the workflow of what has ended.
func (s *Starter) cancel(ctx context.Context, workflowID, what string) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	err := outcome(s.Client.CancelWorkflow(ctx, workflowID, ""))
	if isNotRunning(err) {
		return berth.Errorf(berth.CodeConflict, "the %s has already ended", what).With(err)
	}
	return err
}

// callTimeout bounds calls that wait for a workflow's first decision at most.
const callTimeout = 10 * time.Second

// mismatch is the error of an id that was used for another request.
func mismatch(field string) error {
	return &berth.Error{Code: berth.CodeIdempotencyMismatch, Field: field, Message: "was used for another request"}
}
