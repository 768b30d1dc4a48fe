package ledger

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"berth"
)

// responding returns a task of a response, not stored yet. What is reserved is 1,000.
func responding(user string, stream bool) berth.Task {
	t := forwarded(user)
	t.Template = berth.TemplateResponse
	t.Forwarded.Stream, t.Forwarded.Response = stream, &berth.ResponseCall{Background: true, Store: true}
	return t
}

// An answer of which something was published is made again as long as no client can have read it, and only the one that is delivered is charged.
func TestResponse_WorkerLostInAnswer_MadeAgainUnlessRead(t *testing.T) { // O4, O8
	for name, c := range map[string]struct {
		stream         bool
		followed       int // before the given attempt, 0 for never
		begun          bool
		wants, reports berth.Credits
	}{
		"not read":                  {wants: 300},
		"reported before the death": {reports: 40, wants: 300},
		"the client streams":        {stream: true, reports: 40, begun: true, wants: 40},
		"followed before it began":  {followed: 1, reports: 40, begun: true, wants: 40},
		"followed before the death": {followed: 2, reports: 40, begun: true, wants: 40},
	} {
		t.Run(name, func(t *testing.T) {
			each(t, func(t *testing.T, l *Ledger) {
				withBudget(t, l, 1500)
				task, _, err := l.CreateTask(t.Context(), responding("key", c.stream))
				require.NoError(t, err)
				follow := func(attempt int, fence int64) {
					if c.followed == attempt {
						row, err := l.FollowResponse(t.Context(), task.Ref())
						require.NoError(t, err)
						require.Equal(t, fence, row.Fence)
						require.True(t, row.Forwarded.Response.Followed)
					}
				}
				follow(1, 0)
				first := begin(t, l, task, 0)
				require.NoError(t, l.StartCall(t.Context(), CallStart{TaskRef: task.Ref(), Fence: first.Fence, Provider: "p", Upstream: "u", Status: berth.TaskStreaming}))
				follow(2, first.Fence)
				if c.reports > 0 {
					require.NoError(t, l.FailedCall(t.Context(), failed(task, 0, first.Fence, berth.CodeUnavailable, c.reports)))
				}
				next := begin(t, l, task, 0)
				require.Equal(t, c.begun, next.Begun)
				if c.begun {
					_, _, err := l.FinishTask(t.Context(), End{TaskRef: task.Ref(), Status: berth.TaskFailed, Code: berth.CodeInterrupted})
					require.NoError(t, err)
				} else {
					require.NoError(t, l.FailedCall(t.Context(), failed(task, 0, first.Fence, berth.CodeUnavailable, 50)), "reported late")
					answered(t, l, task, 0, next.Fence, 300)
				}
				require.Equal(t, c.wants, used(t, l))
				require.Equal(t, c.wants, charged(t, l, "key"))
			})
		})
	}
}

// The events of a response that did not complete are stored once, and go with the texts of the task.
func TestResponse_EventsSaved_FirstOnesStay(t *testing.T) { // O8
	each(t, func(t *testing.T, l *Ledger) {
		events := func(text string) berth.Asset {
			return berth.Asset{Kind: berth.AssetResult, MediaType: berth.ChunksMediaType, Content: []byte(text)}
		}
		withBudget(t, l, 1500)
		task, _, err := l.CreateTask(t.Context(), responding("key", false))
		require.NoError(t, err)
		require.NoError(t, l.SaveEvents(t.Context(), task.Ref(), events("too early")))
		_, _, err = l.FinishTask(t.Context(), End{TaskRef: task.Ref(), Status: berth.TaskCancelled})
		require.NoError(t, err)
		for _, text := range []string{"first", "second"} {
			require.NoError(t, l.SaveEvents(t.Context(), task.Ref(), events(text)))
		}
		row, err := l.FollowResponse(t.Context(), task.Ref())
		require.NoError(t, err)
		require.False(t, row.Forwarded.Response.Followed, "it has ended")
		stored, err := l.GetAsset(t.Context(), "key", row.ResultAssetID)
		require.NoError(t, err)
		require.Equal(t, "first", string(stored.Content))

		require.NoError(t, l.EraseTask(t.Context(), task.Ref()))
		_, err = l.GetAsset(t.Context(), "key", row.ResultAssetID)
		require.Equal(t, berth.CodeErased, berth.CodeOf(err))

		chat, _, err := l.CreateTask(t.Context(), forwarded("other"))
		require.NoError(t, err)
		_, err = l.FollowResponse(t.Context(), chat.Ref())
		require.Equal(t, berth.CodeNotFound, berth.CodeOf(err))
	})
}

