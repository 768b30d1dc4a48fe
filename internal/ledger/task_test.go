package ledger

import (
	"encoding/base64"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"berth"
)

func TestCreateTask_Accepted_ReadBackUnchanged(t *testing.T) {
	each(t, func(t *testing.T, l *Ledger) {
		ctx := t.Context()
		want := chain()
		got := create(t, l, want)
		require.WithinDuration(t, want.CreatedAt, got.CreatedAt, time.Millisecond)
		require.WithinDuration(t, want.DeadlineAt, got.DeadlineAt, time.Millisecond)
		require.True(t, got.EndedAt.IsZero())
		want.CreatedAt, want.UpdatedAt, want.DeadlineAt = got.CreatedAt, got.UpdatedAt, got.DeadlineAt
		require.Equal(t, want, got)

		read, err := l.GetTask(ctx, want.Ref())
		require.NoError(t, err)
		require.Equal(t, got, read)

		trail := trail(t, l, want.Ref())
		require.Len(t, trail, 1)
		require.Equal(t, AuditEnqueue, trail[0].Event)
		require.Equal(t, [4]string{want.ID, "jobs", "q_paid_vision", "alice"},
			[4]string{trail[0].TaskID, trail[0].ServiceID, string(trail[0].Queue), trail[0].UserID})
		require.Contains(t, string(trail[0].Detail), `"model-of-ocr"`)
	})
}

func TestCreateTask_ConcurrentSameID_CreatedOnce(t *testing.T) {
	each(t, func(t *testing.T, l *Ledger) {
		ctx := t.Context()
		want := chain()
		var created atomic.Int64
		var g errgroup.Group
		for i := range 50 {
			g.Go(func() error {
				mine := want
				mine.RequestHash = fmt.Sprint(i)
				got, made, err := l.CreateTask(ctx, mine)
				if made {
					created.Add(1)
				}
				if err == nil && made != (got.RequestHash == mine.RequestHash) {
					return fmt.Errorf("created %v but the hash is %s of %s", made, got.RequestHash, mine.RequestHash)
				}
				return err
			})
		}
		require.NoError(t, g.Wait())
		require.EqualValues(t, 1, created.Load())
		trail := trail(t, l, want.Ref())
		require.Len(t, trail, 1)
	})
}

func TestCreateTask_InvalidField_FieldNamed(t *testing.T) {
	each(t, func(t *testing.T, l *Ledger) {
		for field, spoil := range map[string]func(*berth.Task){
			"taskId":   func(t *berth.Task) { t.ID = "" },
			"userId":   func(t *berth.Task) { t.UserID = "a\x00" },
			"template": func(t *berth.Task) { t.Steps = nil },
			"status":   func(t *berth.Task) { t.Status = berth.TaskCompleted },
		} {
			task := chain()
			spoil(&task)
			_, created, err := l.CreateTask(t.Context(), task)
			requireCode(t, berth.CodeInvalid, err)
			require.ErrorContains(t, err, field)
			require.False(t, created)
		}
	})
}

func TestGetTask_ForeignOrAbsent_NotFound(t *testing.T) {
	each(t, func(t *testing.T, l *Ledger) {
		task := create(t, l, chain())
		for _, ask := range [][2]string{{"bob", task.ID}, {"alice", "t_none"}, {"alice", "\x00"}, {"", task.ID}} {
			_, err := l.GetTask(t.Context(), berth.TaskRef{UserID: ask[0], TaskID: ask[1]})
			requireCode(t, berth.CodeNotFound, err)
		}
	})
}

func TestListTasks_ManyPages_EachTaskOnceNewestFirst(t *testing.T) {
	each(t, func(t *testing.T, l *Ledger) {
		ctx := t.Context()
		base := time.UnixMilli(1_700_000_000_000)
		var want []string
		for i := range 25 {
			task := chain()
			task.ID = fmt.Sprintf("t_%02d", i)
			if i%2 == 0 {
				task.ID = fmt.Sprintf("T-%02d", i) // both databases must sort ids as bytes
			}
			task.CreatedAt = base.Add(time.Duration(i/5) * time.Millisecond) // five tasks have the same time
			create(t, l, task)
			foreign := chain()
			foreign.UserID = "bob"
			create(t, l, foreign)
			want = append(want, task.ID)
		}
		var got []berth.Task
		cursor := ""
		for pages := 1; ; pages++ {
			tasks, next, err := l.ListTasks(ctx, TaskQuery{UserID: "alice"}, cursor, 7)
			require.NoError(t, err)
			got = append(got, tasks...)
			if cursor = next; cursor == "" {
				require.Equal(t, 4, pages)
				break
			}
			require.Len(t, tasks, 7)
		}
		var ids []string
		for i, task := range got {
			ids = append(ids, task.ID)
			if i > 0 {
				before := got[i-1]
				require.True(t, before.CreatedAt.After(task.CreatedAt) ||
					before.CreatedAt.Equal(task.CreatedAt) && before.ID > task.ID, "%s before %s", before.ID, task.ID)
			}
		}
		require.ElementsMatch(t, want, ids)

		all, next, err := l.ListTasks(ctx, TaskQuery{UserID: "alice"}, "", 25)
		require.NoError(t, err)
		require.Len(t, all, 25)
		require.Empty(t, next, "no empty last page")
		none, next, err := l.ListTasks(ctx, TaskQuery{UserID: "carol"}, "", 0)
		require.NoError(t, err)
		require.Empty(t, none)
		require.Empty(t, next)
	})
}

