package api_test

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"berth"
	"berth/api"
	"berth/internal/eventstream"
	"berth/internal/ledger"
	"berth/lua"
)

// sse is one client of an event stream.
type sse struct {
	t      *testing.T
	res    *http.Response
	in     *bufio.Reader // of which events reads, too
	events *eventstream.Decoder
	cancel context.CancelFunc
}

// message is one event as a browser would dispatch it.
type message struct{ id, event, data string }

func (h *harness) open(path, token string, header ...string) *sse {
	h.t.Helper()
	ctx, cancel := context.WithCancel(h.t.Context())
	req := h.request(http.MethodGet, path, token, nil, header...).WithContext(ctx)
	res, err := (&http.Client{Transport: h.http.Transport}).Do(req)
	require.NoError(h.t, err)
	s := &sse{t: h.t, res: res, in: bufio.NewReader(res.Body), cancel: cancel}
	s.events = eventstream.NewDecoder(s.in, eventstream.Options{MaxLine: 4 << 20, MaxEvent: 8 << 20})
	h.t.Cleanup(s.close)
	return s
}

func (s *sse) close() {
	s.cancel()
	_ = s.res.Body.Close()
}

// next returns the next event; false when the stream was closed.
func (s *sse) next() (message, bool) {
	ev, err := s.events.Next()
	if err != nil {
		return message{}, false
	}
	requireBody(s.t, http.MethodGet, s.res.Request.URL.EscapedPath(), s.res.StatusCode, "text/event-stream", ev.Data)
	m := message{ev.ID, ev.Name, string(ev.Data)}
	if !bytes.HasPrefix(ev.Raw, []byte("id: ")) {
		m.id = "" // that of the event before
	}
	return m, true
}

func (s *sse) rest() []message {
	var all []message
	for {
		m, ok := s.next()
		if !ok {
			return all
		}
		all = append(all, m)
	}
}

// quiet reads so many heartbeats; it returns false if an event is sent before.
func (s *sse) quiet(heartbeats int) bool {
	for heartbeats > 0 {
		switch line, err := s.in.ReadString('\n'); {
		case err != nil:
			return false
		case strings.HasPrefix(line, ":"):
			heartbeats--
		case line != "\n" && !strings.HasPrefix(line, "retry:"):
			return false
		}
	}
	return true
}

func names(ms []message) []string {
	out := make([]string, 0, len(ms))
	for _, m := range ms {
		out = append(out, m.event)
	}
	return out
}

func (h *harness) publish(task berth.Task, events ...berth.Event) {
	h.t.Helper()
	for i := range events {
		events[i].Stage = cmp.Or(events[i].Stage, berth.StageDeliver)
	}
	require.NoError(h.t, h.pub.Publish(h.t.Context(), channel(task), 1, events...))
}

// running creates a task with an open stream.
func (h *harness) running(user, id string) berth.Task {
	h.t.Helper()
	task := h.task(user, id)
	require.NoError(h.t, h.pub.Open(h.t.Context(), channel(task), 1, time.Now().Add(time.Hour)))
	return task
}

func token(text string) berth.Event { return berth.Event{Type: berth.EventToken, Text: text} }

// end ends the task in the ledger and then its stream, as the workflow does.
func (h *harness) end(task berth.Task) {
	h.t.Helper()
	h.finish(task, "whole")
	_, err := h.pub.End(h.t.Context(), channel(task), berth.Event{Type: berth.EventDone, Stage: berth.StageDeliver, Text: "whole"})
	require.NoError(h.t, err)
}

