package activities

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/temporal"

	"berth"
	"berth/internal/fleet"
	"berth/internal/placement"
	"berth/internal/testledger"
	"berth/internal/testredis"
	"berth/lua"
	"berth/workflows"
)

// fleetTick is so long that a process that is not scheduled for seconds does not take its Redis for unavailable.
const fleetTick = 5 * time.Second

// executions are the activities on a real Redis, with a fleet that follows it.
func executions(t *testing.T) (*Executions, *testredis.Server) {
	t.Helper()
	server := testredis.Start(t)
	rdb := redis.NewClient(&redis.Options{Addr: server.Addr(), MaxRetries: -1, ContextTimeoutEnabled: true})
	s := lua.New(rdb, lua.Keys{Cell: testredis.Cell(t)})
	_, err := s.MarkNew(t.Context())
	require.NoError(t, err)
	f := fleet.New(s, fleet.Options{Settle: 5 * time.Millisecond, Tick: fleetTick})
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { _ = f.Run(ctx) })
	t.Cleanup(func() { cancel(); running.Wait(); _ = rdb.Close() })
	return &Executions{NodeSlots: NodeSlots{s, f, slog.New(slog.DiscardHandler)}, Placer: placement.New(s, f)}, server
}

// engine registers an engine, as a new incarnation each time.
func (e *Executions) engine(t *testing.T, id string, slots int, capabilities ...string) int64 {
	t.Helper()
	r, err := e.Scripts.RegisterNode(t.Context(), berth.NodeSpec{
		ID: id, Kind: berth.NodeEngine, MaxConcurrentJobs: slots, Capabilities: capabilities,
		Incarnation: berth.Incarnation{Host: id, PID: 1, StartedAt: time.Now().UnixNano()},
	}, lua.Registration{})
	require.NoError(t, err)
	require.Eventually(t, func() bool { return e.Fleet.Snapshot().Nodes[id].Generation == r.Generation }, 10*time.Second, time.Millisecond)
	return r.Generation
}

func slot(s workflows.HeldSlot) workflows.HeldSlots {
	return workflows.HeldSlots{Slots: []workflows.HeldSlot{s}}
}

// confirmed holds a slot for a minute, and reports whether it is held.
func (e *Executions) confirmed(t *testing.T, a berth.Assignment) bool {
	t.Helper()
	out, err := e.ConfirmSlots(t.Context(), slot(workflows.HeldSlot{Assignment: a, Left: time.Minute}))
	require.NoError(t, err)
	return out.Slots[0].Held
}

// waitingFor is how an execution waits for a node of a pool.
func waitingFor(pool, execution string, attempt int) workflows.NodeWait {
	return workflows.NodeWait{
		PoolID: pool, UserID: "alice", WorkflowID: workflows.ExecutionWorkflowID(execution), LeaseID: workflows.ExecutionLease(execution, attempt),
		Since: time.Now(), Again: attempt > 1, Left: time.Hour,
	}
}

func assignment(lease string, capabilities ...string) workflows.AssignInput {
	pool := berth.CapabilityPool(capabilities...).ID
	return workflows.AssignInput{Wait: waitingFor(pool, lease, 1), Where: berth.Requirements{PoolID: pool, Capabilities: capabilities}}
}

func requireRefused(t *testing.T, err error, code berth.Code) berth.Refusal {
	t.Helper()
	var app *temporal.ApplicationError
	require.ErrorAs(t, err, &app)
	require.Equal(t, string(code), app.Type(), app.Message())
	var why berth.Refusal
	require.NoError(t, app.Details(&why))
	return why
}

