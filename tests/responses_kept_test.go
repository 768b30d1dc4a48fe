package tests

import (
	"fmt"
	"math"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/tidwall/gjson"

	"berth"
	"berth/internal/testprovider"
	"berth/lua"
	"berth/workflows"
)

// readResponse is a response as it was read.
type readResponse struct {
	id, whole string
	events    []string
}

// readAll reads a response that has ended: as a whole, and its events. After the last one there is nothing, and a client that has a greater number gets the
// end.
func (d *durable) readAll(t *testing.T, id string) readResponse {
	t.Helper()
	r := readResponse{id: id, whole: d.response(t, 200, "GET", "/"+id, "").Raw}
	r.events = all(d.events(t.Context(), t, d.httpAddr, "GET", "/"+id+"?stream=true", ""))
	numbered(t, r.events, 0, "response."+gjson.Get(r.whole, "status").Str)
	last := len(r.events) - 1
	require.Equal(t, r.whole, gjson.Get(r.events[last], "response").Raw)
	after := func(n int) string { return fmt.Sprintf("/%s?stream=true&starting_after=%d", id, n) }
	require.Empty(t, all(d.events(t.Context(), t, d.httpAddr, "GET", after(last), "")))
	for _, n := range []int{last + 1, last + 100, math.MaxInt} {
		require.Equal(t, r.events[last:], all(d.events(t.Context(), t, d.httpAddr, "GET", after(n), "")))
	}
	return r
}

// unchanged checks that a response is read as before, whole and from each number on.
func (d *durable) unchanged(t *testing.T, before readResponse, when string) {
	t.Helper()
	require.Equal(t, before, d.readAll(t, before.id), when)
	for after := range before.events {
		path := fmt.Sprintf("/%s?stream=true&starting_after=%d", before.id, after)
		require.Equal(t, before.events[after+1:], append([]string{}, all(d.events(t.Context(), t, d.httpAddr, "GET", path, ""))...), "%s: %s", when, path)
	}
}

// inBackground starts a response in the background and returns its id once it is being answered.
func (d *durable) inBackground(t *testing.T, model string) (id string) {
	t.Helper()
	id = d.response(t, 200, "POST", "", `{"model":"`+model+`","input":"Hello","background":true}`).Get("id").Str
	d.eventually("an answer", func() bool { return d.response(t, 200, "GET", "/"+id, "").Get("status").Str == "in_progress" })
	return id
}

// O8: a response that has ended is read with the same events and numbers when Redis has no stream of it any more.
func TestResponses_StreamExpired_ReadAsBefore(t *testing.T) {
	t.Parallel()
	d := newDurable(t, "STREAM_TTL_SECONDS=1")
	rdb := d.redis()
	inRedis := func(id string) bool {
		t.Helper()
		n, err := rdb.Exists(t.Context(), lua.Keys{}.Stream(d.keyID, "openai", id)).Result()
		require.NoError(t, err)
		return n > 0
	}
	cancel := func(id string) { d.response(t, 200, "POST", "/"+id+"/cancel", "") }
	for _, c := range []struct {
		more, status string
		cut          bool
		cancel       bool
	}{
		{`,"stream":true`, "completed", false, false},
		{`,"background":true`, "completed", false, false},
		{`,"background":true,"stream":true`, "completed", false, false},
		{`,"background":true,"stream":true`, "failed", true, false},
		{`,"background":true,"stream":true`, "cancelled", false, true},
	} {
		name := c.status + c.more
		free := make(chan struct{})
		if d.provider.Answer(gated(free)); c.cut {
			d.provider.Answer(testprovider.Cut("The beginning"))
		}
		var id string
		var read []string
		if strings.Contains(c.more, "stream") {
			events := d.events(t.Context(), t, d.httpAddr, "POST", "", responseBody(c.more))
			read = follows(t, events, "The beginning")
			id = gjson.Get(read[0], "response.id").Str
			require.True(t, inRedis(id), name)
			if c.cancel {
				cancel(id)
			}
			close(free)
			read = append(read, all(events)...)
		} else {
			id = d.inBackground(t, "m")
			require.True(t, inRedis(id), name)
			close(free)
			d.eventually(name+": the end", func() bool { return d.response(t, 200, "GET", "/"+id, "").Get("status").Str == c.status })
		}
		before := d.readAll(t, id)
		require.Equal(t, c.status, gjson.Get(before.whole, "status").Str)
		if read != nil {
			require.Equal(t, before.events, read, name)
		}
		d.eventually(name+": the stream to expire", func() bool { return !inRedis(id) })
		d.unchanged(t, before, name)
		if c.status == "failed" {
			d.resumeModel(t)
		}
	}
	d.settled(t)
}

