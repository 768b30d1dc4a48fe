package tests

import (
	"context"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/tidwall/gjson"

	"berth"
	"berth/client"
	"berth/internal/testprovider"
	"berth/lua"
	"berth/workflows"
)

// replaces makes the key replace responses that break off, with a budget of its own.
func (d *durable) replaces(t *testing.T, credits berth.Credits) {
	t.Helper()
	_, err := d.operator().PutKey(t.Context(), d.keyID, client.KeySpec{ReplaceResponses: true})
	require.NoError(t, err)
	_, err = d.operator().PutBudget(t.Context(), berth.BudgetKey, d.keyID, client.BudgetSpec{Credits: credits, Period: berth.PeriodTotal})
	require.NoError(t, err)
}

// ended reads a response to its end, and returns its object.
func (d *durable) ended(t *testing.T, id, last string) gjson.Result {
	t.Helper()
	events := all(d.events(t.Context(), t, d.httpAddr, "GET", "/"+id+"?stream=true", ""))
	numbered(t, events, 0, last)
	object := d.response(t, 200, "GET", "/"+id, "")
	require.Equal(t, gjson.Get(events[len(events)-1], "response").Raw, object.Raw)
	return object
}

// O8: where the key allows it, a response whose worker dies in mid-answer is made again from the beginning, as a new one that names it.
func TestResponses_WorkerKilledInMidAnswer_ReplacedWhereKeyAllows(t *testing.T) {
	t.Parallel()
	d := newDurable(t)
	d.replaces(t, 1000*berth.Credit)
	for _, more := range []string{`,"background":true,"stream":true`, `,"stream":true`} {
		free := make(chan struct{})
		d.provider.Answer(gated(free))
		before := d.provider.Calls.Load()
		streamed := d.events(t.Context(), t, d.httpAddr, "POST", "", responseBody(more))
		seen := follows(t, streamed, "The beginning")
		d.worker.kill()
		d.worker = d.startWorker()
		close(free)
		seen = append(seen, all(streamed)...)
		numbered(t, seen, 0, "response.failed")
		old := gjson.Get(seen[len(seen)-1], "response")
		id := old.Get("replaced_by").Str
		require.NotEmpty(t, id, "%v", seen)
		require.Contains(t, old.Get("error.message").Str, id)
		require.Equal(t, "The beginning", old.Get("output.0.content.0.text").Str)

		replacement := d.ended(t, id, "response.completed")
		require.Equal(t, old.Get("id").Str, replacement.Get("replaces").Str)
		require.False(t, replacement.Get("replaced_by").Exists())
		require.Equal(t, "The beginning and the end.", replacement.Get("output.0.content.0.text").Str)
		require.Equal(t, old.Get("background").Bool(), replacement.Get("background").Bool())
		require.Equal(t, old.Raw, d.response(t, 200, "GET", "/"+old.Get("id").Str, "").Raw)
		require.EqualValues(t, 2, d.provider.Calls.Load()-before)
		continued := d.response(t, 400, "POST", "", responseBody(`,"previous_response_id":"`+old.Get("id").Str+`"`))
		require.Contains(t, continued.Get("error.message").Str, "continue "+id)

		if old.Get("background").Bool() {
			d.saveHistory("task-replaced", workflows.TaskWorkflowID(berth.TaskRef{UserID: d.keyID, TaskID: old.Get("id").Str}))
			d.saveHistory("task-replacement", workflows.TaskWorkflowID(berth.TaskRef{UserID: d.keyID, TaskID: id}))
		}
		d.response(t, 200, "DELETE", "/"+old.Get("id").Str, "")
		require.Equal(t, "Hello", d.response(t, 200, "GET", "/"+id+"/input_items", "").Get("data.0.content.0.text").Str, "the input is of both")
	}
	d.settled(t)
}

// O8: an answer is made at most three times, and one whose client has nothing of it replaces nothing.
func TestResponses_UpstreamBreaksOffAgain_ReplacedTwice(t *testing.T) {
	t.Parallel()
	d := newDurable(t)
	d.replaces(t, 1000*berth.Credit)
	cut := make(chan struct{})
	d.provider.Answer(func(w http.ResponseWriter, r *http.Request) {
		select {
		case <-cut:
			testprovider.Cut("One")(w, r)
		case <-r.Context().Done():
		}
	})
	id := d.response(t, 200, "POST", "", responseBody(`,"background":true`)).Get("id").Str
	streamed := d.events(t.Context(), t, d.httpAddr, "GET", "/"+id+"?stream=true", "")
	<-streamed
	for round := 1; round <= 3; round++ {
		d.resumeModel(t)
		cut <- struct{}{}
		seen := all(streamed)
		failed := gjson.Get(seen[len(seen)-1], "response")
		require.Equal(t, "failed", failed.Get("status").Str)
		require.Equal(t, "connection", failed.Get("error.code").Str, failed.Raw)
		next := failed.Get("replaced_by").Str
		require.Equal(t, round < 3, next != "", failed.Raw)
		require.Equal(t, round < 3, strings.Contains(failed.Get("error.message").Str, "read the response "+next), failed.Raw)
		if round == 3 {
			break
		}
		require.Equal(t, id, d.response(t, 200, "GET", "/"+next, "").Get("replaces").Str)
		id = next
		streamed = d.events(t.Context(), t, d.httpAddr, "GET", "/"+id+"?stream=true", "")
		<-streamed
	}
	require.EqualValues(t, 3, d.provider.Calls.Load())
	d.settled(t)
}

