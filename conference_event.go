package berth

import "time"

// ConferenceEvent is one event of a conference's stream, beside EventGap: EventConference when its status, owner or reason
// to wait changed, or its unit takes its time to end it, EventDone once it is over. A number's stream goes on with its owner's next conference of that number.
type ConferenceEvent struct {
	Type         EventType        `json:"type"`
	E164         string           `json:"e164"`
	ConferenceID string           `json:"conferenceId,omitempty"` // absent in gap
	TS           int64            `json:"ts"`                     // the publisher's clock in Unix milliseconds; for people, never for a decision
	Status       ConferenceStatus `json:"status,omitempty"`
	Owner        *ConferenceOwner `json:"owner,omitempty"` // while there is one
	Waiting      string           `json:"waiting,omitempty"`
	Ending       ConferenceEnd    `json:"ending,omitempty"` // its unit has not acknowledged the end yet
	End          ConferenceEnd    `json:"end,omitempty"`    // in done
}

// Event is what the conference's stream tells of it now.
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
