package ledger

import (
	"encoding/json"
	"fmt"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"berth"
)

func TestTask_AllStepsFinish_UsageAndAuditRecorded(t *testing.T) {
	each(t, func(t *testing.T, l *Ledger) {
		ctx := t.Context()
		task := create(t, l, chain())
		want := []berth.TaskStatus{"OCR_PENDING", "SUMMARY_PENDING", "MATCH_PENDING"}
		var last string
		for step := range task.Steps {
			a := begin(t, l, task, step)
			require.Equal(t, Attempt{Fence: int64(step) + 1, First: true}, a)
			now, err := l.GetTask(ctx, task.Ref())
			require.NoError(t, err)
			require.Equal(t, want[step], now.Status)
			require.Equal(t, step, now.StepIndex)
			require.Equal(t, a.Fence, now.Fence)
			startCall(t, l, task, step, a.Fence)
			last, err = l.FinishStep(ctx, result(task, step, a.Fence, fmt.Sprintf("output %d", step)))
			require.NoError(t, err)
			out, err := l.GetAsset(ctx, "alice", last)
			require.NoError(t, err)
			require.Equal(t, fmt.Sprintf("output %d", step), string(out.Content))
			require.Equal(t, Attempt{Done: true, OutputAssetID: last}, begin(t, l, task, step), "finished steps are not repeated")
		}
		ended, won, err := l.FinishTask(ctx, End{TaskRef: task.Ref(), Status: berth.TaskCompleted, ResultAssetID: last})
		require.NoError(t, err)
		require.True(t, won)
		require.Equal(t, berth.TaskCompleted, ended.Status)
		require.Equal(t, last, ended.ResultAssetID)
		require.Equal(t, berth.Usage{InputTokens: 30, OutputTokens: 9}, ended.Usage)
		require.False(t, ended.EndedAt.IsZero())

		calls, err := l.ModelCalls(ctx, task.Ref())
		require.NoError(t, err)
		require.Len(t, calls, 3)
		require.False(t, calls[2].At.IsZero())
		require.False(t, calls[2].FinishedAt.IsZero())
		calls[2].At, calls[2].FinishedAt = task.EndedAt, task.EndedAt
		require.Equal(t, ModelCall{
			UserID: task.UserID, TaskID: task.ID, ServiceID: task.ServiceID, Step: 2, Name: "match", Fence: 3, Queue: "q_paid_stream", Model: "model-of-match",
			Provider: "local", Usage: berth.Usage{InputTokens: 10, OutputTokens: 3}, LatencyMs: 70, FirstTokenMs: 20,
			CostMicros: 1234, Success: true,
		}, calls[2])
		require.Equal(t, []AuditEvent{AuditEnqueue, AuditStart, AuditStart, AuditStart, AuditDone}, events(t, l, task.ID))
	})
}

func events(t *testing.T, l *Ledger, id string) []AuditEvent {
	t.Helper()
	trail := trail(t, l, ref(id))
	var all []AuditEvent
	for _, e := range trail {
		require.Equal(t, [2]string{"alice", "jobs"}, [2]string{e.UserID, e.ServiceID})
		require.NotEmpty(t, e.Queue)
		all = append(all, e.Event)
	}
	return all
}

