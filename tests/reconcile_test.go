package tests

import (
	"database/sql"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
	temporalclient "go.temporal.io/sdk/client"
	_ "modernc.org/sqlite"

	"berth"
	"berth/client"
	"berth/internal/sim"
	"berth/lua"
	"berth/workflows"
)

// reconciling makes passes follow each other, so that a test does not wait for them.
func reconciling(more ...string) option {
	return with(append([]string{"BERTH_RECONCILE_EVERY=1s", "BERTH_RECONCILE_PAUSE=500ms"}, more...)...)
}

// bothModes runs a test without and with encrypted payloads.
func bothModes(t *testing.T, f func(t *testing.T, mode option)) {
	t.Helper()
	t.Parallel()
	for name, mode := range map[string]option{"without keys": with(), "with keys": withKeys(t, "k1:"+payloadKey("1"))} { // FA2
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f(t, mode)
		})
	}
}

// held is a model that does not answer during a test.
var held = withModel(sim.Options{FirstTokenDelay: time.Hour})

func (s *stack) operator() *client.Client {
	return client.New("http://"+s.httpAddr, s.token("op", "operator"))
}

// passes returns the last passes that were not skipped, newest first.
func (s *stack) passes() (passes []berth.ReconcilePass) {
	s.tb.Helper()
	state, err := s.operator().Reconciliation(s.tb.Context())
	require.NoError(s.tb, err)
	for _, p := range state.Passes {
		if p.Status != berth.ReconcileSkipped {
			passes = append(passes, p)
		}
	}
	return passes
}

// settled waits until passes compare: the processes have just started.
func (s *stack) settled() {
	s.tb.Helper()
	s.eventually("a pass", func() bool { return len(s.passes()) > 0 })
}

// repaired waits until a pass has repaired the subject, and returns the finding.
func (s *stack) repaired(rule berth.ReconcileRule, subject string) (found berth.ReconcileFinding) {
	s.tb.Helper()
	s.eventually(string(rule)+" to be repaired", func() bool {
		for _, p := range s.passes() {
			for _, f := range p.Findings {
				if found = f; f.Rule == rule && f.Subject == subject && f.Outcome == berth.FindingRepaired {
					return true
				}
			}
		}
		return false
	})
	return found
}

// fullPass runs a full pass that is not skipped.
func (s *stack) fullPass(dryRun bool) (pass berth.ReconcilePass) {
	s.tb.Helper()
	s.eventually("a full pass", func() bool {
		id, err := s.operator().Reconcile(s.tb.Context(), dryRun)
		if p, ok := errors.AsType[*client.Problem](err); ok && p.Code == berth.CodeConflict { // the last one is stored and has not ended yet
			return false
		}
		require.NoError(s.tb, err)
		s.eventually("the pass to end", func() bool {
			state, err := s.operator().Reconciliation(s.tb.Context())
			require.NoError(s.tb, err)
			for _, p := range state.Passes {
				if p.ID == id {
					pass = p
					return true
				}
			}
			return false
		})
		return pass.Status != berth.ReconcileSkipped
	})
	return pass
}

// database opens the stack's database for faults that no call of berth makes.
func (s *stack) database() *sql.DB {
	s.tb.Helper()
	db, err := sql.Open("sqlite", "file:"+filepath.Join(s.dir, "berth.db")+"?_pragma=busy_timeout(10000)")
	require.NoError(s.tb, err)
	s.tb.Cleanup(func() { _ = db.Close() })
	return db
}

// execute runs a statement that must change a row.
func (s *stack) execute(statement string, args ...any) {
	s.tb.Helper()
	res, err := s.database().ExecContext(s.tb.Context(), statement, args...)
	require.NoError(s.tb, err)
	n, err := res.RowsAffected()
	require.NoError(s.tb, err)
	require.Positive(s.tb, n, statement)
}

// follow reads the stream of a task. The function that it returns waits for the end.
func (s *stack) follow(c *client.Client, id string) (end func() *seen) {
	read := make(chan *seen, 1)
	go func() {
		defer close(read)
		read <- watch(s.tb, c, id, nil)
	}()
	return func() *seen {
		s.tb.Helper()
		got := <-read
		require.NotNil(s.tb, got, "the stream of %s did not end", id)
		return got
	}
}

