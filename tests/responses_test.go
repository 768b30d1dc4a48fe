package tests

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/tidwall/gjson"

	"berth/internal/testprovider"
)

// responseBody is the body of a request for a response, with further fields.
func responseBody(more string) string {
	return `{"model":"m","input":"Hello"` + more + `}`
}

// responses requests a path of the responses API.
func (c *keyHolder) responses(ctx context.Context, addr, method, path, body string, header ...string) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, method, "http://"+addr+"/openai/v1/responses"+path, strings.NewReader(body))
	if err != nil {
		return nil, err
	}
	req.Header.Set("Authorization", "Bearer "+c.secret)
	for i := 0; i < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	return http.DefaultClient.Do(req)
}

// response returns what the responses API replies, as JSON.
func (d *durable) response(t *testing.T, status int, method, path, body string, header ...string) gjson.Result {
	t.Helper()
	res, err := d.keyHolder.responses(t.Context(), d.httpAddr, method, path, body, header...)
	require.NoError(t, err)
	defer func() { _ = res.Body.Close() }()
	b, err := io.ReadAll(res.Body)
	require.NoError(t, err)
	require.Equal(t, status, res.StatusCode, string(b))
	require.True(t, json.Valid(b), string(b))
	return gjson.ParseBytes(b)
}

// events begins a stream and returns its events; the channel is closed when the response ends.
func (d *durable) events(ctx context.Context, t *testing.T, addr, method, path, body string, header ...string) <-chan string {
	t.Helper()
	res, err := d.keyHolder.responses(ctx, addr, method, path, body, header...)
	require.NoError(t, err)
	if res.StatusCode != http.StatusOK {
		b, _ := io.ReadAll(res.Body)
		require.Equal(t, http.StatusOK, res.StatusCode, string(b))
	}
	events := make(chan string, 1000)
	d.readers.Go(func() {
		defer close(events)
		defer func() { _ = res.Body.Close() }()
		for scanner := bufio.NewScanner(res.Body); scanner.Scan(); {
			if data, ok := strings.CutPrefix(scanner.Text(), "data: "); ok {
				events <- data
			}
		}
	})
	return events
}

func all(events <-chan string) (list []string) {
	for e := range events {
		list = append(list, e)
	}
	return list
}

// follows returns once a stream has an event with a text, and the events until then.
func follows(t *testing.T, events <-chan string, text string) (seen []string) {
	t.Helper()
	for e := range events {
		if seen = append(seen, e); strings.Contains(e, text) {
			return seen
		}
	}
	require.FailNow(t, "the stream ended without "+text, "%v", seen)
	return nil
}

// numbered checks that events have the numbers from first on, and that the last one, and no other, ends the response.
func numbered(t *testing.T, events []string, first int, last string) {
	t.Helper()
	for i, e := range events {
		require.EqualValues(t, first+i, gjson.Get(e, "sequence_number").Int(), "%v", events)
		typ := gjson.Get(e, "type").Str
		ends := typ == "response.completed" || typ == "response.failed" || typ == "response.incomplete" || typ == "response.cancelled"
		require.Equal(t, i == len(events)-1, ends, "%d of %v", i, events)
		if ends {
			require.Equal(t, last, typ, "%v", events)
		}
	}
}