func TestAttempt_NewerAttemptBegan_OlderRejected(t *testing.T) {
	each(t, func(t *testing.T, l *Ledger) {
		ctx := t.Context()
		task := create(t, l, chain())
		old := begin(t, l, task, 0)
		require.Equal(t, []AuditEvent{AuditEnqueue}, events(t, l, task.ID), "it has not called its model")
		startCall(t, l, task, 0, old.Fence)
		startCall(t, l, task, 0, old.Fence)
		now := begin(t, l, task, 0)
		require.Equal(t, Attempt{Fence: old.Fence + 1, Called: true, Bought: 1}, now, "the call of the lost attempt counts")
		startCall(t, l, task, 0, now.Fence)
		require.Equal(t, []AuditEvent{AuditEnqueue, AuditStart}, events(t, l, task.ID), "one start entry per step")

		_, err := l.FinishStep(ctx, result(task, 0, old.Fence, "old"))
		requireCode(t, berth.CodeConflict, err)
		require.ErrorIs(t, err, ErrStale)
		err = l.StartCall(ctx, CallStart{TaskRef: task.Ref(), Fence: old.Fence, Status: berth.TaskStreaming})
		requireCode(t, berth.CodeConflict, err)
		require.ErrorIs(t, err, ErrStale)
		_, err = l.FinishStep(ctx, result(task, 0, now.Fence+1, "fence never issued"))
		require.ErrorIs(t, err, ErrStale)
		requireOwns(t, l, task.ID, old.Fence, false)
		requireOwns(t, l, task.ID, now.Fence, true)

		out, err := l.FinishStep(ctx, result(task, 0, now.Fence, "new"))
		require.NoError(t, err)
		_, err = l.FinishStep(ctx, result(task, 0, old.Fence, "old"))
		require.ErrorIs(t, err, ErrStale)
		got, err := l.GetAsset(ctx, "alice", out)
		require.NoError(t, err)
		require.Equal(t, "new", string(got.Content))
	})
}

func requireOwns(t *testing.T, l *Ledger, id string, fence int64, want bool) {
	t.Helper()
	ours, err := l.OwnsTask(t.Context(), ref(id), fence)
	require.NoError(t, err)
	require.Equal(t, want, ours)
}

func TestFinishStep_ReplyLost_RepeatReturnsFirstOutput(t *testing.T) {
	each(t, func(t *testing.T, l *Ledger) {
		ctx := t.Context()
		task := create(t, l, chain())
		a := begin(t, l, task, 0)
		first, err := l.FinishStep(ctx, result(task, 0, a.Fence, "the text"))
		require.NoError(t, err)
		repeat := func(text string) {
			again, err := l.FinishStep(ctx, result(task, 0, a.Fence, text))
			require.NoError(t, err)
			require.Equal(t, first, again)
		}
		repeat("the text")
		repeat("another text")
		begin(t, l, task, 1)
		repeat("the next step has begun")
		ended, _, err := l.FinishTask(ctx, End{TaskRef: task.Ref(), Status: berth.TaskCancelled})
		require.NoError(t, err)
		repeat("the task has ended")

		calls, err := l.ModelCalls(ctx, task.Ref())
		require.NoError(t, err)
		require.Len(t, calls, 2)
		require.True(t, calls[0].Success)
		require.Equal(t, berth.CodeNotStarted, calls[1].Code, "the next step had begun")
		now, err := l.GetTask(ctx, task.Ref())
		require.NoError(t, err)
		require.Equal(t, ended, now)
		require.Equal(t, berth.Usage{InputTokens: 10, OutputTokens: 3}, now.Usage)
	})
}

func TestFinishStep_ConcurrentAttempts_OneFinishes(t *testing.T) {
	each(t, func(t *testing.T, l *Ledger) {
		task := create(t, l, chain())
		var finished atomic.Int64
		var g errgroup.Group
		for i := range 20 {
			g.Go(func() error {
				a, err := l.BeginAttempt(t.Context(), task.Ref(), 0, "OCR_PENDING")
				if err != nil || a.Done {
					return err
				}
				_, err = l.FinishStep(t.Context(), result(task, 0, a.Fence, fmt.Sprint(i)))
				if err == nil {
					finished.Add(1)
				} else if berth.CodeOf(err) != berth.CodeConflict {
					return err
				}
				return nil
			})
		}
		require.NoError(t, g.Wait())
		require.EqualValues(t, 1, finished.Load())
		calls, err := l.ModelCalls(t.Context(), task.Ref())
		require.NoError(t, err)
		successes := 0
		for _, c := range calls {
			if c.Success {
				successes++
			} else {
				require.Equal(t, berth.CodeNotStarted, c.Code)
			}
		}
		require.Equal(t, 1, successes)
	})
}

