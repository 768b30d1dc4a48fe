package workflows_test

import (
	"context"
	"encoding/json"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/mock"
	"github.com/stretchr/testify/require"
	"go.temporal.io/api/enums/v1"
	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/testsuite"
	"go.temporal.io/sdk/workflow"

	"berth"
	"berth/workflows"
)

// taskRun is one run of the Task workflow with fake activities, which record their calls.
type taskRun struct {
	env   *testsuite.TestWorkflowEnvironment
	steps []workflows.StepInput
	ends  []workflows.EndInput
	// published counts terminal events.
	published int
	withdrawn int
	withdraw  func()
	accept    func() (workflows.AcceptReply, error)
	step      func(workflows.StepInput) (workflows.StepOutput, error)
	finish    func(workflows.EndInput) workflows.TaskResult
}

func newTaskRun(t *testing.T) *taskRun {
	t.Helper()
	var suite testsuite.WorkflowTestSuite
	s := &taskRun{env: suite.NewTestWorkflowEnvironment()}
	s.accept = func() (workflows.AcceptReply, error) {
		return workflows.AcceptReply{Status: berth.TaskPending, Created: true, DeadlineAt: s.env.Now().Add(time.Minute)}, nil
	}
	s.step = func(in workflows.StepInput) (workflows.StepOutput, error) {
		return workflows.StepOutput{AssetID: "a_" + string(in.Step.Name)}, nil
	}
	s.finish = func(in workflows.EndInput) workflows.TaskResult {
		return workflows.TaskResult{Status: in.Status, ResultAssetID: in.ResultAssetID, Code: in.Code}
	}
	register := func(name string, fn any) {
		s.env.RegisterActivityWithOptions(fn, activity.RegisterOptions{Name: name})
	}
	register(workflows.AcceptTaskActivity, func(context.Context, workflows.TaskInput) (workflows.AcceptReply, error) { return s.accept() })
	register(workflows.WithdrawTaskActivity, func(context.Context, workflows.WithdrawInput) error {
		s.withdrawn++
		if s.withdraw != nil {
			s.withdraw()
		}
		return nil
	})
	register(workflows.RunStepActivity, func(_ context.Context, in workflows.StepInput) (workflows.StepOutput, error) {
		s.steps = append(s.steps, in)
		return s.step(in)
	})
	register(workflows.FinishTaskActivity, func(_ context.Context, in workflows.EndInput) (workflows.TaskResult, error) {
		s.ends = append(s.ends, in)
		return s.finish(in), nil
	})
	register(workflows.PublishEndActivity, func(context.Context, berth.TaskRef) error { s.published++; return nil })
	s.env.RegisterWorkflow(workflows.Task)
	return s
}

func matchInput(hasImage bool) workflows.TaskInput {
	in := workflows.TaskInput{
		TaskPlan: berth.TaskPlan{
			TaskRequest: berth.TaskRequest{
				ID: "t1", ServiceID: "career", Template: "job_match", Locale: berth.LocaleEN, Tier: berth.TierPaid,
			},
			UserID: "alice", RequestHash: "h1",
		},
		Deadline: time.Minute, StepTimeout: 30 * time.Second, AcceptWithin: 8 * time.Second,
	}
	in.Steps = []berth.Step{
		{Name: "ocr", Status: "OCR_PENDING", Queue: "q_paid_batch", Model: "m"},
		{Name: "summary", Status: "SUMMARY_PENDING", Queue: "q_paid_batch", Model: "m"},
		{Name: "match", Status: "MATCH_PENDING", Mode: berth.ModeStream, Queue: "q_paid_batch", Model: "m"},
	}
	if !hasImage {
		in.Steps = in.Steps[1:]
	}
	return in
}

func (s *taskRun) run(in workflows.TaskInput) (workflows.TaskResult, error) {
	s.env.ExecuteWorkflow(workflows.Task, in)
	var res workflows.TaskResult
	if err := s.env.GetWorkflowError(); err != nil {
		return res, err
	}
	return res, s.env.GetWorkflowResult(&res)
}

