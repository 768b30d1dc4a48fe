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
	// Resumed is where the run before this one stood.
	Resumed *ConferenceProgress `json:"resumed,omitempty"`
}

// ConferenceProgress is what a conference hands to its next run.
type ConferenceProgress struct {
	SubmissionID string            `json:"submissionId"`
	Conference   berth.Conference  `json:"conference"`
	Slot         *berth.Assignment `json:"slot,omitempty"`
	Events       int               `json:"events"`
	Fenced       []int64           `json:"doomed,omitempty"`
	Stale        []Copy            `json:"leftover,omitempty"`
	RetryAt      time.Time         `json:"retryAt,omitzero"`
	ConnectBy    time.Time         `json:"connectBy,omitzero"`
}

// Copy is a conference on one generation of a unit, under the epoch it was told.
type Copy struct {
	NodeRef
	Epoch int64 `json:"epoch"`
}

// ConferenceRules are the times of recovery (C9).
type ConferenceRules struct {
	Retry   time.Duration `json:"retry"`   // between attempts that nobody asked for; 5 min
	GiveUp  time.Duration `json:"giveUp"`  // from the first refusal of a recovery; 30 min
	Command time.Duration `json:"command"` // how long a unit may take to acknowledge; 10 s
	// Connect is how long, after Redis lost data, a unit may take to be there again (C4); 0 is 10 s.
	Connect time.Duration `json:"connect,omitempty"`
}

// CreateRequest is the argument of the create update.
type CreateRequest struct {
	SubmissionID string `json:"submissionId"`
	RequestHash  string `json:"requestHash"`
	UserID       string `json:"userId"`
}

// CreateReply is the outcome of the create update.
type CreateReply struct {
	SubmissionID string           `json:"submissionId"`
	Conference   berth.Conference `json:"conference"`
}

// ReleaseRequest is the argument of the release update.
type ReleaseRequest struct {
	By string `json:"by"` // user id
	// ConferenceID, where it is given, has to be the conference's; the validator refuses others as conflict.
	ConferenceID string `json:"conferenceId"`
}

// UnitNotice is what a conference hears of a unit. One of Gone, Copy and Missing is set.
type UnitNotice struct {
	NodeID      string            `json:"nodeId"`
	Generation  int64             `json:"generation"`
	Incarnation berth.Incarnation `json:"incarnation"`
	// Gone is why the generation is no more.
	Gone berth.Departure `json:"gone,omitempty"`
	// Copy is what the unit's list says of this conference.
	Copy *berth.UnitCopy `json:"copy,omitempty"`
	// Missing: the unit runs no such conference: its list lacks what it had, or it says itself that it ended it. From
	// another than the owner it means nothing (C17).
	Missing bool `json:"missing,omitempty"`
	// Epoch, where it is set, is the only one that Missing is said of (C20).
	Epoch int64 `json:"epoch,omitempty"`
}

// LinkInput starts a link.
type LinkInput struct {
	NodeID     string        `json:"nodeId"`
	Generation int64         `json:"generation"`
	Command    time.Duration `json:"command"` // how long the unit may take to answer; 0 is 10 s
	// Withdraw are copies still to be released; from the run before this one.
	Withdraw []berth.UnitRelease `json:"withdraw,omitempty"`
}

// PlaceInput is the argument of PlaceConference.
type PlaceInput struct {
	// Conference is how it stands, without an owner.
	Conference berth.Conference `json:"conference"`
	// First: it was never placed. Refused, it leaves nothing.
	First bool `json:"first,omitempty"`
	// Failed are generations that failed it in this round.
	Failed []NodeRef `json:"failed,omitempty"`
	// Unresponsive are generations that have not answered a command: everybody passes them over for SkipUnresponsiveFor.
	Unresponsive []NodeRef `json:"silent,omitempty"`
	// Release is given back before.
	Release []berth.Assignment `json:"release,omitempty"`
	// Events are to be told before what comes of it; FirstEvent is their number.
	Events     []berth.ConferenceEvent `json:"events,omitempty"`
	FirstEvent int                     `json:"firstEvent"`
	Hold       time.Duration           `json:"hold"` // of the slot, until the copy runs
	At         time.Time               `json:"at"`   // the copy's start, as the controller stamps it
}

