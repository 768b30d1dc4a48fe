// Package activities holds the side effects of the workflows' stories, one file a story. Every activity is
// idempotent by (task, step): what it writes is keyed so, and an older attempt's writes are refused.
package activities

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"berth"
	"berth/internal/lease"
	"berth/internal/ledger"
	"berth/internal/llm"
	"berth/internal/stream"
	"berth/lua"
	"berth/workflows"
)

// TaskOptions are the settings of model calls.
type TaskOptions struct {
	// CallTimeout is the longest one call may hold its model's slot (L7).
	CallTimeout time.Duration
	// Drain is how long a stopping worker lets a call go on.
	Drain time.Duration
	// Debug publishes debug events outside production (T14).
	Debug bool
}

// Tasks are the side effects of the Task workflow.
type Tasks struct {
	Ledger  *ledger.Ledger
	Streams *stream.Publisher
	Slots   *lease.Slots
	Models  *llm.Client
	Catalog *llm.Catalog
	Running *Running
	Options TaskOptions
	Logger  *slog.Logger
}

func channel(userID, serviceID, taskID string) lua.Channel {
	return lua.Channel{UserID: userID, ServiceID: serviceID, TaskID: taskID}
}

// AcceptTask writes the task's row and opens its stream from it. Called again it finds both (T7).
func (a *Tasks) AcceptTask(ctx context.Context, in workflows.TaskInput) (workflows.AcceptReply, error) {
	now := time.Now()
	row, created, err := a.Ledger.CreateTask(ctx, berth.Task{
		TaskPlan: in.TaskPlan, Status: berth.TaskPending, CreatedAt: now, DeadlineAt: now.Add(in.Deadline),
	})
	if err != nil {
		return workflows.AcceptReply{}, translate(ctx, err)
	}
	if row.UserID != in.UserID || row.RequestHash != in.RequestHash {
		return workflows.AcceptReply{}, final(berth.CodeIdempotencyMismatch, "another request has this id", nil)
	}
	reply := workflows.AcceptReply{Status: row.Status, Created: created, DeadlineAt: row.DeadlineAt}
	if row.Status.Final() {
		return reply, nil
	}
	ch := channel(in.UserID, in.ServiceID, in.ID)
	if err := a.Streams.Open(ctx, ch, row.Fence, row.DeadlineAt); err != nil {
		return workflows.AcceptReply{}, again(berth.CodeUnavailable, "the event stream cannot be opened", 0, err)
	}
	queued := a.event(row, berth.EventQueued, berth.StageQueue)
	queued.Queue, queued.Model, queued.Tier, queued.Status = in.Steps[0].Queue, in.Steps[0].Model, in.Tier, in.Steps[0].PendingStatus()
	if err := a.Streams.Publish(ctx, ch, row.Fence, queued); err != nil {
		return workflows.AcceptReply{}, again(berth.CodeUnavailable, "the event stream cannot be written", 0, err)
	}
	return reply, nil
}

// WithdrawTask takes back the row of an acceptance that did not succeed.
func (a *Tasks) WithdrawTask(ctx context.Context, ref workflows.TaskRef) error {
	return translate(ctx, a.Ledger.WithdrawTask(ctx, ref.TaskID))
}

// FinishTask is the compare-and-set that decides how a task ended (T13); whoever comes second gets the first
// one's decision.
func (a *Tasks) FinishTask(ctx context.Context, in workflows.EndInput) (workflows.TaskResult, error) {
	row, _, err := a.Ledger.FinishTask(ctx, ledger.End{
		TaskID: in.TaskID, Status: in.Status, ResultAssetID: in.ResultAssetID, Code: in.Code, Message: in.Message,
	})
	if err != nil {
		return workflows.TaskResult{}, translate(ctx, err)
	}
	if row.Status != berth.TaskCompleted {
		a.Running.Tell(ctx, in.TaskID)
	}
	return workflows.TaskResult{Status: row.Status, ResultAssetID: row.ResultAssetID, Code: row.ErrorCode}, nil
}

// PublishEnd copies the row's decision into the stream's one terminal event. A stream that is gone (Redis lost
// it) needs none: its readers are served from the row (T16).
func (a *Tasks) PublishEnd(ctx context.Context, ref workflows.TaskRef) error {
	row, err := a.Ledger.GetTask(ctx, ref.TaskID)
	if err != nil {
		return translate(ctx, err)
	}
	var result berth.Asset
	if row.ResultAssetID != "" {
		if result, err = a.Ledger.GetAsset(ctx, row.UserID, row.ResultAssetID); err != nil {
			return translate(ctx, err)
		}
	}
	ev, err := berth.TerminalEvent(row, result)
	if err != nil {
		return translate(ctx, err)
	}
	_, err = a.Streams.End(ctx, channel(row.UserID, row.ServiceID, row.ID), ev)
	if err != nil && !errors.Is(err, stream.ErrAbsent) {
		return again(berth.CodeUnavailable, "the terminal event cannot be written", 0, err)
	}
	return nil
}

func (a *Tasks) event(row berth.Task, typ berth.EventType, stage berth.Stage) berth.Event {
	return berth.Event{Type: typ, TaskID: row.ID, ServiceID: row.ServiceID, Stage: stage, TS: time.Now().UnixMilli()}
}