func TestListTasks_EachFilter_Matches(t *testing.T) {
	each(t, func(t *testing.T, l *Ledger) {
		task := chain()
		task.ID = "t_1"
		create(t, l, task)
		task.ID, task.Template, task.ServiceID, task.CreatedAt = "t_2", "job_summary", "mail", task.CreatedAt.Add(-time.Hour)
		create(t, l, task)
		_, _, err := l.FinishTask(t.Context(), End{TaskRef: ref("t_2"), Status: berth.TaskCancelled, Code: berth.CodeCancelled})
		require.NoError(t, err)
		half := time.Now().Add(-30 * time.Minute)
		for name, c := range map[string]struct {
			q    TaskQuery
			want []string
		}{
			"all":           {TaskQuery{}, []string{"t_1", "t_2"}},
			"of a status":   {TaskQuery{Status: berth.TaskCancelled}, []string{"t_2"}},
			"of a template": {TaskQuery{Template: "job_match"}, []string{"t_1"}},
			"open":          {TaskQuery{Open: true}, []string{"t_1"}},
			"of a service":  {TaskQuery{Service: "mail"}, []string{"t_2"}},
			"of no service": {TaskQuery{Service: "mai"}, nil},
			"since a time":  {TaskQuery{From: half}, []string{"t_1"}},
			"before a time": {TaskQuery{To: half}, []string{"t_2"}},
			"all together":  {TaskQuery{Status: berth.TaskCancelled, Template: "job_match", From: half.Add(-time.Hour), To: half}, nil},
		} {
			c.q.UserID = "alice"
			var got []string
			for cursor := ""; ; {
				page, next, err := l.ListTasks(t.Context(), c.q, cursor, 1)
				require.NoError(t, err, name)
				for _, found := range page {
					got = append(got, found.ID)
				}
				if cursor = next; cursor == "" {
					break
				}
			}
			require.Equal(t, c.want, got, name)
		}
	})
}

func TestListTasks_InvalidCursor_Rejected(t *testing.T) {
	each(t, func(t *testing.T, l *Ledger) {
		enc := base64.RawURLEncoding.EncodeToString
		for _, c := range []string{
			"%", "x", enc([]byte("12")), enc([]byte(`{"a":1}`)), enc([]byte(`["x","t"]`)), enc([]byte(`[12]`)), enc([]byte(`[12,"t",3]`)),
			enc([]byte(`[1,"\u0000"]`)),
		} {
			_, _, err := l.ListTasks(t.Context(), TaskQuery{UserID: "alice"}, c, 5)
			requireCode(t, berth.CodeInvalid, err)
		}
	})
}

func TestOpenTasks_ManyPages_EndedTaskOmitted(t *testing.T) {
	each(t, func(t *testing.T, l *Ledger) {
		ctx := t.Context()
		for i := range 7 {
			task := chain()
			task.ID = fmt.Sprintf("t_%d", i)
			create(t, l, task)
		}
		_, _, err := l.FinishTask(ctx, End{TaskRef: ref("t_2"), Status: berth.TaskCancelled, Code: berth.CodeCancelled})
		require.NoError(t, err)
		var ids []string
		var after berth.TaskRef
		for {
			page, err := l.OpenTasks(ctx, after, 4)
			require.NoError(t, err)
			if len(page) == 0 {
				break
			}
			for _, after = range page {
				ids = append(ids, after.TaskID)
			}
		}
		require.Equal(t, []string{"t_0", "t_1", "t_3", "t_4", "t_5", "t_6"}, ids)
	})
}

func TestWithdrawTask_EachState_OnlyUnbegunDeleted(t *testing.T) {
	each(t, func(t *testing.T, l *Ledger) {
		ctx := t.Context()
		fresh, begun, ended := create(t, l, chain()), create(t, l, chain()), create(t, l, chain())
		begin(t, l, begun, 0)
		_, _, err := l.FinishTask(ctx, End{TaskRef: ended.Ref(), Status: berth.TaskCancelled})
		require.NoError(t, err)
		for _, id := range []string{fresh.ID, fresh.ID, begun.ID, ended.ID, "t_none"} {
			require.NoError(t, l.WithdrawTask(ctx, ref(id), "another request"))
			_, err = l.GetTask(ctx, ref(id))
			require.Equal(t, id == "t_none", err != nil, "a task of another request is not deleted")
		}
		for _, id := range []string{fresh.ID, fresh.ID, begun.ID, ended.ID, "t_none"} {
			require.NoError(t, l.WithdrawTask(ctx, ref(id), "hash"))
		}
		_, err = l.GetTask(ctx, fresh.Ref())
		requireCode(t, berth.CodeNotFound, err)
		create(t, l, fresh) // the id can be used again
		for _, id := range []string{begun.ID, ended.ID} {
			_, err = l.GetTask(ctx, ref(id))
			require.NoError(t, err)
		}
	})
}