func TestAssignNode_Capabilities_SlotTakenOrRefusedWithReasons(t *testing.T) { // S4, S8, S10
	t.Parallel()
	e, _ := executions(t)
	generation := e.engine(t, "n1", 1, "resize", "ocr")
	reply, err := e.AssignNode(t.Context(), assignment("l1", "resize"))
	require.NoError(t, err)
	require.Equal(t, workflows.AssignReply{
		Assignment: berth.Assignment{
			LeaseID: "execution:l1:1", NodeRef: berth.NodeRef{NodeID: "n1", Generation: generation}, PoolID: "resize", Strategy: berth.StrategyLoadBalanced,
		},
		MaxRetries: 3, EnableFailover: true,
	}, reply)
	again, err := e.AssignNode(t.Context(), assignment("l1", "resize"))
	require.NoError(t, err)
	require.True(t, again.Existed)
	require.Equal(t, reply.NodeID, again.NodeID)

	_, err = e.AssignNode(t.Context(), assignment("l2", "resize"))
	require.Equal(t, map[berth.ExcludeReason]int{berth.ExcludeFull: 1}, requireRefused(t, err, berth.CodeNodeFull).Reasons)
	require.NoError(t, e.LeaveWaiting(t.Context(), waitingFor("resize", "l2", 1)))
	_, err = e.AssignNode(t.Context(), assignment("l2", "paint"))
	require.Equal(t, []string{"paint"}, requireRefused(t, err, berth.CodeNoNode).Missing)
	_, err = e.AssignNode(t.Context(), assignment("l2", "ocr", "paint"))
	require.Equal(t, []string{"paint"}, requireRefused(t, err, berth.CodeNoNode).Missing)
	e.engine(t, "n2", 1, "print")
	_, err = e.AssignNode(t.Context(), assignment("l2", "ocr", "print", "resize"))
	require.Equal(t, []string{"print"}, requireRefused(t, err, berth.CodeNoNode).Missing, "each is on a node, and none has all")
	require.ErrorContains(t, err, "no node has all of ocr, print, resize; the closest node n1 lacks print")
	require.Empty(t, e.Fleet.Snapshot().Pools, "a pool without a matching node is not created")

	require.True(t, e.confirmed(t, reply.Assignment))
	require.NoError(t, e.ReleaseSlots(t.Context(), slot(workflows.HeldSlot{Assignment: reply.Assignment})))
	require.NoError(t, e.ReleaseSlots(t.Context(), slot(workflows.HeldSlot{Assignment: reply.Assignment})), "idempotent")
	require.False(t, e.confirmed(t, reply.Assignment))

	reply, err = e.AssignNode(t.Context(), assignment("l2", "resize", "ocr"))
	require.NoError(t, err, "the pool of both is made when it is first asked for")
	require.Equal(t, "ocr+resize", reply.PoolID)
	require.NoError(t, e.ReleaseSlots(t.Context(), slot(workflows.HeldSlot{Assignment: reply.Assignment})))
}

