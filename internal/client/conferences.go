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

// ConferenceSpec is the body of POST /v1/conferences. One of EndAt and DurationMs is needed.
type ConferenceSpec struct {
	E164            string          `json:"e164,omitempty"`
	Title           string          `json:"title,omitempty"`
	MaxParticipants int             `json:"maxParticipants,omitempty"`
	EndAt           time.Time       `json:"endAt,omitzero"`
	DurationMs      int64           `json:"durationMs,omitempty"`
	Recoverable     *bool           `json:"recoverable,omitempty"`
	Zone            string          `json:"zone,omitempty"`
	Metadata        json.RawMessage `json:"metadata,omitempty"`
}

// Conference is a conference as the API answers it.
type Conference struct {
	berth.Conference
	Replay bool `json:"replay,omitempty"`
	// Info and Stale are of GET only.
	Info *struct {
		Basic json.RawMessage `json:"basic,omitempty"`
		Live  json.RawMessage `json:"live,omitempty"`
	} `json:"info,omitempty"`
	Stale bool `json:"stale,omitempty"`
}

// CreateConference opens a conference (C16). Asking again with the same number and body is safe.
func (c *Client) CreateConference(ctx context.Context, spec ConferenceSpec) (Conference, error) {
	var out Conference
	return out, c.call(ctx, http.MethodPost, "/v1/conferences", nil, spec, &out)
}

// Conference asks for the number's conference, the last unless an id is given.
func (c *Client) Conference(ctx context.Context, e164, conferenceID string) (Conference, error) {
	var out Conference
	path := conferencePath(e164)
	if conferenceID != "" {
		path += "?conferenceId=" + url.QueryEscape(conferenceID)
	}
	return out, c.call(ctx, http.MethodGet, path, nil, nil, &out)
}

// EndConference ends the number's conference (C10). HTTP 409: it is over.
func (c *Client) EndConference(ctx context.Context, e164 string) (Conference, error) {
	var out Conference
	return out, c.call(ctx, http.MethodDelete, conferencePath(e164), nil, nil, &out)
}

// Conferences yields one's own conferences, newest first, an operator's everybody's. Empty filters do not matter.
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
			var page struct {
				Conferences []berth.Conference `json:"conferences"`
				NextCursor  string             `json:"nextCursor"`
			}
			if err := c.call(ctx, http.MethodGet, "/v1/conferences?"+q.Encode(), nil, nil, &page); err != nil {
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

// FollowConference yields the events of the number's stream until that conference is done, reconnecting by itself.
// Earlier conferences of the number may come first.
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
