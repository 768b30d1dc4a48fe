package api

import (
	"context"
	"time"

	"github.com/labstack/echo/v4"

	"berth"
	"berth/internal/identity"
	"berth/internal/stream"
	"berth/lua"
)

// sessionStreamTTL is how long a session's stream is kept after its last event.
const sessionStreamTTL = time.Hour

func (s *server) sessionEventRoute() {
	s.eventRoute("GET /v1/sessions/{id}/events", rule{scopes: forUser.scopes, ticket: identity.TicketSession}, s.followSession,
		pathParam("id", ""), s.eventUnion(berth.SessionEvent{}, berth.SessionEventTypes()), "Events until the client disconnects", "",
		op("session-events", "events", "Stream the events of a session's turns (Server-Sent Events)",
			"Each event has `id`, `event` ("+join(berth.SessionEventTypes())+") and `data`, one JSON "+
				"object (schema SessionEvent). The events of a turn come in the order of its segments and end with exactly one "+
				"done; several turns share the stream, which does not end. A lost connection resumes after Last-Event-ID without "+
				"loss or repetition; `gap` means that history was trimmed or lost. Comments are heartbeats."))
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
	feed := &sessionFeed{source{s: s, ch: lua.SessionChannel(user, id)}}
	return &follower{s: s, feed: feed, after: after, fromLatest: fromLatest, out: newEventWriter(c)}, nil
}

// sessionFeed has the events of one session's turns. It has no end.
type sessionFeed struct{ source }

func (n *sessionFeed) ends(stream.Item) bool { return false }

func (n *sessionFeed) last(context.Context) (*stream.Item, error) { return nil, nil }

// subscribe opens a stream that does not exist: a client may connect before the first turn. A client from before the stream
// was lost receives a gap immediately, because its id is of another generation.
func (n *sessionFeed) subscribe(ctx context.Context, after string, fromLatest bool) (*stream.Reader, error) {
	return n.follow(ctx, after, fromLatest)
}
