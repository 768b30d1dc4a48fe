package api_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"berth"
	"berth/api"
	"berth/internal/fleet"
	"berth/internal/health"
	"berth/internal/ledger"
	"berth/internal/starter"
	"berth/lua"
	"berth/workflows"
)

const operatorEvents = "/v1/events"

// changes returns operator events as "type subject status".
func changes(t *testing.T, all []message) (out []string) {
	t.Helper()
	for _, m := range all {
		var ev berth.OperatorEvent
		require.NoError(t, json.Unmarshal([]byte(m.data), &ev))
		require.Equal(t, m.event, string(ev.Type))
		require.Positive(t, ev.TS)
		subject := ""
		for _, id := range []string{ev.NodeID, ev.PoolID, ev.Model, ev.TaskID, ev.TurnID, ev.E164} {
			if subject == "" {
				subject = id
			}
		}
		out = append(out, fmt.Sprintf("%s %s %s", ev.Type, subject, ev.Status))
	}
	return out
}

func TestOperatorEvents_StateChanges_EachReportedOnce(t *testing.T) { // X8
	t.Parallel()
	h := withStoredSession(t)
	require.Equal(t, http.StatusForbidden, h.call(http.MethodGet, operatorEvents, h.token("alice"), nil).status)
	feed := h.open(operatorEvents+"?fromLatest=1", h.operator())
	require.Equal(t, http.StatusOK, feed.res.StatusCode)

	generation := h.join("n1")
	require.Equal(t, http.StatusOK, h.beat("n1", generation).status)
	require.Equal(t, http.StatusOK, h.call(http.MethodPost, "/v1/nodes/n1/cordon", h.operator(), nil).status)
	require.Equal(t, http.StatusOK, h.call(http.MethodPost, "/v1/nodes/n1/uncordon", h.operator(), nil).status)
	require.Equal(t, http.StatusNoContent, h.call(http.MethodDelete, "/v1/nodes/n1", h.operator(), nil).status)
	require.Equal(t, []string{"node n1 ready", "node n1 cordoned", "node n1 ready", "node n1 dead"}, changes(t, feed.take(4)), "heartbeats are no changes")

	require.Equal(t, http.StatusOK, h.call(http.MethodPut, "/v1/pools/gpu", h.operator(), doc{"capabilities": []string{"gpu"}}).status)
	_, _, err := h.scripts.SwitchStrategy(t.Context(), "gpu", berth.SystemState{Load: 1}, berth.DynamicRule{LoadHigh: 0.8, LoadLow: 0.6, LatencyHigh: 100, LatencyLow: 80})
	require.NoError(t, err)
	name := h.call(http.MethodGet, "/v1/models", h.operator(), nil).json(t)["models"].([]any)[0].(doc)["name"].(string)
	require.Equal(t, http.StatusOK, h.call(http.MethodPatch, "/v1/models/"+name, h.operator(), doc{"paused": true, "reason": "test"}).status)
	require.Equal(t, http.StatusOK, h.call(http.MethodPatch, "/v1/models/"+name, h.operator(), doc{"paused": false}).status)
	require.Equal(t, []string{"config gpu pools", "strategy gpu load-balanced", "model " + name + " paused", "model " + name + " running"}, changes(t, feed.take(4)))

	task := h.running("alice", "t1")
	h.publish(task, token("text"))
	h.end(task)
	h.publishWholeTurn("turn-1", 1)
	got := changes(t, feed.take(5))
	require.Equal(t, []string{"task t1 PENDING", "task t1 COMPLETED"}, got[:2], "tokens are no changes")
	require.Equal(t, []string{"turn turn-1 open", "turn n1 done", "turn turn-1 finalized"}, got[2:])
}

