package api

import (
	"context"
	"encoding/json"
	"net/http"

	"github.com/labstack/echo/v4"

	"berth"
	"berth/internal/identity"
	"berth/internal/stream"
	"berth/lua"
)

func (s *server) conferenceEventRoute() {
	s.eventRoute("GET /v1/conferences/{e164}/events", rule{scopes: forUsers.scopes, ticket: identity.TicketConference}, s.followConference,
		pathParam("e164", ""), s.eventUnion(berth.ConferenceEvent{}, berth.ConferenceEventTypes()), "Events until the conference has ended", "The client has the last event",
		op("conference-events", "events", "Stream conference events (Server-Sent Events)",
			"Each event has `id`, `event` ("+join(berth.ConferenceEventTypes())+") and `data`, one JSON object (schema ConferenceEvent). "+
				"The stream closes after the `done` of the number's last conference; resuming after that returns 204. "+
				"Events of the user's earlier conferences with the same number can precede it. A lost connection resumes after "+
				"Last-Event-ID without loss or repetition; `gap` means that history was trimmed or lost. When the stream of an "+
				"ended conference has expired, its stored end is sent. Comments are heartbeats."))
}

func (s *server) followConference(ctx context.Context, c echo.Context) (*follower, error) {
	return s.followOne(ctx, c, func() (berth.Conference, error) {
		return s.ownConference(ctx, c.Param("e164"), "")
	}, func(f *conferenceFeed) feed { return f })
}

// followOne returns the follower of the conference that read returns, nil when the client has the last event; the response is sent then.
// visible returns the feed with what the client may see.
func (s *server) followOne(
	ctx context.Context, c echo.Context, read func() (berth.Conference, error), visible func(*conferenceFeed) feed,
) (*follower, error) {
	after, fromLatest, err := resumePoint(c.Request())
	if err != nil {
		return nil, err
	}
	conf, err := read()
	if err != nil {
		return nil, err
	}
	all := &conferenceFeed{source{s, lua.ConferenceChannel(conf.UserID, conf.E164), conf.Status.Final()}, conf.ID}
	if all.seen(ctx, after) {
		return nil, c.NoContent(http.StatusNoContent)
	}
	if after == storedEventID {
		after = ""
	}
	return &follower{s: s, feed: visible(all), after: after, fromLatest: fromLatest && !all.final, out: newEventWriter(c)}, nil
}

// participationEventRoute registers what participants may see: they need not be users.
func (s *server) participationEventRoute() {
	s.eventRoute("GET /v1/participations/{conferenceId}/events", rule{scopes: forUsers.scopes, ticket: identity.TicketParticipation}, s.followParticipation,
		pathParam("conferenceId", ""), s.eventUnion(berth.ParticipationEvent{}, berth.ConferenceEventTypes()), "Events until the conference has ended", "The client has the last event",
		op("participation-events", "events", "Stream the conference events for participants (Server-Sent Events)",
			"Each event has `id`, `event` ("+join(berth.ConferenceEventTypes())+") and `data`, one JSON object (schema ParticipationEvent). Without the "+
				"signalling proxy, a participant requests a new token when `epoch` is higher than that of its token. It opens with the ticket of "+
				"a participant; the conference's user and operators may also use their token. Resuming works as for other events."))
}

func (s *server) followParticipation(ctx context.Context, c echo.Context) (*follower, error) {
	return s.followOne(ctx, c, func() (berth.Conference, error) {
		return s.participation(ctx, c.Param("conferenceId"))
	}, func(f *conferenceFeed) feed { return &participationFeed{f} })
}

// participation returns a conference in which the caller participates, or which it may manage. A participant has a ticket: its identity
// is chosen by the conference's user, and may equal the id of a user who does not participate.
func (s *server) participation(ctx context.Context, id string) (berth.Conference, error) {
	if err := berth.ValidID("conferenceId", id); err != nil {
		return berth.Conference{}, err
	}
	conf, ok, err := berth.Found(s.Ledger.GetConference(ctx, id))
	switch call := callOf(ctx); {
	case err != nil:
		return conf, err
	case !ok:
		return conf, errNoConference
	case !call.ticket && (conf.UserID == call.user.UserID || call.user.Operator()):
		return conf, nil
	case !call.ticket:
		return conf, errNoConference
	}
	p, ok, err := berth.Found(s.Ledger.FindParticipant(ctx, id, callOf(ctx).user.UserID))
	if err == nil && (!ok || !p.RemovedAt.IsZero()) {
		err = errNoConference
	}
	return conf, err
}

// participationFeed is a conferenceFeed without what only the conference's user may see.
type participationFeed struct{ *conferenceFeed }

func (f *participationFeed) visible(item stream.Item) (stream.Item, bool) {
	var ev berth.ConferenceEvent
	if json.Unmarshal(item.Data, &ev) != nil || ev.ConferenceID != f.id && ev.Type != berth.EventGap {
		return item, false // of an earlier conference of the number
	}
	data, err := json.Marshal(ev.ForParticipants())
	item.Data = data
	return item, err == nil
}

func (f *participationFeed) last(ctx context.Context) (*stream.Item, error) {
	item, err := f.conferenceFeed.last(ctx)
	if err != nil || item == nil {
		return nil, err
	}
	shown, _ := f.visible(*item)
	return &shown, nil
}

// conferenceFeed has the events of one conference, from its number's stream, which does not end.
type conferenceFeed struct {
	source
	id string
}

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

func (f *conferenceFeed) subscribe(ctx context.Context, after string, fromLatest bool) (*stream.Reader, error) {
	return f.follow(ctx, after, fromLatest)
}

// last returns the end of an ended conference, made from its record.
func (f *conferenceFeed) last(ctx context.Context) (*stream.Item, error) {
	c, ok, err := berth.Found(f.s.Ledger.GetConference(ctx, f.id))
	if !ok {
		return nil, err
	}
	if f.final = c.Status.Final(); !f.final {
		return nil, nil
	}
	data, err := json.Marshal(c.Event(c.EndedAt))
	if err != nil {
		return nil, berth.Errorf(berth.CodeInternal, "encode the stored event").With(err)
	}
	return &stream.Item{ID: storedEventID, Event: berth.EventDone, Data: data}, nil
}