// PlaceReply is the result of PlaceConference: the owner, or why there is none.
type PlaceReply struct {
	Owner   berth.ConferenceOwner `json:"owner,omitzero"`
	Slot    berth.Assignment      `json:"slot,omitzero"`
	Code    berth.Code            `json:"code,omitempty"` // node_full, no_node, no_licence or unavailable
	Message string                `json:"message,omitempty"`
	Refusal berth.Refusal         `json:"refusal,omitzero"`
	Events  int                   `json:"events"` // how many were told
}

// Placed is the conference with the owner it was given.
func Placed(c berth.Conference, owner berth.ConferenceOwner, at time.Time) berth.Conference {
	c.Status, c.Owner, c.Epoch, c.CopyStartedAt, c.Waiting = berth.ConferenceCreating, owner, owner.Epoch, at, ""
	c.Revision++
	return c
}

// SaveInput is the argument of SaveConference. A conference that is over is forgotten in Redis, and one that waits is
// told that there is room.
type SaveInput struct {
	Conference   berth.Conference        `json:"conference"`
	Events       []berth.ConferenceEvent `json:"events,omitempty"`
	FirstEvent   int                     `json:"firstEvent"`
	Hold         *HeldSlot               `json:"hold,omitempty"`
	Release      []berth.Assignment      `json:"release,omitempty"`
	Unresponsive []NodeRef               `json:"silent,omitempty"` // as in PlaceInput
	// Answered: the owner has just answered a command, and is not passed over any more.
	Answered bool `json:"answered,omitempty"`
}

// SkipUnresponsiveFor is for how long a unit that has not answered a command gets no conferences.
const SkipUnresponsiveFor = 30 * time.Second

// AdoptionInput is the argument of PrepareAdoption.
type AdoptionInput struct {
	E164         string        `json:"e164"`
	ConferenceID string        `json:"conferenceId"`
	Unit         NodeRef       `json:"unit"`
	Hold         time.Duration `json:"hold"`
}

// AdoptionReply is the result of PrepareAdoption.
type AdoptionReply struct {
	Epoch int64            `json:"epoch"`
	Slot  berth.Assignment `json:"slot"`
	Gone  bool             `json:"gone,omitempty"` // the generation is no more
}

// LinkRequest is the argument of NotifyLink: what to release, or nothing to have the unit's list asked for.
type LinkRequest struct {
	Unit     NodeRef            `json:"unit"`
	Withdraw *berth.UnitRelease `json:"withdraw,omitempty"`
}

// UnitState is how a unit stands now: its generation that lives, 0 when none does.
type UnitState struct {
	Generation int64 `json:"generation"`
}

// UnitRows is what a unit should run, as far as was known before its list was asked for.
type UnitRows struct {
	Rows []UnitRow `json:"rows,omitempty"`
}

// UnitRow is a conference that ran on a unit.
type UnitRow struct {
	E164  string `json:"e164"`
	Epoch int64  `json:"epoch"`
}

// ReconcileInput is the argument of ReconcileUnit.
type ReconcileInput struct {
	Unit NodeRef        `json:"unit"`
	Rows []UnitRow      `json:"rows,omitempty"`
	List berth.UnitList `json:"list"`
}

// ReconcileReply is the result of ReconcileUnit: the copies that nobody wants.
type ReconcileReply struct {
	Withdraw []berth.UnitRelease `json:"withdraw,omitempty"`
}

// ProbeInput is the argument of Probe.
type ProbeInput struct {
	Units []NodeRef `json:"units"`
}