func alices(id string) string {
	return workflows.TaskWorkflowID(berth.TaskRef{UserID: "alice", TaskID: id})
}

func TestReconcile_TaskTerminated_FailsWithRefundAndOneEnd(t *testing.T) { // B4, FT5
	bothModes(t, func(t *testing.T, mode option) {
		s := newStack(t, mode, reconciling(), held)
		c := s.user("alice")
		before, err := c.Account(t.Context(), "")
		require.NoError(t, err)
		acc, err := c.Submit(t.Context(), summary("We need a cook."), "")
		require.NoError(t, err)
		reader := s.follow(c, acc.TaskID)
		s.settled()
		began := time.Now()
		require.NoError(t, s.temporal().TerminateWorkflow(t.Context(), alices(acc.TaskID), "", "by a user of the Temporal UI"))
		got := reader()
		t.Logf("repaired after %s", time.Since(began))
		require.Equal(t, berth.EventError, got.last.Type)
		require.Equal(t, berth.CodeLost, got.last.Code)
		require.Equal(t, 1, got.count(berth.EventError))
		task, err := c.Get(t.Context(), acc.TaskID)
		require.NoError(t, err)
		require.Equal(t, berth.TaskFailed, task.Status)
		require.Equal(t, berth.CodeLost, task.Error.Code)
		require.Equal(t, []string{"refund", "charge"}, charges(t, c))
		after, err := c.Account(t.Context(), "")
		require.NoError(t, err)
		require.Equal(t, before, after)
		s.repaired(berth.RuleTaskWithoutRun, alices(acc.TaskID))
		again := s.fullPass(false)
		require.Zero(t, again.Found(), "%+v", again.Findings)
		s.saveRun("reconcile-nothing", workflows.ReconcileRequestID, again.ID)
		s.noSlotHeld()
	})
}

func TestReconcile_WorkflowsStuckAfterDeadline_TaskEnds(t *testing.T) { // B4
	bothModes(t, func(t *testing.T, mode option) {
		s := newStack(t, mode, reconciling(), held)
		c := s.user("alice")
		acc, err := c.Submit(t.Context(), summary("We need a cook."), "")
		require.NoError(t, err)
		reader := s.follow(c, acc.TaskID)
		s.worker.kill()
		s.worker = s.startWorker("--queues", "links")
		s.settled()
		s.execute(`UPDATE tasks SET deadline_at = ? WHERE id = ?`, time.Now().Add(-2*time.Minute).UnixMilli(), acc.TaskID)
		got := reader()
		require.Equal(t, berth.CodeDeadlineExceeded, got.last.Code)
		s.repaired(berth.RuleTaskOverdue, alices(acc.TaskID))
		s.awaitEnd(alices(acc.TaskID))
		require.Equal(t, []string{"refund", "charge"}, charges(t, c))
	})
}

func TestReconcile_OlderDatabaseRestored_TaskCompletesWithOneCharge(t *testing.T) { // B4
	bothModes(t, func(t *testing.T, mode option) {
		s := newStack(t, mode, reconciling())
		c := s.user("alice")
		resume, err := c.Upload(t.Context(), "resume.txt", example(t, "resume-en.txt"))
		require.NoError(t, err)
		backup := filepath.Join(s.dir, "backup.db")
		_, err = s.database().ExecContext(t.Context(), `VACUUM INTO ?`, backup)
		require.NoError(t, err)
		s.model.Config.Handler = modelHandler(sim.Options{FirstTokenDelay: time.Hour})
		acc, err := c.Submit(t.Context(), client.Submission{
			TaskID: "t1", ServiceID: "career", Template: "resume_summary",
			Variables: map[string]any{"resume": client.AssetRef(resume)},
		}, "")
		require.NoError(t, err)
		s.api.kill()
		s.worker.kill()
		s.model.Config.Handler = modelHandler(sim.Options{})
		file := filepath.Join(s.dir, "berth.db")
		for _, suffix := range []string{"-wal", "-shm"} {
			_ = os.Remove(file + suffix)
		}
		require.NoError(t, os.Rename(backup, file))
		s.startAPI()
		s.worker = s.startWorker()
		_, err = c.Get(t.Context(), acc.TaskID)
		require.Equal(t, berth.CodeNotFound, problem(t, err).Code)
		s.fullPass(false) // the scheduled pass is a full one, too, because the backup may have none
		s.repaired(berth.RuleRunWithoutTask, alices(acc.TaskID))
		require.Equal(t, berth.EventDone, watch(t, c, acc.TaskID, nil).last.Type)
		require.Equal(t, []string{"charge"}, charges(t, c))
		replay, err := c.Submit(t.Context(), client.Submission{
			TaskID: "t1", ServiceID: "career", Template: "resume_summary",
			Variables: map[string]any{"resume": client.AssetRef(resume)},
		}, "")
		require.NoError(t, err)
		require.True(t, replay.Replay)
		again := s.fullPass(false)
		require.Zero(t, again.Found(), "%+v", again.Findings)
	})
}