func TestTask_ThreeSteps_PassOutputsInOrder(t *testing.T) { // T17, T26
	t.Parallel()
	s := newTaskRun(t)
	res, err := s.run(matchInput(true))
	require.NoError(t, err)
	require.Equal(t, workflows.TaskResult{Status: berth.TaskCompleted, ResultAssetID: "a_match"}, res)
	require.Len(t, s.steps, 3)
	for i, want := range []struct {
		name berth.StepName
		next berth.TaskStatus
	}{{"ocr", "SUMMARY_PENDING"}, {"summary", "MATCH_PENDING"}, {"match", ""}} {
		require.Equal(t, want.name, s.steps[i].Step.Name)
		require.Equal(t, want.next, s.steps[i].NextStatus)
		require.Equal(t, i, s.steps[i].Index)
	}
	require.Equal(t, map[berth.StepName]string{"ocr": "a_ocr", "summary": "a_summary"}, s.steps[2].Outputs)
	require.Len(t, s.ends, 1)
	require.Equal(t, 1, s.published)
}

// The last step has recorded and published the end, also where the task is cancelled at the same time.
func TestTask_LastStepEndedTask_NothingRepeated(t *testing.T) { // T13
	t.Parallel()
	for name, cancelled := range map[string]bool{"completed": false, "cancelled after the end": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newTaskRun(t)
			s.step = func(in workflows.StepInput) (workflows.StepOutput, error) {
				if in.Next == nil && cancelled {
					s.env.CancelWorkflow()
				}
				return workflows.StepOutput{AssetID: "a_" + string(in.Step.Name), Ended: in.Next == nil}, nil
			}
			if cancelled { // the row decides
				s.finish = func(workflows.EndInput) workflows.TaskResult {
					return workflows.TaskResult{Status: berth.TaskCompleted, ResultAssetID: "a_match"}
				}
			}
			res, err := s.run(matchInput(true))
			require.NoError(t, err)
			require.Equal(t, workflows.TaskResult{Status: berth.TaskCompleted, ResultAssetID: "a_match"}, res)
			if !cancelled {
				require.Empty(t, s.ends)
				require.Zero(t, s.published)
			}
		})
	}
}

func TestTask_StepFailsOrCancelled_EndsOnce(t *testing.T) { // T13, T20, T21, T25
	t.Parallel()
	for name, c := range map[string]struct {
		arrange  func(*taskRun)
		status   berth.TaskStatus
		code     berth.Code
		attempts int
	}{
		"a permanent failure": {func(s *taskRun) {
			s.step = func(workflows.StepInput) (workflows.StepOutput, error) {
				return workflows.StepOutput{}, temporal.NewNonRetryableApplicationError("no key", string(berth.CodeProviderKey), nil)
			}
		}, berth.TaskFailed, berth.CodeProviderKey, 1},
		"the deadline passes": {func(s *taskRun) {
			s.accept = func() (workflows.AcceptReply, error) {
				return workflows.AcceptReply{Status: berth.TaskPending, Created: true, DeadlineAt: s.env.Now()}, nil
			}
		}, berth.TaskFailed, berth.CodeDeadlineExceeded, 0},
		"a cancellation during a step": {func(s *taskRun) {
			s.step = func(workflows.StepInput) (workflows.StepOutput, error) {
				s.env.CancelWorkflow()
				return workflows.StepOutput{}, temporal.NewCanceledError()
			}
		}, berth.TaskCancelled, berth.CodeCancelled, 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newTaskRun(t)
			c.arrange(s)
			_, err := s.run(matchInput(false))
			require.Error(t, err)
			require.Len(t, s.steps, c.attempts)
			require.Len(t, s.ends, 1)
			require.Equal(t, c.status, s.ends[0].Status)
			require.Equal(t, c.code, s.ends[0].Code)
			require.NotEmpty(t, s.ends[0].Message)
			require.Equal(t, 1, s.published)
			require.Equal(t, c.status == berth.TaskCancelled, temporal.IsCanceledError(errors.Unwrap(err)))
		})
	}
}

