package client

import (
	"context"
	"net/http"
	"net/url"
	"strings"
	"time"

	"berth"
)

// ParticipantSpec is the body of POST /v1/conferences/{e164}/participants.
type ParticipantSpec struct {
	Identity string                `json:"identity" maxLength:"255" doc:"Identifies the participant in the conference; must not begin with guest-"`
	Name     string                `json:"name,omitempty" doc:"What other participants see, at most 200 characters; see Names"`
	Role     berth.ParticipantRole `json:"role,omitempty" default:"participant" doc:"A listener cannot publish"`
}

// Admission is everything that a LiveKit client needs to join a conference.
type Admission struct {
	URL          string                `json:"url" doc:"Where a LiveKit client connects. With the signalling proxy it stays the same wherever the conference runs"`
	Token        string                `json:"token" doc:"The client's token. It is valid while the conference continues and the participant is not removed"`
	ConferenceID string                `json:"conferenceId"`
	E164         string                `json:"e164" doc:"Also the name of the room"`
	Title        string                `json:"title,omitempty" doc:"That of the conference"`
	EndAt        time.Time             `json:"endAt" doc:"When the conference ends"`
	Identity     string                `json:"identity"`
	Role         berth.ParticipantRole `json:"role"`
	Epoch        int64                 `json:"epoch" doc:"Epoch of the unit that has the conference; 0 while none has it. Without the proxy, request a new token when an event has a higher one"`
	// URLFromRequest is for clients behind a proxy that changes the host or the path, which only they know: AddParticipant replaces
	// the URL by the client's own address.
	URLFromRequest bool   `json:"urlFromRequest,omitempty" doc:"No address is configured, and url was made from the headers of this request: a client that reached the API at another address uses that, with ws for http"`
	Direct         bool   `json:"direct" doc:"The signalling proxy is disabled: url and token are those of the unit and change when the conference moves"`
	EventsURL      string `json:"eventsUrl" doc:"What the participant may see of the conference, as Server-Sent Events; contains the ticket"`
	Ticket         string `json:"ticket" doc:"Opens the events within 30 seconds"`
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
