package client

import (
	"context"
	"encoding/json"
	"iter"
	"net/http"
	"net/url"
	"time"

	"berth"
)

// ConferenceSpec is the body of POST /v1/conferences. One of EndAt and DurationMs is required.
type ConferenceSpec struct {
	E164            string          `json:"e164,omitempty" doc:"The number without the plus; by default a free one is assigned" example:"8613800138000"`
	Title           string          `json:"title,omitempty" doc:"Display name, at most 200 characters"`
	MaxParticipants int             `json:"maxParticipants,omitempty" minimum:"0" maximum:"10000" doc:"0: no limit"`
	EndAt           time.Time       `json:"endAt,omitzero" doc:"When the conference ends, at most 30 days from now; give this or durationMs"`
	DurationMs      int64           `json:"durationMs,omitempty" minimum:"1" maximum:"2592000000" doc:"Duration; give this or endAt"`
	Recoverable     *bool           `json:"recoverable,omitempty" default:"true" doc:"false: the conference ends when its unit is lost"`
	Zone            string          `json:"zone,omitempty" doc:"Only units of this zone"`
	ZoneFallback    bool            `json:"zoneFallback,omitempty" doc:"Allow units of other zones: at the creation where the zone has no capacity, and at a recovery after a time"`
	Metadata        json.RawMessage `json:"metadata,omitempty" doc:"Any JSON, at most 16 KiB; kept across a change of unit"`
}

// Conference is a conference as the API returns it.
type Conference struct {
	berth.Conference
	Replay    bool          `json:"replay,omitempty" doc:"An earlier request created it"`
	EventsURL string        `json:"eventsUrl" doc:"Its events, as Server-Sent Events"`
	Links     WorkflowLinks `json:"links"`
}

// ConferenceState is a conference with what its unit has reported.
type ConferenceState struct {
	Conference
	Info  *ConferenceInfo `json:"info,omitempty" doc:"Information from the data proxy; absent when there is none"`
	Stale bool            `json:"stale" doc:"Redis is unavailable: the stored conference without its information"`
}

// ConferenceInfo is the data proxy's information about a conference.
type ConferenceInfo struct {
	Basic json.RawMessage `json:"basic,omitempty" doc:"Kept across a change of unit"`
	Live  json.RawMessage `json:"live,omitempty" doc:"Last reported by its unit"`
}

// WorkflowLinks are the links to a workflow.
type WorkflowLinks struct {
	Temporal string `json:"temporal,omitempty" doc:"The run in the Temporal UI"`
}

// CreateConference opens a conference. Retries with the same number and body are idempotent.
func (c *Client) CreateConference(ctx context.Context, spec ConferenceSpec) (Conference, error) {
	return fetch[Conference](ctx, c, http.MethodPost, "/v1/conferences", spec)
}

// Conference returns a conference of the number: the last one if conferenceID is empty.
func (c *Client) Conference(ctx context.Context, e164, conferenceID string) (ConferenceState, error) {
	path := conferencePath(e164)
	if conferenceID != "" {
		path += "?conferenceId=" + url.QueryEscape(conferenceID)
	}
	return fetch[ConferenceState](ctx, c, http.MethodGet, path, nil)
}

// MoveConference moves an open conference to a unit, or to any other one if that is empty. It needs the scope operator.
func (c *Client) MoveConference(ctx context.Context, e164, unit string) (Conference, error) {
	body := struct {
		Unit string `json:"unit,omitempty"`
	}{unit}
	return fetch[Conference](ctx, c, http.MethodPost, conferencePath(e164)+"/move", body)
}

// ExtendConference sets a later end time. The error has HTTP status 409 if the conference has ended, or would end earlier.
func (c *Client) ExtendConference(ctx context.Context, e164 string, endAt time.Time) (Conference, error) {
	body := struct {
		EndAt time.Time `json:"endAt"`
	}{endAt}
	return fetch[Conference](ctx, c, http.MethodPatch, conferencePath(e164), body)
}

// EndConference ends the number's conference. The error has HTTP status 409 if the conference has already ended.
func (c *Client) EndConference(ctx context.Context, e164 string) (Conference, error) {
	return fetch[Conference](ctx, c, http.MethodDelete, conferencePath(e164), nil)
}

// Conferences yields the caller's conferences, newest first; with the scope operator, those of all users. An empty filter
// matches every conference.
func (c *Client) Conferences(ctx context.Context, status berth.ConferenceStatus, unit string) iter.Seq2[berth.Conference, error] {
	return func(yield func(berth.Conference, error) bool) {
		q := url.Values{"limit": {"100"}}
		if status != "" {
			q.Set("status", string(status))
		}
		if unit != "" {
			q.Set("unit", unit)
		}
		for {
			page, err := fetch[struct {
				Conferences []berth.Conference `json:"conferences"`
				NextCursor  string             `json:"nextCursor"`
			}](ctx, c, http.MethodGet, "/v1/conferences?"+q.Encode(), nil)
			if err != nil {
				yield(berth.Conference{}, err)
				return
			}
			for _, one := range page.Conferences {
				if !yield(one, nil) {
					return
				}
			}
			if page.NextCursor == "" {
				return
			}
			q.Set("cursor", page.NextCursor)
		}
	}
}

// FollowConference yields the events of the number's stream until the conference has ended. It reconnects
// automatically. Events of earlier conferences of the number may come first.
func (c *Client) FollowConference(ctx context.Context, e164, conferenceID string) iter.Seq2[berth.ConferenceEvent, error] {
	return func(yield func(berth.ConferenceEvent, error) bool) {
		c.follow(ctx, conferencePath(e164)+"/events", "", func(f frame, err error) bool {
			var ev berth.ConferenceEvent
			if err == nil {
				err = f.read(&ev)
				ev.Type = berth.EventType(f.name)
			}
			return yield(ev, err) && (ev.Type != berth.EventDone || ev.ConferenceID != conferenceID)
		})
	}
}

func conferencePath(e164 string) string { return "/v1/conferences/" + url.PathEscape(e164) }
