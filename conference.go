package berth

import (
	"encoding/json"
	"regexp"
	"time"
)

// ConferenceStatus is the status of a conference.
type ConferenceStatus string

// The statuses of a conference. The last two are final.
const (
	ConferenceCreating           ConferenceStatus = "creating"            // a unit was chosen and received the command
	ConferenceOpen               ConferenceStatus = "open"                // its unit runs it
	ConferenceAwaitingConnection ConferenceStatus = "awaiting-connection" // Redis lost its row; its unit's list confirms it
	ConferenceAwaitingRecovery   ConferenceStatus = "awaiting-recovery"   // its unit is lost
	ConferenceEnded              ConferenceStatus = "ended"
	ConferenceDeleted            ConferenceStatus = "deleted" // never opened: refused, or no capacity
)

// ConferenceStatuses lists all statuses.
func ConferenceStatuses() []ConferenceStatus {
	return []ConferenceStatus{
		ConferenceCreating, ConferenceOpen, ConferenceAwaitingConnection, ConferenceAwaitingRecovery, ConferenceEnded, ConferenceDeleted,
	}
}

// Final reports whether no other status can follow.
func (s ConferenceStatus) Final() bool { return s == ConferenceEnded || s == ConferenceDeleted }

var conferenceTransitions = transitions[ConferenceStatus]{
	"":                           {ConferenceCreating},
	ConferenceCreating:           {ConferenceOpen, ConferenceDeleted, ConferenceAwaitingRecovery, ConferenceEnded},
	ConferenceOpen:               {ConferenceAwaitingRecovery, ConferenceAwaitingConnection, ConferenceEnded},
	ConferenceAwaitingConnection: {ConferenceOpen, ConferenceAwaitingRecovery, ConferenceEnded},
	ConferenceAwaitingRecovery:   {ConferenceCreating, ConferenceOpen, ConferenceEnded},
}

// CanBecome reports whether a conference with this status can change to next.
func (s ConferenceStatus) CanBecome(next ConferenceStatus) bool {
	return conferenceTransitions.allow(s, next)
}

// ConferenceEnd is why a conference, or one copy of it, has ended.
type ConferenceEnd string

// The ends.
const (
	EndReleased       ConferenceEnd = "released"        // by its user or an administrator
	EndTime           ConferenceEnd = "end_time"        // its end time was reached
	EndByUnit         ConferenceEnd = "ended_by_unit"   // its unit ended it intentionally
	EndRefused        ConferenceEnd = "refused"         // the unit refused the first creation
	EndNoCapacity     ConferenceEnd = "no_room"         // no unit had capacity for the first creation
	EndNoLicence      ConferenceEnd = "no_licence"      // no licence was free for the first creation
	EndNotRecovered   ConferenceEnd = "not_recovered"   // every recovery was refused, or the end time was reached first
	EndNotRecoverable ConferenceEnd = "not_recoverable" // its unit was lost and it is not recoverable
	EndUnitLost       ConferenceEnd = "unit_lost"       // of a copy: its unit was lost
	EndReplaced       ConferenceEnd = "replaced"        // of a copy: an earlier copy was kept
	EndDrained        ConferenceEnd = "drained"         // of a copy: its unit was drained
	EndMoved          ConferenceEnd = "moved"           // of a copy: the conference was moved on request
)

// ConferenceSpec is what the caller requested.
type ConferenceSpec struct {
	E164            string          `json:"e164"` // digits, without the plus
	Title           string          `json:"title,omitempty"`
	MaxParticipants int             `json:"maxParticipants,omitempty"` // 0: no limit
	EndAt           time.Time       `json:"endAt"`
	Recoverable     bool            `json:"recoverable"` // whether it is re-created when its unit is lost
	Zone            string          `json:"zone,omitempty"`
	ZoneFallback    bool            `json:"zoneFallback,omitempty"` // whether it may run in another zone after a time
	Metadata        json.RawMessage `json:"metadata,omitempty"`     // basic data that survives a change of owner
}

// Bounds of a conference.
const (
	MaxConferenceMetadata = 16 << 10
	MaxConferenceInfo     = 256 << 10
	MaxParticipants       = 10_000
)

var e164Pattern = regexp.MustCompile(`^[1-9][0-9]{3,14}$`)

