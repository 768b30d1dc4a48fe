package api

import (
	"context"
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/labstack/echo/v4"

	"berth"
	"berth/internal/identity"
	"berth/internal/stream"
	"berth/internal/waiting"
	"berth/lua"
)

// storedEventID is the id of a terminal event that was read from the database because its stream is gone.
const storedEventID = "end"

func (s *server) taskEventRoute() {
	s.eventRoute("GET /v1/tasks/{id}/events", rule{scopes: forUsers.scopes, ticket: identity.TicketTask}, s.followTask,
		pathParam("id", berth.IDPattern), s.eventUnion(berth.Event{}, berth.EventTypes()), "Events up to the terminal one", "The client has the terminal event",
		withParams(op("task-events", "events", "Stream a task's events (Server-Sent Events)",
			"Each event has `id`, `event` ("+join(berth.EventTypes())+"; exactly one done or error is the last) "+
				"and `data`, one JSON object (schema Event). A lost connection resumes after "+
				"Last-Event-ID without loss or repetition; `gap` means that history was trimmed. Comments are heartbeats. "+
				"The stream closes after the terminal event; resuming after that returns 204. When the stream of an ended "+
				"task has expired, its stored terminal event is sent."), userParam()))
}

// userParam describes the owner of a task in requests of operators.
func userParam() *huma.Param {
	return &huma.Param{
		Name: "userId", In: "query", Schema: &huma.Schema{Type: huma.TypeString},
		Description: "Owner of the task, for operators. Needed only if several users have a task with this id.",
	}
}

func withParams(op huma.Operation, params ...*huma.Param) huma.Operation {
	op.Parameters = params
	return op
}

// join lists event types in a description.
func join(types []berth.EventType) string {
	names := make([]string, len(types))
	for i, t := range types {
		names[i] = string(t)
	}
	return strings.Join(names, ", ")
}

// followTask returns nil when the client has the terminal event; the response is sent then.
func (s *server) followTask(ctx context.Context, c echo.Context) (*follower, error) {
	id := c.Param("id")
	if err := berth.ValidID("id", id); err != nil {
		return nil, err
	}
	after, fromLatest, err := resumePoint(c.Request())
	if err != nil {
		return nil, err
	}
	task, err := s.taskOf(ctx, c.QueryParam("userId"), id)
	if err != nil {
		return nil, err
	}
	if after == storedEventID {
		if task.Status.Final() {
			return nil, c.NoContent(http.StatusNoContent)
		}
		after = ""
	}
	t := &taskFeed{
		source: source{
			s: s, ch: lua.Channel{UserID: task.UserID, ServiceID: task.ServiceID, TaskID: task.ID}, final: task.Status.Final(),
		},
		group: task.Group, steps: task.Steps, step: task.StepIndex,
	}
	if !t.final {
		t.watch = s.Positions.Watch()
		t.expect()
	}
	return &follower{s: s, feed: t, after: after, fromLatest: fromLatest, out: newEventWriter(c)}, nil
}

// taskFeed has the events of one task, which end with the task.
type taskFeed struct {
	source
	group berth.Group
	steps []berth.Step
	step  int            // the first that may wait
	watch *waiting.Watch // nil for a task that had ended
	// shown is what was sent last, without the time; nil for nothing.
	shown *lua.Wait
}

// expect states which steps may wait.
func (t *taskFeed) expect() {
	waiters := make([]lua.ModelWaiter, 0, len(t.steps))
	ref := berth.TaskRef{UserID: t.ch.UserID, TaskID: t.ch.TaskID}
	for i := t.step; i < len(t.steps); i++ {
		waiters = append(waiters, lua.ModelWaiterOf(ref, t.group, i, t.steps[i]))
	}
	t.watch.Expect(waiters)
}

// sent follows the task to the step that may wait now.
func (t *taskFeed) sent(item stream.Item) {
	if t.watch == nil || item.Event != berth.EventStart && item.Event != berth.EventStageProgress && item.Event != berth.EventReset {
		return
	}
	var ev berth.Event
	if err := json.Unmarshal(item.Data, &ev); err != nil {
		return // of another version
	}
	if step, ok := waitsFrom(t.steps, ev); ok {
		t.step, t.shown = step, nil
		t.expect()
	}
}

// waitsFrom returns the first step that may wait after an event; ok is false if the event does not change it. A step whose call begins
// no longer waits. It waits again when it is reset.
func waitsFrom(steps []berth.Step, ev berth.Event) (step int, ok bool) {
	switch {
	case ev.Type == berth.EventReset, ev.Stage == berth.StageQueue:
		step = slices.IndexFunc(steps, func(s berth.Step) bool { return s.Status == ev.Status })
		return step, step >= 0
	case ev.Model != "": // a call begins; only the first of a task has a start
		step = slices.IndexFunc(steps, func(s berth.Step) bool { return s.Queue == ev.Queue && s.Model == ev.Model })
		return step + 1, step >= 0
	default:
		return 0, false
	}
}

// notice returns the position of a task that waits, when it has changed, or what may serve it was paused or resumed.
func (t *taskFeed) notice() (*berth.Event, time.Duration) {
	if t.watch == nil || t.step == len(t.steps) {
		return t.source.notice()
	}
	p := t.watch.Position()
	if p == nil {
		return nil, waiting.PositionEvery
	}
	now := lua.Wait{Position: p.Position, Paused: p.Paused, Upstreams: p.Upstreams}
	if t.shown != nil && *t.shown == now {
		return nil, waiting.PositionEvery
	}
	t.shown = new(now)
	step, w := t.steps[p.Waiter.Step], waitingOf(p.Wait)
	return &berth.Event{
		Type: berth.EventQueued, TaskID: t.ch.TaskID, ServiceID: t.ch.ServiceID, Stage: berth.StageQueue, TS: time.Now().UnixMilli(),
		Position: w.Position, EtaSeconds: w.EtaSeconds, Paused: w.Paused, Upstreams: w.Upstreams, Queue: step.Queue, Model: step.Model, Status: step.Status,
	}, waiting.PositionEvery
}

func (t *taskFeed) close() {
	if t.watch != nil {
		t.watch.Close()
	}
}

func (t *taskFeed) ends(item stream.Item) bool { return item.Event.Terminal() }

func (t *taskFeed) subscribe(ctx context.Context, after string, fromLatest bool) (*stream.Reader, error) {
	return t.s.Hub.Subscribe(ctx, t.ch, after, fromLatest)
}

// last returns the terminal event of an ended task, made from its row.
func (t *taskFeed) last(ctx context.Context) (*stream.Item, error) {
	task, err := t.s.Ledger.GetTask(ctx, berth.TaskRef{UserID: t.ch.UserID, TaskID: t.ch.TaskID})
	if err != nil {
		return nil, err
	}
	if t.final = task.Status.Final(); !t.final {
		return nil, nil
	}
	asset, _, err := t.s.resultAsset(ctx, task)
	if err != nil {
		return nil, err
	}
	ev, err := berth.TerminalEvent(task, asset)
	if err != nil {
		return nil, berth.Errorf(berth.CodeInternal, "build the stored event").With(err)
	}
	data, err := json.Marshal(ev)
	if err != nil {
		return nil, berth.Errorf(berth.CodeInternal, "encode the stored event").With(err)
	}
	return &stream.Item{ID: storedEventID, Event: ev.Type, Data: data}, nil
}
