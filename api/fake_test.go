package api_test

import (
	"context"
	"fmt"
	"time"

	"berth"
	"berth/internal/starter"
	"berth/lua"
	"berth/workflows"
)

// fakeWorkflows simulates the workflows of turns, executions and conferences. Nodes are chosen by the real scripts. held has
// the state while no call uses it.
type fakeWorkflows struct {
	scripts *lua.Scripts
	held    chan *book
}

type book struct {
	failure    error // returned by every call, as if Temporal failed
	dispatches int
	turns      map[string]*storedTurn
	executions map[string]*storedExecution
	// conferences by number
	conferences map[string]*storedConference
	refuse      error // error of the next creations
	releasedBy  []string
	slow        bool // units release only later
	notices     []workflows.UnitNotice
	reports     [][]berth.NodeRef
	queues      map[string]starter.QueueState
	described   int      // calls of DescribeQueue
	records     []string // ids of conferences whose records were sent again
	events      []string // ids of deliveries that were started
}

type storedTurn struct {
	berth.Turn
	in       workflows.TurnInput
	outcomes map[string]workflows.DispatchReply
}

type storedExecution struct {
	berth.Execution
	in workflows.ExecutionInput
}

func newFakeWorkflows(scripts *lua.Scripts) *fakeWorkflows {
	s := &fakeWorkflows{scripts: scripts, held: make(chan *book, 1)}
	s.held <- &book{turns: map[string]*storedTurn{}, executions: map[string]*storedExecution{}, conferences: map[string]*storedConference{}}
	return s
}

// open returns the state and locks it until unlock is called.
func (s *fakeWorkflows) open() (b *book, unlock func()) {
	b = <-s.held
	return b, func() { s.held <- b }
}

func (s *fakeWorkflows) Dispatch(ctx context.Context, job starter.JobCall) (workflows.DispatchReply, bool, error) {
	b, unlock := s.open()
	defer unlock()
	b.dispatches++
	if b.failure != nil {
		return workflows.DispatchReply{}, false, b.failure
	}
	req := job.Request
	t, known := b.turns[job.Turn.TurnID]
	switch {
	case known && (t.UserID != req.UserID || t.SessionID != req.SessionID), !known && job.Running:
		return workflows.DispatchReply{}, false, berth.Errorf(berth.CodeNotFound, "turn not found")
	case !known:
		t = &storedTurn{in: job.Turn, outcomes: map[string]workflows.DispatchReply{}, Turn: berth.Turn{
			ID: job.Turn.TurnID, SessionID: job.Turn.SessionID, UserID: job.Turn.UserID, Status: berth.TurnOpen,
		}}
	}
	if first, ok := t.outcomes[req.RequestID]; ok {
		if first.RequestHash != req.RequestHash {
			return first, false, &berth.Error{Code: berth.CodeIdempotencyMismatch, Field: "requestId", Message: "was used for another request"}
		}
		return first, true, nil
	}
	if t.Status != berth.TurnOpen {
		return workflows.DispatchReply{}, false, berth.Errorf(berth.CodeTurnFinalized, "the turn is finalized")
	}
	req.TurnID, req.JobID, req.Dispatch, req.EndsTurn = t.ID, fmt.Sprintf("%s-%d", t.ID, req.Index), 1, req.Finalize.Ends()
	d, err := s.scripts.DispatchJob(ctx, req.JobRequest, lua.Choice{PoolID: req.PoolID, Required: []string{req.PoolID}})
	switch {
	case err != nil:
		return workflows.DispatchReply{}, false, err
	case d.Code == lua.AssignFull:
		return workflows.DispatchReply{}, false, &berth.Refusal{Code: berth.CodeNodeFull, Reasons: d.Reasons}
	case d.Code != lua.AssignOK:
		return workflows.DispatchReply{}, false, &berth.Refusal{Code: berth.CodeNoNode, Reasons: d.Reasons, Missing: d.Missing}
	}
	b.turns[t.ID] = t
	t.Jobs = append(t.Jobs, berth.TurnJob{
		JobID: d.JobID, RequestID: req.RequestID, Index: req.Index, SpeakerID: req.SpeakerID, Status: berth.JobRunning,
		NodeID: d.NodeID, PoolID: d.PoolID, Affinity: d.Affinity, Dispatches: 1, Text: string(req.Text),
	})
	t.outcomes[req.RequestID] = workflows.DispatchReply{RequestHash: req.RequestHash, TurnID: t.ID, Assignment: d.Assignment}
	if req.Finalize.Ends() {
		t.Status, t.Reason = berth.TurnFinalized, req.Finalize
	}
	return t.outcomes[req.RequestID], false, nil
}