// O8: a response is created, read, resumed at any number, continued, cancelled and deleted.
func TestResponses_Lifecycle_EachRequestDoesWhatItSays(t *testing.T) {
	t.Parallel()
	d := newDurable(t)
	d.provider.Answer(testprovider.Write(0, "One", " two", " three"))
	text := func(r gjson.Result) string { return r.Get(`output.#(type=="message").content.0.text`).Str }

	whole := d.response(t, 200, "POST", "", responseBody(""))
	require.Equal(t, "completed", whole.Get("status").Str)
	require.Equal(t, "One two three", text(whole))
	id := whole.Get("id").Str
	require.Equal(t, whole.Raw, d.response(t, 200, "GET", "/"+id, "").Raw)

	streamed := all(d.events(t.Context(), t, d.httpAddr, "POST", "", responseBody(`,"stream":true`)))
	numbered(t, streamed, 0, "response.completed")
	id = gjson.Get(streamed[0], "response.id").Str
	for after := -1; after < len(streamed); after++ {
		path := fmt.Sprintf("/%s?stream=true&starting_after=%d", id, after)
		if after < 0 {
			path = "/" + id + "?stream=true"
		}
		require.Equal(t, streamed[min(after+1, len(streamed)):], append([]string{}, all(d.events(t.Context(), t, d.httpAddr, "GET", path, ""))...), path)
	}

	require.Equal(t, streamed, d.readAll(t, id).events)

	queued := d.response(t, 200, "POST", "", responseBody(`,"background":true`))
	require.Contains(t, []string{"queued", "in_progress"}, queued.Get("status").Str)
	id = queued.Get("id").Str
	d.eventually("the response in the background", func() bool { return d.response(t, 200, "GET", "/"+id, "").Get("status").Str == "completed" })
	require.Equal(t, "One two three", text(d.response(t, 200, "GET", "/"+id, "")))
	require.Equal(t, "completed", d.response(t, 200, "POST", "/"+id+"/cancel", "").Get("status").Str, "it has ended")

	next := d.response(t, 200, "POST", "", responseBody(`,"previous_response_id":"`+id+`"`))
	require.Equal(t, id, next.Get("previous_response_id").Str)
	require.Equal(t, "Hello", d.response(t, 200, "GET", "/"+id+"/input_items", "").Get("data.0.content.0.text").Str)

	many := d.response(t, 200, "POST", "", `{"model":"m","input":[{"role":"user","content":"1"},{"role":"assistant","content":"2"},{"role":"user","content":"3"}]}`).Get("id").Str
	items := func(query string) (texts string, last string) {
		list := d.response(t, 200, "GET", "/"+many+"/input_items?"+query, "")
		for _, item := range list.Get("data").Array() {
			texts += item.Get("content.0.text").Str
		}
		if list.Get("has_more").Bool() {
			texts += "…"
		}
		return texts, list.Get("last_id").Str
	}
	page, last := items("limit=2")
	require.Equal(t, "32…", page)
	page, _ = items("after=" + last)
	require.Equal(t, "1", page)
	page, _ = items("order=asc")
	require.Equal(t, "123", page)
	for query, param := range map[string]string{"limit=0": "limit", "order=up": "order", "after=x": "after"} {
		require.Equal(t, param, d.response(t, 400, "GET", "/"+many+"/input_items?"+query, "").Get("error.param").Str)
	}

	require.True(t, d.response(t, 200, "DELETE", "/"+id, "").Get("deleted").Bool())
	d.response(t, 404, "GET", "/"+id, "")
	d.response(t, 404, "DELETE", "/"+id, "")
	refused := d.response(t, 400, "POST", "", responseBody(`,"previous_response_id":"`+next.Get("id").Str+`"`))
	require.Equal(t, "previous_response_id", refused.Get("error.param").Str)
	require.Contains(t, refused.Get("error.message").Str, id, "the one in the middle is missing")
	require.Equal(t, "One two three", text(d.response(t, 200, "GET", "/"+next.Get("id").Str, "")), "it can be read")

	notStored := d.response(t, 200, "POST", "", responseBody(`,"store":false`))
	d.response(t, 404, "GET", "/"+notStored.Get("id").Str, "")
	d.response(t, 404, "GET", "/resp_unknown", "")
	d.settled(t)
}

