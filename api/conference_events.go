package api

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"

	"github.com/danielgtaylor/huma/v2"
	"github.com/labstack/echo/v4"

	"berth"
	"berth/internal/ledger"
	"berth/internal/stream"
	"berth/lua"
)

func (s *server) conferenceEventRoute() {
	s.route(huma.Operation{
		OperationID: "conference-events", Method: http.MethodGet, Path: "/v1/conferences/{e164}/events", Tags: []string{"events"},
		Summary: "Stream conference events (Server-Sent Events)",
		Description: "Each event has `id`, `event` (conference, done, gap) and `data`, one JSON object (schema ConferenceEvent). " +
			"The stream closes after the `done` of the number's last conference; resuming after that returns 204. " +
			"Events of the user's earlier conferences with the same number can precede it. A lost connection resumes after " +
			"Last-Event-ID without loss or repetition; `gap` means that history was trimmed or lost. When the stream of an " +
			"ended conference has expired, its stored end is sent. Comments are heartbeats.",
		Parameters: append([]*huma.Param{{
			Name: "e164", In: "path", Required: true, Schema: &huma.Schema{Type: huma.TypeString},
		}}, resumeParams()...),
		Responses: map[string]*huma.Response{
			"200": {
				Description: "Events until the conference has ended",
				Content:     map[string]*huma.MediaType{"text/event-stream": {Schema: s.schemaOf(berth.ConferenceEvent{})}},
			},
			"204": {Description: "The client has the last event"},
		},
	}, rule{scopes: forUsers.scopes, ticket: ticketConference, stream: true}, s.follow(s.followConference))
}

// followConference returns nil when the client has the last event; the response is sent then.
func (s *server) followConference(ctx context.Context, c echo.Context) (*follower, error) {
	after, fromLatest, err := resumePoint(c.Request())
	if err != nil {
		return nil, err
	}
	conf, err := s.ownConference(ctx, c.Param("e164"), "")
	if err != nil {
		return nil, err
	}
	feed := &conferenceFeed{s: s, ch: lua.ConferenceChannel(conf.UserID, conf.E164), id: conf.ID, final: conf.Status.Final()}
	if feed.seen(ctx, after) {
		return nil, c.NoContent(http.StatusNoContent)
	}
	if after == storedEventID {
		after = ""
	}
	return &follower{s: s, feed: feed, after: after, fromLatest: fromLatest && !feed.final, out: newEventWriter(c)}, nil
}

// conferenceFeed has the events of one conference, from its number's stream, which does not end.
type conferenceFeed struct {
	s     *server
	ch    lua.Channel
	id    string
	final bool // the conference had ended when it was last read
}

func (f *conferenceFeed) channel() lua.Channel { return f.ch }

func (f *conferenceFeed) settled() bool { return f.final }

// seen reports whether the client has all events of an ended conference.
func (f *conferenceFeed) seen(ctx context.Context, after string) bool {
	if !f.final || after == "" || after == storedEventID {
		return f.final && after == storedEventID
	}
	state, err := f.s.Scripts.StreamState(ctx, f.ch)
	return err == nil && state.Exists && state.LastID == after // while Redis is unavailable the stored end is sent
}

func (f *conferenceFeed) ends(item stream.Item) bool {
	if item.Event != berth.EventDone {
		return false
	}
	var ev berth.ConferenceEvent
	return json.Unmarshal(item.Data, &ev) == nil && ev.ConferenceID == f.id
}

// subscribe opens a stream that does not exist, unless the conference has ended.
func (f *conferenceFeed) subscribe(ctx context.Context, after string, fromLatest bool) (*stream.Reader, error) {
	r, err := f.s.Hub.Follow(ctx, f.ch, after, fromLatest)
	if f.final || !errors.Is(err, stream.ErrAbsent) {
		return r, err
	}
	if _, err := f.s.Scripts.OpenStream(ctx, f.ch, 0, sessionStreamTTL); err != nil {
		return nil, unavailable("Redis", err)
	}
	return f.s.Hub.Follow(ctx, f.ch, after, fromLatest)
}

// last returns the end of an ended conference, made from its record.
func (f *conferenceFeed) last(ctx context.Context) (*stream.Item, error) {
	found, _, err := f.s.Ledger.SearchConferences(ctx, ledger.ConferenceQuery{ConferenceID: f.id}, "", 1)
	if err != nil || len(found) == 0 {
		return nil, err
	}
	if f.final = found[0].Status.Final(); !f.final {
		return nil, nil
	}
	data, err := json.Marshal(found[0].Event(found[0].EndedAt))
	if err != nil {
		return nil, berth.Errorf(berth.CodeInternal, "encode the stored event").With(err)
	}
	return &stream.Item{ID: storedEventID, Event: berth.EventDone, Data: data}, nil
}
