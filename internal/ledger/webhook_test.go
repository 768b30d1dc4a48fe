package ledger

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"berth"
)

// hook creates a webhook.
func hook(t *testing.T, l *Ledger, set func(*berth.Webhook)) berth.Webhook {
	t.Helper()
	w := berth.Webhook{
		ID: berth.NewID(berth.WebhookIDPrefix), Secrets: []string{"whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"}, CreatedBy: "op",
		WebhookSettings: berth.WebhookSettings{URL: "https://host.test/events"},
	}
	set(&w)
	w, err := l.CreateWebhook(t.Context(), w)
	require.NoError(t, err)
	got, err := l.GetWebhook(t.Context(), w.ID)
	require.NoError(t, err)
	require.Equal(t, w, got)
	return w
}

func deliveries(t *testing.T, l *Ledger, w berth.Webhook) []berth.WebhookDelivery {
	t.Helper()
	found, _, err := l.Deliveries(t.Context(), w.ID, "", "", 200)
	require.NoError(t, err)
	return found
}

// The end of work adds one event, in the same transaction, for each webhook that is about it, and a repeated end adds none.
func TestWebhooks_WorkEnds_EachThatIsAboutItGetsOneEvent(t *testing.T) { // O8
	each(t, func(t *testing.T, l *Ledger) {
		withApps(t, l)
		require.NoError(t, l.PutTeam(t.Context(), berth.Team{ID: "a", LevelSettings: berth.DefaultLevel(), Users: []string{"bob"}}, "op"))
		var announced []string
		l.OnDeliveries(func(ids []string) { announced = append(announced, ids...) })
		hooks := map[string]berth.Webhook{
			"all":  hook(t, l, func(*berth.Webhook) {}),
			"team": hook(t, l, func(w *berth.Webhook) { w.TeamID = "a" }),
			"app":  hook(t, l, func(w *berth.Webhook) { w.TeamID, w.AppID = "a", "chat" }),
			"user": hook(t, l, func(w *berth.Webhook) { w.UserID = "alice" }),
			"only failed": hook(t, l, func(w *berth.Webhook) {
				w.Events = []berth.WebhookEventType{berth.EventTaskFailed, berth.EventResponseFailed}
			}),
			"disabled": hook(t, l, func(w *berth.Webhook) { w.DisabledAt, w.DisabledWhy = asStored(time.Now()), berth.WebhookGone }),
		}
		finish := func(task berth.Task, e End) func() error {
			task = create(t, l, task)
			return func() error {
				e.TaskRef = task.Ref()
				_, _, err := l.FinishTask(context.Background(), e)
				return err
			}
		}
		answer := func(task berth.Task, reason string) func() error {
			task = create(t, l, task)
			a := begin(t, l, task, 0)
			startCall(t, l, task, 0, a.Fence)
			return func() error {
				r := result(task, 0, a.Fence, "text")
				r.Completes, r.FinishReason = true, reason
				_, err := l.FinishStep(context.Background(), r)
				return err
			}
		}
		task := func(id, user, team, app string) berth.Task {
			b := chain()
			b.ID, b.UserID, b.Team, b.App, b.Variables = id, user, team, app, nil
			return b
		}
		response := func(id string, background bool) berth.Task {
			r := responding("key_"+id, false)
			r.ID, r.Team, r.App = "resp_"+id, "a", "chat"
			r.Forwarded.Response.Background = background
			return r
		}
		chat := func(id string) berth.Task {
			b := forwarded("key_" + id)
			b.ID = id
			return b
		}
		run := func(id, user string, status berth.ExecutionStatus) func() error {
			e := execution(id, time.Now())
			e.UserID, e.Status, e.EndedAt = user, status, e.StartedAt.Add(time.Second)
			return func() error { _, err := l.SaveExecution(context.Background(), e); return err }
		}
		failed := End{Status: berth.TaskFailed, Code: berth.CodeInterrupted, Message: "interrupted"}
		for _, c := range []struct {
			end   func() error
			event berth.WebhookEventType
			id    string
			of    []string
		}{
			{finish(task("t1", "alice", "", ""), failed), berth.EventTaskFailed, "t1", []string{"all", "only failed", "user"}},
			{finish(task("t2", "bob", "a", "chat"), End{Status: berth.TaskCancelled}), berth.EventTaskCancelled, "t2", []string{"all", "app", "team"}},
			{finish(task("t3", "bob", "a", ""), failed), berth.EventTaskFailed, "t3", []string{"all", "only failed", "team"}},
			{finish(task("t4", "eve", "other", "chat"), End{Status: berth.TaskCancelled}), berth.EventTaskCancelled, "t4", []string{"all"}},
			{answer(response("1", true), berth.FinishStop), berth.EventResponseCompleted, "resp_1", []string{"all", "app", "team"}},
			{answer(response("2", true), berth.FinishLength), berth.EventResponseIncomplete, "resp_2", []string{"all", "app", "team"}},
			{answer(response("3", true), berth.FinishFiltered), berth.EventResponseIncomplete, "resp_3", []string{"all", "app", "team"}},
			{finish(response("4", true), failed), berth.EventResponseFailed, "resp_4", []string{"all", "app", "only failed", "team"}},
			{finish(response("5", true), End{Status: berth.TaskCancelled}), berth.EventResponseCancelled, "resp_5", []string{"all", "app", "team"}},
			{answer(response("6", false), berth.FinishStop), "", "", nil},
			{finish(chat("c1"), failed), "", "", nil},
			{run("x1", "alice", berth.ExecutionCompleted), berth.EventExecutionCompleted, "x1", []string{"all", "user"}},
			{run("x2", "bob", berth.ExecutionFailed), berth.EventExecutionFailed, "x2", []string{"all", "team"}},
			{run("x3", "eve", berth.ExecutionCancelled), berth.EventExecutionCancelled, "x3", []string{"all"}},
			{run("x4", "alice", berth.ExecutionRunning), "", "", nil},
		} {
			if c.event == "" && c.id == "" {
				before := len(announced)
				_ = c.end()
				require.Len(t, announced, before)
				continue
			}
			before := map[string]int{}
			for name, w := range hooks {
				before[name] = len(deliveries(t, l, w))
			}
			announced = nil
			require.NoError(t, c.end())
			require.NoError(t, c.end(), "repeated")
			var of, ids []string
			events := map[string]bool{}
			for name, w := range hooks {
				got := deliveries(t, l, w)
				require.LessOrEqual(t, len(got)-before[name], 1, "%s of %s", name, c.id)
				if len(got) == before[name] {
					continue
				}
				of, ids = append(of, name), append(ids, got[0].ID)
				var e berth.WebhookEvent
				require.NoError(t, json.Unmarshal(got[0].Event, &e))
				require.Equal(t, []any{c.event, c.id, c.id, "event", got[0].EventID}, []any{e.Type, e.Data.ID, got[0].SubjectID, e.Object, e.ID})
				require.Equal(t, e.Timestamp.Unix(), e.CreatedAt)
				events[e.ID] = true
			}
			slices.Sort(of)
			require.Equal(t, c.of, of, c.id)
			require.ElementsMatch(t, ids, announced, c.id)
			require.Len(t, events, 1, "one id for all webhooks")
		}
	})
}

