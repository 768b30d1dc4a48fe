package starter

import (
	"context"
	"encoding/base64"
	"fmt"
	"strconv"
	"strings"
	"time"

	"go.temporal.io/api/common/v1"
	"go.temporal.io/api/enums/v1"
	"go.temporal.io/api/history/v1"
	"go.temporal.io/api/workflow/v1"
	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/converter"

	"berth"
	"berth/workflows"
)

// TurnQuery selects turns. Empty fields match all.
type TurnQuery struct {
	UserID, SessionID string
	Status            berth.TurnStatus
}

// TurnRun is a turn as Temporal's visibility has it.
type TurnRun struct {
	TurnID    string           `json:"turnId"`
	SessionID string           `json:"sessionId"`
	UserID    string           `json:"userId"`
	Status    berth.TurnStatus `json:"status" enum:"open,finalized"`
	// Lost indicates that the run was ended outside of berth.
	Lost      bool      `json:"lost,omitempty" doc:"The run was ended or lost outside of berth"`
	StartedAt time.Time `json:"startedAt"`
	EndedAt   time.Time `json:"endedAt,omitzero"`
}

// where returns the condition of visibility. A turn whose run failed never began, and the run that continued a turn represents it.
func (q TurnQuery) where() string {
	all := []string{fmt.Sprintf(`WorkflowType = "%s"`, workflows.TurnWorkflow), `ExecutionStatus NOT IN ("ContinuedAsNew", "Failed")`}
	for _, f := range []struct{ attribute, value string }{{workflows.SearchUser, q.UserID}, {workflows.SearchSession, q.SessionID}} {
		if f.value != "" {
			all = append(all, fmt.Sprintf(`%s = '%s'`, f.attribute, strings.NewReplacer(`\`, `\\`, `'`, `\'`).Replace(f.value)))
		}
	}
	switch q.Status {
	case berth.TurnOpen:
		all = append(all, `ExecutionStatus = "Running"`)
	case berth.TurnFinalized:
		all = append(all, `ExecutionStatus != "Running"`)
	}
	return strings.Join(all, " AND ")
}

// ListTurns returns a page of turns, the open ones first, and the cursor of the next page, empty after the last. CodeInvalid for an
// invalid cursor.
func (s *Starter) ListTurns(ctx context.Context, q TurnQuery, cursor string, limit int) (turns []TurnRun, next string, err error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	token, err := base64.RawURLEncoding.DecodeString(cursor)
	if err != nil {
		return nil, "", berth.Invalid("cursor", "invalid cursor; use nextCursor of the previous page").With(err)
	}
	page, err := s.Client.ListWorkflow(ctx, &workflowservice.ListWorkflowExecutionsRequest{
		PageSize: int32(limit), NextPageToken: token, Query: q.where(), //nolint:gosec // the API limits it
	})
	if err != nil {
		return nil, "", fmt.Errorf("list turns: %w", outcome(err))
	}
	for _, e := range page.GetExecutions() {
		turns = append(turns, turnRun(e))
	}
	return turns, base64.RawURLEncoding.EncodeToString(page.GetNextPageToken()), nil
}

func turnRun(e *workflow.WorkflowExecutionInfo) TurnRun {
	attribute := func(name string) (value string) {
		if p, ok := e.GetSearchAttributes().GetIndexedFields()[name]; ok {
			_ = converter.GetDefaultDataConverter().FromPayload(p, &value) // a keyword
		}
		return value
	}
	t := TurnRun{
		TurnID: strings.TrimPrefix(e.GetExecution().GetWorkflowId(), workflows.TurnPrefix), SessionID: attribute(workflows.SearchSession),
		UserID: attribute(workflows.SearchUser), Status: berth.TurnFinalized, StartedAt: e.GetStartTime().AsTime(),
	}
	switch e.GetStatus() {
	case enums.WORKFLOW_EXECUTION_STATUS_RUNNING:
		t.Status = berth.TurnOpen
		return t
	case enums.WORKFLOW_EXECUTION_STATUS_TERMINATED, enums.WORKFLOW_EXECUTION_STATUS_TIMED_OUT:
		t.Lost = true
	}
	t.EndedAt = e.GetCloseTime().AsTime()
	return t
}

// CountTurns returns the number of open turns.
func (s *Starter) CountTurns(ctx context.Context) (int64, error) {
	ctx, cancel := context.WithTimeout(ctx, turnTimeout)
	defer cancel()
	n, err := s.Client.CountWorkflow(ctx, &workflowservice.CountWorkflowExecutionsRequest{Query: TurnQuery{Status: berth.TurnOpen}.where()})
	if err != nil {
		return 0, fmt.Errorf("count turns: %w", outcome(err))
	}
	return n.GetCount(), nil
}

// Dispatched is one dispatch of a job of a turn to a node.
type Dispatched struct {
	JobID      string    `json:"jobId"`
	Index      int       `json:"index"`
	Dispatch   int       `json:"dispatch" doc:"Number of the dispatch of the job, from 1"`
	NodeID     string    `json:"nodeId"`
	Generation int64     `json:"generation"`
	At         time.Time `json:"at"`
	StartedAt  time.Time `json:"startedAt,omitzero" doc:"When the node accepted it; absent while it has not"`
	EndedAt    time.Time `json:"endedAt,omitzero"`
	Outcome    string    `json:"outcome,omitempty" enum:"completed,failed,timed_out,cancelled"`
	Message    string    `json:"message,omitempty" doc:"Why it failed"`
}

// maxDispatches is how many dispatches TurnDispatches returns, historyPage how many events it reads per call.
const (
	maxDispatches = 2000
	historyPage   = 1000
)

// TurnDispatches returns the dispatches of a turn's last run, in order, from its history; CodeNotFound when Temporal has no such turn.
func (s *Starter) TurnDispatches(ctx context.Context, turnID string) ([]Dispatched, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	id := workflows.TurnWorkflowID(turnID)
	d := dispatches{from: s.converterOf(id), by: map[int64]int{}}
	var token []byte
	for {
		page, err := s.Client.WorkflowService().GetWorkflowExecutionHistory(ctx, &workflowservice.GetWorkflowExecutionHistoryRequest{
			Namespace: s.Namespace, Execution: &common.WorkflowExecution{WorkflowId: id}, MaximumPageSize: historyPage, NextPageToken: token,
		})
		if err = outcome(err); isNotRunning(err) {
			return nil, noTurn(nil)
		}
		if err != nil {
			return nil, fmt.Errorf("read the history of turn %s: %w", turnID, err)
		}
		for _, e := range page.GetHistory().GetEvents() {
			d.add(e)
		}
		if token = page.GetNextPageToken(); len(token) == 0 || len(d.all) == maxDispatches {
			return d.all, nil
		}
	}
}

// dispatches collects those of a history.
type dispatches struct {
	from converter.DataConverter
	all  []Dispatched
	by   map[int64]int // the index of the one whose activity an event scheduled
}

func (d *dispatches) add(e *history.HistoryEvent) {
	if a := e.GetActivityTaskScheduledEventAttributes(); a != nil {
		var in berth.JobInput
		if a.GetActivityType().GetName() != berth.ActivityTranslate || len(d.all) == maxDispatches || d.from.FromPayloads(a.GetInput(), &in) != nil {
			return
		}
		nodeID, generation := nodeOf(a.GetTaskQueue().GetName())
		d.by[e.GetEventId()] = len(d.all)
		d.all = append(d.all, Dispatched{
			JobID: in.JobID, Index: in.Index, Dispatch: in.Dispatch, NodeID: nodeID, Generation: generation, At: e.GetEventTime().AsTime(),
		})
		return
	}
	if a := e.GetActivityTaskStartedEventAttributes(); a != nil {
		d.with(a.GetScheduledEventId(), func(x *Dispatched) { x.StartedAt = e.GetEventTime().AsTime() })
		return
	}
	var scheduled int64
	var outcome, message string
	switch {
	case e.GetActivityTaskCompletedEventAttributes() != nil:
		scheduled, outcome = e.GetActivityTaskCompletedEventAttributes().GetScheduledEventId(), "completed"
	case e.GetActivityTaskFailedEventAttributes() != nil:
		a := e.GetActivityTaskFailedEventAttributes()
		scheduled, outcome, message = a.GetScheduledEventId(), "failed", a.GetFailure().GetMessage()
	case e.GetActivityTaskTimedOutEventAttributes() != nil:
		a := e.GetActivityTaskTimedOutEventAttributes()
		scheduled, outcome, message = a.GetScheduledEventId(), "timed_out", a.GetFailure().GetMessage()
	case e.GetActivityTaskCanceledEventAttributes() != nil:
		scheduled, outcome = e.GetActivityTaskCanceledEventAttributes().GetScheduledEventId(), "cancelled"
	default:
		return
	}
	d.with(scheduled, func(x *Dispatched) { x.EndedAt, x.Outcome, x.Message = e.GetEventTime().AsTime(), outcome, message })
}

func (d *dispatches) with(scheduled int64, change func(*Dispatched)) {
	if i, ok := d.by[scheduled]; ok {
		change(&d.all[i])
	}
}

// nodeOf returns the node of a task queue, as berth.NodeTaskQueue names it.
func nodeOf(queue string) (nodeID string, generation int64) {
	name := strings.TrimPrefix(queue, "node.")
	dot := strings.LastIndexByte(name, '.')
	if dot < 0 {
		return name, 0
	}
	generation, _ = strconv.ParseInt(name[dot+1:], 10, 64) // 0 for the queue of another version
	return name[:dot], generation
}