func TestTaskEvents_RunningTask_ReplayThenContinueThenClose(t *testing.T) { // T10, T15
	t.Parallel()
	h := newHarness(t)
	task := h.running("alice", "t1")
	h.publish(task, berth.Event{Type: berth.EventQueued, Position: new(2)}, token("a"))
	s := h.open("/v1/tasks/t1/events", h.token("alice"))
	require.Equal(t, http.StatusOK, s.res.StatusCode)
	require.Equal(t, "text/event-stream; charset=utf-8", s.res.Header.Get("Content-Type"))
	require.Contains(t, s.res.Header.Get("Cache-Control"), "no-cache")
	require.Equal(t, "no", s.res.Header.Get("X-Accel-Buffering"))
	require.Empty(t, s.res.Header.Get("Content-Encoding"))
	first, ok := s.next()
	require.True(t, ok)
	require.Equal(t, "queued", first.event)
	require.NotEmpty(t, first.id)
	_, _ = s.next()
	h.publish(task, token("b"))
	live, ok := s.next()
	require.True(t, ok)
	var ev berth.Event
	require.NoError(t, json.Unmarshal([]byte(live.data), &ev))
	require.Equal(t, "b", ev.Text)
	require.Equal(t, "t1", ev.TaskID)
	h.end(task)
	require.Equal(t, []string{"done"}, names(s.rest()), "closed after the terminal event")
}

func TestTaskEvents_Resume_LosesAndRepeatsNothing(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	task := h.running("alice", "t1")
	for i := range 10 {
		h.publish(task, token(fmt.Sprint(i)))
	}
	h.end(task)
	all := h.open("/v1/tasks/t1/events", h.token("alice")).rest()
	require.Len(t, all, 11)
	for i, m := range all[:10] {
		byHeader := h.open("/v1/tasks/t1/events", h.token("alice"), "Last-Event-ID", m.id).rest()
		require.Equal(t, all[i+1:], byHeader)
		byQuery := h.open("/v1/tasks/t1/events?lastEventId="+m.id, h.token("alice")).rest()
		require.Equal(t, all[i+1:], byQuery)
	}
	a := h.do(h.request(http.MethodGet, "/v1/tasks/t1/events", h.token("alice"), nil, "Last-Event-ID", all[10].id))
	require.Equal(t, http.StatusNoContent, a.status, "no events after the end: 204 stops a browser's reconnects")

	latest := h.open("/v1/tasks/t1/events?fromLatest=1", h.token("alice")).rest()
	require.Equal(t, []string{"done"}, names(latest))
}

func TestTaskEvents_FromLatest_SkipHistory(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	task := h.running("alice", "t1")
	h.publish(task, token("old"))
	s := h.open("/v1/tasks/t1/events?fromLatest=1", h.token("alice"))
	h.publish(task, token("new"))
	m, ok := s.next()
	require.True(t, ok)
	require.Contains(t, m.data, "new")
}

func TestTaskEvents_HistoryTrimmed_SendGap(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	task := h.running("alice", "t1")
	for i := range 20 {
		h.publish(task, token(fmt.Sprint(i)))
	}
	first, _ := h.open("/v1/tasks/t1/events", h.token("alice")).next()
	ch := channel(task)
	key := h.scripts.Keys().Stream(ch.UserID, ch.ServiceID, ch.TaskID)
	require.NoError(t, h.client.XTrimMaxLen(t.Context(), key, 5).Err())
	h.end(task)
	got := h.open("/v1/tasks/t1/events", h.token("alice"), "Last-Event-ID", first.id).rest()
	require.Equal(t, "gap", got[0].event, "%v", names(got))
	require.Equal(t, "done", got[len(got)-1].event)
	again := h.open("/v1/tasks/t1/events", h.token("alice"), "Last-Event-ID", got[0].id).rest()
	require.Equal(t, got[1:], again, "resuming after the gap loses nothing")
}