// ValidE164 returns an error that names field unless v is an E.164 number without the plus.
func ValidE164(field, v string) error {
	if !e164Pattern.MatchString(v) {
		return Invalid(field, "must be an E.164 number without the plus: 4 to 15 digits, the first not 0")
	}
	return nil
}

// MaxUnitCommands is the maximum number of commands that a media unit runs at the same time.
const MaxUnitCommands = 8

// CapabilityConference is the capability of media units.
const CapabilityConference = "conference"

// ServiceCommands is the service of a media unit that is marked unavailable for a period when the unit did not reply to a
// command; the unit is excluded meanwhile.
const ServiceCommands = "commands"

// ConferenceOwner is the unit that runs a conference. A unit with an older generation or epoch is stale.
type ConferenceOwner struct {
	NodeID      string      `json:"nodeId"`
	Generation  int64       `json:"generation"`
	Incarnation Incarnation `json:"incarnation"`
	Epoch       int64       `json:"epoch"`
}

// Unit returns the unit's generation.
func (o ConferenceOwner) Unit() NodeRef { return NodeRef{NodeID: o.NodeID, Generation: o.Generation} }

// Conference is the state of a conference and, once it has ended, its detail record.
type Conference struct {
	ConferenceSpec
	ID     string           `json:"conferenceId"` // unique; numbers are reused
	UserID string           `json:"userId"`
	Status ConferenceStatus `json:"status"`
	Owner  ConferenceOwner  `json:"owner,omitzero"` // empty while there is none
	// CopyStartedAt is when berth started the owner's copy. Of two copies the one that started first is kept.
	CopyStartedAt time.Time `json:"copyStartedAt,omitzero"`
	// Epoch is the highest epoch of the conference: that of its owner or, while there is none, of the last one. Revision
	// increases with each change. Together they order the writes of the conference.
	Epoch    int64 `json:"epoch"`
	Revision int64 `json:"revision"`
	// LostAt is when its unit was lost, RefusedAt when a unit first refused to recover it, and Waiting the reason why it
	// waits for recovery or to be moved, in plain words.
	LostAt    time.Time `json:"lostAt,omitzero"`
	RefusedAt time.Time `json:"refusedAt,omitzero"`
	Waiting   string    `json:"waiting,omitempty"`
	// Moving indicates that its unit is drained and no other unit has capacity: it stays open there, see Waiting.
	Moving bool `json:"moving,omitempty"`
	// Ending is why it is ending, until its unit has acknowledged the release. End is why it has ended. EndedBy is the user
	// who requested the end.
	Ending   ConferenceEnd       `json:"ending,omitempty"`
	End      ConferenceEnd       `json:"end,omitempty"`
	EndedBy  string              `json:"endedBy,omitempty"`
	Segments []ConferenceSegment `json:"segments"`
	Orders   []ConferenceOrder   `json:"orders"` // the last 50
	// OpenedAt is when it was first open, EndedAt when it ended. A conference that was not recovered ended when its unit was
	// lost.
	CreatedAt time.Time `json:"createdAt"`
	OpenedAt  time.Time `json:"openedAt,omitzero"`
	EndedAt   time.Time `json:"endedAt,omitzero"`
}

// ConferenceSegment is the period during which one unit ran a conference.
type ConferenceSegment struct {
	NodeID     string        `json:"nodeId"`
	Generation int64         `json:"generation"`
	Epoch      int64         `json:"epoch"`
	StartedAt  time.Time     `json:"startedAt"`
	EndedAt    time.Time     `json:"endedAt,omitzero"`
	Reason     ConferenceEnd `json:"reason,omitempty"`
	// Merged is the number of later segments, from the next one on, that this one includes: it ends with the last of them. A
	// record has the first and the last segments one by one.
	Merged int `json:"merged,omitempty"`
}

// ConferenceOrder is a command that was sent to a unit.
type ConferenceOrder struct {
	At         time.Time `json:"at"`
	Command    string    `json:"command"` // the activity's name
	NodeID     string    `json:"nodeId"`
	Generation int64     `json:"generation"`
	Epoch      int64     `json:"epoch"`
	Outcome    string    `json:"outcome,omitempty"` // acknowledged, "refused: …" or "lost: …"; empty while there is none
}

