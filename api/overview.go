package api

import (
	"context"
	"maps"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"berth"
	"berth/client"
	"berth/internal/health"
	"berth/internal/ledger"
	"berth/internal/starter"
	"berth/workflows"
)

// overviewAge is how long an overview is used for further requests, so that any number of pages cause the load of one.
const overviewAge = 2 * time.Second

// overviewTime is the period of the minutes of an overview.
const overviewTime = time.Hour

// overview is what an operator sees first.
type overview struct {
	At          time.Time                      `json:"at"`
	Tasks       workCounts                     `json:"tasks"`
	Executions  workCounts                     `json:"executions"`
	Turns       *int64                         `json:"turns,omitempty" doc:"Open turns; absent while Temporal cannot be read"`
	Conferences map[berth.ConferenceStatus]int `json:"conferences" doc:"Number of conferences that have not ended, by status"`
	Nodes       nodeCounts                     `json:"nodes"`
	Minutes     []taskMinute                   `json:"minutes" doc:"The tasks of the last hour by minute, oldest first; the last minute is not complete"`
	Stale       bool                           `json:"stale" doc:"Redis is unavailable: the nodes are the last known ones"`
	TaskQueues  []taskQueueState               `json:"taskQueues,omitempty" doc:"The task queues of Temporal, at most 5 seconds old; absent while Temporal cannot be read"`
	// Troubles are read from the health of this process; the metric berth_dependency_reason has those of all.
	Troubles []dependencyTrouble `json:"troubles,omitempty" doc:"The dependencies of this API process that are unavailable, or work with a risk"`
	// Reconciliation is also part of GET /v1/reconciliation.
	Reconciliation client.ReconcileProgress `json:"reconciliation"`
}

type dependencyTrouble struct {
	Name string `json:"name" enum:"redis,database,temporal,identity"`
	health.Dependency
}

// troubles returns the dependencies with a problem, by name.
func troubles(r health.Report) (found []dependencyTrouble) {
	for _, name := range slices.Sorted(maps.Keys(r.Dependencies)) {
		if d := r.Dependencies[name]; d.Status != health.OK || d.Reason != nil {
			found = append(found, dependencyTrouble{name, d})
		}
	}
	return found
}

type taskQueueState struct {
	Name         string `json:"name"`
	Model        bool   `json:"model" doc:"It has the calls of a model; the others have workflows"`
	Pollers      int    `json:"pollers" doc:"Number of processes that poll it. A process is counted for up to 75 seconds after its last poll"`
	Backlog      int64  `json:"backlog" doc:"Work that no process has taken"`
	BacklogAgeMs int64  `json:"backlogAgeMs" doc:"How long the oldest of it waits"`
}

type workCounts struct {
	Waiting int `json:"waiting"`
	Running int `json:"running"`
}

type nodeCounts struct {
	Ready    int                         `json:"ready"`
	Suspect  int                         `json:"suspect"`
	Dead     int                         `json:"dead" doc:"Within the last hour, also those that were withdrawn"`
	Lost     int                         `json:"lost" doc:"Lost within the last hour, also if they are registered again: they missed heartbeats, or their service did not respond"`
	Cordoned int                         `json:"cordoned" doc:"Of the ready ones: no new work, because of an operator"`
	Draining int                         `json:"draining" doc:"Of the ready ones: they end their work, because of an operator"`
	Leases   int                         `json:"leases" doc:"Slots in use"`
	Slots    int                         `json:"slots" doc:"Slots of the nodes that are not dead"`
	Excluded map[berth.ExcludeReason]int `json:"excluded" doc:"Number of nodes that are not dead and excluded, by reason"`
}

type taskMinute struct {
	At        time.Time `json:"at"`
	Accepted  int       `json:"accepted"`
	Completed int       `json:"completed"`
	Failed    int       `json:"failed"`
	Cancelled int       `json:"cancelled"`
	Lost      int       `json:"lost" doc:"Of the failed ones: their run was ended or lost outside of berth"`
}

// UserPage selects a page of a list of all users, or of one.
type UserPage struct {
	UserID string `query:"userId" maxLength:"255" doc:"Only those of this user"`
	Limit  int    `query:"limit" minimum:"1" maximum:"200" default:"50"`
	CursorParam
}

type executionsInput struct {
	UserPage
	Status berth.ExecutionStatus `query:"status" enum:"waiting,running,completed,failed,cancelled"`
}

type executionsOutputBody struct {
	Executions []executionView `json:"executions"`
	NextCursor string          `json:"nextCursor,omitempty" doc:"Absent on the last page"`
}