func TestOperatorEvents_Resume_LosesNothingAndResetsWhenTrimmed(t *testing.T) { // X8, P13
	t.Parallel()
	h := newHarness(t)
	change := func(n int) {
		t.Helper()
		events := make([]berth.OperatorEvent, n)
		for i := range events {
			events[i] = berth.OperatorEvent{Type: berth.EventNode, NodeID: fmt.Sprint("n", i), Status: "ready"}
		}
		require.NoError(t, h.scripts.AppendOperatorEvents(t.Context(), events...))
	}
	change(3)
	all := h.open(operatorEvents, h.operator()).take(3)
	require.Equal(t, all[1:], h.open(operatorEvents, h.operator(), "Last-Event-ID", all[0].id).take(2))
	require.Equal(t, all[1:], h.open(operatorEvents+"?recent=2", h.operator()).take(2))
	require.Equal(t, all, h.open(operatorEvents+"?recent=9", h.operator()).take(3))
	require.Equal(t, "recent", h.call(http.MethodGet, operatorEvents+"?recent=x", h.operator(), nil).problem.Field)
	for range 12 {
		change(1000)
	}
	ch := lua.OperatorChannel()
	stored, err := h.client.XLen(t.Context(), h.scripts.Keys().Stream(ch.UserID, ch.ServiceID, ch.TaskID)).Result()
	require.NoError(t, err)
	require.Less(t, stored, int64(10_300), "the stream is bounded")
	late := h.open(operatorEvents, h.operator(), "Last-Event-ID", all[0].id).take(2)
	require.Equal(t, []string{"reset", "node"}, names(late), "what was trimmed is not skipped silently")
	require.NoError(t, h.client.Del(t.Context(), h.scripts.Keys().Stream(ch.UserID, ch.ServiceID, ch.TaskID), h.scripts.Keys().StreamMeta(ch.UserID, ch.ServiceID, ch.TaskID)).Err())
	lost := h.open(operatorEvents, h.operator(), "Last-Event-ID", late[1].id)
	require.Equal(t, []string{"reset"}, names(lost.take(1)), "a reader of a lost stream reads the state again")
	change(1)
	require.Equal(t, []string{"node"}, names(lost.take(1)))
}

func TestOverview_Work_CountedByMinute(t *testing.T) { // X8
	t.Parallel()
	h := newHarness(t)
	h.join("n1")
	h.finish(h.task("alice", "t1"), "answer")
	h.task("alice", "t2")
	var v doc
	require.Eventually(t, func() bool { // the fleet learns of the node a moment later
		o := h.call(http.MethodGet, "/v1/overview", h.operator(), nil)
		require.Equal(t, http.StatusOK, o.status, string(o.body))
		v = o.json(t)
		return v["nodes"].(doc)["ready"] == 1.0
	}, 20*time.Second, 10*time.Millisecond)
	require.InDelta(t, 1, v["tasks"].(doc)["waiting"].(float64)+v["tasks"].(doc)["running"].(float64), 0)
	accepted, completed := 0.0, 0.0
	minutes := v["minutes"].([]any)
	require.Len(t, minutes, 61)
	for _, m := range minutes {
		accepted += m.(doc)["accepted"].(float64)
		completed += m.(doc)["completed"].(float64)
	}
	require.InDelta(t, 2, accepted, 0)
	require.InDelta(t, 1, completed, 0)
}

