package client

import (
	"context"
	"net/http"
	"net/url"
	"strings"

	"berth"
)

// ParticipantSpec is the body of POST /v1/conferences/{e164}/participants.
type ParticipantSpec struct {
	Identity string                `json:"identity"`
	Name     string                `json:"name,omitempty"`
	Role     berth.ParticipantRole `json:"role,omitempty"` // participant by default
}

// Admission is what a LiveKit client needs to join a conference.
type Admission struct {
	URL          string                `json:"url"`
	Token        string                `json:"token"`
	ConferenceID string                `json:"conferenceId"`
	E164         string                `json:"e164"`
	Identity     string                `json:"identity"`
	Role         berth.ParticipantRole `json:"role"`
	Epoch        int64                 `json:"epoch"`
	Direct       bool                  `json:"direct"`
	// URLFromRequest: the API made the URL from the headers of the request. AddParticipant replaces it by the client's own address.
	URLFromRequest bool   `json:"urlFromRequest"`
	EventsURL      string `json:"eventsUrl"`
	Ticket         string `json:"ticket"`
}

// AddParticipant admits a participant to the number's conference.
func (c *Client) AddParticipant(ctx context.Context, e164 string, spec ParticipantSpec) (Admission, error) {
	a, err := fetch[Admission](ctx, c, http.MethodPost, conferencePath(e164)+"/participants", spec)
	if a.URLFromRequest && strings.HasPrefix(c.base, "http") { // a proxy may change the host and the path without a notice to the API
		a.URL = "ws" + strings.TrimPrefix(c.base, "http")
	}
	return a, err
}

// RemoveParticipant disconnects a participant, whose identity cannot join the conference again.
func (c *Client) RemoveParticipant(ctx context.Context, e164, identity string) error {
	return c.call(ctx, http.MethodDelete, conferencePath(e164)+"/participants/"+url.PathEscape(identity), nil, nil, nil)
}