func TestAttempt_TaskEnded_WritesRejected(t *testing.T) {
	each(t, func(t *testing.T, l *Ledger) {
		ctx := t.Context()
		task := create(t, l, chain())
		a := begin(t, l, task, 0)
		ended, _, err := l.FinishTask(ctx, End{TaskRef: task.Ref(), Status: berth.TaskFailed, Code: berth.CodeProviderKey})
		require.NoError(t, err)

		_, err = l.FinishStep(ctx, result(task, 0, a.Fence, "late"))
		requireCode(t, berth.CodeConflict, err)
		require.ErrorIs(t, err, ErrFinal)
		require.ErrorIs(t, l.StartCall(ctx, CallStart{TaskRef: task.Ref(), Fence: a.Fence, Status: berth.TaskStreaming}), ErrFinal)
		require.Equal(t, Attempt{Final: true}, begin(t, l, task, 0))
		requireOwns(t, l, task.ID, a.Fence, false)

		now, err := l.GetTask(ctx, task.Ref())
		require.NoError(t, err)
		require.Equal(t, ended, now)
		_, err = l.GetAsset(ctx, "alice", AssetID("alice", berth.AssetResult, []byte("late")))
		requireCode(t, berth.CodeNotFound, err)
	})
}

func TestStartCall_EarlierStatus_StatusUnchanged(t *testing.T) {
	each(t, func(t *testing.T, l *Ledger) {
		ctx := t.Context()
		task := create(t, l, chain())
		status := func() berth.TaskStatus {
			now, err := l.GetTask(ctx, task.Ref())
			require.NoError(t, err)
			return now.Status
		}
		a := begin(t, l, task, 2)
		require.NoError(t, l.StartCall(ctx, CallStart{TaskRef: task.Ref(), Fence: a.Fence, Status: berth.TaskStreaming}))
		require.Equal(t, berth.TaskStreaming, status())
		require.NoError(t, l.StartCall(ctx, CallStart{TaskRef: task.Ref(), Fence: a.Fence, Status: "OCR_PENDING"}))
		a = begin(t, l, task, 2)
		require.Equal(t, berth.TaskStreaming, status(), "a retry does not move the visible status back")
		r := result(task, 2, a.Fence, "x")
		r.NextStatus = "SUMMARY_PENDING"
		_, err := l.FinishStep(ctx, r)
		require.NoError(t, err)
		require.Equal(t, berth.TaskStreaming, status())
	})
}

func TestAttempt_InvalidInput_RejectedWithoutChange(t *testing.T) {
	each(t, func(t *testing.T, l *Ledger) {
		ctx := t.Context()
		task := create(t, l, chain())
		a := begin(t, l, task, 0)
		for _, step := range []int{-1, 3} {
			_, err := l.BeginAttempt(ctx, task.Ref(), step, berth.TaskPending)
			requireCode(t, berth.CodeInvalid, err)
		}
		for _, status := range []berth.TaskStatus{berth.TaskCompleted, "NONSENSE"} {
			_, err := l.BeginAttempt(ctx, task.Ref(), 0, status)
			requireCode(t, berth.CodeInvalid, err)
			requireCode(t, berth.CodeInvalid, l.StartCall(ctx, CallStart{TaskRef: task.Ref(), Fence: a.Fence, Status: status}))
		}
		_, err := l.BeginAttempt(ctx, ref("t_none"), 0, berth.TaskPending)
		requireCode(t, berth.CodeNotFound, err)
		_, err = l.FinishStep(ctx, StepResult{ModelCall: ModelCall{UserID: "alice", TaskID: "t_none"}})
		requireCode(t, berth.CodeNotFound, err)
		requireCode(t, berth.CodeNotFound, l.StartCall(ctx, CallStart{TaskRef: ref("t_none"), Fence: 1, Status: berth.TaskStreaming}))
		requireCode(t, berth.CodeNotFound, l.FailedCall(ctx, ModelCall{UserID: "alice", TaskID: "t_none"}))
		requireOwns(t, l, "t_none", 0, false)

		spoiled := result(task, 0, a.Fence, "x")
		spoiled.Output.Kind = "film"
		_, err = l.FinishStep(ctx, spoiled)
		requireCode(t, berth.CodeInvalid, err)
		calls, err := l.ModelCalls(ctx, task.Ref())
		require.NoError(t, err)
		require.Len(t, calls, 1)
		require.True(t, calls[0].FinishedAt.IsZero(), "no partial write")
	})
}