// O8, B6: workers of another version take over while a response is in mid-answer, and the old ones are stopped once their version is drained: neither
// that response nor one that ended before changes, and conversations continue.
func TestResponses_WorkersOfAnotherVersion_ReadAsBefore(t *testing.T) {
	t.Parallel()
	d := newDurableStack(t, with("BERTH_DEPLOYMENT=berth", "BERTH_BUILD_ID=1"), func(s *stack) {
		s.infraSettings = append(s.infraSettings, "BERTH_TEMPORAL_DRAINAGE=1s")
	})
	require.Contains(t, d.rollout("set"), "berth 1 is current")
	d.provider.Answer(testprovider.Write(0, "One", " two", " three"))
	ended := d.readAll(t, gjson.Get(all(d.events(t.Context(), t, d.httpAddr, "POST", "", responseBody(`,"stream":true`)))[0], "response.id").Str)

	free := make(chan struct{})
	d.provider.Answer(gated(free))
	streamed := d.events(t.Context(), t, d.httpAddr, "POST", "", responseBody(`,"stream":true`))
	seen := follows(t, streamed, "The beginning")
	ids := []string{gjson.Get(seen[0], "response.id").Str, d.inBackground(t, "m")}

	d.startVersion("2")
	require.Contains(t, d.rollout("set", "2"), "2 is current")
	d.unchanged(t, ended, "both versions run")
	d.provider.Answer(testprovider.Write(0, "Four"))
	next := d.response(t, 200, "POST", "", `{"model":"large","input":"Hello","previous_response_id":"`+ended.id+`"}`).Get("id").Str
	resumed := d.events(t.Context(), t, d.httpAddr, "GET", "/"+ids[0]+"?stream=true&starting_after=1", "")
	again := follows(t, resumed, "The beginning")
	require.Equal(t, seen[2:], again)
	close(free)
	seen, again = append(seen, all(streamed)...), append(again, all(resumed)...)
	d.eventually("the one in the background", func() bool { return d.response(t, 200, "GET", "/"+ids[1], "").Get("status").Str == "completed" })
	across := []readResponse{d.readAll(t, ids[0]), d.readAll(t, ids[1])}
	require.Equal(t, across[0].events, seen)
	require.Equal(t, across[0].events[2:], again)

	temporal := d.temporal()
	for id, version := range map[string]string{ended.id: "1", ids[0]: "1", ids[1]: "1", next: "2"} {
		task := berth.TaskRef{UserID: d.keyID, TaskID: id}
		require.Equal(t, version, d.versionOf(temporal, workflows.TaskWorkflowID(task)), "%s is made by one version", id)
	}
	d.eventually("version 1 to be drained", func() bool {
		return strings.Contains(strings.Join(strings.Fields(d.rollout("status")), " "), "1 drained 0 0 0 0 may be stopped")
	})
	require.True(t, d.worker.stop(maxWait))
	for _, r := range append(across, ended) {
		d.unchanged(t, r, "after the upgrade")
		require.Equal(t, "completed", d.response(t, 200, "POST", "", responseBody(`,"previous_response_id":"`+r.id+`"`)).Get("status").Str)
	}
	d.settled(t)
}

// O8: a worker that is replaced while a response is in mid-answer completes it, as long as it may drain. One that may not ends it with what had arrived.
func TestResponses_WorkerReplacedInMidAnswer_EndsOnce(t *testing.T) {
	t.Parallel()
	d := newDurable(t, "BERTH_DRAIN=5s")
	d.provider.Answer(testprovider.Write(0, "One", " two", " three"))
	ended := d.readAll(t, d.response(t, 200, "POST", "", responseBody("")).Get("id").Str)
	for last, finishes := range map[string]bool{"response.completed": true, "response.failed": false} {
		free := make(chan struct{})
		d.provider.Answer(gated(free))
		streamed := d.events(t.Context(), t, d.httpAddr, "POST", "", responseBody(`,"background":true,"stream":true`))
		seen := follows(t, streamed, "The beginning")
		old := d.worker
		d.worker = d.startWorker()
		require.NoError(t, old.cmd.Process.Signal(syscall.SIGTERM))
		d.awaitOutput(old, "workers stopping")
		if finishes {
			close(free)
		}
		seen = append(seen, all(streamed)...)
		<-old.done
		numbered(t, seen, 0, last)
		d.unchanged(t, readResponse{
			id: gjson.Get(seen[0], "response.id").Str, events: seen, whole: gjson.Get(seen[len(seen)-1], "response").Raw,
		}, last)
		d.unchanged(t, ended, last)
		if !finishes {
			close(free)
		}
	}
	d.settled(t)
}
