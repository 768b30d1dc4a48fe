package workflows

import (
	"time"

	"berth"
)

// ConferenceInput starts a conference.
type ConferenceInput struct {
	ConferenceID string               `json:"conferenceId"`
	UserID       string               `json:"userId"`
	Spec         berth.ConferenceSpec `json:"spec"`
	RequestHash  string               `json:"requestHash"`
	Rules        ConferenceRules      `json:"rules"`
	// Resumed is the state of the previous run, which continued as new.
	Resumed *ConferenceProgress `json:"resumed,omitempty"`
}

// ConferenceRules are the times of recovery.
type ConferenceRules struct {
	Retry   time.Duration `json:"retry"`   // between attempts without an event; 5 min
	GiveUp  time.Duration `json:"giveUp"`  // from the first refusal of a recovery; 30 min
	Command time.Duration `json:"command"` // how long a unit may take to acknowledge; 10 s
	// Connect is how long a unit may take to list the conference after Redis lost data; 0 is 10 s.
	Connect time.Duration `json:"connect,omitempty"`
	// Empty is after which time without participants a conference ends; 0 is never.
	Empty time.Duration `json:"empty,omitempty"`
	// Zone is how long a conference that allows it waits for a unit of its zone, before it is recovered in any.
	Zone time.Duration `json:"zone,omitempty"`
}

// hold is how long the slot of a copy that does not run yet is held: its command may have to wait before it is started.
func (r ConferenceRules) hold() time.Duration { return r.Command + 2*holdMargin }

// ConferenceProgress is the state that a run hands to the next one.
type ConferenceProgress struct {
	SubmissionID string            `json:"submissionId"`
	Conference   berth.Conference  `json:"conference"`
	Slot         *berth.Assignment `json:"slot,omitempty"`
	Events       int               `json:"events"`              // number of the last published event
	Used         int               `json:"used,omitempty"`      // no revision or number of an event beyond it was used
	Confirmed    int               `json:"confirmed,omitempty"` // number of the last event that an activity has confirmed
	Fenced       []int64           `json:"fenced,omitempty"`
	Stale        []Copy            `json:"stale,omitempty"`
	RetryAt      time.Time         `json:"retryAt,omitzero"`
	CheckAt      time.Time         `json:"checkAt,omitzero"`
	// Outbox, Release and Unresponsive are events, slots and marks that no activity has received yet.
	Outbox       []berth.ConferenceEvent `json:"outbox,omitempty"`
	Release      []HeldSlot              `json:"release,omitempty"`
	Unresponsive []berth.NodeRef         `json:"unresponsive,omitempty"`
	NotStarted   []berth.NodeRef         `json:"notStarted,omitempty"`
	SkippedUnits bool                    `json:"skippedUnits,omitempty"`
	Refusals     []UnitRefusal           `json:"refusals,omitempty"`
	Drain        *PlannedMove            `json:"drain,omitempty"`    // its unit is drained, and it waits to be moved
	CopyEndAt    time.Time               `json:"copyEndAt,omitzero"` // end time that its unit has acknowledged
}

// UnitRefusal is a generation that refused to recover the conference, and is not tried again before a time.
type UnitRefusal struct {
	berth.NodeRef
	Until time.Time `json:"until"`
}

// Copy is a conference on one generation of a unit, under the epoch that the unit was sent.
type Copy struct {
	berth.NodeRef
	Epoch int64 `json:"epoch"`
}

// CreateRequest is the argument of the create update.
type CreateRequest struct {
	SubmissionID string `json:"submissionId"`
	RequestHash  string `json:"requestHash"`
	UserID       string `json:"userId"`
}

// CreateReply is the result of the create update.
type CreateReply struct {
	SubmissionID string           `json:"submissionId"`
	Conference   berth.Conference `json:"conference"`
}

// ReleaseRequest is the argument of the release update.
type ReleaseRequest struct {
	By string `json:"by"` // user id
	// ConferenceID, if set, must be the conference's; the validator rejects others as conflict.
	ConferenceID string `json:"conferenceId"`
}

// UnitNotice is the argument of the unit signal. Exactly one of Gone, Copy and Missing is set.
type UnitNotice struct {
	NodeID      string            `json:"nodeId"`
	Generation  int64             `json:"generation"`
	Incarnation berth.Incarnation `json:"incarnation"`
	// Gone is why the generation has ended.
	Gone berth.Departure `json:"gone,omitempty"`
	// Copy is the conference's entry on the unit's list.
	Copy *berth.UnitCopy `json:"copy,omitempty"`
	// Missing indicates that the unit does not run the conference: its list lacks it, or the unit reported that it ended
	// the conference. It is ignored unless the unit is the owner.
	Missing bool `json:"missing,omitempty"`
	// Epoch, if set, is the only epoch to which Missing applies.
	Epoch int64 `json:"epoch,omitempty"`
}