func TestFailedCall_ThenRepair_BothCallsLogged(t *testing.T) {
	each(t, func(t *testing.T, l *Ledger) {
		ctx := t.Context()
		task := create(t, l, chain())
		a := begin(t, l, task, 1)
		bad := ModelCall{
			UserID: task.UserID, TaskID: task.ID, Step: 1, Name: "summary", Fence: a.Fence, Model: "m", Queue: "q_paid_batch",
			Usage: berth.Usage{InputTokens: 4, OutputTokens: 2}, Code: berth.CodeInvalidOutput, Success: true,
		}
		require.NoError(t, l.FailedCall(ctx, bad))
		require.NoError(t, l.FailedCall(ctx, bad), "a repeated report is the same call")
		repaired := result(task, 1, a.Fence, "{}")
		repaired.Call = 1
		_, err := l.FinishStep(ctx, repaired)
		require.NoError(t, err)
		calls, err := l.ModelCalls(ctx, task.Ref())
		require.NoError(t, err)
		require.Len(t, calls, 2)
		require.False(t, calls[0].Success)
		require.Equal(t, berth.CodeInvalidOutput, calls[0].Code)
		require.True(t, calls[1].Success)
		now, err := l.GetTask(ctx, task.Ref())
		require.NoError(t, err)
		require.Equal(t, berth.Usage{InputTokens: 14, OutputTokens: 5}, now.Usage)
	})
}

func TestUsage_WorkerKilled_CallAccountedFor(t *testing.T) { // T19
	each(t, func(t *testing.T, l *Ledger) {
		ctx := t.Context()
		task := create(t, l, chain())
		calls := func() []ModelCall {
			all, err := l.ModelCalls(ctx, task.Ref())
			require.NoError(t, err)
			return all
		}
		killed := begin(t, l, task, 0)
		open := calls()
		require.Len(t, open, 1, "before the slot is requested")
		require.Equal(t, []any{"model-of-ocr", berth.Queue("q_paid_vision"), "", false, berth.Code(""), true},
			[]any{open[0].Model, open[0].Queue, open[0].Provider, open[0].Success, open[0].Code, open[0].FinishedAt.IsZero()})
		started := func(fence int64, call int) {
			for range 2 { // the reply of the first was lost
				require.NoError(t, l.StartCall(ctx, CallStart{TaskRef: task.Ref(), Fence: fence, Call: call, Provider: "p"}))
			}
		}
		started(killed.Fence, 0)
		require.Equal(t, "p", calls()[0].Provider)
		require.NoError(t, l.FailedCall(ctx, ModelCall{
			UserID: task.UserID, TaskID: task.ID, Step: 0, Name: "ocr", Fence: killed.Fence, Provider: "p", Code: berth.CodeInvalidOutput,
		}))
		started(killed.Fence, 1) // the repair
		require.Equal(t, []string{string(berth.CodeInvalidOutput), OutcomeRunning}, outcomes(calls()))

		waits := begin(t, l, task, 0)
		require.Equal(t, []string{string(berth.CodeInvalidOutput), string(berth.CodeInterrupted), OutcomeWaiting}, outcomes(calls()))
		next := begin(t, l, task, 0)
		started(next.Fence, 0)
		require.Equal(t, []string{
			string(berth.CodeInvalidOutput), string(berth.CodeInterrupted), string(berth.CodeNotStarted), OutcomeRunning,
		}, outcomes(calls()), "an attempt whose worker was killed while it waited for a slot made no call")
		require.NoError(t, l.ReleaseAttempt(ctx, task.Ref(), 0, waits.Fence), "its worker was only unreachable")
		require.ErrorIs(t, l.StartCall(ctx, CallStart{TaskRef: task.Ref(), Fence: waits.Fence, Provider: "p"}), ErrStale)

		// The worker of the first attempt was only unreachable: what it used is recorded once.
		late := ModelCall{
			UserID: task.UserID, TaskID: task.ID, Step: 0, Name: "ocr", Fence: killed.Fence, Provider: "p",
			Call: 1, Usage: berth.Usage{InputTokens: 7, OutputTokens: 5, CachedTokens: 4, ReasoningTokens: 3}, Code: berth.CodeConflict,
		}
		for range 2 {
			require.NoError(t, l.FailedCall(ctx, late))
		}
		require.Equal(t, late.Usage, calls()[1].Usage)
		require.Equal(t, berth.CodeConflict, calls()[1].Code)
		now, err := l.GetTask(ctx, task.Ref())
		require.NoError(t, err)
		require.EqualValues(t, 7, now.Usage.InputTokens)

		_, _, err = l.FinishTask(ctx, End{TaskRef: task.Ref(), Status: berth.TaskCancelled})
		require.NoError(t, err)
		all := calls()
		require.Len(t, all, 3)
		require.Equal(t, next.Fence, all[2].Fence)
		require.Equal(t, berth.CodeInterrupted, all[2].Code, "no row stays open")
	})
}

