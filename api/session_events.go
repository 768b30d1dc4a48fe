package api

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/labstack/echo/v4"

	"berth"
	"berth/internal/stream"
	"berth/lua"
)

// sessionStreamTTL is how long a session's stream is kept after its last event.
const sessionStreamTTL = time.Hour

func (s *server) sessionEventRoute() {
	s.route(huma.Operation{
		OperationID: "session-events", Method: http.MethodGet, Path: "/v1/sessions/{id}/events", Tags: []string{"events"},
		Summary: "Stream the events of a session's turns (Server-Sent Events)",
		Description: "Each event has `id`, `event` (turn, translation, translation_failed, done, gap) and `data`, one JSON " +
			"object (schema SessionEvent). The events of a turn come in the order of its segments and end with exactly one " +
			"done; several turns share the stream, which does not end. A lost connection resumes after Last-Event-ID without " +
			"loss or repetition; `gap` means that history was trimmed or lost. Comments are heartbeats.",
		Parameters: append([]*huma.Param{{
			Name: "id", In: "path", Required: true, Schema: &huma.Schema{Type: huma.TypeString},
		}}, resumeParams()...),
		Responses: map[string]*huma.Response{
			"200": {
				Description: "Events until the client disconnects",
				Content:     map[string]*huma.MediaType{"text/event-stream": {Schema: s.schemaOf(berth.SessionEvent{})}},
			},
		},
	}, rule{scopes: []string{ScopeUser}, ticket: ticketSession, stream: true}, s.follow(s.followSession))
}

func (s *server) followSession(ctx context.Context, c echo.Context) (*follower, error) {
	id, user := c.Param("id"), callOf(ctx).user.UserID
	if err := berth.ValidID("id", id); err != nil {
		return nil, err
	}
	after, fromLatest, err := resumePoint(c.Request())
	if err != nil {
		return nil, err
	}
	if _, err := s.Ledger.GetSession(ctx, user, id); err != nil {
		return nil, noSession(err)
	}
	return &follower{
		s: s, feed: &sessionFeed{s, lua.SessionChannel(user, id)}, after: after, fromLatest: fromLatest, out: newEventWriter(c),
	}, nil
}

// sessionFeed has the events of one session's turns. It has no end.
type sessionFeed struct {
	s  *server
	ch lua.Channel
}

func (n *sessionFeed) channel() lua.Channel { return n.ch }

func (n *sessionFeed) settled() bool { return false }

func (n *sessionFeed) ends(stream.Item) bool { return false }

func (n *sessionFeed) last(context.Context) (*stream.Item, error) { return nil, nil }

// subscribe opens a stream that does not exist: a client may connect before the first turn. A client from before the stream
// was lost receives a gap immediately, because its id is of another generation.
func (n *sessionFeed) subscribe(ctx context.Context, after string, fromLatest bool) (*stream.Reader, error) {
	r, err := n.s.Hub.Follow(ctx, n.ch, after, fromLatest)
	if !errors.Is(err, stream.ErrAbsent) {
		return r, err
	}
	if _, err := n.s.Scripts.OpenStream(ctx, n.ch, 0, sessionStreamTTL); err != nil {
		return nil, unavailable("Redis", err)
	}
	return n.s.Hub.Follow(ctx, n.ch, after, fromLatest)
}