func TestTaskEvents_StreamExpired_SendStoredEnd(t *testing.T) { // T16
	t.Parallel()
	h := newHarness(t)
	h.finish(h.task("alice", "t1"), "the answer")
	for _, header := range [][]string{nil, {"Last-Event-ID", "1-7"}} {
		got := h.open("/v1/tasks/t1/events", h.token("alice"), header...).rest()
		require.Equal(t, []string{"done"}, names(got))
		var ev berth.Event
		require.NoError(t, json.Unmarshal([]byte(got[0].data), &ev))
		require.Equal(t, "the answer", ev.Text)
		require.Equal(t, berth.StageDeliver, ev.Stage)
		require.NotNil(t, ev.Usage)
		require.NotZero(t, ev.TS)
		a := h.do(h.request(http.MethodGet, "/v1/tasks/t1/events", h.token("alice"), nil, "Last-Event-ID", got[0].id))
		require.Equal(t, http.StatusNoContent, a.status)
	}
	h.finish(h.task("alice", "t2", h.task("alice", "t0").Steps[0]), `{"a": [1, 2]}`)
	got := h.open("/v1/tasks/t2/events", h.token("alice")).rest()
	require.Contains(t, got[0].data, `"result":{"a":[1,2]}`)

	h.task("alice", "t3")
	_, _, err := h.ledger.FinishTask(t.Context(), ledger.End{TaskRef: ref("t3"), Status: berth.TaskCancelled, Code: berth.CodeCancelled, Message: "cancelled"})
	require.NoError(t, err)
	got = h.open("/v1/tasks/t3/events", h.token("alice")).rest()
	require.Equal(t, []string{"error"}, names(got))
	require.Contains(t, got[0].data, `"code":"cancelled"`)
}

func TestTaskEvents_EndedTaskWithoutRedis_SendStoredEnd(t *testing.T) { // T16, L11
	t.Parallel()
	h := newHarness(t)
	h.finish(h.task("alice", "t1"), "the answer")
	h.redis.Kill()
	for _, header := range [][]string{nil, {"Last-Event-ID", "1-7"}} {
		got := h.open("/v1/tasks/t1/events", h.token("alice"), header...).rest()
		require.Equal(t, []string{"done"}, names(got))
		require.Contains(t, got[0].data, "the answer")
	}
}

func TestTaskEvents_NoStreamYet_WaitForIt(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	task := h.task("alice", "t1")
	s := h.open("/v1/tasks/t1/events", h.token("alice"))
	require.Equal(t, http.StatusOK, s.res.StatusCode)
	require.NoError(t, h.pub.Open(t.Context(), channel(task), 1, time.Now().Add(time.Hour)))
	h.publish(task, token("a"))
	h.end(task)
	require.Equal(t, []string{"token", "done"}, names(s.rest()))
}

func TestTaskEvents_StreamLost_EndWithTheRow(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	task := h.running("alice", "t1")
	h.publish(task, token("a"))
	s := h.open("/v1/tasks/t1/events", h.token("alice"))
	_, ok := s.next()
	require.True(t, ok)
	require.NoError(t, h.client.FlushAll(t.Context()).Err())
	h.finish(task, "the answer")
	got := s.rest()
	require.Equal(t, []string{"done"}, names(got))
	require.Contains(t, got[0].data, "the answer")
}

func TestTaskEvents_RedisRestarts_Continue(t *testing.T) { // L11
	t.Parallel()
	h := newHarness(t)
	task := h.running("alice", "t1")
	h.publish(task, token("a"))
	s := h.open("/v1/tasks/t1/events", h.token("alice"))
	_, _ = s.next()
	h.redis.Kill()
	a := h.do(h.request(http.MethodGet, "/v1/tasks/t1/events", h.token("alice"), nil))
	require.Equal(t, http.StatusServiceUnavailable, a.status, string(a.body))
	require.NotEmpty(t, a.header.Get("Retry-After"))
	h.redis.Restart()
	h.finish(task, "the answer")
	got := s.rest()
	require.Equal(t, "done", got[len(got)-1].event)
}

func TestTaskEvents_NoEvents_SendHeartbeats(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	task := h.running("alice", "t1")
	s := h.open("/v1/tasks/t1/events", h.token("alice"))
	require.True(t, s.quiet(2))
	h.end(task)
	require.Equal(t, []string{"done"}, names(s.rest()))
}