// Attempts are kept in their order, the last ones; what is due is found; an end that was not accepted stays, unless it was.
func TestDeliveries_Attempts_KeptAndFoundWhileDue(t *testing.T) { // O8
	each(t, func(t *testing.T, l *Ledger) {
		w := hook(t, l, func(*berth.Webhook) {})
		add := func() berth.WebhookDelivery {
			d, err := l.AddDelivery(t.Context(), w.ID, berth.NewWebhookEvent(berth.EventWebhookTest, time.Now(), berth.WebhookData{ID: w.ID}))
			require.NoError(t, err)
			return d
		}
		due := func(retried, begun time.Duration) []string {
			ids, err := l.UnsentDeliveries(t.Context(), time.Now().Add(-retried), time.Now().Add(-begun), 10)
			require.NoError(t, err)
			return ids
		}
		d := add()
		require.Empty(t, due(time.Hour, time.Minute))
		require.Equal(t, []string{d.ID}, due(time.Hour, -time.Minute), "it has no attempt")
		for i := range berth.MaxWebhookLog + 3 {
			var err error
			d, err = l.SaveAttempt(t.Context(), d.ID, berth.WebhookAttempt{At: time.Now(), Status: 500 + i, Error: "the server\x00 failed"})
			require.NoError(t, err)
		}
		require.Equal(t, berth.DeliveryPending, d.State)
		require.Equal(t, berth.MaxWebhookLog+3, d.Attempts)
		require.Len(t, d.Log, berth.MaxWebhookLog)
		require.Equal(t, 503, d.Log[0].Status)
		require.Equal(t, "the server failed", d.Log[0].Error)
		require.Empty(t, due(time.Hour, -time.Minute), "it is retried")
		require.Equal(t, []string{d.ID}, due(-time.Minute, -time.Minute), "no attempt for long")
		d, nothing, err := l.AbandonDelivery(t.Context(), d.ID)
		require.NoError(t, err)
		require.True(t, nothing)
		require.Equal(t, berth.DeliveryFailed, d.State)
		require.Empty(t, due(-time.Minute, -time.Minute))

		d, err = l.ResendDelivery(t.Context(), d.ID)
		require.NoError(t, err)
		require.Equal(t, berth.DeliveryPending, d.State)
		other := add()
		d, err = l.SaveAttempt(t.Context(), d.ID, berth.WebhookAttempt{At: time.Now(), Status: 200})
		require.NoError(t, err)
		require.Equal(t, berth.DeliveryDelivered, d.State)
		d, _, err = l.AbandonDelivery(t.Context(), d.ID)
		require.NoError(t, err)
		require.Equal(t, berth.DeliveryDelivered, d.State, "it was accepted")
		_, nothing, err = l.AbandonDelivery(t.Context(), other.ID)
		require.NoError(t, err)
		require.False(t, nothing, "the webhook has accepted another event")

		page, next, err := l.Deliveries(t.Context(), w.ID, "", "", 1)
		require.NoError(t, err)
		require.Equal(t, other.ID, page[0].ID)
		page, next, err = l.Deliveries(t.Context(), w.ID, "", next, 1)
		require.NoError(t, err)
		require.Equal(t, d.ID, page[0].ID)
		require.Empty(t, next)
		page, _, err = l.Deliveries(t.Context(), w.ID, berth.DeliveryFailed, "", 10)
		require.NoError(t, err)
		require.Len(t, page, 1)

		require.NoError(t, l.DeleteWebhook(t.Context(), w.ID))
		_, err = l.GetDelivery(t.Context(), d.ID)
		requireCode(t, berth.CodeNotFound, err)
		requireCode(t, berth.CodeNotFound, l.DeleteWebhook(t.Context(), w.ID))
		_, err = l.AddDelivery(t.Context(), w.ID, berth.WebhookEvent{})
		requireCode(t, berth.CodeNotFound, err)
	})
}

