package ledger

import (
	"context"
	"database/sql"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"berth"
)

func put(tb testing.TB, l *Ledger, user, text string) berth.Asset {
	tb.Helper()
	a, err := l.PutAsset(context.Background(), berth.Asset{UserID: user, Kind: berth.AssetText, MediaType: berth.TextMediaType, Content: []byte(text)})
	require.NoError(tb, err)
	return a
}

// lived returns a task of alice that completed with an output and a result.
func lived(tb testing.TB, l *Ledger, t berth.Task, variables map[string]string) berth.Task {
	tb.Helper()
	t.Variables = variables
	t = create(tb, l, t)
	a := begin(tb, l, t, 0)
	out, err := l.FinishStep(context.Background(), result(t, 0, a.Fence, "output of "+t.ID))
	require.NoError(tb, err)
	t, _, err = l.FinishTask(context.Background(), End{TaskRef: t.Ref(), Status: berth.TaskCompleted, ResultAssetID: out})
	require.NoError(tb, err)
	return t
}

func requireErased(tb testing.TB, l *Ledger, user, id string) {
	tb.Helper()
	_, err := l.GetAsset(context.Background(), user, id)
	requireCode(tb, berth.CodeErased, err)
	var size int
	require.NoError(tb, l.read.QueryRowContext(context.Background(), `SELECT length(content) FROM assets WHERE id = $1`, id).Scan(&size))
	require.Zero(tb, size)
}

func TestEraseTask_SharedAsset_ErasedWithItsLastTask(t *testing.T) { // B11
	each(t, func(t *testing.T, l *Ledger) {
		ctx := t.Context()
		resume, posting := put(t, l, "alice", "I know Kubernetes"), put(t, l, "alice", "posting")
		one := lived(t, l, chain(), map[string]string{"resume": resume.ID, "jobText": posting.ID})
		two := lived(t, l, chain(), map[string]string{"resume": resume.ID})
		require.NoError(t, l.EraseTask(ctx, one.Ref()))
		requireErased(t, l, "alice", posting.ID)
		requireErased(t, l, "alice", one.ResultAssetID)
		_, err := l.GetAsset(ctx, "alice", resume.ID)
		require.NoError(t, err, "another task has it, too")
		_, err = l.GetAsset(ctx, "alice", two.ResultAssetID)
		require.NoError(t, err)
		got, err := l.GetTask(ctx, one.Ref())
		require.NoError(t, err)
		require.Equal(t, berth.TaskCompleted, got.Status)
		require.False(t, got.ContentErasedAt.IsZero())
		require.NoError(t, l.EraseTask(ctx, one.Ref()), "again")
		again, err := l.GetTask(ctx, one.Ref())
		require.NoError(t, err)
		require.Equal(t, got, again)
		require.Equal(t, AuditErase, trail(t, l, one.Ref())[2].Event)
		require.Len(t, trail(t, l, one.Ref()), 3)

		require.NoError(t, l.EraseTask(ctx, two.Ref()))
		requireErased(t, l, "alice", resume.ID)
		found, err := l.SearchPassages(ctx, "alice", "Kubernetes", 5)
		require.NoError(t, err)
		require.Empty(t, found)
		results, err := l.LatestResults(ctx, "alice", two.Template, 5)
		require.NoError(t, err)
		require.Empty(t, results)

		stored := put(t, l, "alice", "I know Kubernetes")
		require.Equal(t, resume.ID, stored.ID)
		back, err := l.GetAsset(ctx, "alice", resume.ID)
		require.NoError(t, err, "content can be stored again")
		require.Equal(t, "I know Kubernetes", string(back.Content))
		require.NoError(t, l.ClaimAssets(ctx, "alice", map[string]string{"resume": stored.ID}, evidence))
		found, err = l.SearchPassages(ctx, "alice", "Kubernetes", 5)
		require.NoError(t, err)
		require.Len(t, found, 1)
	})
}