func TestAssignNode_OperatorsConfiguration_Followed(t *testing.T) { // S3, S6, S7, L10
	t.Parallel()
	e, _ := executions(t)
	c := berth.DefaultFleetConfig()
	c.MaxRetries, c.EnableFailover = 7, false
	require.NoError(t, e.Scripts.PutFleetConfig(t.Context(), c))
	_, err := e.Scripts.DefinePool(t.Context(), berth.Pool{ID: "p", Capabilities: []string{"resize"}, Strategy: berth.StrategyDynamic}, false)
	require.NoError(t, err)
	e.engine(t, "n1", 9, "resize")
	e.engine(t, "n2", 9, "resize")
	require.Eventually(t, func() bool {
		return e.Fleet.Snapshot().Config.MaxRetries == 7 && len(e.Fleet.Snapshot().Pools) == 1
	}, 10*time.Second, time.Millisecond)

	where := berth.Requirements{PoolID: "p"}
	reply, err := e.AssignNode(t.Context(), workflows.AssignInput{Wait: waitingFor("p", "l1", 1), Where: where})
	require.NoError(t, err)
	require.Equal(t, 7, reply.MaxRetries)
	require.False(t, reply.EnableFailover)
	require.Equal(t, berth.StrategyRoundRobin, reply.Strategy, "what the dynamic pool has now")
	for _, own := range []string{"n2", "n1"} {
		where.Strategy, where.Own = berth.StrategyAffinity, own
		reply, err = e.AssignNode(t.Context(), workflows.AssignInput{Wait: waitingFor("p", "own-"+own, 1), Where: where})
		require.NoError(t, err)
		require.Equal(t, own, reply.NodeID)
		require.Equal(t, berth.StrategyAffinity, reply.Strategy)
	}
	_, _, err = e.Scripts.SwitchStrategy(t.Context(), "p", berth.SystemState{Load: 1}, c.Dynamic)
	require.NoError(t, err)
	e.Fleet.CatchUp(t.Context())
	where = berth.Requirements{PoolID: "p", Strategy: berth.StrategyDynamic}
	reply, err = e.AssignNode(t.Context(), workflows.AssignInput{Wait: waitingFor("p", "switched", 1), Where: where})
	require.NoError(t, err)
	require.Equal(t, berth.StrategyLoadBalanced, reply.Strategy, "what it is switched to, also when it is asked for by name")

	where = berth.Requirements{PoolID: "p", Excluded: []string{"n1"}}
	code, err := e.Scripts.MarkUnavailable(t.Context(), "n2", "resize", time.Minute)
	require.NoError(t, err)
	require.Equal(t, lua.NodeOK, code)
	_, err = e.AssignNode(t.Context(), workflows.AssignInput{Wait: waitingFor("p", "l2", 1), Where: where})
	require.Equal(t, map[berth.ExcludeReason]int{berth.ExcludeByCaller: 1, berth.ExcludeServiceUnavailable: 1},
		requireRefused(t, err, berth.CodeNoNode).Reasons)
}

// FF7: an execution that gets no node waits in the room of its pool, also where it needs several capabilities; a released node is
// reserved for it, and a cancelled one leaves.
func TestAssignNode_NodesFull_WaitsInOrder(t *testing.T) { // L12
	t.Parallel()
	e, _ := executions(t)
	var handed []string
	e.Scripts.OnHandover(func(waiters []string) { handed = append(handed, waiters...) })
	e.engine(t, "n1", 1, "resize", "ocr")
	first, err := e.AssignNode(t.Context(), assignment("first", "resize"))
	require.NoError(t, err)
	waiting := func(id string, capabilities ...string) workflows.AssignInput {
		in := assignment(id, capabilities...)
		_, err := e.AssignNode(t.Context(), in)
		requireRefused(t, err, berth.CodeNodeFull)
		return in
	}
	one, both, gone, last := waiting("one", "resize"), waiting("both", "ocr", "resize"), waiting("gone", "resize"), waiting("last", "resize")
	require.NoError(t, e.LeaveWaiting(t.Context(), gone.Wait))
	none := assignment("none", "paint")
	none.Accepted = true
	_, err = e.AssignNode(t.Context(), none)
	requireRefused(t, err, berth.CodeNoNode)

	held := first
	var order []string
	for range 3 {
		handed = nil
		require.NoError(t, e.ReleaseSlots(t.Context(), slot(workflows.HeldSlot{Assignment: held.Assignment})))
		require.Len(t, handed, 1)
		w, err := lua.ParseNodeWaiter(handed[0])
		require.NoError(t, err)
		id := strings.TrimPrefix(w.WorkflowID, workflows.ExecutionPrefix)
		order = append(order, id)
		in := map[string]workflows.AssignInput{"one": one, "both": both, "last": last}[id]
		held, err = e.AssignNode(t.Context(), in)
		require.NoError(t, err)
		require.Equal(t, "n1", held.NodeID)
	}
	require.ElementsMatch(t, []string{"one", "both", "last"}, order)
	require.Equal(t, "last", order[2])
	handed = nil
	e.engine(t, "n2", 1, "paint")
	require.Len(t, handed, 1, "it waited for a node to register")
}