// O8: a number that no event has yet is waited for, and only events with a greater one are sent, or the one that ends the response.
func TestResponses_NumberBeyondWhatExists_GreaterOnesAwaited(t *testing.T) {
	t.Parallel()
	d := newDurable(t)
	free := make(chan struct{})
	d.provider.Answer(gated(free))
	seen := follows(t, d.events(t.Context(), t, d.httpAddr, "POST", "", responseBody(`,"background":true,"stream":true`)), "The beginning")
	id := gjson.Get(seen[0], "response.id").Str
	reading := map[int]<-chan string{}
	for _, after := range []int{len(seen) - 1, len(seen), len(seen) + 1, 1000, math.MaxInt} {
		reading[after] = d.events(t.Context(), t, d.httpAddr, "GET", fmt.Sprintf("/%s?stream=true&starting_after=%d", id, after), "")
	}
	close(free)
	d.eventually("the end", func() bool { return d.response(t, 200, "GET", "/"+id, "").Get("status").Str == "completed" })
	whole := d.readAll(t, id).events
	require.Greater(t, len(whole), len(seen)+2)
	for after, events := range reading {
		got := all(events)
		if after < len(whole) {
			require.Equal(t, whole[after+1:], got, "after %d", after)
			continue
		}
		require.Equal(t, whole[len(whole)-1:], got, "after %d", after)
	}
	d.settled(t)
}

// O8, O7: a response in the background is cancelled by a request only, and then has what had arrived.
func TestResponses_CancelledInMidAnswer_KeepsWhatArrived(t *testing.T) {
	t.Parallel()
	d := newDurable(t, "BERTH_CALL_GRACE=1s", "BERTH_CALL_HOLD=1ms")
	free := make(chan struct{})
	defer close(free)
	d.provider.Answer(gated(free))
	ctx, leave := context.WithCancel(t.Context())
	seen := follows(t, d.events(ctx, t, d.httpAddr, "POST", "", responseBody(`,"background":true,"stream":true`)), "The beginning")
	id := gjson.Get(seen[0], "response.id").Str
	follows(t, d.events(ctx, t, d.httpAddr, "POST", "", responseBody(`,"stream":true`)), "The beginning")
	leave()
	d.eventually("the other one to be cancelled", func() bool { return d.provider.InFlight() == 1 })
	require.Equal(t, "in_progress", d.response(t, 200, "GET", "/"+id, "").Get("status").Str)
	d.response(t, 409, "DELETE", "/"+id, "")

	rest := d.events(t.Context(), t, d.httpAddr, "GET", "/"+id+"?stream=true&starting_after=0", "")
	follows(t, rest, "The beginning")
	for range 2 {
		cancelled := d.response(t, 200, "POST", "/"+id+"/cancel", "")
		require.Equal(t, "cancelled", cancelled.Get("status").Str)
		require.Contains(t, cancelled.Get("output").Raw, "The beginning")
	}
	d.eventually("the provider's call to end", func() bool { return d.provider.InFlight() == 0 })
	events := all(d.events(t.Context(), t, d.httpAddr, "GET", "/"+id+"?stream=true", ""))
	numbered(t, events, 0, "response.cancelled")
	require.Equal(t, seen, events[:len(seen)])
	require.Equal(t, events[len(events)-1:], all(rest))
	require.Positive(t, d.settled(t))
}