func TestErase_TaskRuns_Conflict(t *testing.T) { // B11
	each(t, func(t *testing.T, l *Ledger) {
		ctx := t.Context()
		resume := put(t, l, "alice", "resume")
		task := chain()
		task.Variables = map[string]string{"resume": resume.ID, "notes": resume.ID}
		task = create(t, l, task)
		a := begin(t, l, task, 0)
		out, err := l.FinishStep(ctx, result(task, 0, a.Fence, "output"))
		require.NoError(t, err)
		requireCode(t, berth.CodeConflict, l.EraseTask(ctx, task.Ref()))
		erase := func(user, id string) error {
			_, err := l.EraseAsset(ctx, user, id)
			return err
		}
		requireCode(t, berth.CodeConflict, erase("alice", resume.ID))
		requireCode(t, berth.CodeConflict, erase("alice", out))
		requireCode(t, berth.CodeNotFound, erase("bob", resume.ID))
		requireCode(t, berth.CodeNotFound, erase("alice", "a\x00"))
		requireCode(t, berth.CodeNotFound, l.EraseTask(ctx, ref("none")))
		_, err = l.GetAsset(ctx, "alice", resume.ID)
		require.NoError(t, err)
		_, _, err = l.FinishTask(ctx, End{TaskRef: task.Ref(), Status: berth.TaskCancelled, Code: berth.CodeCancelled})
		require.NoError(t, err)
		require.NoError(t, erase("alice", resume.ID))
		require.NoError(t, erase("alice", resume.ID), "again")
		requireErased(t, l, "alice", resume.ID)
		found, err := l.GetAssets(ctx, "alice", []string{resume.ID, out})
		require.NoError(t, err)
		require.Len(t, found, 1, "erased assets are omitted")
		for range 2 {
			tasks, err := l.EraseAsset(ctx, "alice", out)
			require.NoError(t, err)
			require.Equal(t, []TaskStream{{TaskRef: task.Ref(), ServiceID: task.ServiceID}}, tasks, "the task that produced it")
		}
	})
}

// expire runs a pass in the smallest batches and returns what it removed.
func expire(tb testing.TB, l *Ledger, texts, rows time.Time) map[string]int64 {
	tb.Helper()
	all := map[string]int64{}
	for _, e := range l.Expiries() {
		before := rows
		if e.Text {
			before = texts
		}
		for more := true; more; {
			var n int64
			var err error
			n, more, err = e.Remove(context.Background(), before, 1)
			require.NoError(tb, err, e.Name)
			if n > 0 {
				all[e.Name] += n
			}
		}
	}
	return all
}

