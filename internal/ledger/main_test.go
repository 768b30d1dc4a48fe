package ledger

import (
	"context"
	"crypto/rand"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"berth"
	"berth/internal/testdb"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// each runs f with an empty ledger on each database with the schema of this version, and on one with that of a later version: what a
// statement does with a column that it does not name is the same on both.
func each(t *testing.T, f func(t *testing.T, l *Ledger)) {
	t.Helper()
	t.Parallel()
	migrated.Each(t, func(t *testing.T, dsn string) { f(t, open(t, dsn)) })
	t.Run("migrated by a later version", func(t *testing.T) {
		t.Parallel()
		f(t, open(t, later.SQLite(t)))
	})
}

var migrated = testdb.NewTemplate(func(dsn string) error {
	l, err := Open(context.Background(), dsn, slog.New(slog.DiscardHandler))
	if err != nil {
		return err
	}
	return l.Close()
})

func open(tb testing.TB, dsn string) *Ledger {
	tb.Helper()
	l, err := Open(context.Background(), dsn, slog.New(slog.DiscardHandler))
	require.NoError(tb, err)
	tb.Cleanup(func() { require.NoError(tb, l.Close()) })
	return l
}

// evidence are the variables whose texts are about the user.
var evidence = []string{"resume", "detailedResume"}

// chain returns a task of alice with the three steps of a match, not stored yet.
func chain() berth.Task {
	step := func(name berth.StepName, mode berth.Mode) berth.Step {
		return berth.Step{
			Name: name, Mode: mode,
			Queue: berth.Queue("q_paid_" + string(mode)), Model: "model-of-" + string(name),
			Status: berth.TaskStatus(strings.ToUpper(string(name)) + "_PENDING"),
		}
	}
	now := time.Now()
	return berth.Task{
		TaskPlan: berth.TaskPlan{
			TaskRequest: berth.TaskRequest{
				ID: "t_" + rand.Text(), ServiceID: "jobs", Template: "job_match", Locale: berth.LocaleEN,
				Tier: berth.TierPaid, Variables: map[string]string{"resume": "a_resume"},
				TraceID: "trace", RequestID: "request",
			},
			UserID: "alice",
			Steps: []berth.Step{
				step("ocr", berth.ModeVision), step("summary", berth.ModeBatch),
				step("match", berth.ModeStream),
			},
			RequestHash: "hash",
		},
		Status: berth.TaskPending, CreatedAt: now, DeadlineAt: now.Add(time.Hour),
	}
}

// ref returns the identity of a task of alice.
func ref(id string) berth.TaskRef { return berth.TaskRef{UserID: "alice", TaskID: id} }

func create(tb testing.TB, l *Ledger, t berth.Task) berth.Task {
	tb.Helper()
	got, created, err := l.CreateTask(context.Background(), t)
	require.NoError(tb, err)
	require.True(tb, created)
	return got
}

func result(t berth.Task, step int, fence int64, text string) StepResult {
	return StepResult{
		ModelCall: ModelCall{
			UserID: t.UserID, TaskID: t.ID, Step: step, Name: t.Steps[step].Name, Fence: fence,
			Usage: berth.Usage{InputTokens: 10, OutputTokens: 3}, Model: t.Steps[step].Model, Provider: "local",
			Queue: t.Steps[step].Queue, LatencyMs: 70, FirstTokenMs: 20, CostMicros: 1234,
		},
		Output: berth.Asset{Kind: berth.AssetResult, MediaType: "text/plain", Content: []byte(text)},
	}
}

func begin(tb testing.TB, l *Ledger, t berth.Task, step int) Attempt {
	tb.Helper()
	a, err := l.BeginAttempt(context.Background(), t.Ref(), step, t.Steps[step].Status)
	require.NoError(tb, err)
	return a
}

// startCall records that an attempt calls its provider.
func startCall(tb testing.TB, l *Ledger, t berth.Task, step int, fence int64) {
	tb.Helper()
	require.NoError(tb, l.StartCall(context.Background(), CallStart{
		TaskRef: t.Ref(), Step: step, Fence: fence, Status: t.Steps[step].Status, Provider: "local",
	}))
}

func requireCode(tb testing.TB, code berth.Code, err error) {
	tb.Helper()
	require.Error(tb, err)
	require.Equal(tb, code, berth.CodeOf(err), err)
}

// trail returns the audit rows of a task, the oldest first.
func trail(t tb, l *Ledger, task berth.TaskRef) []AuditEntry {
	t.Helper()
	rows, next, err := l.AuditLog(context.Background(), AuditQuery{UserID: task.UserID, TaskID: task.TaskID}, "", 0)
	require.NoError(t, err)
	require.Empty(t, next)
	slices.Reverse(rows)
	return rows
}
