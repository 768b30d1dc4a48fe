package api

import (
	"context"

	"github.com/labstack/echo/v4"

	"berth"
	"berth/lua"
)

func (s *server) operatorEventRoute() {
	s.eventRoute("GET /v1/events", forOperator, s.followOperator, nil, berth.OperatorEvent{}, "Events until the client disconnects", "",
		op("operator-events", "events", "Stream the changes that operators watch (Server-Sent Events)",
			"Each event has `id`, `event` ("+join(berth.OperatorEventTypes())+") and `data`, one JSON object (schema OperatorEvent): what "+
				"changed, and its new status. The state itself is read from the other routes. The stream keeps about the last 10,000 "+
				"events, for a day. A lost connection resumes after Last-Event-ID without loss or repetition; `reset` means that events "+
				"were trimmed or lost, and that the state must be read again. A client that does not read for 5 seconds is disconnected. "+
				"Start with `fromLatest=1`, then read the state. Comments are heartbeats."))
}

func (s *server) followOperator(_ context.Context, c echo.Context) (*follower, error) {
	after, fromLatest, err := resumePoint(c.Request())
	if err != nil {
		return nil, err
	}
	// The stream is like that of a session: it has no end, and is opened by its first reader.
	feed := &sessionFeed{source{s: s, ch: lua.OperatorChannel()}}
	return &follower{s: s, feed: feed, after: after, fromLatest: fromLatest, out: newEventWriter(c)}, nil
}


