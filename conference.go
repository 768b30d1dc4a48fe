package berth

import (
	"encoding/json"
	"regexp"
	"slices"
	"time"
)

// ConferenceStatus is where a conference stands (C13).
type ConferenceStatus string

// The statuses of a conference. The last two are final.
const (
	ConferenceCreating           ConferenceStatus = "creating"            // a unit was chosen and asked
	ConferenceOpen               ConferenceStatus = "open"                // its unit runs it
	ConferenceAwaitingConnection ConferenceStatus = "awaiting-connection" // its unit's list has to tell (C4)
	ConferenceAwaitingRecovery   ConferenceStatus = "awaiting-recovery"   // its unit is lost
	ConferenceEnded              ConferenceStatus = "ended"
	ConferenceDeleted            ConferenceStatus = "deleted" // never opened: refused, or no room
)

// ConferenceStatuses lists all statuses.
func ConferenceStatuses() []ConferenceStatus {
	return []ConferenceStatus{
		ConferenceCreating, ConferenceOpen, ConferenceAwaitingConnection, ConferenceAwaitingRecovery, ConferenceEnded, ConferenceDeleted,
	}
}

// Final tells whether nothing follows.
func (s ConferenceStatus) Final() bool { return s == ConferenceEnded || s == ConferenceDeleted }

// CanBecome tells whether C13 knows the transition; the empty status is that of no conference.
func (s ConferenceStatus) CanBecome(next ConferenceStatus) bool {
	switch s {
	case "":
		return next == ConferenceCreating
	case ConferenceCreating:
		return slices.Contains([]ConferenceStatus{ConferenceOpen, ConferenceDeleted, ConferenceAwaitingRecovery, ConferenceEnded}, next)
	case ConferenceOpen:
		return slices.Contains([]ConferenceStatus{ConferenceAwaitingRecovery, ConferenceAwaitingConnection, ConferenceEnded}, next)
	case ConferenceAwaitingConnection:
		return slices.Contains([]ConferenceStatus{ConferenceOpen, ConferenceAwaitingRecovery, ConferenceEnded}, next)
	case ConferenceAwaitingRecovery:
		return slices.Contains([]ConferenceStatus{ConferenceCreating, ConferenceOpen, ConferenceEnded}, next)
	default:
		return false
	}
}

// ConferenceEnd is why a conference is over, or a copy of it.
type ConferenceEnd string

// The ends.
const (
	EndReleased       ConferenceEnd = "released"        // by whoever holds it, or an administrator (C10)
	EndTime           ConferenceEnd = "end_time"        // its end time came (C5)
	EndByUnit         ConferenceEnd = "ended_by_unit"   // its unit ended it on purpose (C15)
	EndRefused        ConferenceEnd = "refused"         // the unit refused the first creation (C16)
	EndNoCapacity         ConferenceEnd = "no_room"         // no unit had room for the first creation (C16)
	EndNoLicence      ConferenceEnd = "no_licence"      // no licence was free for the first creation (C22)
	EndNotRecovered   ConferenceEnd = "not_recovered"   // recovery kept being refused (C9)
	EndNotRecoverable ConferenceEnd = "not_recoverable" // it was marked so (C8)
	EndUnitLost       ConferenceEnd = "unit_lost"       // of a copy: its unit is dead
	EndReplaced       ConferenceEnd = "replaced"        // of a copy: an earlier one stays (C7)
	EndDrained        ConferenceEnd = "drained"         // of a copy: its unit's drain was over (S11)
)

// ConferenceSpec is what was asked for.
type ConferenceSpec struct {
	E164            string          `json:"e164"` // digits, without the plus
	Title           string          `json:"title,omitempty"`
	MaxParticipants int             `json:"maxParticipants,omitempty"` // 0: no limit
	EndAt           time.Time       `json:"endAt"`
	Recoverable     bool            `json:"recoverable"` // C8
	Zone            string          `json:"zone,omitempty"`
	Metadata        json.RawMessage `json:"metadata,omitempty"` // basic data that survives a change of owner (C20)
}

// Bounds of a conference.
const (
	MaxConferenceTitle    = 200
	MaxConferenceMetadata = 16 << 10
	MaxConferenceInfo     = 256 << 10
	MaxParticipants       = 10_000
)

var e164Pattern = regexp.MustCompile(`^[1-9][0-9]{3,14}$`)

// ValidE164 tells whether v is a number in international form without the plus.
func ValidE164(field, v string) error {
	if !e164Pattern.MatchString(v) {
		return Invalid(field, "must be an E.164 number without the plus: 4 to 15 digits, the first not 0")
	}
	return nil
}

// CapabilityConference is what media units offer.
const CapabilityConference = "conference"

// ServiceCommands is the service of a media unit that is unavailable for a time when it has not answered a command: it is passed
// over meanwhile (L10).
const ServiceCommands = "commands"

// ConferenceOwner is the unit that runs a conference: whoever has an older generation or epoch is stale (C20).
type ConferenceOwner struct {
	NodeID      string      `json:"nodeId"`
	Generation  int64       `json:"generation"`
	Incarnation Incarnation `json:"incarnation"`
	Epoch       int64       `json:"epoch"`
}