// Commands to a media unit: activities on its own task queue, with the input and result given here. An error of type
// ErrorRefused is a negative acknowledgement. All commands are idempotent.
const (
	ActivityCreateConference  = "CreateConference"  // UnitConference -> nothing
	ActivityRecoverConference = "RecoverConference" // UnitConference -> nothing; other than a creation, it follows a loss
	ActivityAdoptConference   = "AdoptConference"   // UnitConference -> nothing; keeps a copy under a new epoch
	ActivityReleaseConference = "ReleaseConference" // UnitRelease -> nothing, also if there is no copy
	ActivityListConferences   = "ListConferences"   // nothing -> UnitList
	ActivityReportConferences = "ReportConferences" // UnitReport -> nothing; reports full information to the data proxy
	// ErrorRefused is the type of a unit's negative acknowledgement.
	ErrorRefused = "refused"
)

// UnitConference is the argument of the commands that create, recover or adopt a conference.
type UnitConference struct {
	ConferenceSpec
	ConferenceID string `json:"conferenceId"`
	Epoch        int64  `json:"epoch"`
	// StartedAt is when berth started this copy. The unit stores it and returns it in its list.
	StartedAt time.Time `json:"startedAt"`
	// EmptyAfterMs is how long the conference continues without participants once there was one, and after a creation also
	// before; 0 is until its end time.
	EmptyAfterMs int64 `json:"emptyAfterMs,omitempty"`
}

// UnitRelease is the argument of ReleaseConference. Copies with a higher epoch are kept.
type UnitRelease struct {
	E164  string `json:"e164"`
	Epoch int64  `json:"epoch"`
}

// UnitList is the result of ListConferences.
type UnitList struct {
	Incarnation Incarnation `json:"incarnation"`
	Conferences []UnitCopy  `json:"conferences"`
}

// UnitCopy is one conference on a unit.
type UnitCopy struct {
	E164         string    `json:"e164"`
	ConferenceID string    `json:"conferenceId,omitempty"`
	Epoch        int64     `json:"epoch"`
	StartedAt    time.Time `json:"startedAt"`
}

// UnitReport is the argument of ReportConferences: the numbers to report; empty for all conferences of the unit.
type UnitReport struct {
	E164 []string `json:"e164,omitempty"`
	// Epoch, if set, is that of the only number, whose conference expects its copy on the unit. Without a copy, the unit reports
	// the end.
	Epoch int64 `json:"epoch,omitempty"`
}

// ConferenceInfo is what a unit reports to the data proxy about a conference.
type ConferenceInfo struct {
	NodeID     string `json:"nodeId"`
	Generation int64  `json:"generation"`
	Epoch      int64  `json:"epoch"`
	// Full replaces the live information; otherwise the top-level fields of Live are merged into it.
	Full bool            `json:"full"`
	Live json.RawMessage `json:"live"` // an object
	// Ended indicates that the unit ended the conference without a release command. Live is empty then.
	Ended bool `json:"ended,omitempty"`
	// Legs are the participants that have joined or left since the last report that was accepted; at most
	// MaxReportedLegs.
	Legs []ConferenceLeg `json:"legs,omitempty"`
}

// MaxReportedLegs is the maximum number of legs of one report.
const MaxReportedLegs = 200

// ConferenceLeg is the stay of one participant on one unit.
type ConferenceLeg struct {
	ID       string        `json:"id"` // unique in the conference; LiveKit's participant SID
	Identity string        `json:"identity"`
	Name     string        `json:"name,omitempty"`
	NodeID   string        `json:"nodeId,omitempty"` // set by berth
	Epoch    int64         `json:"epoch,omitempty"`  // set by berth
	JoinedAt time.Time     `json:"joinedAt"`
	LeftAt   time.Time     `json:"leftAt,omitzero"`
	Reason   ConferenceEnd `json:"reason,omitempty"` // LegLeft, LegRemoved, or why the unit's copy ended
}

// Reasons of a leg that ended before its copy.
const (
	LegLeft    ConferenceEnd = "left"    // the participant left, or lost its connection
	LegRemoved ConferenceEnd = "removed" // a host removed it
)

// EventConference is the event of a conference's stream when its status, owner or reason to wait has changed. EventDone
// follows when the conference has ended.
const EventConference EventType = "conference"