// A call that its task's end interrupts is paid for: the task has its usage once the worker has recorded it. The audit row of the
// end is written before, so it has no usage.
func TestFailedCall_AfterTaskEnded_AddedToSums(t *testing.T) { // T19
	each(t, func(t *testing.T, l *Ledger) {
		ctx := t.Context()
		usage := func(e AuditEntry) any {
			var detail map[string]any
			require.NoError(t, json.Unmarshal(e.Detail, &detail))
			return detail["usage"]
		}
		task := create(t, l, chain())
		_, err := l.FinishStep(ctx, result(task, 0, begin(t, l, task, 0).Fence, "text"))
		require.NoError(t, err)
		a := begin(t, l, task, 1)
		require.NoError(t, l.StartCall(ctx, CallStart{TaskRef: task.Ref(), Step: 1, Fence: a.Fence, Provider: "p"}))
		ended, _, err := l.FinishTask(ctx, End{TaskRef: task.Ref(), Status: berth.TaskCancelled, Code: berth.CodeCancelled})
		require.NoError(t, err)
		require.Equal(t, berth.Usage{InputTokens: 10, OutputTokens: 3}, ended.Usage, "of the call that was recorded before")
		rows := trail(t, l, task.Ref())
		require.Nil(t, usage(rows[len(rows)-1]), "it is not known yet")

		late := result(task, 1, a.Fence, "").ModelCall
		late.Code = berth.CodeCancelled
		for range 2 {
			require.NoError(t, l.FailedCall(ctx, late))
		}
		now, err := l.GetTask(ctx, task.Ref())
		require.NoError(t, err)
		require.Equal(t, berth.Usage{InputTokens: 20, OutputTokens: 6}, now.Usage)
		require.Equal(t, ended.EndedAt, now.EndedAt)
		require.Equal(t, berth.TaskCancelled, now.Status)

		failed := create(t, l, chain())
		call := result(failed, 0, begin(t, l, failed, 0).Fence, "").ModelCall
		call.Code = berth.CodeProviderKey
		require.NoError(t, l.FailedCall(ctx, call))
		_, _, err = l.FinishTask(ctx, End{TaskRef: failed.Ref(), Status: berth.TaskFailed, Code: berth.CodeProviderKey})
		require.NoError(t, err)
		rows = trail(t, l, failed.Ref())
		require.Equal(t, map[string]any{"inputTokens": 10.0, "outputTokens": 3.0}, usage(rows[len(rows)-1]))
	})
}

// An answer whose call was logged as failed, and that a later attempt adopts, is in the sums once.
func TestFinishStep_CallLoggedAsFailed_SummedOnce(t *testing.T) { // T19, B2
	each(t, func(t *testing.T, l *Ledger) {
		ctx := t.Context()
		task := create(t, l, chain())
		adopted := result(task, 0, begin(t, l, task, 0).Fence, "the text")
		adopted.RecordedBy = begin(t, l, task, 0).Fence
		failed := adopted.ModelCall
		failed.Code = berth.CodeConflict
		require.NoError(t, l.FailedCall(ctx, failed))
		_, err := l.FinishStep(ctx, adopted)
		require.NoError(t, err)
		now, err := l.GetTask(ctx, task.Ref())
		require.NoError(t, err)
		require.Equal(t, adopted.Usage, now.Usage)
	})
}