// A response that breaks off is replaced by another task with the plan of the request, at most twice, before its end is published.
func TestTask_ResponseBreaksOff_ReplacementStartsBeforeEnd(t *testing.T) { // O8
	t.Parallel()
	for name, c := range map[string]struct {
		brokeOff, allowed, refused bool // refused: the ledger creates none, such as without budget
		earlier                    int
		offered, started           bool
	}{
		"broke off":          {brokeOff: true, allowed: true, offered: true, started: true},
		"again":              {brokeOff: true, allowed: true, earlier: 1, offered: true, started: true},
		"three times":        {brokeOff: true, allowed: true, earlier: 2},
		"refused by ledger":  {brokeOff: true, allowed: true, refused: true, offered: true},
		"failed otherwise":   {allowed: true},
		"key does not allow": {brokeOff: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newTaskRun(t)
			in := matchInput(false)
			in.Steps = in.Steps[:1]
			in.Forwarded = &berth.Forwarded{Stream: true, Response: &berth.ResponseCall{Store: true, Replace: c.allowed, Followed: true, Replacement: c.earlier}}
			s.step = func(workflows.StepInput) (workflows.StepOutput, error) {
				return workflows.StepOutput{}, temporal.NewNonRetryableApplicationError("broke off", string(berth.CodeInterrupted), nil,
					workflows.ForwardedFailure{Error: json.RawMessage(`{"status":503}`), BrokeOff: c.brokeOff})
			}
			s.finish = func(in workflows.EndInput) (res workflows.TaskResult) {
				require.JSONEq(t, `{"status":503}`, string(in.Detail))
				res.Status, res.Code = in.Status, in.Code
				if in.Replacement != nil && !c.refused {
					res.ReplacedBy = in.Replacement.ID
				}
				return res
			}
			s.env.RegisterWorkflowWithOptions(workflows.Task, workflow.RegisterOptions{Name: "first"})
			var started []workflows.TaskInput
			s.env.OnWorkflow(workflows.TaskWorkflow, mock.Anything, mock.Anything).Return(func(_ workflow.Context, in workflows.TaskInput) (workflows.TaskResult, error) {
				require.Zero(t, s.published)
				started = append(started, in)
				return workflows.TaskResult{}, nil
			})
			s.env.ExecuteWorkflow("first", in)
			require.ErrorContains(t, s.env.GetWorkflowError(), "broke off")
			require.Equal(t, 1, s.published)
			require.Equal(t, c.offered, s.ends[0].Replacement != nil)
			require.Equal(t, c.started, len(started) == 1)
			if !c.started {
				return
			}
			got := started[0]
			require.Zero(t, got.AcceptWithin)
			require.NotEqual(t, in.ID, got.ID)
			require.Equal(t, berth.ResponseCall{Store: true, Replace: true, Replaces: in.ID, Replacement: c.earlier + 1}, *got.Forwarded.Response)
			require.False(t, got.Forwarded.Stream)
			require.Equal(t, in.Steps, got.Steps)
		})
	}
}

// The row of a replacement exists: nothing withdraws it, and its acceptance is tried until it succeeds or the task is cancelled.
func TestTask_ReplacementNotAccepted_TriedUntilDone(t *testing.T) { // O8
	t.Parallel()
	for name, cancelled := range map[string]bool{"Redis returns": false, "cancelled": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newTaskRun(t)
			accept, tried := s.accept, 0
			s.accept = func() (workflows.AcceptReply, error) {
				if tried++; tried < 20 {
					return workflows.AcceptReply{}, temporal.NewApplicationError("Redis is unavailable", string(berth.CodeUnavailable))
				}
				return accept()
			}
			if cancelled {
				s.env.RegisterDelayedCallback(s.env.CancelWorkflow, 5*time.Second)
			}
			in := matchInput(false)
			in.AcceptWithin = 0
			_, err := s.run(in)
			require.Zero(t, s.withdrawn)
			require.Len(t, s.ends, 1)
			if cancelled {
				require.Error(t, err)
				require.Equal(t, berth.TaskCancelled, s.ends[0].Status)
				return
			}
			require.NoError(t, err)
			require.Equal(t, berth.TaskCompleted, s.ends[0].Status)
		})
	}
}