func TestReconcile_StreamAdmissionAndBalanceDiffer_Corrected(t *testing.T) { // B4
	bothModes(t, func(t *testing.T, mode option) {
		s := newStack(t, mode, reconciling())
		c := s.user("alice")
		acc, err := c.Submit(t.Context(), summary("We need a cook."), "")
		require.NoError(t, err)
		require.Equal(t, berth.EventDone, watch(t, c, acc.TaskID, nil).last.Type)
		account, err := c.Account(t.Context(), "")
		require.NoError(t, err)
		s.awaitEnd(alices(acc.TaskID))
		s.settled()

		rdb, keys := s.redis(), lua.Keys{}
		entries, err := rdb.XRevRangeN(t.Context(), keys.Stream("alice", "career", acc.TaskID), "+", "-", 1).Result()
		require.NoError(t, err)
		require.NoError(t, rdb.XDel(t.Context(), keys.Stream("alice", "career", acc.TaskID), entries[0].ID).Err())
		require.NoError(t, rdb.HSet(t.Context(), keys.StreamMeta("alice", "career", acc.TaskID), "state", "open").Err())
		s.repaired(berth.RuleStreamWithoutRun, alices(acc.TaskID))
		require.Equal(t, 1, watch(t, c, acc.TaskID, nil).count(berth.EventDone))

		admitted := keys.QueueAdmissions(berth.Queue("q_paid_batch"))
		until := float64(time.Now().Add(time.Hour).UnixMilli())
		require.NoError(t, rdb.ZAdd(t.Context(), admitted, redis.Z{Score: until, Member: "alice:" + acc.TaskID}).Err())
		s.execute(`UPDATE accounts SET credits = credits + 7 WHERE user_id = 'alice'`)
		dry := s.fullPass(true)
		require.Equal(t, []berth.ReconcileCount{
			{Rule: berth.RuleAdmissionWithoutTask, Found: 1, Held: 1}, {Rule: berth.RuleBalance, Found: 1, Held: 1},
		}, dry.Counts)
		s.saveRun("reconcile-found", workflows.ReconcileRequestID, dry.ID)
		require.Equal(t, int64(1), rdb.ZCard(t.Context(), admitted).Val(), "a dry run changes nothing")
		out := s.start("berth", []string{"reconcile"}, []string{"BERTH_URL=http://" + s.httpAddr, "BERTH_TOKEN=" + s.token("op", "operator")})
		s.awaitOutput(out, `2 differences found, 2 repaired, 0 left\n.*admission-without-task task:alice:`)
		require.Zero(t, rdb.ZCard(t.Context(), admitted).Val())
		after, err := c.Account(t.Context(), "")
		require.NoError(t, err)
		require.Equal(t, account, after)
		charges(t, c)
	})
}

