package activities

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
	"go.temporal.io/api/common/v1"
	"go.temporal.io/api/serviceerror"
	"go.temporal.io/api/workflow/v1"
	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/testsuite"

	"berth"
	"berth/internal/ledger"
	"berth/internal/starter"
	"berth/internal/testdb"
	"berth/internal/testredis"
	"berth/internal/waiting"
	"berth/lua"
	"berth/workflows"
)

// pages is a Temporal whose visibility has three pages and rejects other tokens.
type pages struct {
	client.Client
	signal func(id string) error
}

func (p pages) ListWorkflow(
	_ context.Context, req *workflowservice.ListWorkflowExecutionsRequest,
) (*workflowservice.ListWorkflowExecutionsResponse, error) {
	page := 0
	if token := string(req.GetNextPageToken()); token != "" {
		if _, err := fmt.Sscan(token, &page); err != nil {
			return nil, serviceerror.NewInvalidArgument("unknown token")
		}
	}
	res := &workflowservice.ListWorkflowExecutionsResponse{}
	for i := range 3 {
		res.Executions = append(res.Executions, &workflow.WorkflowExecutionInfo{
			Execution: &common.WorkflowExecution{WorkflowId: fmt.Sprintf("turn:%d-%d", page, i)},
		})
	}
	if page < 2 {
		res.NextPageToken = []byte(strconv.Itoa(page + 1))
	}
	return res, nil
}

func (p pages) SignalWorkflow(_ context.Context, id, run, name string, arg any) error {
	if run != "" || name != workflows.SignalRestore || arg != nil {
		return fmt.Errorf("signal %s to run %q of %s", name, run, id)
	}
	return p.signal(id)
}

// newReconciler returns activities with a real database and Redis, and a Temporal with these signals.
func newReconciler(t *testing.T, signal func(id string) error) *Reconciler {
	t.Helper()
	logger := slog.New(slog.NewTextHandler(t.Output(), nil))
	store, err := ledger.Open(t.Context(), testdb.Start(t).Database(t), logger)
	require.NoError(t, err)
	t.Cleanup(func() { _ = store.Close() })
	rdb := redis.NewClient(&redis.Options{Addr: testredis.Start(t).Addr(), MaxRetries: -1})
	t.Cleanup(func() { _ = rdb.Close() })
	scripts := lua.New(rdb, lua.Keys{Cell: testredis.Cell(t)})
	return &Reconciler{
		Starter: &starter.Starter{Client: pages{signal: signal}}, Ledger: store, Scripts: scripts, Logger: logger,
		Conferences: &Conferences{NodeSlots: NodeSlots{Scripts: scripts, Logger: logger}},
		Tasks: &Tasks{Waiting: waiting.New(scripts, waiting.Options{
			Limits: func(string) lua.ModelLimits { return lua.OneUpstream(1) }, Logger: logger,
		})},
	}
}

// restore makes one attempt of RestoreState, after one with these heartbeats.
func restore(r *Reconciler, graceUntil int64, heartbeats any) error {
	var suite testsuite.WorkflowTestSuite
	env := suite.NewTestActivityEnvironment()
	env.RegisterActivity(r.RestoreState)
	if heartbeats != nil {
		env.SetHeartbeatDetails(heartbeats)
	}
	_, err := env.ExecuteActivity(r.RestoreState, workflows.PassInput{GraceUntil: graceUntil})
	return err
}

func TestRestoreState_OpenWorkflows_AllAreSignalled(t *testing.T) { // L12
	t.Parallel()
	for name, c := range map[string]struct {
		from  any // heartbeat details
		pages []int
	}{
		"from the beginning":     {nil, []int{0, 1, 2}},
		"from where it had come": {map[string]restored{lua.StateHeld: {Next: []byte("2"), Count: 6}}, []int{2}},
		"a token that is gone":   {map[string]restored{lua.StateHeld: {Next: []byte("old"), Count: 6}}, []int{0, 1, 2}},
		"details of another age": {"what", []int{0, 1, 2}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var signalled sync.Map
			l := newReconciler(t, func(id string) error {
				signalled.Store(id, true)
				if strings.HasSuffix(id, "-1") {
					return serviceerror.NewNotFound("it has ended")
				}
				return nil
			})
			require.NoError(t, restore(l, 1, c.from))
			want := map[string]bool{}
			for _, page := range c.pages {
				for i := range 3 {
					want[fmt.Sprintf("turn:%d-%d", page, i)] = true
				}
			}
			got := map[string]bool{}
			signalled.Range(func(id, _ any) bool { got[id.(string)] = true; return true })
			require.Equal(t, want, got)
		})
	}
}

