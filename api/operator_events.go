package api

import (
	"context"
	"strconv"
	"strings"

	"github.com/danielgtaylor/huma/v2"
	"github.com/labstack/echo/v4"

	"berth"
	"berth/lua"
)

func (s *server) operatorEventRoute() {
	s.eventRoute("GET /v1/events", forOperator, s.followOperator, nil, berth.OperatorEvent{}, "Events until the client disconnects", "",
		withParams(op("operator-events", "events", "Stream the changes that operators watch (Server-Sent Events)",
			"Each event has `id`, `event` ("+join(berth.OperatorEventTypes())+") and `data`, one JSON object (schema OperatorEvent): what "+
				"changed, and its new status. The state itself is read from the other routes. The stream keeps about the last 10,000 "+
				"events, for a day. A lost connection resumes after Last-Event-ID without loss or repetition; `reset` means that events "+
				"were trimmed or lost, and that the state must be read again. A client that does not read for 5 seconds is disconnected. "+
				"Start with `fromLatest=1` or `recent`, then read the state. Comments are heartbeats."), &huma.Param{
			Name: "recent", In: "query", Description: "Without a resume point: begin with this many of the last events",
			Schema: &huma.Schema{Type: huma.TypeInteger, Minimum: new(0.0), Maximum: new(float64(maxRecent))},
		}))
}

// maxRecent is how many events recent can select.
const maxRecent = 1000

// recentPoint returns the id after which the last n events of the operator stream follow, "" where it has fewer.
func (s *server) recentPoint(ctx context.Context, n uint64) (string, error) {
	state, err := s.Scripts.StreamState(ctx, lua.OperatorChannel())
	if err != nil {
		return "", fromRedis(err)
	}
	gen, number, ok := strings.Cut(state.LastID, "-") // numbered without gaps
	last, err := strconv.ParseUint(number, 10, 64)
	if !ok || err != nil || last <= n {
		return "", nil //nolint:nilerr // there is no stream yet
	}
	return gen + "-" + strconv.FormatUint(last-n, 10), nil
}

func (s *server) followOperator(ctx context.Context, c echo.Context) (*follower, error) {
	after, fromLatest, err := resumePoint(c.Request())
	if err != nil {
		return nil, err
	}
	if text := c.QueryParam("recent"); text != "" && after == "" {
		n, err := strconv.ParseUint(text, 10, 64)
		if err != nil || n > maxRecent {
			return nil, berth.Invalid("recent", "must be a number from 0 to %d", maxRecent)
		}
		if after, err = s.recentPoint(ctx, n); err != nil {
			return nil, err
		}
	}
	// The stream is like that of a session: it has no end, and is opened by its first reader.
	feed := &sessionFeed{source{s: s, ch: lua.OperatorChannel()}}
	return &follower{s: s, feed: feed, after: after, fromLatest: fromLatest, out: newEventWriter(c)}, nil
}
