package client

import (
	"context"
	"net/http"
	"net/url"

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
	EventsURL    string                `json:"eventsUrl"`
	Ticket       string                `json:"ticket"`
}

// AddParticipant admits a participant to the number's conference.
func (c *Client) AddParticipant(ctx context.Context, e164 string, spec ParticipantSpec) (Admission, error) {
	return fetch[Admission](ctx, c, http.MethodPost, conferencePath(e164)+"/participants", spec)
}

// RemoveParticipant disconnects a participant, whose identity cannot join the conference again.
func (c *Client) RemoveParticipant(ctx context.Context, e164, identity string) error {
	return c.call(ctx, http.MethodDelete, conferencePath(e164)+"/participants/"+url.PathEscape(identity), nil, nil, nil)
}
