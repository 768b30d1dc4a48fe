// Package activities implements the side effects of the workflows, one file per workflow. Every activity is idempotent:
// its writes are keyed by what they belong to, and those of an older attempt are rejected.
package activities

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"berth"
	"berth/internal/breaker"
	"berth/internal/catalog"
	"berth/internal/lease"
	"berth/internal/ledger"
	"berth/internal/llm"
	"berth/internal/stream"
	"berth/internal/waiting"
	"berth/lua"
	"berth/workflows"
)

// TaskOptions are the settings of model calls.
type TaskOptions struct {
	// CallTimeout is the longest time for which one call may hold its model's slot.
	CallTimeout time.Duration
	// MaxAnswers is the number of answers that one step may buy.
	MaxAnswers int
	// Drain is how long a call may continue on a worker that stops.
	Drain time.Duration
	// Debug publishes debug events, except in production.
	Debug bool
	// KeepStreamed keeps the charge of a task that is cancelled after its answer has begun.
	KeepStreamed bool
}

// HoldMargin is how much longer than TaskOptions.CallTimeout a slot may be held: a call ends by its timeout, and the bound of
// the slot only ends one that does not stop.
const HoldMargin = 10 * time.Second

// Tasks implements the activities of the Task workflow.
type Tasks struct {
	Ledger  *ledger.Ledger
	Streams *stream.Publisher
	// Chunks publishes answers to forwarded requests, whose clients wait for each chunk.
	Chunks *stream.Publisher
	Slots  *lease.Slots
	Models *llm.Client
	// Catalog returns the present catalog for calls of a model.
	Catalog func(model string) *llm.Catalog
	// Templates has the versions of templates.
	Templates *catalog.Catalog
	Running   *Running
	Scripts   *lua.Scripts
	Waiting   *waiting.Room
	Breaker   *breaker.Breaker
	Options   TaskOptions
	Logger    *slog.Logger
}

func channel(userID, serviceID, taskID string) lua.Channel {
	return lua.Channel{UserID: userID, ServiceID: serviceID, TaskID: taskID}
}

// AcceptTask writes the task's row and opens its event stream. It is idempotent.
func (a *Tasks) AcceptTask(ctx context.Context, in workflows.TaskInput) (workflows.AcceptReply, error) {
	now := time.Now()
	row, created, err := a.Ledger.CreateTask(ctx, berth.Task{
		TaskPlan: in.TaskPlan, Status: berth.TaskPending, CreatedAt: now, DeadlineAt: now.Add(in.Deadline),
	})
	if err != nil {
		return workflows.AcceptReply{}, translate(ctx, err)
	}
	if row.RequestHash != in.RequestHash {
		return workflows.AcceptReply{}, final(berth.CodeIdempotencyMismatch, "the id is already used for a different request", nil)
	}
	reply := workflows.AcceptReply{Status: row.Status, Created: created, DeadlineAt: row.DeadlineAt, Tier: row.Tier}
	if row.Status.Final() {
		return reply, nil
	}
	ch := channel(in.UserID, in.ServiceID, in.ID)
	if err := a.Streams.Open(ctx, ch, row.Fence, row.DeadlineAt); err != nil {
		return workflows.AcceptReply{}, unavailable("event stream not opened", err)
	}
	queued := a.event(row, berth.EventQueued, berth.StageQueue)
	queued.Queue, queued.Model, queued.Tier, queued.Status = row.Steps[0].Queue, row.Steps[0].Model, row.Tier, row.Steps[0].Status
	if err := a.Streams.Publish(ctx, ch, row.Fence, queued); err != nil {
		return workflows.AcceptReply{}, unavailable("event not written to the stream", err)
	}
	// The submission was admitted for a short time. That is confirmed here, also for the queue of another tier.
	if err := a.Scripts.KeepAdmissions(ctx, admissions(row.TaskPlan, in.Queues()), row.Steps[0].Queue, time.Until(row.DeadlineAt)); err != nil {
		return workflows.AcceptReply{}, unavailable("admission to the queue not confirmed", err)
	}
	// After what can be refused, because the texts of an acceptance that fails must not be found by later tasks.
	t, err := a.version(ctx, row.TaskRequest, row.Forwarded)
	if err != nil {
		return workflows.AcceptReply{}, translate(ctx, err)
	}
	if err := a.Ledger.ClaimAssets(ctx, in.UserID, in.Variables, t.Evidence()); err != nil {
		return workflows.AcceptReply{}, translate(ctx, err)
	}
	reply.Entered, err = a.EnterTask(ctx, workflows.EnterInput{
		TaskRef: row.Ref(), Group: row.Group, Index: row.StepIndex, Step: row.Steps[row.StepIndex], DeadlineAt: row.DeadlineAt,
	})
	return reply, err
}

// EnterTask enters the waiting room of a step's model. Idempotent.
func (a *Tasks) EnterTask(ctx context.Context, in workflows.EnterInput) (workflows.Entered, error) {
	promoted, err := a.Waiting.Enter(ctx, lua.ModelWaiterOf(in.TaskRef, in.Group, in.Index, in.Step), time.Time{}, in.DeadlineAt)
	switch {
	case err != nil:
		return workflows.EnteredUnknown, unavailable("the waiting room of the model was not entered", err)
	case promoted:
		return workflows.EnteredPromoted, nil
	default:
		return workflows.EnteredWaiting, nil
	}
}

