package tests

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/api/enums/v1"
	temporalclient "go.temporal.io/sdk/client"
	"go.temporal.io/sdk/temporal"

	"berth"
	"berth/client"
	"berth/workflows"
)

func example(tb testing.TB, name string) []byte {
	tb.Helper()
	b, err := os.ReadFile(filepath.Join("..", "examples", name)) //nolint:gosec // our own examples
	require.NoError(tb, err)
	return b
}

// submitMatch submits a job_match with the example image and résumé.
func submitMatch(tb testing.TB, c *client.Client, locale berth.Locale, id string) client.Acceptance {
	tb.Helper()
	picture := "posting-" + string(locale) + ".png"
	image, err := c.Upload(tb.Context(), picture, example(tb, picture))
	require.NoError(tb, err)
	acc, err := c.Submit(tb.Context(), client.Submission{
		TaskID: cmp.Or(id, berth.NewID("t")), ServiceID: "career", Template: "job_match", Locale: locale,
		Variables: map[string]any{
			"jobImage": client.AssetRef(image),
			"resume":   string(example(tb, "resume-"+string(locale)+".txt")),
		},
	}, "")
	require.NoError(tb, err)
	return acc
}

// matchPoint is an item of the template job_match.
type matchPoint struct {
	Requirement string `json:"requirement"`
	Matched     bool   `json:"matched"`
	Evidence    string `json:"evidence"`
}

// seen has what one reader received of a task's stream.
type seen struct {
	events   []client.StreamEvent
	text     string // of tokens since the last reset
	statuses []berth.TaskStatus
	points   []matchPoint
	resets   int
	last     berth.Event
}

func (s *seen) add(ev client.StreamEvent) {
	s.events = append(s.events, ev)
	e := ev.Event
	switch e.Type {
	case berth.EventToken, berth.EventTokenBatch:
		s.text += e.Text
	case berth.EventReset:
		s.text, s.points = "", nil
		s.resets++
	case berth.EventStageProgress:
		for _, item := range e.Items {
			var p matchPoint
			if item.Kind == "point" && json.Unmarshal(item.Value, &p) == nil {
				s.points = append(s.points, p)
			}
		}
	}
	if e.Status != "" && (len(s.statuses) == 0 || s.statuses[len(s.statuses)-1] != e.Status) {
		s.statuses = append(s.statuses, e.Status)
	}
	s.last = e
}

func (s *seen) count(typ berth.EventType) (n int) {
	for _, ev := range s.events {
		if ev.Event.Type == typ {
			n++
		}
	}
	return n
}

// watch follows a task to its end. each, if set, is called with every event.
func watch(tb testing.TB, c *client.Client, id string, each func(*seen)) *seen {
	tb.Helper()
	ctx, cancel := context.WithTimeout(tb.Context(), 2*time.Minute)
	defer cancel()
	s := &seen{}
	for ev, err := range c.Follow(ctx, id, "") {
		require.NoError(tb, err)
		s.add(ev)
		if each != nil {
			each(s)
		}
	}
	require.True(tb, s.last.Type.Terminal(), "the stream ends with a terminal event, not %s", s.last.Type)
	return s
}

// submitAfterPause submits a segment, and retries it after the pause that a refusal requests.
func (c *session) submitAfterPause(turn string, index int) client.Dispatch {
	c.s.tb.Helper()
	deadline := time.After(maxWait)
	for {
		out, err := c.trySubmit(turn, index, "")
		if err == nil {
			return out
		}
		var p *client.Problem
		require.ErrorAs(c.s.tb, err, &p)
		require.Equal(c.s.tb, http.StatusServiceUnavailable, p.Status, "%v", err)
		require.Positive(c.s.tb, p.RetryAfter)
		select {
		case <-time.After(time.Duration(p.RetryAfter) * time.Second):
		case <-deadline:
			c.s.tb.Fatalf("segment %d of turn %q is still refused after %s: %v", index, turn, maxWait, err)
		}
	}
}

// accepted makes a request that can be repeated, and repeats it while Temporal does not answer in time, as on a busy machine.
func accepted[T any](tb testing.TB, request func() (T, error)) T {
	tb.Helper()
	for deadline := time.After(maxWait); ; {
		out, err := request()
		p, ok := errors.AsType[*client.Problem](err)
		if !ok || p.Code != berth.CodeUnavailable {
			require.NoError(tb, err)
			return out
		}
		select {
		case <-time.After(time.Duration(p.RetryAfter) * time.Second):
		case <-deadline:
			require.NoError(tb, err)
		}
	}
}

// session is one user's session with a reader of its events.
type session struct {
	*client.Client
	s      *stack
	id     string
	events chan client.SessionEvent
	all    []client.SessionEvent
}

// submit submits a segment and retries it while the API requests that.
func (c *session) submit(turn string, index int, f berth.Finalize) client.Dispatch {
	c.s.tb.Helper()
	var out client.Dispatch
	c.s.eventually(fmt.Sprintf("segment %d of turn %q to be taken", index, turn), func() bool {
		var err error
		out, err = c.trySubmit(turn, index, f)
		if p := new(client.Problem); errors.As(err, &p) {
			require.Equal(c.s.tb, http.StatusServiceUnavailable, p.Status, "%v", err)
		}
		return err == nil
	})
	return out
}

