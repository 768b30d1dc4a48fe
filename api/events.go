package api

import (
	"context"
	"encoding/json"
	"net/http"

	"github.com/danielgtaylor/huma/v2"
	"github.com/labstack/echo/v4"

	"berth"
	"berth/internal/stream"
	"berth/lua"
)

// storedEventID is the id of a terminal event that was made from the row because its stream is gone.
const storedEventID = "end"

func (s *server) taskEventRoute() {
	s.route(huma.Operation{
		OperationID: "task-events", Method: http.MethodGet, Path: "/v1/tasks/{id}/events", Tags: []string{"events"},
		Summary: "A task's events as they happen (Server-Sent Events)",
		Description: "Each event has `id`, `event` (queued, start, token, token_batch, stage_progress, reset, gap, debug, " +
			"then exactly one done or error) and `data`, one JSON object (schema Event). A lost connection resumes behind " +
			"Last-Event-ID with nothing lost or repeated; `gap` says that history was trimmed. Comments are heartbeats. " +
			"The stream closes behind the terminal event; asked to resume behind that, it answers 204. A task that is " +
			"over and whose stream has gone gives its stored terminal event.",
		Parameters: append([]*huma.Param{idParam()}, resumeParams()...),
		Responses: map[string]*huma.Response{
			"200": {
				Description: "Events until the terminal one",
				Content:     map[string]*huma.MediaType{"text/event-stream": {Schema: s.schemaOf(berth.Event{})}},
			},
			"204": {Description: "The terminal event was seen already"},
		},
	}, rule{scopes: []string{ScopeUser}, ticket: ticketTask, stream: true}, s.taskEvents)
}

// taskEvents keeps its frame small, as all do that a reader stands on while it waits: with a write on top its stack
// fits into 8 KiB, as long as deep calls are made aside (P12).
func (s *server) taskEvents(c echo.Context) error {
	ctx, cancel := streamContext(c.Request().Context())
	defer cancel()
	f, err := aside(func() (*follower, error) { return s.followTask(ctx, c) })
	if err != nil || f == nil {
		return err
	}
	return f.over(ctx, f.run(ctx))
}

// followTask checks what is asked for. There is no follower for a client that has seen the end: it is answered.
func (s *server) followTask(ctx context.Context, c echo.Context) (*follower, error) {
	id := c.Param("id")
	if err := berth.ValidID("id", id); err != nil {
		return nil, err
	}
	after, fromLatest, err := resumePoint(c.Request())
	if err != nil {
		return nil, err
	}
	task, err := s.Ledger.GetUserTask(ctx, callOf(ctx).user.UserID, id)
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
		s: s, ch: lua.Channel{UserID: task.UserID, ServiceID: task.ServiceID, TaskID: task.ID}, final: task.Status.Final(),
	}
	return &follower{s: s, feed: t, after: after, fromLatest: fromLatest, out: newEventWriter(c)}, nil
}

// taskFeed is one task's events: they end with the task.
type taskFeed struct {
	s     *server
	ch    lua.Channel
	final bool // the task was over when it was last looked at
}

func (t *taskFeed) channel() lua.Channel { return t.ch }

func (t *taskFeed) settled() bool { return t.final }

func (t *taskFeed) ends(item stream.Item) bool { return item.Event.Terminal() }

func (t *taskFeed) subscribe(ctx context.Context, after string, fromLatest bool) (*stream.Reader, error) {
	return t.s.Hub.Subscribe(ctx, t.ch, after, fromLatest)
}

// last is the terminal event of a task that is over, made from its row (T16).
func (t *taskFeed) last(ctx context.Context) (*stream.Item, error) {
	task, err := t.s.Ledger.GetUserTask(ctx, t.ch.UserID, t.ch.TaskID)
	if err != nil {
		return nil, err
	}
	if t.final = task.Status.Final(); !t.final {
		return nil, nil
	}
	asset, err := t.s.resultAsset(ctx, task)
	if err != nil {
		return nil, err
	}
	ev, err := berth.TerminalEvent(task, asset)
	if err != nil {
		return nil, berth.Errorf(berth.CodeInternal, "make the stored event").With(err)
	}
	data, err := json.Marshal(ev)
	if err != nil {
		return nil, berth.Errorf(berth.CodeInternal, "encode the stored event").With(err)
	}
	return &stream.Item{ID: storedEventID, Event: ev.Type, Data: data}, nil
}