type sessionsOutputBody struct {
	Sessions   []listedSession `json:"sessions"`
	NextCursor string          `json:"nextCursor,omitempty" doc:"Absent on the last page"`
}

// listedSession is a session without what only Redis has.
type listedSession struct {
	SessionID string    `json:"sessionId"`
	UserID    string    `json:"userId"`
	TenantID  string    `json:"tenantId,omitempty"`
	SrcLang   string    `json:"srcLang"`
	TgtLang   string    `json:"tgtLang"`
	UpdatedAt time.Time `json:"updatedAt"`
}

type turnsInput struct {
	UserPage
	SessionID string           `query:"sessionId" maxLength:"128" doc:"Only those of this session"`
	Status    berth.TurnStatus `query:"status" enum:"open,finalized"`
}

type turnsOutputBody struct {
	Turns      []listedTurn `json:"turns"`
	NextCursor string       `json:"nextCursor,omitempty" doc:"Absent on the last page"`
}

type listedTurn struct {
	starter.TurnRun
	Links client.WorkflowLinks `json:"links"`
}

type dispatchesOutputBody struct {
	Dispatches []starter.Dispatched `json:"dispatches"`
}

type accountsInput struct {
	Prefix string `query:"prefix" maxLength:"255" doc:"Only users whose id begins with it"`
	Limit  int    `query:"limit" minimum:"1" maximum:"200" default:"50"`
	CursorParam
}

type accountsOutputBody struct {
	Accounts   []AccountView `json:"accounts"`
	NextCursor string        `json:"nextCursor,omitempty" doc:"Absent on the last page"`
}

// overviewRoutes registers the lists of operators.
func (s *server) overviewRoutes() {
	register(s, "GET /v1/overview", forOperator, s.getOverview, op("get-overview", "operations",
		"Get the numbers of waiting, running and lost work, and the tasks of the last hour",
		"At most 2 seconds old."))
	register(s, "GET /v1/executions", forOperator, s.listExecutions, op("list-executions", "executions",
		"List the executions of all users, newest first, without outputs"))
	register(s, "GET /v1/sessions", forOperator, s.listSessions, op("list-sessions", "sessions",
		"List the sessions of all users, the last changed first"))
	register(s, "GET /v1/turns", forOperator, s.listTurns, op("list-turns", "sessions",
		"List the turns of all users: the open ones, then the last ended ones",
		"Temporal's visibility has them, a moment after they change, and keeps ended ones for its retention time."))
	register(s, "GET /v1/turns/{id}/dispatches", forOperator, s.turnDispatches, op("turn-dispatches", "sessions",
		"List when and where the jobs of a turn were dispatched",
		"From the history of the turn's run, in the order of the dispatches; at most 2,000."))
	register(s, "GET /v1/accounts", forOperator, s.listAccounts, op("list-accounts", "account", "List the accounts that have entries, by user id"))
}

func (s *server) getOverview(ctx context.Context, _ *struct{}) (*overview, error) {
	now := s.Clock()
	if last := s.overview.Load(); last != nil && now.Sub(last.At) < overviewAge {
		return last, nil
	}
	open, err := s.Ledger.CountOpen(ctx)
	if err != nil {
		return nil, err
	}
	minutes, err := s.Ledger.TaskMinutes(ctx, now.Add(-overviewTime), now)
	if err != nil {
		return nil, err
	}
	progress, err := s.reconcileProgress(ctx)
	if err != nil {
		return nil, err
	}
	snapshot := s.Fleet.Snapshot()
	v := &overview{
		At: now.UTC(), Tasks: workCounts{Waiting: open.TasksWaiting, Running: open.TasksRunning},
		Executions:  workCounts{Waiting: open.Executions[berth.ExecutionWaiting], Running: open.Executions[berth.ExecutionRunning]},
		Conferences: open.Conferences, Nodes: countNodes(snapshot.Nodes, now.Add(-overviewTime)), Stale: snapshot.Stale,
		TaskQueues: s.readQueues(ctx, now), Troubles: troubles(s.Health.Report()), Reconciliation: progress,
		Minutes: convert(minutes, func(m ledger.TaskMinute) taskMinute { return taskMinute(m) }),
	}
	if turns, err := s.Starter.CountTurns(ctx); err == nil {
		v.Turns = &turns
	}
	s.overview.Store(v)
	return v, nil
}

// queuesRead are the task queues at one time, nil if they could not be read.
type queuesRead struct {
	at     time.Time
	queues []taskQueueState
}

