package api

import (
	"context"
	"strconv"

	"github.com/danielgtaylor/huma/v2"
	"github.com/labstack/echo/v4"

	"berth"
	"berth/internal/stream"
	"berth/lua"
)

func (s *server) operatorEventRoute() {
	s.eventRoute("GET /v1/events", forOperator, s.followOperator, nil, s.eventUnion(berth.OperatorEvent{}, berth.OperatorEventTypes()), "Events until the client disconnects", "",
		withParams(op("operator-events", "events", "Stream the changes that operators watch (Server-Sent Events)",
			"Each event has `id`, `event` ("+join(berth.OperatorEventTypes())+") and `data`, one JSON object (schema OperatorEvent): what "+
				"changed, and its new status. The state itself is read from the other routes. The stream keeps about the last 10,000 "+
				"events, for a day. A lost connection resumes after Last-Event-ID without loss or repetition; `reset` means that events "+
				"were trimmed or lost, and that the state must be read again. A client that does not read for 5 seconds is disconnected. "+
				"Start with `fromLatest=1` or `recent`, then read the state. Comments are heartbeats."), &huma.Param{
			Name: "recent", In: "query", Description: "Without a resume point: begin with this many of the last events of each type",
			Schema: &huma.Schema{Type: huma.TypeInteger, Minimum: new(0.0), Maximum: new(float64(maxRecent))},
		}))
}

// maxRecent is how many events recent can select.
const maxRecent = 1000

func (s *server) followOperator(ctx context.Context, c echo.Context) (*follower, error) {
	after, fromLatest, err := resumePoint(c.Request())
	if err != nil {
		return nil, err
	}
	// The stream is like that of a session: it has no end, and is opened by its first reader.
	feed := &operatorFeed{sessionFeed: sessionFeed{source{s: s, ch: lua.OperatorChannel()}}}
	if text := c.QueryParam("recent"); text != "" && after == "" {
		n, err := strconv.Atoi(text)
		if err != nil || n < 0 || n > maxRecent {
			return nil, berth.Invalid("recent", "must be a number from 0 to %d", maxRecent)
		}
		recent, before, err := s.Scripts.RecentOperatorEvents(ctx, n)
		if err != nil {
			return nil, fromRedis(err)
		}
		after, feed.recent = before, recent
	}
	return &follower{s: s, feed: feed, after: after, fromLatest: fromLatest, out: newEventWriter(c)}, nil
}

// operatorFeed has the events of the operator stream. Of those that precede the client's connection, it has the recent ones: of each type
// the last ones, so that the many changes of single tasks do not displace all others.
type operatorFeed struct {
	sessionFeed
	recent []string // ids, in order; nil once they were sent
}

func (f *operatorFeed) visible(item stream.Item) (stream.Item, bool) {
	switch {
	case len(f.recent) == 0:
		return item, true
	case item.Event == berth.EventReset: // the stream was trimmed or lost meanwhile
		f.recent = nil
		return item, true
	case item.ID == f.recent[0]:
		f.recent = f.recent[1:]
		return item, true
	}
	return item, false
}