func (s *fakeWorkflows) FinalizeTurn(
	_ context.Context, turnID string, req workflows.FinalizeRequest,
) (workflows.FinalizeReply, error) {
	b, unlock := s.open()
	defer unlock()
	if b.failure != nil {
		return workflows.FinalizeReply{}, b.failure
	}
	t, ok := b.turns[turnID]
	switch {
	case !ok || t.UserID != req.UserID:
		return workflows.FinalizeReply{}, berth.Errorf(berth.CodeNotFound, "turn not found")
	case t.Status != berth.TurnOpen:
		return workflows.FinalizeReply{}, berth.Errorf(berth.CodeTurnFinalized, "the turn is finalized")
	}
	t.Status, t.Reason, t.FinalizedAt = berth.TurnFinalized, req.Reason, time.Now()
	return workflows.FinalizeReply{Status: t.Status, Reason: t.Reason, Jobs: len(t.Jobs)}, nil
}

func (s *fakeWorkflows) GetTurn(_ context.Context, turnID string) (berth.Turn, error) {
	b, unlock := s.open()
	defer unlock()
	if b.failure != nil {
		return berth.Turn{}, b.failure
	}
	t, ok := b.turns[turnID]
	if !ok {
		return berth.Turn{}, berth.Errorf(berth.CodeNotFound, "turn not found")
	}
	return t.Turn, nil
}

func (s *fakeWorkflows) SubmitExecution(
	_ context.Context, key string, in workflows.ExecutionInput,
) (workflows.ExecuteReply, bool, error) {
	b, unlock := s.open()
	defer unlock()
	if b.failure != nil {
		return workflows.ExecuteReply{}, false, b.failure
	}
	if ex, ok := b.executions[key]; ok {
		if ex.in.RequestHash != in.RequestHash {
			return workflows.ExecuteReply{}, false, berth.Errorf(berth.CodeIdempotencyMismatch, "was used for another request")
		}
		return workflows.ExecuteReply{Status: berth.ExecutionWaiting}, true, nil // the outcome of the first update
	}
	b.executions[key] = &storedExecution{in: in, Execution: berth.Execution{
		ID: in.ExecutionID, UserID: in.UserID, Executor: in.Executor, Status: berth.ExecutionWaiting, PoolID: in.Where.PoolID,
	}}
	return workflows.ExecuteReply{Status: berth.ExecutionWaiting}, false, nil
}

func (s *fakeWorkflows) GetExecution(_ context.Context, key string) (berth.Execution, error) {
	b, unlock := s.open()
	defer unlock()
	if b.failure != nil {
		return berth.Execution{}, b.failure
	}
	ex, ok := b.executions[key]
	if !ok {
		return berth.Execution{}, berth.Errorf(berth.CodeNotFound, "execution not found")
	}
	return ex.Execution, nil
}

func (s *fakeWorkflows) CancelExecution(_ context.Context, key string) error {
	b, unlock := s.open()
	defer unlock()
	if b.failure != nil {
		return b.failure
	}
	b.executions[key].Status = berth.ExecutionCancelled
	return nil
}

func (s *fakeWorkflows) ListTurns(_ context.Context, q starter.TurnQuery, _ string, _ int) (out []starter.TurnRun, next string, err error) {
	b, unlock := s.open()
	defer unlock()
	for _, t := range b.turns {
		if (q.UserID == "" || q.UserID == t.UserID) && (q.SessionID == "" || q.SessionID == t.SessionID) && (q.Status == "" || q.Status == t.Status) {
			out = append(out, starter.TurnRun{TurnID: t.ID, SessionID: t.SessionID, UserID: t.UserID, Status: t.Status})
		}
	}
	return out, "", b.failure
}

func (s *fakeWorkflows) CountTurns(context.Context) (int64, error) {
	b, unlock := s.open()
	defer unlock()
	return int64(len(b.turns)), b.failure
}

func (s *fakeWorkflows) DescribeQueue(_ context.Context, name string) (starter.QueueState, error) {
	b, unlock := s.open()
	defer unlock()
	b.described++
	return b.queues[name], b.failure
}

func (s *fakeWorkflows) TurnDispatches(_ context.Context, turnID string) (out []starter.Dispatched, err error) {
	b, unlock := s.open()
	defer unlock()
	t, ok := b.turns[turnID]
	if !ok {
		return nil, berth.Errorf(berth.CodeNotFound, "turn not found")
	}
	for _, j := range t.Jobs {
		out = append(out, starter.Dispatched{JobID: j.JobID, Index: j.Index, Dispatch: 1, NodeID: j.NodeID})
	}
	return out, b.failure
}