// admissions returns the admissions that a task may have in these queues.
func admissions(p berth.TaskPlan, queues []berth.Queue) lua.Admissions {
	return lua.Admissions{Task: p.Ref(), ServiceID: p.ServiceID, Group: p.Group, Queues: queues}
}

// WithdrawTask deletes the row of an acceptance that failed. Its admissions are removed if Redis is available: its unavailability
// may be why the acceptance failed, and they expire.
func (a *Tasks) WithdrawTask(ctx context.Context, in workflows.WithdrawInput) error {
	if err := a.Ledger.WithdrawTask(ctx, in.TaskRef, in.RequestHash); err != nil {
		return translate(ctx, err)
	}
	removing, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	p := lua.Admissions{Task: in.TaskRef, ServiceID: in.ServiceID, Group: in.Group, Queues: in.Queues}
	if err := a.Scripts.RemoveAdmissions(removing, p); err != nil {
		a.Logger.WarnContext(ctx, "admissions of a withdrawn task not removed; they expire", "task", in.TaskID, "error", err)
	}
	return nil
}

// FinishTask ends the task by a compare-and-set and returns its outcome. Later calls return the outcome of the first.
func (a *Tasks) FinishTask(ctx context.Context, in workflows.EndInput) (workflows.TaskResult, error) {
	message := in.Message
	if in.Code == berth.CodeDeadlineExceeded {
		message = cmp.Or(a.unserved(ctx, in.TaskRef), message)
	}
	row, _, err := a.Ledger.FinishTask(ctx, ledger.End{
		TaskRef: in.TaskRef, Status: in.Status, ResultAssetID: in.ResultAssetID, Code: in.Code, Message: message, Detail: in.Detail,
		KeepStreamed: a.Options.KeepStreamed, Replacement: in.Replacement,
	})
	if err != nil {
		return workflows.TaskResult{}, translate(ctx, err)
	}
	if row.Status != berth.TaskCompleted {
		a.Running.NotifyEnd(ctx, in.TaskRef)
	}
	res := workflows.TaskResult{Status: row.Status, ResultAssetID: row.ResultAssetID, Code: row.ErrorCode}
	if f := row.Forwarded; f != nil && f.Response != nil {
		res.ReplacedBy = f.Response.ReplacedBy
	}
	if in.Replacement != nil && res.ReplacedBy == "" && res.Status == berth.TaskFailed {
		a.Logger.InfoContext(ctx, "response not replaced: its key is no longer valid, or has too little budget", "task", row.ID, "user", row.UserID)
	}
	return res, nil
}

// unserved returns the reason why a task has reached its deadline if no worker would have run its step, else an empty text.
func (a *Tasks) unserved(ctx context.Context, task berth.TaskRef) string {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	row, err := a.Ledger.GetTask(ctx, task)
	if err != nil || row.StepIndex >= len(row.Steps) {
		return "" // the end says why
	}
	step := row.Steps[row.StepIndex]
	unpolled, err := a.Scripts.CheckPollers(ctx, []string{berth.ModelTaskQueue(step.Model)})
	if err != nil || len(unpolled) == 0 {
		return ""
	}
	return fmt.Sprintf("there was no complete answer before the deadline: no worker serves the model %s", step.Model)
}

// PublishEnd removes the task's admissions to the queues and appends the stream's terminal event, made from the row. A stream that Redis has lost needs none: its readers
// are served from the row.
func (a *Tasks) PublishEnd(ctx context.Context, ref berth.TaskRef) error {
	row, err := a.Ledger.GetTask(ctx, ref)
	if err != nil {
		return translate(ctx, err)
	}
	var result berth.Asset
	if row.ResultAssetID != "" && row.ContentErasedAt.IsZero() && row.Forwarded == nil {
		result, err = a.Ledger.GetAsset(ctx, row.UserID, row.ResultAssetID)
		if err != nil && berth.CodeOf(err) != berth.CodeErased {
			return translate(ctx, err)
		}
	}
	ev, err := berth.TerminalEvent(row, result)
	if err != nil {
		return translate(ctx, err)
	}
	// Before the event, so that a client that has received it can submit again.
	if err := a.Scripts.RemoveAdmissions(ctx, admissions(row.TaskPlan, row.Queues())); err != nil {
		return unavailable("admissions to the queues not removed", err)
	}
	if row.Status != berth.TaskCompleted {
		if err := a.Waiting.Leave(ctx, lua.ModelWaiterOf(row.Ref(), row.Group, row.StepIndex, row.Steps[row.StepIndex])); err != nil {
			return unavailable("waiting room of the model not left", err)
		}
	}
	_, err = a.Streams.End(ctx, channel(row.UserID, row.ServiceID, row.ID), ev)
	if err != nil && !errors.Is(err, stream.ErrAbsent) {
		return unavailable("terminal event not written to the stream", err)
	}
	if row.Response() != nil && row.ResultAssetID == "" && row.ContentErasedAt.IsZero() {
		if err := a.keepEvents(ctx, row); err != nil { // after the event, because nothing follows it in the stream
			return translate(ctx, err)
		}
	}
	return nil
}

func (a *Tasks) event(row berth.Task, typ berth.EventType, stage berth.Stage) berth.Event {
	return berth.Event{Type: typ, TaskID: row.ID, ServiceID: row.ServiceID, Stage: stage, TS: time.Now().UnixMilli()}
}