func TestTaskEvents_MoreReadersThanOpenTogether_AllAreServed(t *testing.T) { // P12
	t.Parallel()
	const n = 100 // more than maxOpening
	h := newHarness(t)
	task := h.running("alice", "t1")
	for range n {
		require.Equal(t, http.StatusNotFound, h.do(h.request(http.MethodGet, "/v1/tasks/unknown/events", h.token("alice"), nil)).status)
	}
	var readers []*sse
	for range n {
		readers = append(readers, h.open("/v1/tasks/t1/events", h.token("alice")))
	}
	h.end(task)
	for _, r := range readers {
		require.Equal(t, []string{"done"}, names(r.rest()))
	}
}

func TestTaskEvents_InvalidResumePoint_NamesField(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	h.running("alice", "t1")
	for _, id := range []string{"garbage", "1", "1-2-3", "-1", "99999999999999999999999-1", "1-x", "<script>"} {
		a := h.do(h.request(http.MethodGet, "/v1/tasks/t1/events", h.token("alice"), nil, "Last-Event-ID", id))
		require.Equal(t, http.StatusBadRequest, a.status, id)
		require.Equal(t, "Last-Event-ID", a.problem.Field)
	}
	for _, id := range []string{"garbage", "1-x"} {
		a := h.do(h.request(http.MethodGet, "/v1/tasks/t1/events?lastEventId="+id, h.token("alice"), nil))
		require.Equal(t, http.StatusBadRequest, a.status, id)
		require.Equal(t, "lastEventId", a.problem.Field)
	}
	a := h.do(h.request(http.MethodGet, "/v1/tasks/t1/events?fromLatest=maybe", h.token("alice"), nil))
	require.Equal(t, http.StatusBadRequest, a.status)
	require.Equal(t, "fromLatest", a.problem.Field)
}

func TestTaskEvents_HostileText_ForgesNoEvent(t *testing.T) { // P17
	t.Parallel()
	h := newHarness(t)
	task := h.running("alice", "t1")
	hostile := []string{
		"a\n\nevent: done\ndata: {\"text\":\"forged\"}\n\n", "\r\n\r\nid: 9-9\r\nevent: error\r\n\r\n", "\x1b[31mred", "<script>alert(1)</script>",
		"\u2028event: done\u2029", ": comment\n", "retry: 1\n", "\x00",
	}
	for _, text := range hostile {
		h.publish(task, token(text))
	}
	h.end(task)
	got := h.open("/v1/tasks/t1/events", h.token("alice")).rest()
	require.Len(t, got, len(hostile)+1)
	for i, m := range got[:len(hostile)] {
		require.Equal(t, "token", m.event)
		var ev berth.Event
		require.NoError(t, json.Unmarshal([]byte(m.data), &ev))
		require.Equal(t, hostile[i], ev.Text)
	}
	require.Equal(t, "done", got[len(hostile)].event)
}

func TestTaskEvents_ClientDisconnects_ReleaseEverything(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	task := h.running("alice", "t1")
	h.publish(task, token("a"))
	const n = 20
	clients := make([]*sse, n)
	for i := range clients {
		clients[i] = h.open("/v1/tasks/t1/events", h.token("alice"))
		_, ok := clients[i].next()
		require.True(t, ok)
	}
	ch := channel(task)
	key := h.scripts.Keys().Channel(ch.UserID, ch.ServiceID, ch.TaskID)
	subscribers := func() int64 {
		m, err := h.client.PubSubNumSub(t.Context(), key).Result()
		require.NoError(t, err)
		return m[key]
	}
	require.EqualValues(t, 1, subscribers(), "one subscription for all readers")
	for _, c := range clients {
		c.close()
	}
	waitFor(t, "no subscription is left", func() bool { return subscribers() == 0 })
}