func TestReconcile_TooManyDifferences_StopsWithoutRepair(t *testing.T) { // B4
	bothModes(t, func(t *testing.T, mode option) {
		s := newStack(t, mode, reconciling("BERTH_RECONCILE_MAX_FINDINGS=1"), held)
		c := s.user("alice")
		s.worker.kill()
		s.worker = s.startWorker("--queues", "tasks,models") // makes no passes
		tc := s.temporal()
		for _, text := range []string{"We need a cook.", "We need a driver."} {
			acc, err := c.Submit(t.Context(), summary(text), "")
			require.NoError(t, err)
			require.NoError(t, tc.TerminateWorkflow(t.Context(), alices(acc.TaskID), "", ""))
		}
		s.startWorker("--queues", "links")
		pass := s.fullPass(false)
		require.Equal(t, berth.ReconcileStopped, pass.Status)
		require.Equal(t, 2, pass.Left)
		require.Zero(t, pass.Repaired())
		require.Contains(t, pass.Reason, "more than 1 differences")
	})
}

func TestReconcile_ComparisonFails_OthersRepair(t *testing.T) { // B4
	bothModes(t, func(t *testing.T, mode option) {
		s := newStack(t, mode, reconciling(), held)
		acc, err := s.user("alice").Submit(t.Context(), summary("We need a cook."), "")
		require.NoError(t, err)
		s.settled()
		// A row that cannot be read is not repaired. It does not prevent the repair of an account.
		s.execute(`UPDATE tasks SET input_tokens = 1e19, deadline_at = 1 WHERE id = ?`, acc.TaskID)
		s.execute(`UPDATE accounts SET credits = credits + 7 WHERE user_id = 'alice'`)
		pass := s.fullPass(false)
		require.Equal(t, berth.ReconcileIncomplete, pass.Status)
		require.Contains(t, pass.Reason, "not compared: overdue tasks;")
		require.Equal(t, []berth.ReconcileCount{{Rule: berth.RuleBalance, Found: 1, Held: 1, Repaired: 1}}, pass.Counts)

		s.execute(`UPDATE tasks SET input_tokens = 0, deadline_at = ? WHERE id = ?`, time.Now().Add(time.Hour).UnixMilli(), acc.TaskID)
		require.Equal(t, berth.ReconcileCompleted, s.fullPass(false).Status)
	})
}

func TestReconcile_RuleDisabled_NothingRepaired(t *testing.T) { // B4
	bothModes(t, func(t *testing.T, mode option) {
		s := newStack(t, mode, reconciling("BERTH_RECONCILE_DISABLE=task-without-run"), held)
		c := s.user("alice")
		acc, err := c.Submit(t.Context(), summary("We need a cook."), "")
		require.NoError(t, err)
		require.NoError(t, s.temporal().TerminateWorkflow(t.Context(), alices(acc.TaskID), "", ""))
		pass := s.fullPass(false)
		require.Zero(t, pass.Found())
		task, err := c.Get(t.Context(), acc.TaskID)
		require.NoError(t, err)
		require.False(t, task.Status.Final())
	})
}

func TestReconcile_Healthy_FindsNothing(t *testing.T) { // B4
	bothModes(t, func(t *testing.T, mode option) {
		s := newStack(t, mode, reconciling())
		c := s.user("alice")
		// Whether a submission is accepted is decided by the first worker that receives it.
		_, err := s.temporal().ExecuteWorkflow(t.Context(), temporalclient.StartWorkflowOptions{ID: alices("unaccepted"), TaskQueue: "without-worker"},
			workflows.TaskWorkflow, workflows.TaskInput{TaskPlan: berth.TaskPlan{UserID: "alice", TaskRequest: berth.TaskRequest{ID: "unaccepted"}}})
		require.NoError(t, err)
		s.settled()
		for range 3 {
			var ids []string
			for i := range 8 {
				acc, err := c.Submit(t.Context(), summary(fmt.Sprintf("We need %d cooks.", i)), berth.NewID(""))
				require.NoError(t, err)
				ids = append(ids, acc.TaskID)
			}
			_ = c.Cancel(t.Context(), ids[0]) // it may have ended
			pass := s.fullPass(false)
			require.Zero(t, pass.Found(), "%+v", pass.Findings)
			for _, id := range ids {
				watch(t, c, id, nil)
			}
		}
		for _, p := range s.passes() {
			require.Zero(t, p.Found(), "%+v", p.Findings)
		}
	})
}