// O8: a replacement can be cancelled and joined by its Idempotency-Key, and there is none without budget, without store and of a key that was revoked.
func TestResponses_Replacement_HasTheRulesOfItsRequest(t *testing.T) {
	t.Parallel()
	d := newDurable(t, "BERTH_CALL_GRACE=1s")
	d.replaces(t, 1000*berth.Credit)
	// breaksOff makes a response of which a part is read when it breaks off, and returns it, and lets its replacement run.
	breaksOff := func(more string, meanwhile func(), header ...string) (failed gjson.Result, free chan struct{}) {
		cut, free, before := make(chan struct{}), make(chan struct{}), d.provider.Calls.Load()
		d.provider.Answer(func(w http.ResponseWriter, r *http.Request) {
			if d.provider.Calls.Load() > before+1 {
				gated(free)(w, r)
				return
			}
			testprovider.Part(w, "One")
			select {
			case <-cut:
				panic(http.ErrAbortHandler)
			case <-r.Context().Done():
			}
		})
		d.resumeModel(t)
		events := d.events(t.Context(), t, d.httpAddr, "POST", "", responseBody(`,"stream":true`+more), header...)
		follows(t, events, "One")
		meanwhile()
		close(cut)
		seen := all(events)
		failed = gjson.Get(seen[len(seen)-1], "response")
		require.Equal(t, "failed", failed.Get("status").Str, failed.Raw)
		return failed, free
	}
	nothing := func() {}

	failed, free := breaksOff("", nothing, "Idempotency-Key", "one")
	seen := follows(t, d.events(t.Context(), t, d.httpAddr, "POST", "", responseBody(`,"stream":true`), "Idempotency-Key", "one"), "The beginning")
	joined := gjson.Get(seen[0], "response.id").Str
	require.Equal(t, failed.Get("replaced_by").Str, joined)
	require.Equal(t, "cancelled", d.response(t, 200, "POST", "/"+joined+"/cancel", "").Get("status").Str)
	close(free)

	// one that joins it may leave
	failed, free = breaksOff("", nothing, "Idempotency-Key", "two")
	joins, leave := context.WithCancel(t.Context())
	follows(t, d.events(joins, t, d.httpAddr, "POST", "", responseBody(`,"stream":true`), "Idempotency-Key", "two"), "The beginning")
	leave()
	d.eventually("the client to be missed", func() bool { return d.redis().ZCard(t.Context(), lua.Keys{}.AttendedCalls()).Val() == 0 })
	close(free)
	d.ended(t, failed.Get("replaced_by").Str, "response.completed")

	failed, free = breaksOff(`,"store":false`, nothing)
	require.False(t, failed.Get("replaced_by").Exists())
	close(free)

	failed, free = breaksOff("", func() { d.replaces(t, berth.Credit/1000) })
	require.False(t, failed.Get("replaced_by").Exists())
	d.replaces(t, 1000*berth.Credit)
	close(free)

	failed, free = breaksOff("", func() { require.NoError(t, d.operator().RevokeKey(t.Context(), d.keyID)) })
	require.False(t, failed.Get("replaced_by").Exists())
	close(free)
	d.settled(t)
}

// O8, O4: an answer of which nothing was read is made three times, also where its upstream is paused meanwhile, and what is read afterwards is charged.
func TestResponses_UpstreamBreaksOffUnread_MadeThreeTimes(t *testing.T) {
	t.Parallel()
	d := newDurable(t)
	for _, c := range []struct {
		cuts int64
		last string
	}{{2, "response.completed"}, {3, "response.failed"}} {
		before := d.provider.Calls.Load()
		d.provider.CutFirst(c.cuts, "One", testprovider.Write(0, "One", " two"))
		spent := d.settled(t)
		id := d.response(t, 200, "POST", "", responseBody(`,"background":true`)).Get("id").Str
		var status string
		d.eventually("the end", func() bool {
			status = d.response(t, 200, "GET", "/"+id, "").Get("status").Str
			return status == "completed" || status == "failed"
		})
		require.Equal(t, c.last, "response."+status)
		require.EqualValues(t, 3, d.provider.Calls.Load()-before)
		d.ended(t, id, c.last)
		require.Greater(t, d.settled(t), spent)
	}
	d.provider.Answer(testprovider.Cut("One"))
	spent := d.settled(t)
	require.Equal(t, "connection", d.response(t, 502, "POST", "", responseBody("")).Get("error.code").Str)
	require.Equal(t, spent, d.settled(t), "its client has got nothing")
}