// Faults of others are bounded by the deadline alone: a task that one of them ended after some attempts could have finished.
func TestTask_OtherFaults_RetriedUntilDeadline(t *testing.T) { // B2, T20, T21
	t.Parallel()
	away := temporal.NewApplicationError("the provider failed", string(berth.CodeProviderUnavailable))
	t.Run("that end", func(t *testing.T) {
		t.Parallel()
		s := newTaskRun(t)
		s.accept = func() (workflows.AcceptReply, error) {
			return workflows.AcceptReply{Status: berth.TaskPending, Created: true, DeadlineAt: s.env.Now().Add(15 * time.Minute)}, nil
		}
		s.step = func(in workflows.StepInput) (workflows.StepOutput, error) {
			if len(s.steps) <= 9 { // the test environment gives up after ten attempts without a limit
				return workflows.StepOutput{}, away
			}
			return workflows.StepOutput{AssetID: "a"}, nil
		}
		res, err := s.run(matchInput(false))
		require.NoError(t, err)
		require.Equal(t, berth.TaskCompleted, res.Status)
		require.Len(t, s.steps, 11, "two steps after nine faults")
	})
	t.Run("that do not", func(t *testing.T) {
		t.Parallel()
		s := newTaskRun(t)
		s.step = func(workflows.StepInput) (workflows.StepOutput, error) { return workflows.StepOutput{}, away }
		began := s.env.Now()
		_, err := s.run(matchInput(false))
		require.Error(t, err)
		require.Len(t, s.ends, 1)
		require.Equal(t, berth.CodeProviderUnavailable, s.ends[0].Code)
		require.Equal(t, "the provider failed; this lasted until the deadline", s.ends[0].Message)
		require.Greater(t, s.env.Now().Sub(began), 45*time.Second)
	})
	for name, c := range map[string]struct {
		last    error
		code    berth.Code
		message string
	}{
		"in the middle of a call": {away, berth.CodeProviderUnavailable, "the provider failed; this lasted until the deadline"},
		"in the middle of a call after another fault": {
			temporal.NewApplicationError("the slot was lost", string(berth.CodeUnavailable)), berth.CodeDeadlineExceeded,
			"there was no complete answer before the deadline; the last fault: the slot was lost",
		},
		"in the middle of the first call": {nil, berth.CodeDeadlineExceeded, "there was no complete answer before the deadline"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newTaskRun(t)
			s.step = func(workflows.StepInput) (workflows.StepOutput, error) {
				return workflows.StepOutput{}, temporal.NewTimeoutError(enums.TIMEOUT_TYPE_SCHEDULE_TO_CLOSE, c.last)
			}
			_, err := s.run(matchInput(false))
			require.Error(t, err)
			require.Len(t, s.ends, 1)
			require.Equal(t, c.code, s.ends[0].Code)
			require.Equal(t, c.message, s.ends[0].Message)
		})
	}
}

func TestTask_LedgerDecidesCancelled_ReturnsCancelled(t *testing.T) { // T13: a cancellation recorded in the ledger takes precedence over a finished chain
	t.Parallel()
	s := newTaskRun(t)
	s.finish = func(workflows.EndInput) workflows.TaskResult {
		return workflows.TaskResult{Status: berth.TaskCancelled, Code: berth.CodeCancelled}
	}
	_, err := s.run(matchInput(false))
	require.True(t, temporal.IsCanceledError(errors.Unwrap(err)), "%v", err)
	require.Equal(t, 1, s.published)
}

func TestTask_AcceptRefused_IsWithdrawn(t *testing.T) { // X6: no partial effect
	t.Parallel()
	s := newTaskRun(t)
	s.accept = func() (workflows.AcceptReply, error) {
		return workflows.AcceptReply{}, temporal.NewNonRetryableApplicationError("taken", string(berth.CodeIdempotencyMismatch), nil)
	}
	_, err := s.run(matchInput(false))
	require.ErrorContains(t, err, "taken")
	require.Equal(t, 1, s.withdrawn)
	require.Empty(t, s.steps)
	require.Empty(t, s.ends)
	require.Zero(t, s.published)
}