func TestTaskEvents_StalledReader_IsDisconnectedAndResumes(t *testing.T) { // P13
	t.Parallel()
	h := newHarness(t)
	task := h.running("alice", "t1")
	conn, err := net.Dial("tcp", strings.TrimPrefix(h.base, "http://"))
	require.NoError(t, err)
	defer func() { _ = conn.Close() }()
	require.NoError(t, conn.(*net.TCPConn).SetReadBuffer(8<<10))
	_, err = fmt.Fprintf(conn, "GET /v1/tasks/t1/events HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer %s\r\n\r\n", h.token("alice"))
	require.NoError(t, err)
	stalled := bufio.NewReader(conn)
	_, err = stalled.Peek(1)
	require.NoError(t, err)
	quick := h.open("/v1/tasks/t1/events", h.token("alice"))

	big := strings.Repeat("x", 16<<10)
	const n = 64
	read := make(chan int, 1)
	go func() { // while they are published, or this reader is a stalled one too
		got := 0
		for ; got < n; got++ {
			if _, ok := quick.next(); !ok {
				break
			}
		}
		read <- got
	}()
	for range n {
		h.publish(task, token(big))
	}
	require.Equal(t, n, <-read, "the other reader is not cut off")
	waitFor(t, "the stalled reader is cut off", func() bool {
		return strings.Contains(h.log.String(), "event stream interrupted")
	})

	// The stalled reader reads the buffered events and resumes after them.
	require.NoError(t, conn.SetReadDeadline(time.Now().Add(5*time.Second)))
	last := ""
	for {
		line, err := stalled.ReadString('\n')
		if err != nil {
			break
		}
		if id, ok := strings.CutPrefix(line, "id: "); ok {
			last = strings.TrimSpace(id)
		}
	}
	require.NotEmpty(t, last)
	h.end(task)
	all := h.open("/v1/tasks/t1/events", h.token("alice")).rest()
	rest := h.open("/v1/tasks/t1/events", h.token("alice"), "Last-Event-ID", last).rest()
	require.Equal(t, all[len(all)-len(rest):], rest)
	require.Greater(t, len(rest), 1)
}

func TestTaskEvents_Shutdown_EndsAndResumes(t *testing.T) { // X7
	t.Parallel()
	h := newHarness(t, func(d *api.Deps) { d.Config.HeartbeatInterval = time.Minute })
	task := h.running("alice", "t1")
	h.publish(task, token("a"))
	s := h.open("/v1/tasks/t1/events", h.token("alice"))
	_, ok := s.next()
	require.True(t, ok)
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	require.NoError(t, h.server.Shutdown(ctx), "an open stream does not delay the shutdown")
	require.Empty(t, s.rest())
}

// T24: the position of a task that waits in its workflow is sent when it changes, without an id.
func TestTaskEvents_TaskWaitsInWorkflow_PositionSentWithoutID(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	task := h.running("alice", "t1")
	step := task.Steps[0]
	call := func(id string) lua.ModelWaiterCall {
		return lua.ModelWaiterCall{
			ModelWaiter: lua.ModelWaiterOf(berth.TaskRef{UserID: task.UserID, TaskID: id}, 0, step),
			Limits:      limits(t, step.Model, 1), Times: modelTimes,
		}
	}
	enter := func(id string) (promoted bool) {
		promoted, err := h.scripts.EnterTask(t.Context(), call(id), time.Hour, 0)
		require.NoError(t, err)
		return promoted
	}
	n := 0
	for ; enter(fmt.Sprint("other", n)); n++ { // until no more calls may be made
	}
	require.False(t, enter(task.ID))
	events := h.open("/v1/tasks/t1/events", h.token("alice"))
	next := func() berth.Event {
		for {
			e, ok := events.next()
			require.True(t, ok)
			if e.event == string(berth.EventQueued) && e.id == "" {
				var ev berth.Event
				require.NoError(t, json.Unmarshal([]byte(e.data), &ev))
				return ev
			}
		}
	}
	first := next()
	require.Equal(t, n+1, *first.Position)
	require.Equal(t, step.Model, first.Model)
	require.Equal(t, step.Queue, first.Queue)
	require.NoError(t, h.scripts.LeaveTask(t.Context(), call(fmt.Sprint("other", n))))
	require.Equal(t, n, *next().Position)

	one := h.call(http.MethodGet, "/v1/tasks/t1", h.token("alice"), nil).json(t)
	require.EqualValues(t, n, one["waiting"].(map[string]any)["position"])
	list := h.call(http.MethodGet, "/v1/tasks", h.token("alice"), nil).json(t)["tasks"].([]any)
	require.EqualValues(t, n, list[0].(map[string]any)["waiting"].(map[string]any)["position"])
	_, err := h.scripts.SetModelLimits(t.Context(), step.Model, "", call("").Times, lua.OperatorLimits{Paused: true})
	require.NoError(t, err)
	paused := next()
	require.True(t, paused.Paused, "although the position has not changed")
	require.Nil(t, paused.EtaSeconds)
	one = h.call(http.MethodGet, "/v1/tasks/t1", h.token("alice"), nil).json(t)
	list = h.call(http.MethodGet, "/v1/tasks", h.token("alice"), nil).json(t)["tasks"].([]any)
	require.Equal(t, []any{20000.0, 20000.0}, []any{one["pollAfterMs"], list[0].(map[string]any)["pollAfterMs"]})
}

