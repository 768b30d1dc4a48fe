package berth

import "time"

// ConferenceEventTypes returns the event types of a conference's stream.
func ConferenceEventTypes() []EventType { return []EventType{EventConference, EventDone, EventGap} }

// ConferenceEvent is one event of a conference's stream, besides EventGap: EventConference when its status, owner or reason
// to wait has changed, or when its unit delays the end, and EventDone when it has ended. A number's stream continues with
// the next conference of that number and user.
type ConferenceEvent struct {
	Type         EventType        `json:"type"`
	E164         string           `json:"e164"`
	ConferenceID string           `json:"conferenceId,omitempty" on:"conference done"`
	TS           int64            `json:"ts" doc:"The publisher's clock in Unix milliseconds; for display only"`
	Status       ConferenceStatus `json:"status,omitempty" on:"conference done"`
	Owner        *ConferenceOwner `json:"owner,omitempty" on:"conference done" doc:"Absent while there is none"`
	Waiting      string           `json:"waiting,omitempty" on:"conference done"`
	Ending       ConferenceEnd    `json:"ending,omitempty" on:"conference done" doc:"Its unit has not acknowledged the release yet"`
	End          ConferenceEnd    `json:"end,omitempty" on:"done"`
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