func TestTask_AcceptedTooLate_RefusedWithoutStep(t *testing.T) { // T8, FT3
	t.Parallel()
	s := newTaskRun(t)
	accepted := false
	s.accept = func() (workflows.AcceptReply, error) { accepted = true; return workflows.AcceptReply{}, nil }
	in := matchInput(false)
	// The first worker is late.
	s.env.RegisterWorkflowWithOptions(func(ctx workflow.Context, in workflows.TaskInput) (workflows.TaskResult, error) {
		if err := workflow.Sleep(ctx, 9*time.Second); err != nil {
			return workflows.TaskResult{}, err
		}
		return workflows.Task(ctx, in)
	}, workflow.RegisterOptions{Name: "late"})
	var early, late submitResult
	s.withdraw = func() {
		s.env.UpdateWorkflow(workflows.UpdateSubmit, "h1", &early, workflows.SubmitRequest{SubmissionID: "r1", RequestHash: "h1"})
		s.env.UpdateWorkflow(workflows.UpdateSubmit, "h1~1", &late, workflows.SubmitRequest{SubmissionID: "r2", RequestHash: "h1"})
	}
	s.env.ExecuteWorkflow("late", in)
	err := s.env.GetWorkflowError()
	require.ErrorContains(t, err, "not accepted in time")
	require.False(t, accepted)
	require.Equal(t, 1, s.withdrawn)
	require.Empty(t, s.steps)
	for _, r := range []submitResult{early, late} {
		var app *temporal.ApplicationError
		require.ErrorAs(t, r.err, &app)
		var detail berth.Refusal
		require.NoError(t, app.Details(&detail))
		require.Equal(t, "r1", detail.SubmissionID, "a later caller knows that the refusal is of an earlier request")
	}
}

func TestTask_RowIsFinal_RunsNoStep(t *testing.T) { // T7: the id was used before, and Temporal no longer has its run
	t.Parallel()
	s := newTaskRun(t)
	s.accept = func() (workflows.AcceptReply, error) {
		return workflows.AcceptReply{Status: berth.TaskCompleted}, nil
	}
	res, err := s.run(matchInput(false))
	require.NoError(t, err)
	require.Equal(t, berth.TaskCompleted, res.Status)
	require.Empty(t, s.steps)
	require.Empty(t, s.ends)
}

// submitResult collects the result of an update.
type submitResult struct {
	rejected error
	reply    workflows.SubmitReply
	err      error
}

func (a *submitResult) Accept()          {}
func (a *submitResult) Reject(err error) { a.rejected = err }
func (a *submitResult) Complete(v any, err error) {
	a.err = err
	if r, ok := v.(workflows.SubmitReply); ok {
		a.reply = r
	}
}

func TestTaskSubmit_TaskAccepted_ReturnsFirstSubmission(t *testing.T) { // T7, T8
	t.Parallel()
	s := newTaskRun(t)
	s.env.OnActivity(workflows.RunStepActivity, mock.Anything, mock.Anything).After(time.Second).
		Return(workflows.StepOutput{AssetID: "a"}, nil)
	var first, second, other submitResult
	s.env.RegisterDelayedCallback(func() {
		s.env.UpdateWorkflow(workflows.UpdateSubmit, "h1", &first, workflows.SubmitRequest{SubmissionID: "r1", RequestHash: "h1"})
	}, 0)
	s.env.RegisterDelayedCallback(func() {
		s.env.UpdateWorkflow(workflows.UpdateSubmit, "again", &second, workflows.SubmitRequest{SubmissionID: "r2", RequestHash: "h1"})
		s.env.UpdateWorkflow(workflows.UpdateSubmit, "h2", &other, workflows.SubmitRequest{SubmissionID: "r3", RequestHash: "h2"})
	}, 100*time.Millisecond)
	_, err := s.run(matchInput(false))
	require.NoError(t, err)
	require.NoError(t, first.rejected)
	require.NoError(t, first.err)
	require.Equal(t, workflows.SubmitReply{SubmissionID: "r1", Status: berth.TaskPending}, first.reply)
	require.Equal(t, "r1", second.reply.SubmissionID, "a repeated submission gets the first submission's id")
	require.ErrorContains(t, other.rejected, "the id is already used for a different request")
}

// A repeated attempt to accept the task finds its row: the submission is a replay only if the task had ended before.
func TestTaskSubmit_RowExists_ReplayIfTaskHasEnded(t *testing.T) { // T7
	t.Parallel()
	for _, status := range []berth.TaskStatus{berth.TaskPending, berth.TaskCompleted} {
		s := newTaskRun(t)
		s.accept = func() (workflows.AcceptReply, error) {
			return workflows.AcceptReply{Status: status, DeadlineAt: s.env.Now().Add(time.Minute)}, nil
		}
		var first submitResult
		s.env.RegisterDelayedCallback(func() {
			s.env.UpdateWorkflow(workflows.UpdateSubmit, "h1", &first, workflows.SubmitRequest{SubmissionID: "r1", RequestHash: "h1"})
		}, 0)
		_, err := s.run(matchInput(false))
		require.NoError(t, err)
		require.Equal(t, status.Final(), first.reply.Replay, status)
	}
}

