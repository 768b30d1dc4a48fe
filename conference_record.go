package berth

import "time"

// ConferenceRecord is the detail record of a conference that has ended, with the first MaxRecordLegs legs of its participants.
type ConferenceRecord struct {
	Conference
	Legs     []ConferenceLeg `json:"legs" doc:"The stay of each participant on each unit, in the order of joining"`
	LegsLeft bool            `json:"legsLeft,omitempty" doc:"There are more legs than these: read them as NDJSON or CSV"`
}

// MaxRecordLegs is how many legs a record itself has.
const MaxRecordLegs = 200

// EndedLeg returns a leg of a conference that has ended. One whose unit could not report its end has ended with the unit's
// segment.
func (c Conference) EndedLeg(leg ConferenceLeg) ConferenceLeg {
	if !leg.LeftAt.IsZero() {
		return leg
	}
	leg.LeftAt, leg.Reason = c.EndedAt, c.End
	for _, segment := range c.Segments {
		if segment.Epoch == leg.Epoch && !segment.EndedAt.IsZero() {
			leg.LeftAt, leg.Reason = segment.EndedAt, segment.Reason
		}
	}
	if leg.LeftAt.Before(leg.JoinedAt) { // by the unit's clock
		leg.LeftAt = leg.JoinedAt
	}
	return leg
}

// EventRecord is the type of the webhook event that has the detail record of a conference.
const EventRecord = "conference.ended"

// RecordEvent is the webhook event that is sent when a conference has ended.
type RecordEvent struct {
	Type      string           `json:"type"` // EventRecord
	Timestamp time.Time        `json:"timestamp"`
	Data      ConferenceRecord `json:"data"`
}

// DeliveryState is the state of a webhook event.
type DeliveryState string

// The states.
const (
	DeliveryPending   DeliveryState = "pending" // not accepted yet; it is retried
	DeliveryDelivered DeliveryState = "delivered"
	DeliveryFailed    DeliveryState = "failed" // given up
)

// DeliveryStates lists all states.
func DeliveryStates() []DeliveryState {
	return []DeliveryState{DeliveryPending, DeliveryDelivered, DeliveryFailed}
}

// RecordDelivery is the last delivery of a conference's record by webhook.
type RecordDelivery struct {
	WebhookID string        `json:"webhookId" doc:"The same in every attempt"`
	State     DeliveryState `json:"state"`
	Attempts  int           `json:"attempts"`
	Error     string        `json:"error,omitempty" doc:"Of the last attempt"`
	UpdatedAt time.Time     `json:"updatedAt"`
}

// RecordWebhookID returns the id of the webhook event of a conference.
func RecordWebhookID(conferenceID string) string { return "record-" + conferenceID }