// A webhook goes with its team, and moves and goes with its application. An owner has a bounded number.
func TestWebhooks_OwnerChanges_WebhookFollows(t *testing.T) { // O8
	each(t, func(t *testing.T, l *Ledger) {
		withApps(t, l)
		of := func(team, app string) func(*berth.Webhook) {
			return func(w *berth.Webhook) { w.TeamID, w.AppID = team, app }
		}
		for _, bad := range []func(*berth.Webhook){of("none", ""), of("a", "none"), func(w *berth.Webhook) { w.Events = []berth.WebhookEventType{"task.done"} }} {
			w := berth.Webhook{ID: "wh_bad", Secrets: []string{"s"}}
			bad(&w)
			_, err := l.CreateWebhook(t.Context(), w)
			requireCode(t, berth.CodeInvalid, err)
		}
		w := hook(t, l, of("a", "chat"))
		require.NoError(t, l.PutTeam(t.Context(), berth.Team{ID: "next", LevelSettings: berth.DefaultLevel()}, "op"))
		require.NoError(t, l.PutApp(t.Context(), berth.App{ID: "chat", TeamID: "next", LevelSettings: berth.DefaultLevel()}, "op"))
		moved, err := l.GetWebhook(t.Context(), w.ID)
		require.NoError(t, err)
		require.Equal(t, "next", moved.TeamID)
		require.NoError(t, l.DeleteApp(t.Context(), "chat", "op"))
		_, err = l.GetWebhook(t.Context(), w.ID)
		requireCode(t, berth.CodeNotFound, err)
		w = hook(t, l, of("next", ""))
		require.NoError(t, l.DeleteTeam(t.Context(), "next", "op"))
		_, err = l.GetWebhook(t.Context(), w.ID)
		requireCode(t, berth.CodeNotFound, err)
		for i := range berth.MaxWebhooks {
			hook(t, l, func(w *berth.Webhook) { w.UserID, w.Title = "alice", fmt.Sprint(i) })
		}
		_, err = l.CreateWebhook(t.Context(), berth.Webhook{ID: "wh_more", UserID: "alice", Secrets: []string{"s"}})
		requireCode(t, berth.CodeConflict, err)
	})
}