// O8: what a client sees of a response when something dies in mid-answer: what was not read is made again, and what was read never changes.
func TestResponses_AnythingDiesInMidAnswer_NumbersAreFacts(t *testing.T) {
	t.Parallel()
	d := newDurable(t, "BERTH_CALL_HOLD=1ms")
	for name, c := range map[string]struct {
		body   string
		follow bool // before the death
		dies   func()
		calls  int64  // at most, and of a worker that is lost exactly
		last   string // empty for either
	}{
		"worker, polled": {`,"background":true`, false, func() {
			d.worker.kill()
			d.worker = d.startWorker()
		}, 2, "response.completed"},
		"worker, followed": {`,"background":true`, true, func() {
			d.worker.kill()
			d.worker = d.startWorker()
		}, 1, "response.failed"},
		"worker, streamed": {`,"background":true,"stream":true`, true, func() {
			d.worker.kill()
			d.worker = d.startWorker()
		}, 1, "response.failed"},
		"API": {`,"background":true,"stream":true`, true, func() {
			d.api.kill()
			d.startAPI()
		}, 1, "response.completed"},
		"Temporal and Redis, polled": {`,"background":true`, false, func() {
			d.infra.kill()
			d.startInfra()
		}, 2, "response.completed"},
		// A worker that finds Redis unavailable ends its calls.
		"Temporal and Redis, streamed": {`,"background":true,"stream":true`, true, func() {
			d.infra.kill()
			d.startInfra()
		}, 1, ""},
	} {
		before := d.provider.Calls.Load()
		free := make(chan struct{})
		d.provider.Answer(gated(free))
		var id string
		var seen []string
		if strings.Contains(c.body, "stream") {
			seen = follows(t, d.events(t.Context(), t, d.httpAddr, "POST", "", responseBody(c.body)), "The beginning")
			id = gjson.Get(seen[0], "response.id").Str
		} else {
			id = d.response(t, 200, "POST", "", responseBody(c.body)).Get("id").Str
			d.eventually(name+": an answer", func() bool { return d.response(t, 200, "GET", "/"+id, "").Get("status").Str == "in_progress" })
			if c.follow {
				seen = follows(t, d.events(t.Context(), t, d.httpAddr, "GET", "/"+id+"?stream=true", ""), "The beginning")
			}
		}
		c.dies()
		close(free)
		if len(seen) == 0 { // one who followed it now could read what will be made again
			d.eventually(name+": the end", func() bool { return d.response(t, 200, "GET", "/"+id, "").Get("status").Str == "completed" })
		}
		events := all(d.events(t.Context(), t, d.httpAddr, "GET", fmt.Sprintf("/%s?stream=true", id), ""))
		if c.last == "" {
			c.last = gjson.Get(events[len(events)-1], "type").Str
		}
		numbered(t, events, 0, c.last)
		if len(seen) > 0 {
			require.Equal(t, seen, events[:len(seen)], name)
		}
		if c.last == "response.completed" {
			require.Contains(t, events[len(events)-1], "The beginning and the end.", name)
		} else {
			require.Contains(t, events[len(events)-1], "interrupted", name)
		}
		made := d.provider.Calls.Load() - before
		require.LessOrEqual(t, made, c.calls, name)
		require.True(t, !strings.HasPrefix(name, "worker") || made == c.calls, "%s: %d calls", name, made)
		require.Equal(t, gjson.Get(events[len(events)-1], "response").Raw, d.response(t, 200, "GET", "/"+id, "").Raw, name)
	}
	d.settled(t)
}

// O6, O8: requests that say that they are the same get the same response, however they read it.
func TestResponses_RequestRepeated_SameResponse(t *testing.T) {
	t.Parallel()
	d := newDurable(t)
	free := make(chan struct{})
	d.provider.Answer(gated(free))
	for _, more := range []string{`,"background":true`, `,"background":true,"stream":true`} {
		body, id := responseBody(more), ""
		for range 3 {
			res, err := d.keyHolder.responses(t.Context(), d.httpAddr, "POST", "", body, "Idempotency-Key", more)
			require.NoError(t, err)
			line, err := bufio.NewReader(res.Body).ReadString('}')
			require.NoError(t, err)
			require.NoError(t, res.Body.Close())
			_, got, _ := strings.Cut(line, `"id":"`)
			got, _, _ = strings.Cut(got, `"`)
			require.True(t, strings.HasPrefix(got, "resp_"), line)
			require.True(t, id == "" || got == id, "%s and %s", id, got)
			id = got
		}
		require.Equal(t, 422, func() int {
			res, err := d.keyHolder.responses(t.Context(), d.httpAddr, "POST", "", responseBody(more+`,"metadata":{}`), "Idempotency-Key", more)
			require.NoError(t, err)
			require.NoError(t, res.Body.Close())
			return res.StatusCode
		}())
	}
	close(free)
	d.eventually("two answers", func() bool { return d.provider.Calls.Load() == 2 && d.provider.InFlight() == 0 })
	d.settled(t)
}