func (c *session) trySubmit(turn string, index int, f berth.Finalize) (client.Dispatch, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	return c.Dispatch(ctx, c.id, client.JobSpec{
		RequestID: fmt.Sprintf("%s.%s.%d", c.id, turn, index), TurnID: turn, SpeakerID: "bob",
		Segment: client.Segment{Index: index, Text: fmt.Sprintf("text %d", index)}, Finalize: f,
	})
}

// await collects events until the turn has one of type done, and returns them in short form.
func (c *session) await(turn string, done berth.EventType) string {
	c.s.tb.Helper()
	for {
		for _, ev := range c.all {
			if ev.Event.TurnID == turn && ev.Event.Type == done {
				return c.received(turn)
			}
		}
		select {
		case ev := <-c.events:
			c.all = append(c.all, ev)
		case <-time.After(maxWait):
			c.s.tb.Fatalf("no %s of turn %s, but %s", done, turn, c.received(turn))
		}
	}
}

// received returns the events of a turn so far in short form.
func (c *session) received(turn string) string {
	var out []string
	for _, ev := range c.all {
		if ev.Event.TurnID != turn {
			continue
		}
		switch e := ev.Event; e.Type {
		case berth.EventDone:
			out = append(out, fmt.Sprintf("done(%s %d/%d)", e.Reason, e.Failed, e.Jobs))
		case berth.EventTranslation:
			text, _, _ := strings.Cut(e.Text, " @")
			out = append(out, fmt.Sprintf("%d:%s", *e.Index, text))
		case berth.EventTranslationFailed:
			out = append(out, fmt.Sprintf("%d:%s", *e.Index, e.Code))
		default:
			out = append(out, string(e.Type))
		}
	}
	return strings.Join(out, ", ")
}

func (c *session) turn(id string) berth.Turn {
	c.s.tb.Helper()
	return accepted(c.s.tb, func() (berth.Turn, error) { return c.Turn(context.Background(), id) })
}

// finalize ends a turn, and repeats the request while Temporal does not confirm it: the first one may have ended the turn.
func (c *session) finalize(turn string) error {
	for began := time.Now(); ; {
		err := c.FinalizeTurn(context.Background(), turn)
		p, ok := errors.AsType[*client.Problem](err)
		if !ok || p.Code != berth.CodeUnavailable || time.Since(began) > maxWait {
			return err
		}
		<-time.After(time.Duration(p.RetryAfter) * time.Second)
		if now, err := c.Turn(context.Background(), turn); err == nil && now.Status == berth.TurnFinalized {
			return nil
		}
	}
}

func (s *stack) session(user, id string) *session {
	s.tb.Helper()
	c := &session{Client: s.user(user), s: s, id: id, events: make(chan client.SessionEvent, 1000)}
	s.eventually("a pool for "+id, func() bool {
		_, err := c.PutSession(context.Background(), id, client.SessionSpec{SrcLang: "en", TgtLang: s.language})
		return err == nil
	})
	ctx, cancel := context.WithCancel(context.Background())
	var following sync.WaitGroup
	following.Go(func() {
		for ev, err := range c.FollowSession(ctx, id, "", false) {
			if err != nil {
				return
			}
			c.events <- ev
		}
	})
	s.tb.Cleanup(func() { cancel(); following.Wait() })
	return c
}

// jobSpec returns a segment that begins a turn.
func jobSpec(requestID string, f berth.Finalize) client.JobSpec {
	return client.JobSpec{RequestID: requestID, Segment: client.Segment{Text: "hello"}, Finalize: f}
}

// executionRun is the id of the workflow of an execution of alice.
func executionRun(id string) string {
	return workflows.ExecutionWorkflowID(workflows.ExecutionKey(berth.ExecutionRef{UserID: "alice", ExecutionID: id}))
}