// A node that failed the work is excluded until it registers again.
func TestAssignNode_GenerationFailed_ExcludedUntilRegisteredAgain(t *testing.T) {
	t.Parallel()
	e, _ := executions(t)
	old := e.engine(t, "n1", 9, "resize")
	in := assignment("l1", "resize")
	in.Failed = []berth.NodeRef{{NodeID: "n1", Generation: old}}
	_, err := e.AssignNode(t.Context(), in)
	require.Equal(t, 1, requireRefused(t, err, berth.CodeNoNode).Reasons[berth.ExcludeByCaller])
	e.engine(t, "n1", 9, "resize")
	reply, err := e.AssignNode(t.Context(), in)
	require.NoError(t, err)
	require.Greater(t, reply.Generation, old)
}

// L11: a node that missed heartbeats during its work, and whose heartbeat is overdue, gets no new work.
func TestReleaseSlots_NodeUnresponsive_BecomesSuspect(t *testing.T) {
	t.Parallel()
	e, server := executions(t)
	e.engine(t, "n1", 9, "resize")
	ageHeartbeat(t, server, e.Scripts, "n1", berth.NodeEngine, 32*time.Second)
	for i, silent := range []bool{false, true} {
		reply, err := e.AssignNode(t.Context(), assignment(fmt.Sprint("l", i), "resize"))
		require.NoError(t, err)
		require.NoError(t, e.ReleaseSlots(t.Context(), slot(workflows.HeldSlot{Assignment: reply.Assignment, Unresponsive: silent})))
	}
	_, err := e.AssignNode(t.Context(), assignment("l9", "resize"))
	require.Equal(t, 1, requireRefused(t, err, berth.CodeNoNode).Reasons[berth.ExcludeSuspect])
}

// L11, L12: nothing is assigned while Redis is unavailable or may have lost data; a held slot is restored once its node has
// registered again.
func TestExecutions_RedisLostData_SlotRestored(t *testing.T) {
	t.Parallel()
	e, server := executions(t)
	generation := e.engine(t, "n1", 1, "resize")
	reply, err := e.AssignNode(t.Context(), assignment("l1", "resize"))
	require.NoError(t, err)
	server.Kill()
	_, err = e.AssignNode(t.Context(), assignment("l2", "resize"))
	requireRefused(t, err, berth.CodeUnavailable)
	require.Error(t, e.ReleaseSlots(t.Context(), slot(workflows.HeldSlot{Assignment: reply.Assignment})))

	server.Restart()
	grace := func(until time.Time) { // instead of its own end, which may come too early or late for this test
		_, err := e.Scripts.CheckGuard(t.Context())
		require.NoError(t, err)
		require.NoError(t, server.Client().HSet(t.Context(), e.Scripts.Keys().Guard(), "grace", until.UnixMilli()).Err())
	}
	_, err = e.AssignNode(t.Context(), assignment("l2", "resize"))
	requireRefused(t, err, berth.CodeUnavailable)
	grace(time.Now().Add(time.Hour))
	require.False(t, e.confirmed(t, reply.Assignment), "the node may register yet")
	_, err = e.Scripts.RegisterNode(t.Context(), berth.NodeSpec{
		ID: "n1", Kind: berth.NodeEngine, MaxConcurrentJobs: 1, Capabilities: []string{"resize"},
		Incarnation: berth.Incarnation{Host: "n1", PID: 1, StartedAt: 1},
	}, lua.Registration{Previous: generation})
	require.NoError(t, err)
	require.True(t, e.confirmed(t, reply.Assignment))
	grace(time.UnixMilli(0))
	_, err = e.AssignNode(t.Context(), assignment("l2", "resize"))
	requireRefused(t, err, berth.CodeNodeFull)
}