const (
	// queuesAge is how long the state of the task queues is used for further requests, queuesTimeout limits reading it.
	queuesAge, queuesTimeout = 5 * time.Second, 2 * time.Second
	// queuesAtOnce is how many task queues are read at the same time.
	queuesAtOnce = 8
)

// readQueues returns the state of the task queues, nil while Temporal cannot be read. They are not those of the last sample: it is
// another process's, and there is none while that has stopped.
func (s *server) readQueues(ctx context.Context, now time.Time) []taskQueueState {
	if last := s.queued.Load(); last != nil && now.Sub(last.at) < queuesAge {
		return last.queues
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), queuesTimeout) // its reply is used for other requests, too
	defer cancel()
	var names []string
	if s.Config.TaskQueues != nil {
		names = s.Config.TaskQueues()
	}
	all := make([]taskQueueState, len(names))
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(queuesAtOnce)
	for i, name := range names {
		g.Go(func() error {
			q, err := s.Starter.DescribeQueue(ctx, name)
			all[i] = taskQueueState{
				Name: name, Model: !slices.Contains(workflows.TaskQueues(), name), Pollers: q.Pollers, Backlog: q.Backlog, BacklogAgeMs: ms(q.BacklogAge),
			}
			return err
		})
	}
	read := &queuesRead{at: now}
	if err := g.Wait(); err == nil {
		read.queues = all
	}
	s.queued.Store(read)
	return read.queues
}

func countNodes(nodes map[string]berth.Node, since time.Time) nodeCounts {
	c := nodeCounts{Excluded: map[berth.ExcludeReason]int{}}
	for _, n := range nodes {
		if n.LostAt.After(since) {
			c.Lost++
		}
		switch n.State {
		case berth.NodeDead:
			c.Dead++
			continue
		case berth.NodeSuspect:
			c.Suspect++
		default:
			c.Ready++
			if n.Cordoned {
				c.Cordoned++
			}
			if !n.DrainUntil.IsZero() {
				c.Draining++
			}
		}
		c.Leases += n.Leases
		c.Slots += n.MaxConcurrentJobs
		if n.Excluded != "" {
			c.Excluded[n.Excluded]++
		}
	}
	return c
}

func (s *server) listExecutions(ctx context.Context, in *executionsInput) (*executionsOutputBody, error) {
	found, next, err := s.Ledger.ListExecutions(ctx, in.UserID, in.Status, in.Cursor, in.Limit)
	if err != nil {
		return nil, err
	}
	return &executionsOutputBody{
		Executions: convert(found, func(e berth.ExecutionRow) executionView { return *s.viewExecution(e) }), NextCursor: next,
	}, nil
}

func (s *server) listSessions(ctx context.Context, in *UserPage) (*sessionsOutputBody, error) {
	found, next, err := s.Ledger.ListSessions(ctx, in.UserID, in.Cursor, in.Limit)
	if err != nil {
		return nil, err
	}
	return &sessionsOutputBody{Sessions: convert(found, func(n berth.Session) listedSession {
		return listedSession{n.ID, n.UserID, n.TenantID, n.SrcLang, n.TgtLang, n.UpdatedAt}
	}), NextCursor: next}, nil
}

func (s *server) listTurns(ctx context.Context, in *turnsInput) (*turnsOutputBody, error) {
	q := starter.TurnQuery{UserID: in.UserID, SessionID: in.SessionID, Status: in.Status}
	found, next, err := s.Starter.ListTurns(ctx, q, in.Cursor, in.Limit)
	if err != nil {
		return nil, err
	}
	return &turnsOutputBody{Turns: convert(found, func(t starter.TurnRun) listedTurn {
		return listedTurn{t, s.links(workflows.TurnWorkflowID(t.TurnID))}
	}), NextCursor: next}, nil
}

func (s *server) turnDispatches(ctx context.Context, in *idInput) (*dispatchesOutputBody, error) {
	if err := berth.ValidID("id", in.ID); err != nil {
		return nil, err
	}
	found, err := s.Starter.TurnDispatches(ctx, in.ID)
	if err != nil {
		return nil, err
	}
	return &dispatchesOutputBody{Dispatches: append([]starter.Dispatched{}, found...)}, nil
}

func (s *server) listAccounts(ctx context.Context, in *accountsInput) (*accountsOutputBody, error) {
	found, next, err := s.Ledger.ListAccounts(ctx, in.Prefix, in.Cursor, in.Limit)
	if err != nil {
		return nil, err
	}
	return &accountsOutputBody{Accounts: convert(found, func(a ledger.Account) AccountView {
		return AccountView{UserID: a.UserID, Tier: s.tierFor(a.Credits), Credits: a.Credits}
	}), NextCursor: next}, nil
}