// What an operator has to see of a worker that does not poll, of a lost node and of a reconciliation that does not run.
func TestOverview_Faults_QueuesLossesAndLatePassShown(t *testing.T) { // X8
	t.Parallel()
	var ahead atomic.Int64
	h := newHarness(t, func(d *api.Deps) {
		d.Config.TaskQueues = func() []string { return []string{workflows.TaskQueueTasks, "q_paid_stream.m"} }
		d.Config.ReconcileEvery = time.Second
		d.Clock = func() time.Time { return time.Now().Add(time.Duration(ahead.Load())) }
	})
	h.expectPasses(time.Now())
	b, unlock := h.starter.open()
	b.queues = map[string]starter.QueueState{workflows.TaskQueueTasks: {Backlog: 3, BacklogAge: 40 * time.Second}, "q_paid_stream.m": {Pollers: 2}}
	unlock()
	overview := func() doc {
		t.Helper()
		o := h.call(http.MethodGet, "/v1/overview", h.operator(), nil)
		require.Equal(t, http.StatusOK, o.status, string(o.body))
		return o.json(t)
	}
	v := overview()
	require.Equal(t, []any{
		doc{"name": "tasks", "model": false, "pollers": 0.0, "backlog": 3.0, "backlogAgeMs": 40_000.0},
		doc{"name": "q_paid_stream.m", "model": true, "pollers": 2.0, "backlog": 0.0, "backlogAgeMs": 0.0},
	}, v["taskQueues"])
	require.Equal(t, doc{"late": false}, v["reconciliation"], "no pass can have completed yet")

	h.join("u1")
	require.Equal(t, http.StatusNoContent, h.call(http.MethodDelete, "/v1/nodes/u1?reason=service_lost", h.operator(), nil).status)
	h.join("u1")
	h.join("u2")
	require.Equal(t, http.StatusNoContent, h.call(http.MethodDelete, "/v1/nodes/u2", h.operator(), nil).status)
	require.NoError(t, h.ledger.SavePass(t.Context(), berth.ReconcilePass{
		ID: "p1", Kind: berth.ReconcileQuick, Status: berth.ReconcileCompleted, StartedAt: time.Now(), EndedAt: time.Now(),
	}))
	h.seen("both nodes", func(s *fleet.Snapshot) bool {
		return !s.Nodes["u1"].LostAt.IsZero() && s.Nodes["u1"].State == berth.NodeReady && s.Nodes["u2"].State == berth.NodeDead
	})
	require.Equal(t, berth.DepartureWithdrawn, h.fleet.Snapshot().Nodes["u2"].Departure)
	b, unlock = h.starter.open()
	b.failure = errDown
	unlock()
	ahead.Store(int64(8 * time.Second))
	v = overview()
	require.InDelta(t, 1, v["nodes"].(doc)["lost"], 0, "a loss stays, and a withdrawal is none")
	require.NotContains(t, v, "taskQueues", "Temporal cannot be read")
	require.Equal(t, true, v["reconciliation"].(doc)["late"])
	require.NotEmpty(t, v["reconciliation"].(doc)["completedAt"])
	require.Equal(t, true, h.call(http.MethodGet, "/v1/reconciliation", h.operator(), nil).json(t)["late"])
	unknown := h.call(http.MethodDelete, "/v1/nodes/u1?reason=bored", h.operator(), nil)
	require.Equal(t, http.StatusBadRequest, unknown.status, string(unknown.body))
	require.Equal(t, "reason", unknown.problem.Field)
}

func TestOperatorLists_AllUsers_PagedAndFiltered(t *testing.T) { // X8, X5
	t.Parallel()
	h := newHarness(t)
	now := time.Now().Truncate(time.Millisecond)
	for i, user := range []string{"alice", "bob", "alice"} {
		h.task(user, fmt.Sprint("t", i))
		_, err := h.ledger.PutSession(t.Context(), berth.Session{ID: fmt.Sprint("s", i), UserID: user, SrcLang: "en", TgtLang: "es"})
		require.NoError(t, err)
		e := berth.Execution{
			ID: fmt.Sprint("e", i), UserID: user, Status: berth.ExecutionRunning, StartedAt: now.Add(time.Duration(i) * time.Second), DeadlineAt: now.Add(time.Hour),
		}
		_, err = h.ledger.SaveExecution(t.Context(), berth.ExecutionRow{Key: e.Ref().String(), Execution: e})
		require.NoError(t, err)
		h.credit(user, 1)
	}
	ids := func(path, list, id string) (out []any) {
		t.Helper()
		for cursor := ""; ; {
			a := h.call(http.MethodGet, path+"&limit=2"+cursor, h.operator(), nil)
			require.Equal(t, http.StatusOK, a.status, string(a.body))
			body := a.json(t)
			for _, row := range body[list].([]any) {
				out = append(out, row.(doc)[id])
			}
			next, more := body["nextCursor"].(string)
			if !more {
				return out
			}
			cursor = "&cursor=" + next
		}
	}
	require.ElementsMatch(t, []any{"t0", "t1", "t2"}, ids("/v1/tasks?allUsers=true", "tasks", "taskId"))
	require.ElementsMatch(t, []any{"t0", "t2"}, ids("/v1/tasks?userId=alice", "tasks", "taskId"))
	require.ElementsMatch(t, []any{"s0", "s1", "s2"}, ids("/v1/sessions?userId=", "sessions", "sessionId"))
	require.ElementsMatch(t, []any{"s1"}, ids("/v1/sessions?userId=bob", "sessions", "sessionId"))
	require.Equal(t, []any{"e2", "e1", "e0"}, ids("/v1/executions?status=running", "executions", "executionId"))
	require.Equal(t, []any{"e2", "e0"}, ids("/v1/executions?userId=alice", "executions", "executionId"))
	require.Equal(t, []any{"alice", "bob"}, ids("/v1/accounts?prefix=", "accounts", "userId"))
	require.Equal(t, []any{"bob"}, ids("/v1/accounts?prefix=b", "accounts", "userId"))

	a := h.call(http.MethodGet, "/v1/tasks?allUsers=true", h.token("alice"), nil)
	require.Equal(t, http.StatusForbidden, a.status)
	require.Equal(t, "allUsers", a.problem.Field)
	require.Equal(t, http.StatusBadRequest, h.call(http.MethodGet, "/v1/tasks?allUsers=true&userId=bob", h.operator(), nil).status)
	for _, path := range []string{"/v1/sessions", "/v1/executions", "/v1/accounts"} {
		require.Equal(t, http.StatusBadRequest, h.call(http.MethodGet, path+"?cursor=x", h.operator(), nil).status, path)
	}
}