func TestAssignNode_FleetNeverRead_Unavailable(t *testing.T) {
	t.Parallel()
	rdb := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1"})
	t.Cleanup(func() { _ = rdb.Close() })
	s := lua.New(rdb, lua.Keys{})
	f := fleet.New(s, fleet.Options{})
	e := &Executions{NodeSlots: NodeSlots{s, f, slog.New(slog.DiscardHandler)}, Placer: placement.New(s, f)}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := e.AssignNode(ctx, assignment("l1", "resize"))
	requireRefused(t, err, berth.CodeUnavailable)
}

// FA5: the admission of an execution lasts from its acceptance until its end.
func TestSaveExecution_Admission_KeptUntilTheEnd(t *testing.T) { // T5, B11
	t.Parallel()
	e, server := executions(t)
	e.Ledger = testledger.Open(t, testledger.Migrated.SQLite(t))
	ctx, now := t.Context(), time.Now()
	row := berth.ExecutionRow{Key: "alice:e1", Execution: berth.Execution{
		ID: "e1", UserID: "alice", Status: berth.ExecutionWaiting, StartedAt: now, DeadlineAt: now.Add(time.Hour),
	}}
	full := func() bool {
		t.Helper()
		other := berth.ExecutionRef{UserID: "alice", ExecutionID: "e2"}
		reply, err := e.Scripts.AdmitExecution(ctx, other, 1)
		require.NoError(t, err)
		require.NoError(t, e.Scripts.RemoveExecution(ctx, other))
		return reply.Code == lua.TaskServiceFull
	}
	require.False(t, full())
	require.NoError(t, e.SaveExecution(ctx, row))
	require.True(t, full(), "also if it was not admitted, because Redis has lost its data since")
	row.Status, row.EndedAt = berth.ExecutionCompleted, now
	require.NoError(t, e.SaveExecution(ctx, row))
	require.NoError(t, e.SaveExecution(ctx, row), "idempotent")
	require.False(t, full())
	server.Kill()
	require.Error(t, e.SaveExecution(ctx, row), "it is retried, else the admission would last until the deadline")
}

