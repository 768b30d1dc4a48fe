package berth

import "time"

// ConferenceEvent is one event of a conference's stream, besides EventGap: EventConference when its status, owner or reason
// to wait has changed, or when its unit delays the end, and EventDone when it has ended. A number's stream continues with
// the next conference of that number and user.
type ConferenceEvent struct {
	Type         EventType        `json:"type"`
	E164         string           `json:"e164"`
	ConferenceID string           `json:"conferenceId,omitempty"` // absent in gap
	TS           int64            `json:"ts"`                     // the publisher's clock in Unix milliseconds; informational
	Status       ConferenceStatus `json:"status,omitempty"`
	Owner        *ConferenceOwner `json:"owner,omitempty"` // absent while there is none
	Waiting      string           `json:"waiting,omitempty"`
	Ending       ConferenceEnd    `json:"ending,omitempty"` // its unit has not acknowledged the release yet
	End          ConferenceEnd    `json:"end,omitempty"`    // in done
}

// Event returns the event that describes the conference's current state.
func (c Conference) Event(now time.Time) ConferenceEvent {
	ev := ConferenceEvent{
		Type: EventConference, E164: c.E164, ConferenceID: c.ID, TS: now.UnixMilli(), Status: c.Status, Waiting: c.Waiting,
		Ending: c.Ending, End: c.End,
	}
	if c.Status.Final() {
		ev.Type = EventDone
	}
	if c.Owner.NodeID != "" {
		ev.Owner = &c.Owner
	}
	return ev
}