// submit starts an execution as the API does, and returns the reply.
func submit(t *testing.T, c temporalclient.Client, id, executor string, set ...func(*workflows.ExecutionInput)) (workflows.ExecuteReply, error) {
	t.Helper()
	in := workflows.ExecutionInput{
		ExecutionID: id, UserID: "alice", Executor: executor, Input: json.RawMessage(fmt.Sprintf("%q", id)), RequestHash: "h-" + id,
		Where: berth.Requirements{PoolID: executor, Capabilities: []string{executor}}, Timeout: time.Minute, Deadline: 2 * time.Minute,
	}
	for _, f := range set {
		f(&in)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	start := c.NewWithStartWorkflowOperation(temporalclient.StartWorkflowOptions{
		ID: executionRun(id), TaskQueue: workflows.TaskQueueExecutions,
		WorkflowIDConflictPolicy: enums.WORKFLOW_ID_CONFLICT_POLICY_USE_EXISTING,
		WorkflowIDReusePolicy:    enums.WORKFLOW_ID_REUSE_POLICY_ALLOW_DUPLICATE_FAILED_ONLY,
		WorkflowTaskTimeout:      5 * time.Second,
	}, workflows.ExecutionWorkflow, in)
	handle, err := c.UpdateWithStartWorkflow(ctx, temporalclient.UpdateWithStartWorkflowOptions{
		StartWorkflowOperation: start,
		UpdateOptions: temporalclient.UpdateWorkflowOptions{
			UpdateID: in.RequestHash, UpdateName: workflows.UpdateExecute, WaitForStage: temporalclient.WorkflowUpdateStageCompleted,
			Args: []any{workflows.ExecuteRequest{SubmissionID: id, RequestHash: in.RequestHash}},
		},
	})
	var reply workflows.ExecuteReply
	if err == nil {
		err = handle.Get(ctx, &reply)
	}
	return reply, err
}

// ended waits for the execution's end and returns the execution, with any outcome.
func ended(t *testing.T, c temporalclient.Client, id string) (current berth.Execution) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), maxWait)
	defer cancel()
	err := c.GetWorkflow(ctx, executionRun(id), "").Get(ctx, &current)
	var app *temporal.ApplicationError
	var canceled *temporal.CanceledError
	switch {
	case errors.As(err, &app):
		require.NoError(t, app.Details(&current))
	case errors.As(err, &canceled):
		require.NoError(t, canceled.Details(&current))
	default:
		require.NoError(t, err)
	}
	return current
}

func executionStatus(t *testing.T, c temporalclient.Client, id string) (current berth.Execution) {
	t.Helper()
	v, err := c.QueryWorkflow(t.Context(), executionRun(id), "", workflows.QueryExecution)
	if err == nil {
		require.NoError(t, v.Get(&current))
	}
	return current
}

// conferences is a client that creates and observes conferences.
type conferences struct {
	*client.Client
	s *stack
}

func (s *stack) conferences() *conferences { return &conferences{Client: s.user("alice"), s: s} }

func (m *conferences) open(e164 string, set ...func(*client.ConferenceSpec)) client.Conference {
	m.s.tb.Helper()
	spec := client.ConferenceSpec{E164: e164, Title: e164, DurationMs: time.Hour.Milliseconds(), Zone: m.s.zone}
	for _, f := range set {
		f(&spec)
	}
	var made client.Conference
	m.s.eventually(e164+" to be created", func() (ok bool) { // units and Redis may not be ready yet
		var err error
		made, err = m.CreateConference(context.Background(), spec)
		return err == nil
	})
	return made
}

// current returns the current conference of a number.
func (m *conferences) current(e164 string) berth.Conference {
	m.s.tb.Helper()
	got, err := m.Conference(context.Background(), e164, "")
	require.NoError(m.s.tb, err)
	return got.Conference.Conference
}

// await waits until the conference meets the condition.
func (m *conferences) await(e164, what string, matches func(berth.Conference) bool) (c berth.Conference) {
	m.s.tb.Helper()
	m.s.eventually(e164+" to be "+what, func() bool {
		got, err := m.Conference(context.Background(), e164, "")
		c = got.Conference.Conference
		return err == nil && matches(c)
	})
	return c
}

// end ends the conference and keeps its history.
func (m *conferences) end(e164, name string) {
	m.s.tb.Helper()
	_, err := m.EndConference(context.Background(), e164)
	require.NoError(m.s.tb, err)
	m.awaitEnd(e164, name)
}

// awaitEnd waits for the end of the conference's run, logs its length and saves its history.
func (m *conferences) awaitEnd(e164, name string) {
	m.s.tb.Helper()
	id := workflows.ConferenceWorkflowID(e164)
	m.s.awaitEnd(id)
	tasks, h := 0, m.s.history(context.Background(), m.s.temporal(), id, "")
	for _, ev := range h.GetEvents() {
		if ev.GetEventType() == enums.EVENT_TYPE_WORKFLOW_TASK_COMPLETED {
			tasks++
		}
	}
	m.s.tb.Logf("%s: %d workflow tasks, %d events", name, tasks, len(h.GetEvents()))
	m.s.saveHistory(name, id)
}

// awaitParticipants waits until the data proxy has the given number of participants, and returns the basic data.
func (m *conferences) awaitParticipants(e164 string, n int) (basic json.RawMessage) {
	m.s.tb.Helper()
	m.s.eventually(e164+" to be attended", func() bool {
		got, err := m.Conference(context.Background(), e164, "")
		if err != nil || got.Info == nil {
			return false
		}
		var live struct{ ParticipantCount *int }
		basic = got.Info.Basic
		return json.Unmarshal(got.Info.Live, &live) == nil && live.ParticipantCount != nil && *live.ParticipantCount == n
	})
	return basic
}

func on(id string) func(berth.Conference) bool {
	return func(c berth.Conference) bool { return c.Status == berth.ConferenceOpen && c.Owner.NodeID == id }
}

func ofStatus(s berth.ConferenceStatus) func(berth.Conference) bool {
	return func(c berth.Conference) bool { return c.Status == s }
}