func TestTaskMinutes_LostTask_CountedAsFailedAndLost(t *testing.T) { // X8
	t.Parallel()
	h := newHarness(t)
	task := h.task("alice", "t1")
	_, _, err := h.ledger.FinishTask(t.Context(), ledger.End{TaskRef: task.Ref(), Status: berth.TaskFailed, Code: berth.CodeLost})
	require.NoError(t, err)
	minutes, err := h.ledger.TaskMinutes(t.Context(), time.Now().Add(-time.Minute), time.Now())
	require.NoError(t, err)
	failed, lost := 0, 0
	for _, m := range minutes {
		failed += m.Failed
		lost += m.Lost
	}
	require.Equal(t, []int{1, 1}, []int{failed, lost})
}

// FP4: the recent events are the last ones of each type: changes of tasks, of which there are thousands, displace no change of a node.
func TestOperatorEvents_Recent_LastOnesOfEachType(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	change := func(kind berth.EventType, n int) {
		t.Helper()
		events := make([]berth.OperatorEvent, n)
		for i := range events {
			events[i] = berth.OperatorEvent{Type: kind, Status: fmt.Sprint(kind, i)}
		}
		require.NoError(t, h.scripts.AppendOperatorEvents(t.Context(), events...))
	}
	statuses := func(all []message) (out []string) {
		for _, f := range all {
			var ev berth.OperatorEvent
			require.NoError(t, json.Unmarshal([]byte(f.data), &ev))
			out = append(out, ev.Status)
		}
		return out
	}
	empty := h.open(operatorEvents+"?recent=5", h.operator())
	change(berth.EventNode, 3)
	require.Equal(t, []string{"node0", "node1", "node2"}, statuses(empty.take(3)))
	for range 3 {
		change(berth.EventTask, 700)
	}
	change(berth.EventModel, 1)
	change(berth.EventTask, 2)
	recent := h.open(operatorEvents+"?recent=2", h.operator())
	require.Equal(t, []string{"node1", "node2", "model0", "task0", "task1"}, statuses(recent.take(5)))
	none := h.open(operatorEvents+"?recent=0", h.operator())
	change(berth.EventNode, 1)
	require.Equal(t, []string{"node0"}, statuses(recent.take(1)), "and then all")
	require.Equal(t, []string{"node0"}, statuses(none.take(1)))
}

// FI3: an operator sees which dependency does not work and which setting is concerned.
func TestOverview_DependencyDoesNotWork_ReasonShown(t *testing.T) { // X8
	t.Parallel()
	h := newHarness(t)
	h.health.report.Store(&health.Report{Status: health.Degraded, Dependencies: map[string]health.Dependency{
		"database": {Status: health.OK},
		"redis":    {Status: health.Unavailable, Reason: &health.Reason{Code: "read_only", Setting: "BERTH_REDIS_ADDR", Text: "set the address of the master"}},
	}})
	o := h.call(http.MethodGet, "/v1/overview", h.operator(), nil)
	require.Equal(t, http.StatusOK, o.status, string(o.body))
	troubles := o.json(t)["troubles"].([]any)
	require.Len(t, troubles, 1)
	trouble := troubles[0].(doc)
	require.Equal(t, "redis", trouble["name"])
	require.Equal(t, "unavailable", trouble["status"])
	require.Equal(t, doc{"code": "read_only", "setting": "BERTH_REDIS_ADDR", "text": "set the address of the master"}, trouble["reason"])
}