func TestExpiries_EachAge_RemovesOnlyWhatExpired(t *testing.T) { // B11, T18
	each(t, func(t *testing.T, l *Ledger) {
		ctx := t.Context()
		grant(t, l, "alice", 10)
		grant(t, l, "bob", 1)
		resume, old, upload := put(t, l, "alice", "resume"), put(t, l, "alice", "of a deleted task"), put(t, l, "alice", "upload")
		require.NoError(t, l.ClaimAssets(ctx, "alice", map[string]string{"resume": resume.ID, "notes": old.ID}, evidence))
		done := priced("alice", 2)
		done.Key = "k"
		done = lived(t, l, done, map[string]string{"resume": resume.ID})
		open := priced("alice", 3)
		open.Variables = map[string]string{"resume": resume.ID}
		open = create(t, l, open)
		require.EqualValues(t, 5, balance(t, l, "alice"))
		past, future := time.Now().Add(-time.Hour), time.Now().Add(time.Hour)

		require.Empty(t, expire(t, l, past, past))
		require.Equal(t, map[string]int64{"texts of tasks": 1, "assets": 1, "unused uploads": 1}, expire(t, l, future, past))
		requireErased(t, l, "alice", old.ID)
		requireErased(t, l, "alice", done.ResultAssetID)
		_, err := l.GetAsset(ctx, "alice", upload.ID)
		requireCode(t, berth.CodeNotFound, err)
		_, err = l.GetAsset(ctx, "alice", resume.ID)
		require.NoError(t, err, "the open task needs it")
		got, err := l.GetTask(ctx, done.Ref())
		require.NoError(t, err)
		require.Equal(t, berth.TaskCompleted, got.Status)

		removed := expire(t, l, future, future)
		require.EqualValues(t, 1, removed["tasks"])
		require.EqualValues(t, 2, removed["empty assets"])
		require.EqualValues(t, 1, removed["idempotency keys"])
		require.EqualValues(t, 1, removed["usage rows"])
		require.EqualValues(t, 1, removed["ledger entries"], "not the charge of the open task, nor the operators' entries")
		_, err = l.GetTask(ctx, done.Ref())
		requireCode(t, berth.CodeNotFound, err)
		_, err = l.FindSubmission(ctx, "alice", "k")
		requireCode(t, berth.CodeNotFound, err)
		require.EqualValues(t, 5, balance(t, l, "alice"))
		require.EqualValues(t, 1, balance(t, l, "bob"))
		entries, _, err := l.Entries(ctx, "alice", "", 0)
		require.NoError(t, err)
		require.Len(t, entries, 3)
		require.Equal(t, EntryCharge, entries[0].Kind)
		require.Equal(t, EntryCarried, entries[1].Kind)
		require.EqualValues(t, -2, entries[1].Amount)
		require.Empty(t, entries[1].TaskID)
		require.Equal(t, EntryGrant, entries[2].Kind)
		require.Empty(t, expire(t, l, future, future), "nothing is left")

		_, _, err = l.FinishTask(ctx, End{TaskRef: open.Ref(), Status: berth.TaskFailed, Code: berth.CodeInternal})
		require.NoError(t, err)
		require.EqualValues(t, 8, balance(t, l, "alice"), "the open task is still refunded")
		expire(t, l, future, future)
		require.EqualValues(t, 8, balance(t, l, "alice"))
		requireCode(t, berth.CodeNotFound, func() error { _, err := l.GetAsset(ctx, "alice", resume.ID); return err }())
		again := priced("alice", 2)
		again.ID = open.ID
		require.Equal(t, berth.TierPaid, create(t, l, again).Tier, "the id can be used again")
		require.EqualValues(t, 6, balance(t, l, "alice"))
	})
}

func TestExpiries_TaskWithdrawnAcrossAges_ChargedAgain(t *testing.T) { // T18
	each(t, func(t *testing.T, l *Ledger) {
		grant(t, l, "alice", 10)
		task := priced("alice", 2)
		for range 2 {
			create(t, l, task)
			require.NoError(t, l.WithdrawTask(t.Context(), task.Ref(), task.RequestHash))
		}
		_, err := l.exec(t.Context(), "age", `UPDATE credit_entries SET created_at = 1 WHERE acceptance = 0`)
		require.NoError(t, err)
		require.Equal(t, map[string]int64{"ledger entries": 2}, expire(t, l, time.UnixMilli(2), time.UnixMilli(2)))
		create(t, l, task)
		require.EqualValues(t, 8, balance(t, l, "alice"))
		require.NoError(t, l.WithdrawTask(t.Context(), task.Ref(), task.RequestHash))
		require.EqualValues(t, 10, balance(t, l, "alice"))
	})
}