// L12: nothing is granted on nodes before the holders on every page were signalled.
func TestRestoreState_SeveralPages_ExtendsGrace(t *testing.T) {
	t.Parallel()
	var l *Reconciler
	var g lua.Grace
	l = newReconciler(t, func(string) error {
		for { // until the extension is longer than the reads below take
			switch server, err := l.Scripts.ReadServer(t.Context()); {
			case err != nil:
				return err
			case server.Now.After(g.Until.Add(500*time.Millisecond - lua.NodeGrace)):
				return nil
			}
		}
	})
	var err error
	g, err = l.Scripts.CheckGuard(t.Context()) // a Redis without a guard
	require.NoError(t, err)
	require.Positive(t, g.Left)
	require.NoError(t, restore(l, g.Until.UnixMilli(), nil))
	server, err := l.Scripts.ReadServer(t.Context())
	require.NoError(t, err)
	extended, err := l.Scripts.CheckGuard(t.Context())
	require.NoError(t, err)
	require.Equal(t, g.Until, extended.Until)
	require.Greater(t, extended.Left, g.Until.Sub(server.Now))
}

func TestRestoreState_Retried_ContinuesAtItsPage(t *testing.T) {
	t.Parallel()
	l := newReconciler(t, func(id string) error {
		if id == "turn:1-2" {
			return errors.New("busy")
		}
		return nil
	})
	require.ErrorContains(t, restore(l, 1, nil), lua.StateHeld+": not restored")
}

// L12, B1: tasks whose current step no attempt has begun wait again after a loss of data; the others do not.
func TestRestoreState_RedisLostData_WaitingTasksEnteredAgain(t *testing.T) {
	t.Parallel()
	l := newReconciler(t, func(string) error { return nil })
	step := berth.Step{Name: "match", Status: "MATCH_PENDING", Queue: "q_free_stream", Model: "m", Mode: berth.ModeStream}
	const tasks = restorePage + 3
	for i := range tasks {
		_, _, err := l.Ledger.CreateTask(t.Context(), berth.Task{
			TaskPlan: berth.TaskPlan{
				TaskRequest: berth.TaskRequest{
					ID: fmt.Sprintf("t%04d", i), ServiceID: "s", Template: "job_match", Locale: berth.LocaleEN, Tier: berth.TierFree,
				},
				UserID: "alice", RequestHash: "h", Steps: []berth.Step{step},
			},
			Status: berth.TaskPending, CreatedAt: time.Now(), DeadlineAt: time.Now().Add(time.Hour),
		})
		require.NoError(t, err)
	}
	begun := berth.TaskRef{UserID: "alice", TaskID: "t0001"}
	_, err := l.Ledger.BeginAttempt(t.Context(), begun, 0, step.Status)
	require.NoError(t, err)
	ended := berth.TaskRef{UserID: "alice", TaskID: "t0002"}
	_, _, err = l.Ledger.FinishTask(t.Context(), ledger.End{TaskRef: ended, Status: berth.TaskCancelled, Code: berth.CodeCancelled})
	require.NoError(t, err)
	require.NoError(t, restore(l, 1, nil))
	room, err := l.Scripts.ReadRoom(t.Context(), "m", lua.OneUpstream(1), 1)
	require.NoError(t, err)
	require.Equal(t, tasks-2, room.Waiting, "in the grace nothing is promoted")
}

// FC13, C22: the licences of open conferences are restored before anything else, so that none is granted twice after a loss.
func TestRestoreState_RedisLostData_LicencesRestoredFirst(t *testing.T) {
	t.Parallel()
	for _, keeps := range []bool{true, false} {
		l := newReconciler(t, func(string) error { return errors.New("Temporal is unavailable") })
		l.Conferences.Licences, l.Conferences.WaitingKeepsLicence = 2, keeps
		want := 0
		for i := range restorePage + 20 {
			c := berth.Conference{ID: fmt.Sprintf("c%04d", i), Revision: 1, Epoch: 1, CreatedAt: time.Now()}
			c.E164 = strconv.Itoa(8690000000 + i)
			c.Status = []berth.ConferenceStatus{
				berth.ConferenceOpen, berth.ConferenceCreating, berth.ConferenceAwaitingRecovery, berth.ConferenceEnded,
			}[i%4]
			require.NoError(t, l.Ledger.SaveConference(t.Context(), c))
			if i == 0 { // it ends while the licences are restored
				_, err := l.Scripts.DropConference(t.Context(), c.E164, c.ID, c.Epoch)
				require.NoError(t, err)
			} else if i%4 < 2 || i%4 == 2 && keeps {
				want++
			}
		}
		require.ErrorContains(t, restore(l, 1, nil), lua.StateHeld+": not restored")
		used, has, err := l.Scripts.Licences(t.Context(), "8690000001")
		require.NoError(t, err)
		require.True(t, has)
		require.Equal(t, want, used)
		row, ok, err := l.Scripts.ConferenceRow(t.Context(), "8690000001")
		require.NoError(t, err)
		require.True(t, ok, "its row returns, too")
		require.Equal(t, berth.ConferenceCreating, row.Status)
		_, has, err = l.Scripts.Licences(t.Context(), "8690000000")
		require.NoError(t, err)
		require.False(t, has, "it has ended")
	}
}
