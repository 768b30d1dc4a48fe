package berth

import (
	"slices"
	"strings"
	"time"
)

// ParticipantRole states what a participant may do in a conference.
type ParticipantRole string

// The roles.
const (
	RoleHost        ParticipantRole = "host"        // publishes, and may change its own metadata
	RoleParticipant ParticipantRole = "participant" // publishes
	RoleListener    ParticipantRole = "listener"    // receives only
)

// ParticipantRoles lists all roles.
func ParticipantRoles() []ParticipantRole {
	return []ParticipantRole{RoleHost, RoleParticipant, RoleListener}
}

// GuestPrefix begins the identities that berth assigns to guests; others must not begin with it.
const GuestPrefix = "guest-"

// Participant is who may join a conference. There is one for each identity.
type Participant struct {
	ConferenceID string          `json:"conferenceId"`
	Identity     string          `json:"identity"`
	Name         string          `json:"name,omitempty"`
	Role         ParticipantRole `json:"role"`
	LinkID       string          `json:"linkId,omitempty" doc:"Of a guest: the link that it was invited with"`
	CreatedAt    time.Time       `json:"createdAt"`
	// RemovedAt is set once the participant was removed: it cannot join again.
	RemovedAt time.Time `json:"removedAt,omitzero"`
	RemovedBy string    `json:"removedBy,omitempty"`
}

// Normalize brings the name into its stored form, and returns CodeInvalid for the first invalid field.
func (p *Participant) Normalize() (err error) {
	if err := ValidUserID("identity", p.Identity); err != nil {
		return err
	}
	switch {
	case p.LinkID == "" && strings.HasPrefix(p.Identity, GuestPrefix):
		return Invalid("identity", "must not begin with %s, which begins the identities of guests", GuestPrefix)
	case !slices.Contains(ParticipantRoles(), p.Role):
		return Invalid("role", "must be one of %v", ParticipantRoles())
	}
	p.Name, err = Name("name", p.Name, MaxParticipantName)
	return err
}

// Link is an invitation to a conference. Its secret is stored as a hash only.
type Link struct {
	ID           string          `json:"linkId"`
	ConferenceID string          `json:"conferenceId"`
	Role         ParticipantRole `json:"role"`
	MaxUses      int             `json:"maxUses" doc:"Number of guests that it admits"`
	Uses         int             `json:"uses" doc:"Number of guests that it has admitted"`
	CreatedAt    time.Time       `json:"createdAt"`
	CreatedBy    string          `json:"createdBy"`
	RevokedAt    time.Time       `json:"revokedAt,omitzero"`
	RevokedBy    string          `json:"revokedBy,omitempty"`
}

// ParticipationEvent is what participants receive about their conference: EventConference when its status or its unit has
// changed, EventDone when it has ended, and EventGap.
type ParticipationEvent struct {
	Type         EventType        `json:"type"`
	E164         string           `json:"e164"`
	ConferenceID string           `json:"conferenceId,omitempty" on:"conference done"`
	TS           int64            `json:"ts" doc:"The publisher's clock in Unix milliseconds; for display only"`
	Status       ConferenceStatus `json:"status,omitempty" on:"conference done"`
	Epoch        int64            `json:"epoch,omitempty" on:"conference done" doc:"That of its unit; absent while there is none. A higher one: the conference has moved"`
}

// ForParticipants returns the event without what only the conference's user may see.
func (e ConferenceEvent) ForParticipants() ParticipationEvent {
	out := ParticipationEvent{Type: e.Type, E164: e.E164, ConferenceID: e.ConferenceID, TS: e.TS, Status: e.Status}
	if e.Owner != nil {
		out.Epoch = e.Owner.Epoch
	}
	return out
}
