package activities

import (
	"context"
	"database/sql"
	"fmt"
	"log/slog"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	_ "github.com/jackc/pgx/v5/stdlib"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
	"go.temporal.io/api/common/v1"
	"go.temporal.io/api/enums/v1"
	"go.temporal.io/api/workflow/v1"
	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/log"
	"go.temporal.io/sdk/testsuite"
	"google.golang.org/protobuf/types/known/timestamppb"
	_ "modernc.org/sqlite"

	"berth"
	"berth/internal/fleet"
	"berth/internal/health"
	"berth/internal/ledger"
	"berth/internal/starter"
	"berth/internal/testledger"
	"berth/internal/testredis"
	"berth/lua"
	"berth/workflows"
)

// The open work of the benchmark, 100,000 rows in all, and what has closed since the last pass.
const (
	benchTasks       = 70_000
	benchExecutions  = 15_000
	benchConferences = 15_000
	benchUnits       = 300
	benchTurns       = 5_000
	benchClosed      = 1_000
)

// BenchmarkReconcile_HundredThousandOpen measures the first check of passes in a healthy system with 100,000 open rows, their admissions,
// leases, licences and streams. A thousand tasks have closed since the last pass. CPU seconds are those of the worker; Temporal is
// replaced by the lists that it would return.
func BenchmarkReconcile_HundredThousandOpen(b *testing.B) {
	for name, dsn := range map[string]func(testing.TB) string{"sqlite": testledger.Migrated.SQLite, "postgres": testledger.Migrated.Postgres} {
		b.Run(name, func(b *testing.B) {
			r := fullReconciler(b, dsn(b))
			for _, requested := range []bool{false, true} {
				kind := berth.ReconcileQuick
				if requested {
					kind = berth.ReconcileFull
				}
				b.Run(string(kind), func(b *testing.B) {
					began := cpu(b)
					for b.Loop() {
						pass := r.onePass(b, requested)
						require.Equal(b, kind, pass.Kind)
						require.Equal(b, berth.ReconcileCompleted, pass.Status, pass.Reason)
						require.Zero(b, pass.Found(), "%+v", pass.Findings)
					}
					b.ReportMetric((cpu(b)-began).Seconds()/float64(b.N), "cpu-s/op")
				})
			}
		})
	}
}