func outcomes(calls []ModelCall) (all []string) {
	for _, c := range calls {
		all = append(all, c.Outcome())
	}
	return all
}

// An answer that a later attempt adopts was requested once: it completes the row of the attempt that made the call.
func TestFinishStep_AnswerAdopted_RowOfItsCallCompleted(t *testing.T) { // T19, B2
	each(t, func(t *testing.T, l *Ledger) {
		ctx := t.Context()
		task := create(t, l, chain())
		caller := begin(t, l, task, 0)
		adopter := begin(t, l, task, 0)
		adopted := result(task, 0, caller.Fence, "the text")
		_, err := l.FinishStep(ctx, adopted)
		require.ErrorIs(t, err, ErrStale, "the attempt that made the call is not the newest")
		adopted.RecordedBy = adopter.Fence
		out, err := l.FinishStep(ctx, adopted)
		require.NoError(t, err)
		again, err := l.FinishStep(ctx, adopted)
		require.NoError(t, err)
		require.Equal(t, out, again)

		calls, err := l.ModelCalls(ctx, task.Ref())
		require.NoError(t, err)
		require.Len(t, calls, 1)
		require.Equal(t, caller.Fence, calls[0].Fence)
		require.True(t, calls[0].Success)
		require.Empty(t, calls[0].Code)
		require.Equal(t, adopted.Usage, calls[0].Usage)
		now, err := l.GetTask(ctx, task.Ref())
		require.NoError(t, err)
		require.Equal(t, adopted.Usage, now.Usage, "summed once")
	})
}

// An attempt that ended before its call has no row, whether the task has ended or continues. The row of a call remains.
func TestReleaseAttempt_NoCallMade_RowRemoved(t *testing.T) { // T19
	each(t, func(t *testing.T, l *Ledger) {
		ctx := t.Context()
		task := create(t, l, chain())
		release := func(a Attempt) {
			for range 2 {
				require.NoError(t, l.ReleaseAttempt(ctx, task.Ref(), 0, a.Fence))
			}
		}
		fences := func() (all []int64) {
			calls, err := l.ModelCalls(ctx, task.Ref())
			require.NoError(t, err)
			for _, c := range calls {
				all = append(all, c.Fence)
			}
			return all
		}
		open := begin(t, l, task, 0)
		release(open)
		require.Empty(t, fences(), "while it is open")
		interrupted := begin(t, l, task, 0)
		called := begin(t, l, task, 0)
		require.NoError(t, l.FailedCall(ctx, ModelCall{
			UserID: task.UserID, TaskID: task.ID, Name: "ocr", Fence: called.Fence, Provider: "p", Code: berth.CodeInterrupted,
		}))
		cancelled := begin(t, l, task, 0)
		_, _, err := l.FinishTask(ctx, End{TaskRef: task.Ref(), Status: berth.TaskCancelled})
		require.NoError(t, err)
		release(called)
		require.Equal(t, []int64{interrupted.Fence, called.Fence, cancelled.Fence}, fences())
		release(interrupted)
		release(cancelled)
		require.Equal(t, []int64{called.Fence}, fences())
	})
}

// An answer that was truncated in any step, or simulated, marks the task.
func TestFinishStep_OneStepTruncated_TaskMarked(t *testing.T) { // B3
	each(t, func(t *testing.T, l *Ledger) {
		task := create(t, l, chain())
		reasons := []string{"stop", berth.FinishLength, "stop"}
		for step, want := range []string{"stop", berth.FinishLength, berth.FinishLength} {
			r := result(task, step, begin(t, l, task, step).Fence, "output")
			r.FinishReason, r.Simulated = reasons[step], step == 0
			_, err := l.FinishStep(t.Context(), r)
			require.NoError(t, err)
			now, err := l.GetTask(t.Context(), task.Ref())
			require.NoError(t, err)
			require.Equal(t, want, now.FinishReason)
			require.True(t, now.Simulated)
		}
		steps, err := l.FinishedSteps(t.Context(), task.Ref())
		require.NoError(t, err)
		for i, s := range steps {
			require.Equal(t, reasons[i], s.FinishReason)
		}
	})
}