// A response that is not to be stored can only be joined by a retry of its client.
func TestResponse_NotStored_ErasedSoon(t *testing.T) { // O8
	each(t, func(t *testing.T, l *Ledger) {
		withBudget(t, l, 10000)
		for store, want := range map[bool]int64{true: 0, false: 1} {
			plan := responding("key", true)
			plan.Forwarded.Response.Store = store
			task, _, err := l.CreateTask(t.Context(), plan)
			require.NoError(t, err)
			answered(t, l, task, 0, begin(t, l, task, 0).Fence, 1)
			erased, _, err := l.eraseTasks(context.Background(), selectErasable, time.Now().Add(JoinWithin+time.Second), 10)
			require.NoError(t, err)
			require.Equal(t, want, erased)
		}
	})
}

// The response that replaces a failed one is created with its end, unless its key may not make it: then the end has no effect on it.
func TestResponse_Fails_ReplacementCreatedWithEnd(t *testing.T) { // O8
	for name, c := range map[string]struct {
		status   berth.TaskStatus
		credits  berth.Credits // of the budget
		revoked  bool
		key      string
		replaced bool
	}{
		"failed":              {status: berth.TaskFailed, credits: 2000, replaced: true},
		"with a key":          {status: berth.TaskFailed, credits: 2000, key: "k_1", replaced: true},
		"cancelled meanwhile": {status: berth.TaskCancelled, credits: 2000},
		"without budget":      {status: berth.TaskFailed, credits: 1000},
		"key revoked":         {status: berth.TaskFailed, credits: 2000, revoked: true},
	} {
		t.Run(name, func(t *testing.T) {
			each(t, func(t *testing.T, l *Ledger) {
				withBudget(t, l, c.credits)
				key, err := l.CreateKey(t.Context(), berth.APIKey{ID: "key", TeamID: "t"}, "hash")
				require.NoError(t, err)
				all := hook(t, l, func(*berth.Webhook) {})
				plan := responding(key.ID, true)
				plan.Key, plan.Forwarded.Response.Replace, plan.DeadlineAt = c.key, true, time.Now().Add(time.Minute)
				task, _, err := l.CreateTask(t.Context(), plan)
				require.NoError(t, err)
				first := begin(t, l, task, 0)
				require.NoError(t, l.StartCall(t.Context(), CallStart{TaskRef: task.Ref(), Fence: first.Fence, Provider: "p", Upstream: "u", Status: berth.TaskStreaming}))
				require.NoError(t, l.FailedCall(t.Context(), failed(task, 0, first.Fence, berth.CodeUnavailable, 40)))
				if c.revoked {
					require.NoError(t, l.RevokeKey(t.Context(), key.ID, "op"))
				}
				replacement := plan.Replacement(time.Now())
				end := End{TaskRef: task.Ref(), Status: c.status, Code: berth.CodeInterrupted, Replacement: replacement}
				for range 2 {
					row, _, err := l.FinishTask(t.Context(), end)
					require.NoError(t, err)
					if !c.replaced {
						require.Empty(t, row.Forwarded.Response.ReplacedBy)
						continue
					}
					require.Equal(t, replacement.ID, row.Forwarded.Response.ReplacedBy)
				}
				next, found, err := berth.Found(l.GetTask(t.Context(), replacement.Ref()))
				require.NoError(t, err)
				require.Equal(t, c.replaced, found)
				require.EqualValues(t, 40, charged(t, l, "key"))
				if !found {
					require.EqualValues(t, 40, used(t, l))
					return
				}
				require.EqualValues(t, 1040, used(t, l))
				require.Equal(t, berth.TaskPending, next.Status)
				events, _, err := l.Deliveries(t.Context(), all.ID, "", "", 10)
				require.NoError(t, err)
				require.Len(t, events, 1)
				require.Contains(t, string(events[0].Event), `"replacedBy":"`+replacement.ID+`"`)
				require.Equal(t, task.ID, next.Forwarded.Response.Replaces)
				require.InDelta(t, time.Minute, next.DeadlineAt.Sub(next.CreatedAt), float64(time.Second))
				if c.key != "" {
					newest, err := l.FindSubmission(t.Context(), "key", c.key)
					require.NoError(t, err)
					require.Equal(t, next.ID, newest.TaskID)
				}
			})
		})
	}
}