// PlaceInput is the argument of PlaceConference.
type PlaceInput struct {
	// Conference is the current record, without an owner.
	Conference berth.Conference `json:"conference"`
	// First indicates a creation: if it is refused, nothing is written.
	First bool `json:"first,omitempty"`
	// AnyZone allows units of other zones where no unit of the conference's zone has capacity.
	AnyZone bool `json:"anyZone,omitempty"`
	// Failed are generations that are excluded, because they failed this conference.
	Failed []berth.NodeRef `json:"failed,omitempty"`
	// Unresponsive are generations that did not reply to a command. They receive no conferences for SkipUnresponsiveFor.
	Unresponsive []berth.NodeRef `json:"unresponsive,omitempty"`
	// NotStarted are generations that did not start a command in time. Those that do not run other commands are
	// unresponsive, too.
	NotStarted []berth.NodeRef `json:"notStarted,omitempty"`
	// Release are slots that are released first.
	Release []HeldSlot `json:"release,omitempty"`
	// Events are published before those of the placement; FirstEvent is the number of the first one, and Confirmed that of the last one
	// that an activity has confirmed.
	Events     []berth.ConferenceEvent `json:"events,omitempty"`
	FirstEvent int                     `json:"firstEvent"`
	Confirmed  int                     `json:"confirmed,omitempty"`
	Hold       time.Duration           `json:"hold"` // of the slot, until the copy runs
	At         time.Time               `json:"at"`   // the copy's start
}

// PlaceReply is the result of PlaceConference: the owner, or why there is none.
type PlaceReply struct {
	Owner   berth.ConferenceOwner `json:"owner,omitzero"`
	Slot    berth.Assignment      `json:"slot,omitzero"`
	Code    berth.Code            `json:"code,omitempty"` // node_full, no_node, no_licence or unavailable
	Message string                `json:"message,omitempty"`
	Refusal berth.Refusal         `json:"refusal,omitzero"`
	Events  int                   `json:"events"` // how many were published
}

// Placed returns the conference with a new owner, in status creating.
func Placed(c berth.Conference, owner berth.ConferenceOwner, at time.Time) berth.Conference {
	c.Status, c.Owner, c.Epoch, c.CopyStartedAt, c.Waiting = berth.ConferenceCreating, owner, owner.Epoch, at, ""
	c.Revision++
	return c
}

// SaveInput is the argument of SaveConference.
type SaveInput struct {
	Conference   berth.Conference        `json:"conference"`
	Events       []berth.ConferenceEvent `json:"events,omitempty"`
	FirstEvent   int                     `json:"firstEvent"`          // number of the first event
	Confirmed    int                     `json:"confirmed,omitempty"` // as in PlaceInput
	Hold         *HeldSlot               `json:"hold,omitempty"`
	Release      []HeldSlot              `json:"release,omitempty"`
	Unresponsive []berth.NodeRef         `json:"unresponsive,omitempty"` // as in PlaceInput
	NotStarted   []berth.NodeRef         `json:"notStarted,omitempty"`   // as in PlaceInput
	// Acknowledged indicates that the owner has acknowledged a command, so that it is no longer treated as unresponsive.
	Acknowledged bool `json:"acknowledged,omitempty"`
}

// SaveReply is the result of SaveConference. Both are false where the owner's slot is held.
type SaveReply struct {
	Gone bool `json:"gone,omitempty"` // the owner's generation is not registered
	Dead bool `json:"dead,omitempty"` // and it was declared dead, maybe before this conference was known to be its own
}

// AdoptionInput is the argument of PrepareAdoption.
type AdoptionInput struct {
	E164         string        `json:"e164"`
	ConferenceID string        `json:"conferenceId"`
	Unit         berth.NodeRef `json:"unit"`
	Hold         time.Duration `json:"hold"` // of the slot, until the unit has acknowledged
}

// AdoptionReply is the result of PrepareAdoption.
type AdoptionReply struct {
	Epoch int64            `json:"epoch"`
	Slot  berth.Assignment `json:"slot"`
	Gone  bool             `json:"gone,omitempty"` // the generation has ended
}

// LinkRequest is the argument of NotifyLink: the copy to release, or none to request the unit's list.
type LinkRequest struct {
	Unit     berth.NodeRef      `json:"unit"`
	Withdraw *berth.UnitRelease `json:"withdraw,omitempty"`
}

// UnitState is the result of ReadUnitState.
type UnitState struct {
	Generation int64 `json:"generation"` // the registered generation; 0 when there is none
}