// cpu returns the CPU time of this process.
func cpu(b *testing.B) time.Duration {
	var u syscall.Rusage
	require.NoError(b, syscall.Getrusage(syscall.RUSAGE_SELF, &u))
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

func (r *Reconciler) onePass(b *testing.B, requested bool) berth.ReconcilePass {
	var suite testsuite.WorkflowTestSuite
	suite.SetLogger(log.NewStructuredLogger(slog.New(slog.DiscardHandler)))
	env := suite.NewTestActivityEnvironment()
	env.SetTestTimeout(10 * time.Minute)
	env.RegisterActivity(r.FindDifferences)
	value, err := env.ExecuteActivity(r.FindDifferences, workflows.PassInput{PassID: "bench", Requested: requested})
	require.NoError(b, err)
	var found workflows.Differences
	require.NoError(b, value.Get(&found))
	return found.Pass
}

// listing is a Temporal that only lists runs.
type listing struct {
	client.Client
	running map[string][]string // ids by type
	closed  []string
}

func (l *listing) ListWorkflow(_ context.Context, in *workflowservice.ListWorkflowExecutionsRequest) (*workflowservice.ListWorkflowExecutionsResponse, error) {
	ids, status := l.closed, enums.WORKFLOW_EXECUTION_STATUS_COMPLETED
	kind := workflows.TaskWorkflow
	if strings.HasPrefix(in.GetQuery(), `ExecutionStatus = "Running"`) {
		kind = strings.TrimSuffix(in.GetQuery()[strings.Index(in.GetQuery(), `("`)+2:], `")`)
		ids, status = l.running[kind], enums.WORKFLOW_EXECUTION_STATUS_RUNNING
	}
	from, _ := strconv.Atoi(string(in.GetNextPageToken()))
	to := min(from+int(in.GetPageSize()), len(ids))
	out := &workflowservice.ListWorkflowExecutionsResponse{}
	for _, id := range ids[from:to] {
		out.Executions = append(out.Executions, &workflow.WorkflowExecutionInfo{
			Execution: &common.WorkflowExecution{WorkflowId: id, RunId: id}, Type: &common.WorkflowType{Name: kind},
			Status: status, StartTime: timestamppb.Now(),
		})
	}
	if to < len(ids) {
		out.NextPageToken = []byte(strconv.Itoa(to))
	}
	return out, nil
}

// copies returns the statement that inserts n copies of the rows of a table. changed are columns with another value, made of n.i, from 1.
func copies(b *testing.B, db *sql.DB, table string, n int, changed map[string]string) string {
	rows, err := db.QueryContext(b.Context(), `SELECT * FROM `+table+` LIMIT 0`)
	require.NoError(b, err)
	defer func() { _ = rows.Close() }()
	names, err := rows.Columns()
	require.NoError(b, err)
	require.NoError(b, rows.Err())
	values := make([]string, len(names))
	for i, name := range names {
		if values[i] = name; changed[name] != "" {
			values[i] = changed[name]
		}
	}
	return fmt.Sprintf(`INSERT INTO %s (%s) WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < %d) SELECT %s FROM %s, n`,
		table, strings.Join(names, ", "), n, strings.Join(values, ", "), table)
}

// fullReconciler returns a reconciler of a system with the benchmark's work.
func fullReconciler(b *testing.B, dsn string) *Reconciler {
	ctx, now := b.Context(), time.Now()
	store := testledger.Open(b, dsn)
	server := testredis.Start(b)
	rdb := server.Client()
	b.Cleanup(func() { _ = rdb.Close() })
	s := lua.New(rdb, lua.Keys{})
	_, err := s.MarkNew(ctx)
	require.NoError(b, err)

	task := berth.Task{TaskPlan: berth.TaskPlan{
		TaskRequest: berth.TaskRequest{ID: "t", ServiceID: "s", Template: "job_summary", Locale: berth.LocaleEN, Tier: berth.TierPaid},
		UserID:      "alice", RequestHash: "hash",
		Steps: []berth.Step{{Name: "summary", Mode: berth.ModeBatch, Queue: berth.Queue("q_paid_batch"), Model: "m"}},
	}, Status: berth.TaskPending, CreatedAt: now, DeadlineAt: now.Add(time.Hour)}
	_, _, err = store.CreateTask(ctx, task)
	require.NoError(b, err)
	_, err = store.SaveExecution(ctx, berth.ExecutionRow{Key: "x", Execution: berth.Execution{
		ID: "x", UserID: "alice", Status: berth.ExecutionRunning, StartedAt: now, DeadlineAt: now.Add(time.Hour),
	}})
	require.NoError(b, err)
	conference := berth.Conference{ID: "c", UserID: "alice", Status: berth.ConferenceOpen, Revision: 1, CreatedAt: now, Owner: berth.ConferenceOwner{NodeID: "u0", Generation: 1, Epoch: 1}}
	conference.E164 = "8690000000"
	require.NoError(b, store.SaveConference(ctx, conference))

	driver, name := "pgx", dsn
	if file, ok := strings.CutPrefix(dsn, "sqlite:"); ok {
		driver, name = "sqlite", "file:"+file+"?_pragma=busy_timeout(10000)"
	}
	db, err := sql.Open(driver, name)
	require.NoError(b, err)
	defer func() { require.NoError(b, db.Close()) }()
	units := fmt.Sprintf("'u' || CAST(i %% %d AS TEXT)", benchUnits)
	for _, statement := range []string{
		copies(b, db, "tasks", benchTasks, map[string]string{"id": "'t' || CAST(i AS TEXT)"}),
		`DELETE FROM tasks WHERE id = 't'`,
		copies(b, db, "executions", benchExecutions, map[string]string{"id": "'x' || CAST(i AS TEXT)"}),
		`DELETE FROM executions WHERE key = 'x'`,
		copies(b, db, "conferences", benchConferences, map[string]string{
			"id": "'c' || CAST(i AS TEXT)", "e164": "CAST(8690000000 + i AS TEXT)", "owner": units,
		}),
		`DELETE FROM conferences WHERE id = 'c'`,
	} {
		_, err := db.ExecContext(ctx, statement)
		require.NoError(b, err)
	}
	for i := range benchUnits {
		id := fmt.Sprint("u", i)
		unit, err := s.RegisterNode(ctx, berth.NodeSpec{
			ID: id, Kind: berth.NodeMedia, MaxConcurrentJobs: 100, Capabilities: []string{berth.CapabilityConference},
			Incarnation: berth.Incarnation{Host: id, PID: 1, StartedAt: 1},
		}, lua.Registration{})
		require.NoError(b, err)
		_, err = db.ExecContext(ctx, `UPDATE conferences SET generation = $1 WHERE owner = $2`, unit.Generation, id)
		require.NoError(b, err)
	}
	temporal := &listing{running: map[string][]string{}}
	for i := range benchClosed {
		id := fmt.Sprint("e", i)
		ended := task
		ended.ID = id
		_, _, err := store.CreateTask(ctx, ended)
		require.NoError(b, err)
		_, _, err = store.FinishTask(ctx, ledger.End{TaskRef: ended.Ref(), Status: berth.TaskFailed, Code: berth.CodeInternal})
		require.NoError(b, err)
		temporal.closed = append(temporal.closed, workflows.TaskWorkflowID(ended.Ref()))
	}
	fillRedis(b, rdb, temporal, task)
	for _, id := range []string{"full", "quick"} {
		require.NoError(b, store.SavePass(ctx, berth.ReconcilePass{
			ID: id, Kind: berth.ReconcileKind(id), Status: berth.ReconcileCompleted, StartedAt: now, EndedAt: now,
		}))
	}
	calls := &starter.Starter{Client: temporal}
	return &Reconciler{
		Ledger: store, Scripts: s, Starter: calls, Logger: slog.New(slog.DiscardHandler),
		Conferences: &Conferences{NodeSlots: NodeSlots{Fleet: fleet.New(s, fleet.Options{})}, Starter: calls},
		Health: func() health.Report {
			return health.Report{Dependencies: map[string]health.Dependency{health.Redis: {Status: health.OK, Since: now.Add(-time.Hour)}}}
		},
		Options: ReconcileOptions{FullEvery: time.Hour, Pause: time.Second, MaxRepairs: 200, MaxFindings: 1000},
	}
}

// fillRedis writes what the open work has in Redis, and lists its runs.
func fillRedis(b *testing.B, rdb *redis.Client, temporal *listing, task berth.Task) {
	ctx, keys := b.Context(), lua.Keys{}
	until := float64(time.Now().Add(24 * time.Hour).UnixMilli())
	each := func(n int, write func(p redis.Pipeliner, i int)) {
		for from := 1; from <= n; from += 1000 {
			_, err := rdb.Pipelined(ctx, func(p redis.Pipeliner) error {
				for i := from; i <= min(from+999, n); i++ {
					write(p, i)
				}
				return nil
			})
			require.NoError(b, err)
		}
	}
	lists := func(kind, id string) { temporal.running[kind] = append(temporal.running[kind], id) }
	each(benchTasks, func(p redis.Pipeliner, i int) {
		ref := berth.TaskRef{UserID: task.UserID, TaskID: fmt.Sprint("t", i)}
		lists(workflows.TaskWorkflow, workflows.TaskWorkflowID(ref))
		p.ZAdd(ctx, keys.QueueAdmissions(task.Steps[0].Queue), redis.Z{Score: until, Member: ref.String()})
		p.HSet(ctx, keys.StreamMeta(ref.UserID, task.ServiceID, ref.TaskID), "state", "open", "gen", 1, "seq", 0, "fence", 0)
	})
	each(benchExecutions, func(p redis.Pipeliner, i int) {
		lists(workflows.ExecutionWorkflow, workflows.ExecutionWorkflowID(fmt.Sprint("x", i)))
		p.HSet(ctx, keys.NodeLeases(), fmt.Sprintf("execution:x%d:1", i), "{}")
	})
	each(benchConferences, func(p redis.Pipeliner, i int) {
		e164 := strconv.Itoa(8690000000 + i)
		lists(workflows.ConferenceWorkflow, workflows.ConferenceWorkflowID(e164))
		p.HSet(ctx, keys.NodeLeases(), fmt.Sprintf("conference:c%d:1", i), "{}")
		p.SAdd(ctx, keys.Licences(), e164)
	})
	each(benchTurns, func(p redis.Pipeliner, i int) {
		id := fmt.Sprint("turn", i)
		lists(workflows.TurnWorkflow, workflows.TurnWorkflowID(id))
		p.HSet(ctx, keys.Turn(id), "affinity_node_id", "n1")
	})
}