// O8, O9: a key with direct calls has responses that end with the connection.
func TestResponses_DirectKey_NothingIsStored(t *testing.T) {
	t.Parallel()
	d := newDurable(t)
	d.keyHolder = d.newKeyHolder(t, "research", "direct")
	d.provider.Answer(testprovider.Write(0, "One", " two"))
	whole := d.response(t, 200, "POST", "", responseBody(""))
	require.Equal(t, "One two", whole.Get("output.0.content.0.text").Str)
	d.response(t, 404, "GET", "/"+whole.Get("id").Str, "")
	numbered(t, all(d.events(t.Context(), t, d.httpAddr, "POST", "", responseBody(`,"stream":true`))), 0, "response.completed")
	d.provider.Answer(testprovider.Cut("One"))
	numbered(t, all(d.events(t.Context(), t, d.httpAddr, "POST", "", responseBody(`,"stream":true`))), 0, "response.failed")
	for field, value := range map[string]string{"background": "true", "previous_response_id": `"resp_x"`} {
		refused := d.response(t, 400, "POST", "", responseBody(fmt.Sprintf(`,%q:%s`, field, value)))
		require.Equal(t, field, refused.Get("error.param").Str)
	}
	d.settled(t)
}

// O8: an answer of which nothing was read is made again if its upstream breaks off, and what was read is not.
func TestResponses_UpstreamBreaksOff_MadeAgainUnlessRead(t *testing.T) {
	t.Parallel()
	d := newDurable(t)
	for _, c := range []struct {
		more   string
		calls  int64
		status string
	}{{"", 2, "completed"}, {`,"background":true`, 2, "completed"}, {`,"stream":true,"background":true`, 1, "failed"}} {
		before := d.provider.Calls.Load()
		d.provider.CutFirst(1, "One", testprovider.Write(0, "One", " two"))
		d.resumeModel(t)
		var id string
		if strings.Contains(c.more, "stream") {
			id = gjson.Get(all(d.events(t.Context(), t, d.httpAddr, "POST", "", responseBody(c.more)))[0], "response.id").Str
		} else {
			id = d.response(t, 200, "POST", "", responseBody(c.more)).Get("id").Str
		}
		d.eventually("the end", func() bool { return d.response(t, 200, "GET", "/"+id, "").Get("status").Str == c.status })
		events := all(d.events(t.Context(), t, d.httpAddr, "GET", "/"+id+"?stream=true", ""))
		numbered(t, events, 0, "response."+c.status)
		text := ""
		for _, e := range events {
			text += gjson.Get(e, "delta").Str
		}
		require.Equal(t, map[string]string{"completed": "One two", "failed": "One"}[c.status], text)
		require.Equal(t, c.calls, d.provider.Calls.Load()-before, c.more)
	}
	d.settled(t)
}

// O8: a response whose conversation was deleted while it waited fails by name.
func TestResponses_PreviousDeletedMeanwhile_FailsByName(t *testing.T) {
	t.Parallel()
	d := newDurable(t)
	d.provider.Answer(testprovider.Write(0, "One"))
	first := d.response(t, 200, "POST", "", responseBody("")).Get("id").Str
	_, err := d.operator().PatchModel(t.Context(), "m", map[string]any{"paused": true})
	require.NoError(t, err)
	next := d.response(t, 200, "POST", "", responseBody(`,"background":true,"previous_response_id":"`+first+`"`)).Get("id").Str
	d.response(t, 200, "DELETE", "/"+first, "")
	d.resumeModel(t)
	d.eventually("the end", func() bool { return d.response(t, 200, "GET", "/"+next, "").Get("status").Str == "failed" })
	failed := d.response(t, 200, "GET", "/"+next, "")
	require.Equal(t, "previous_response_not_found", failed.Get("error.code").Str)
	require.Contains(t, failed.Get("error.message").Str, first)
	require.EqualValues(t, 1, d.provider.Calls.Load())
	d.settled(t)
}