// T24: no position is sent while the call of a step runs. A step that starts again has one, until its next call begins.
func TestTaskEvents_StepIsReset_PositionSentAgain(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	task := h.running("alice", "t1")
	last := len(task.Steps) - 1
	step := task.Steps[last]
	_, err := h.ledger.BeginAttempt(t.Context(), task.Ref(), last, step.Status)
	require.NoError(t, err)
	call := lua.ModelWaiterCall{
		ModelWaiter: lua.ModelWaiterOf(task.Ref(), last, step),
		Limits:      limits(t, step.Model, 1), Times: modelTimes,
	}
	pause := func(paused bool) {
		_, err := h.scripts.SetModelLimits(t.Context(), step.Model, "", call.Times, lua.OperatorLimits{Paused: paused})
		require.NoError(t, err)
	}
	begins := berth.Event{
		Type: berth.EventStageProgress, Stage: "ingest", Queue: step.Queue, Model: step.Model, Status: berth.TaskStreaming,
	}
	h.publish(task, berth.Event{Type: berth.EventStart, Queue: step.Queue, Model: step.Model}, begins, token("a"))
	events := h.open("/v1/tasks/t1/events", h.token("alice"))
	next := func(want berth.EventType) (ev berth.Event) {
		e, ok := events.next()
		require.True(t, ok)
		require.Equal(t, string(want), e.event, e.data)
		require.Equal(t, want == berth.EventQueued, e.id == "", "only positions have no id")
		require.NoError(t, json.Unmarshal([]byte(e.data), &ev))
		return ev
	}
	quiet := func() { // for more than the time in which a position is read and sent; a heartbeat takes 100 ms
		require.True(t, events.quiet(25), "an event is sent while the call runs")
	}
	next(berth.EventStart)
	next(berth.EventStageProgress)
	next(berth.EventToken)
	// A task whose call runs does not wait. This one does, which shows that its position is not read.
	_, err = h.scripts.EnterTask(t.Context(), call, time.Hour, 0)
	require.NoError(t, err)
	quiet()
	for range 2 { // also after another reset, without a change of the position
		pause(true)
		h.publish(task, berth.Event{Type: berth.EventReset, Attempt: 2, Status: step.Status})
		next(berth.EventReset)
		again := next(berth.EventQueued)
		require.Equal(t, 0, *again.Position)
		require.True(t, again.Paused)
		require.Equal(t, step.Model, again.Model)
	}
	pause(false)
	require.False(t, next(berth.EventQueued).Paused)
	h.publish(task, begins)
	next(berth.EventStageProgress)
	pause(true)
	quiet()
}