func TestTask_NoSteps_IsRejected(t *testing.T) {
	t.Parallel()
	s := newTaskRun(t)
	_, err := s.run(workflows.TaskInput{TaskPlan: berth.TaskPlan{TaskRequest: berth.TaskRequest{ID: "t1"}}})
	require.ErrorContains(t, err, "no id or no steps")
}

// waits makes the acceptance leave the first step waiting, and every step the next one.
func (s *taskRun) waits() {
	accept, step := s.accept, s.step
	s.accept = func() (workflows.AcceptReply, error) {
		reply, err := accept()
		reply.Entered = workflows.EnteredWaiting
		return reply, err
	}
	s.step = func(in workflows.StepInput) (workflows.StepOutput, error) {
		out, err := step(in)
		out.Next = workflows.EnteredWaiting
		return out, err
	}
}

// B1: each step runs when its promotion is signalled, also when the signal comes before the step waits, or twice.
func TestTask_StepsWait_EachRunsWhenPromoted(t *testing.T) {
	s := newTaskRun(t)
	s.waits()
	var ran [][]int
	for i, promoted := range []int{0, 0, 2, 1} {
		s.env.RegisterDelayedCallback(func() {
			ran = append(ran, []int{promoted, len(s.steps)})
			s.env.SignalWorkflow(workflows.SignalPromoted, promoted)
		}, time.Duration(i+1)*time.Second)
	}
	res, err := s.run(matchInput(true))
	require.NoError(t, err)
	require.Equal(t, berth.TaskCompleted, res.Status)
	require.Len(t, s.steps, 3)
	require.Equal(t, [][]int{{0, 0}, {0, 1}, {2, 1}}, ran[:3], "steps that had run before each signal")
}

// B1, T13: a task that waits ends at its deadline or when it is cancelled, without a call.
func TestTask_WaitsUntilDeadlineOrCancelled_EndsWithoutCall(t *testing.T) {
	for name, c := range map[string]struct {
		cancel bool
		status berth.TaskStatus
		code   berth.Code
	}{
		"deadline":  {false, berth.TaskFailed, berth.CodeDeadlineExceeded},
		"cancelled": {true, berth.TaskCancelled, berth.CodeCancelled},
	} {
		t.Run(name, func(t *testing.T) {
			s := newTaskRun(t)
			s.waits()
			if c.cancel {
				s.env.RegisterDelayedCallback(s.env.CancelWorkflow, time.Second)
			}
			_, err := s.run(matchInput(false))
			require.Error(t, err)
			require.Empty(t, s.steps)
			require.Len(t, s.ends, 1)
			require.Equal(t, c.status, s.ends[0].Status)
			require.Equal(t, c.code, s.ends[0].Code)
			require.Equal(t, 1, s.published)
		})
	}
}

// L11: a step whose room was not entered, because Redis was unavailable, is entered by the workflow.
func TestTask_NextStepNotEntered_WorkflowEnters(t *testing.T) {
	s := newTaskRun(t)
	step := s.step
	s.step = func(in workflows.StepInput) (workflows.StepOutput, error) {
		out, err := step(in)
		out.Next = workflows.EnteredUnknown
		return out, err
	}
	var entered []workflows.EnterInput
	s.env.RegisterActivityWithOptions(func(_ context.Context, in workflows.EnterInput) (workflows.Entered, error) {
		entered = append(entered, in)
		if len(entered) == 1 {
			return "", errors.New("redis unavailable")
		}
		return workflows.EnteredPromoted, nil
	}, activity.RegisterOptions{Name: workflows.EnterTaskActivity})
	res, err := s.run(matchInput(false))
	require.NoError(t, err)
	require.Equal(t, berth.TaskCompleted, res.Status)
	require.Len(t, entered, 2)
	require.Equal(t, 1, entered[1].Index)
	require.Equal(t, s.steps[1].Step, entered[1].Step)
}