// Conference is a conference as its workflow tells it, and its detail record once it is over (C22).
type Conference struct {
	ConferenceSpec
	ID     string           `json:"conferenceId"` // numbers are used again, this is not
	UserID string           `json:"userId"`
	Status ConferenceStatus `json:"status"`
	Owner  ConferenceOwner  `json:"owner,omitzero"` // while there is one
	// CopyStartedAt is the controller's stamp of the copy that runs: the earlier one stays (C7).
	CopyStartedAt time.Time `json:"copyStartedAt,omitzero"`
	// Epoch is the highest it had: that of its owner, or of the one it lost. With Revision, which rises with each change,
	// it orders what is written of the conference.
	Epoch    int64 `json:"epoch"`
	Revision int64 `json:"revision"`
	// LostAt is when its unit was lost, while it waits for recovery; RefusedAt when a unit first refused to recover it;
	// Waiting is why it waits, for people.
	LostAt    time.Time `json:"lostAt,omitzero"`
	RefusedAt time.Time `json:"refusedAt,omitzero"`
	Waiting   string    `json:"waiting,omitempty"`
	// Ending is why it is being ended, until its unit has acknowledged that and it is over; EndedBy is who asked for it.
	Ending   ConferenceEnd       `json:"ending,omitempty"`
	End      ConferenceEnd       `json:"end,omitempty"`
	EndedBy  string              `json:"endedBy,omitempty"`
	Segments []ConferenceSegment `json:"segments"`
	Orders   []ConferenceOrder   `json:"orders"` // the last 50
	// OpenedAt is when it was first open, EndedAt when it was over; a conference that was never recovered ended when it
	// was lost (C22).
	CreatedAt time.Time `json:"createdAt"`
	OpenedAt  time.Time `json:"openedAt,omitzero"`
	EndedAt   time.Time `json:"endedAt,omitzero"`
}

// ConferenceSegment is the time that one unit ran it (C22).
type ConferenceSegment struct {
	NodeID     string        `json:"nodeId"`
	Generation int64         `json:"generation"`
	Epoch      int64         `json:"epoch"`
	StartedAt  time.Time     `json:"startedAt"`
	EndedAt    time.Time     `json:"endedAt,omitzero"`
	Reason     ConferenceEnd `json:"reason,omitempty"`
}

// ConferenceOrder is what a unit was told, and what it said.
type ConferenceOrder struct {
	At         time.Time `json:"at"`
	Command    string    `json:"command"` // the activity's name
	NodeID     string    `json:"nodeId"`
	Generation int64     `json:"generation"`
	Epoch      int64     `json:"epoch"`
	Outcome    string    `json:"outcome,omitempty"` // empty while there is none: acknowledged, refused: …, lost: …
}

// The commands to a media unit: activities on its own task queue. The acknowledgement is the result, NACK an
// application error of type ErrorRefused. All are idempotent.
const (
	ActivityCreateConference  = "CreateConference"  // UnitConference -> nothing
	ActivityRecoverConference = "RecoverConference" // UnitConference -> nothing (C6)
	ActivityAdoptConference   = "AdoptConference"   // UnitConference -> nothing: it stays, under a new epoch (C7)
	ActivityReleaseConference = "ReleaseConference" // UnitRelease -> nothing, also when there is none
	ActivityListConferences   = "ListConferences"   // nothing -> UnitList
	ActivityReportConferences = "ReportConferences" // UnitReport -> nothing: the unit reports full information to the data proxy
	// ErrorRefused is the type of a unit's NACK.
	ErrorRefused = "refused"
)

// UnitConference is a conference as a unit is told it.
type UnitConference struct {
	ConferenceSpec
	ConferenceID string `json:"conferenceId"`
	Epoch        int64  `json:"epoch"`
	// StartedAt is the controller's stamp of this copy; the unit keeps it and lists it.
	StartedAt time.Time `json:"startedAt"`
}

// UnitRelease is what a unit is to release: copies with a higher epoch stay.
type UnitRelease struct {
	E164  string `json:"e164"`
	Epoch int64  `json:"epoch"`
}

// UnitList is what a unit runs.
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

// UnitReport says whose full information is asked for; empty: all that the unit runs (C18, C19).
type UnitReport struct {
	E164 []string `json:"e164,omitempty"`
}

// ConferenceInfo is what a unit tells the data proxy of a conference (C20).
type ConferenceInfo struct {
	NodeID     string `json:"nodeId"`
	Generation int64  `json:"generation"`
	Epoch      int64  `json:"epoch"`
	// Full replaces the live information, otherwise its top-level fields are merged.
	Full bool            `json:"full"`
	Live json.RawMessage `json:"live"` // an object
	// Ended: the unit runs it no more, and not because it was told so: ended on purpose (C15, C19). Live is empty then.
	Ended bool `json:"ended,omitempty"`
}

// EventConference is the event of a conference's stream: its status changed. EventDone ends the stream's conference.
const EventConference EventType = "conference"