// FA6: after its time a node that failed the work is eligible again, unless another node of the pool could do the work.
func TestAssignNode_Readmit_OnlyWithoutAnotherNode(t *testing.T) { // S8
	t.Parallel()
	for name, c := range map[string]struct {
		others  func(t *testing.T, e *Executions)
		readmit bool
		code    berth.Code // empty: it runs on the node that failed it
	}{
		"the only node":   {func(*testing.T, *Executions) {}, true, ""},
		"before its time": {func(*testing.T, *Executions) {}, false, berth.CodeNoNode},
		"another one is full": {func(t *testing.T, e *Executions) {
			e.engine(t, "n2", 1, "resize")
			in := assignment("other", "resize")
			in.Where.Strategy, in.Where.Own = berth.StrategyAffinity, "n2"
			_, err := e.AssignNode(t.Context(), in)
			require.NoError(t, err)
		}, true, berth.CodeNodeFull},
		"another one is cordoned": {func(t *testing.T, e *Executions) {
			e.engine(t, "n2", 1, "resize")
			require.NoError(t, e.Scripts.CordonNode(t.Context(), "n2", lua.Cordon{Cordoned: true}))
			require.Eventually(t, func() bool { return e.Fleet.Snapshot().Nodes["n2"].Cordoned }, 10*time.Second, time.Millisecond)
		}, true, ""},
		"another one has left": {func(t *testing.T, e *Executions) {
			_, err := e.Scripts.WithdrawNode(t.Context(), "n2", e.engine(t, "n2", 1, "resize"), berth.DepartureWithdrawn)
			require.NoError(t, err)
			require.Eventually(t, func() bool { return e.Fleet.Snapshot().Nodes["n2"].State == berth.NodeDead }, 10*time.Second, time.Millisecond)
		}, true, ""},
		"another one lacks the service": {func(t *testing.T, e *Executions) {
			e.engine(t, "n2", 1, "resize")
			_, err := e.Scripts.MarkUnavailable(t.Context(), "n2", "resize", time.Hour)
			require.NoError(t, err)
			require.Eventually(t, func() bool { return len(e.Fleet.Snapshot().Nodes["n2"].Unavailable) > 0 }, 10*time.Second, time.Millisecond)
		}, true, ""},
		"another one has other capabilities": {func(t *testing.T, e *Executions) { e.engine(t, "n2", 1, "ocr") }, true, ""},
		"another one declares other services": {func(t *testing.T, e *Executions) {
			_, err := e.Scripts.RegisterNode(t.Context(), berth.NodeSpec{
				ID: "n2", Kind: berth.NodeEngine, MaxConcurrentJobs: 1, Capabilities: []string{"resize"}, Services: []string{"other"},
				Incarnation: berth.Incarnation{Host: "n2", PID: 1, StartedAt: 1},
			}, lua.Registration{})
			require.NoError(t, err)
			require.Eventually(t, func() bool { return len(e.Fleet.Snapshot().Nodes["n2"].Services) > 0 }, 10*time.Second, time.Millisecond)
		}, true, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e, _ := executions(t)
			generation := e.engine(t, "n1", 1, "resize")
			c.others(t, e)
			in := assignment("e1", "resize")
			in.Wait, in.Failed, in.Readmit = waitingFor("resize", "e1", 2), []berth.NodeRef{{NodeID: "n1", Generation: generation}}, c.readmit
			in.Where.Services = []string{"vips"} // n1 declares none, so it is not demanded of it
			reply, err := e.AssignNode(t.Context(), in)
			if c.code != "" {
				requireRefused(t, err, c.code)
				return
			}
			require.NoError(t, err)
			require.Equal(t, "n1", reply.NodeID)
		})
	}
}

// FA6: one that is not the first of its pool is readmitted in its room, so that it does not wait for its turn and then for that time again.
func TestAssignNode_ReadmittedInTheRoom_GetsTheNodeInItsOrder(t *testing.T) { // S8, B1
	t.Parallel()
	e, _ := executions(t)
	ctx := t.Context()
	generation := e.engine(t, "n1", 1, "resize")
	_, err := e.AssignNode(ctx, assignment("first", "resize"))
	require.NoError(t, err)
	failed := func(id string, readmit bool) error {
		in := assignment(id, "resize")
		in.Wait, in.Accepted, in.Readmit = waitingFor("resize", id, 2), true, readmit
		in.Failed = []berth.NodeRef{{NodeID: "n1", Generation: generation}}
		_, err := e.AssignNode(ctx, in)
		return err
	}
	for _, id := range []string{"f1", "f2", "f3"} {
		require.Error(t, failed(id, false))
	}
	for _, id := range []string{"f2", "f3"} {
		requireRefused(t, failed(id, true), berth.CodeNodeFull)
	}
	handed := make(chan string, 10)
	e.Scripts.OnHandover(func(ids []string) {
		for _, id := range ids {
			handed <- id
		}
	})
	require.NoError(t, e.ReleaseSlots(ctx, slot(workflows.HeldSlot{Assignment: berth.Assignment{NodeRef: berth.NodeRef{NodeID: "n1"}, LeaseID: "execution:first:1"}})))
	require.Equal(t, "node/x|user:alice/1/execution:f2/execution:f2:2", <-handed, "f1 may not use it yet")
	require.NoError(t, e.ReleaseSlots(ctx, slot(workflows.HeldSlot{Assignment: berth.Assignment{NodeRef: berth.NodeRef{NodeID: "n1"}, LeaseID: "execution:f2:2"}})))
	require.Equal(t, "node/x|user:alice/1/execution:f3/execution:f3:2", <-handed)
}