func TestExpiries_Conferences_OnlyEndedOnesAreRemoved(t *testing.T) { // B11
	each(t, func(t *testing.T, l *Ledger) {
		ctx := t.Context()
		past, future := time.Now().Add(-time.Hour), time.Now().Add(time.Hour)
		ended := func(c *berth.Conference) {
			c.Status, c.Owner, c.EndedAt = berth.ConferenceEnded, berth.ConferenceOwner{}, time.Now()
		}
		open, undelivered := conference("1002"), conference("1003", ended)
		for _, c := range []berth.Conference{conference("1001", ended), open, undelivered} {
			_, err := l.NextEpoch(ctx, c.E164)
			require.NoError(t, err)
			c.CreatedAt = time.Now().Add(-2 * time.Hour)
			require.NoError(t, l.SaveConference(ctx, c))
			_, err = l.KeepConferenceKey(ctx, ConferenceKey{ID: "of " + c.ID, ConferenceID: c.ID, E164: c.E164}, "")
			require.NoError(t, err)
		}
		require.NoError(t, l.SaveDelivery(ctx, undelivered.ID, berth.RecordDelivery{State: berth.DeliveryPending, UpdatedAt: future}))
		_, err := l.NextEpoch(ctx, "1004") // its conference could not be created
		require.NoError(t, err)
		_, err = l.PutSession(ctx, berth.Session{ID: "s", UserID: "alice"})
		require.NoError(t, err)

		require.Empty(t, expire(t, l, past, past), "they ended after that")
		require.Equal(t, map[string]int64{"conferences": 1, "keys of conferences": 1, "epochs": 2, "sessions": 1},
			expire(t, l, past, future.Add(-time.Minute)))
		_, err = l.FindConference(ctx, "1001")
		requireCode(t, berth.CodeNotFound, err)
		_, err = l.GetConference(ctx, undelivered.ID)
		require.NoError(t, err, "its record is being sent")
		_, err = l.FindConference(ctx, "1002")
		require.NoError(t, err, "it has not ended")
		_, err = l.FindConferenceKey(ctx, "of "+open.ID)
		require.NoError(t, err)

		require.Equal(t, map[string]int64{"deliveries of records": 1, "conferences": 1, "keys of conferences": 1, "epochs": 1},
			expire(t, l, past, future.Add(time.Minute)))
		epoch, err := l.NextEpoch(ctx, "1001")
		require.NoError(t, err)
		require.GreaterOrEqual(t, epoch, past.UnixMilli(), "the epochs of a number continue with the time")
	})
}

// A request that an operator repeats changes an account once, however old the first one is.
func TestRetention_OldGrant_KeyIsStillKnown(t *testing.T) { // FA11, T18
	each(t, func(t *testing.T, l *Ledger) {
		ctx := t.Context()
		grant := Grant{UserID: "alice", Amount: 500, Reason: "order 1", Key: "k1"}
		_, _, created, err := l.AddCredits(ctx, grant)
		require.NoError(t, err)
		require.True(t, created)
		require.NoError(t, l.inTx(ctx, "charge", func(tx *sql.Tx) error {
			for _, task := range []string{"t1", "t2", "t3"} {
				if _, err := addEntry(ctx, tx, Entry{UserID: "alice", Kind: EntryCharge, Amount: -1, TaskID: task}, 0, ""); err != nil {
					return err
				}
			}
			return nil
		}))
		for more := true; more; {
			_, more, err = l.sumEntries(ctx, time.Now().Add(time.Hour), 10)
			require.NoError(t, err)
		}
		_, credits, created, err := l.AddCredits(ctx, grant)
		require.NoError(t, err)
		require.False(t, created)
		require.EqualValues(t, 497, credits)
		other := grant
		other.Amount = 600
		_, _, _, err = l.AddCredits(ctx, other)
		requireCode(t, berth.CodeIdempotencyMismatch, err)
		entries, _, err := l.Entries(ctx, "alice", "", 100)
		require.NoError(t, err)
		sum, kinds := berth.Credits(0), map[EntryKind]int{}
		for _, e := range entries {
			sum += e.Amount
			kinds[e.Kind]++
		}
		require.EqualValues(t, 497, sum)
		require.Equal(t, map[EntryKind]int{EntryGrant: 1, EntryCarried: 1}, kinds)
	})
}
