package berth

import "time"

// Finalize tells whether a segment ends its turn, and why (A1, A7).
type Finalize string

// How a segment was cut. Only FinalizeManual and FinalizeTimeout end the turn.
const (
	FinalizeNone        Finalize = ""
	FinalizeMaxDuration Finalize = "max_duration" // cut for its length: the utterance goes on
	FinalizeManual      Finalize = "manual"
	FinalizeTimeout     Finalize = "timeout"
)

// Ends tells whether the turn ends with it.
func (f Finalize) Ends() bool { return f == FinalizeManual || f == FinalizeTimeout }

// Finalizes lists all values.
func Finalizes() []Finalize {
	return []Finalize{FinalizeNone, FinalizeMaxDuration, FinalizeManual, FinalizeTimeout}
}

// TurnStatus is where a turn stands.
type TurnStatus string

// The statuses of a turn. A finalized turn takes no more jobs; those it has still come to their end.
const (
	TurnOpen      TurnStatus = "open"
	TurnFinalized TurnStatus = "finalized"
)

// JobStatus is where a job stands.
type JobStatus string

// The statuses of a job.
const (
	JobRunning JobStatus = "running" // dispatched, or being dispatched anew
	JobDone    JobStatus = "done"
	JobFailed  JobStatus = "failed"
)

// Bounds of a turn: what one workflow's history and one message carry well.
const (
	// MaxSegments is how many jobs a turn takes.
	MaxSegments = 1000
	// MaxSegmentBytes is how long the text of a segment, and of its translation, may be.
	MaxSegmentBytes = 64 << 10
)

// Turn is one utterance as its workflow tells it.
type Turn struct {
	ID        string     `json:"turnId"`
	SessionID string     `json:"sessionId"`
	UserID    string     `json:"userId"`
	SrcLang   string     `json:"srcLang"`
	TgtLang   string     `json:"tgtLang"`
	Status    TurnStatus `json:"status"`
	// Reason is how it was finalised; empty while it is open.
	Reason Finalize `json:"reason,omitempty"`
	// AffinityNodeID is the node its jobs follow (A2); empty once it is finalised (A6).
	AffinityNodeID string    `json:"affinityNodeId,omitempty"`
	Jobs           []TurnJob `json:"jobs"` // by index
	StartedAt      time.Time `json:"startedAt"`
	FinalizedAt    time.Time `json:"finalizedAt,omitzero"`
}

// TurnJob is one segment's job.
type TurnJob struct {
	JobID     string    `json:"jobId"`
	RequestID string    `json:"requestId"`
	Index     int       `json:"index"`
	SpeakerID string    `json:"speakerId,omitempty"`
	Finalize  Finalize  `json:"finalize,omitempty"`
	Status    JobStatus `json:"status"`
	NodeID    string    `json:"nodeId"` // of the last dispatch
	PoolID    string    `json:"poolId"`
	// Affinity and Missed are left out of a job that was dispatched again: its node is another dispatch's.
	Affinity Affinity      `json:"affinity,omitempty"`
	Missed   ExcludeReason `json:"missed,omitempty"`
	// Dispatches counts how often it was dispatched: more than once when a node failed it or died (A11).
	Dispatches int    `json:"dispatches"`
	Text       string `json:"text,omitempty"` // the translation
	Code       Code   `json:"code,omitempty"` // of a failed job
	Message    string `json:"message,omitempty"`
}

// The events of a session's stream, beside EventGap. EventDone is the one that ends a turn; the session's stream
// goes on after it.
const (
	EventTurn              EventType = "turn"               // a turn began
	EventTranslation       EventType = "translation"        // a segment's result, in segment order (A10)
	EventTranslationFailed EventType = "translation_failed" // a segment that no node could do, in its place
)

// SessionEvent is one event of a session's stream. Type, SessionID, TurnID and TS are always set; the other fields
// belong to the types named beside them and are left out elsewhere.
type SessionEvent struct {
	Type      EventType `json:"type"`
	SessionID string    `json:"sessionId"`
	TurnID    string    `json:"turnId"`
	TS        int64     `json:"ts"` // the publisher's clock in Unix milliseconds; for people, never for a decision
	// turn, translation, translation_failed
	SpeakerID string `json:"speakerId,omitempty"`
	// translation, translation_failed
	JobID  string `json:"jobId,omitempty"`
	Index  *int   `json:"index,omitempty"`
	NodeID string `json:"nodeId,omitempty"`
	// translation
	Text string `json:"text,omitempty"`
	// translation_failed
	Code    Code   `json:"code,omitempty"`
	Message string `json:"message,omitempty"`
	// done: Reason is how the turn was finalised, Jobs how many it had, Failed how many of them failed
	Reason Finalize `json:"reason,omitempty"`
	Jobs   int      `json:"jobs,omitempty"`
	Failed int      `json:"failed,omitempty"`
}

// What a node is asked to do: the activity types it registers on its own task queue, in any Temporal SDK. Inputs and
// outputs are JSON.
const (
	// ActivityTranslate does one job of a turn: JobInput to JobOutput.
	ActivityTranslate = "Translate"
	// ActivityExecute runs one named executor (S8): ExecuteInput to ExecuteOutput.
	ActivityExecute = "Execute"
)

// JobInput is one segment to be translated.
type JobInput struct {
	SessionID string `json:"sessionId"`
	TurnID    string `json:"turnId"`
	JobID     string `json:"jobId"`
	// Dispatch counts the dispatches of the job from 1.
	Dispatch  int    `json:"dispatch"`
	Index     int    `json:"index"`
	SpeakerID string `json:"speakerId,omitempty"`
	SrcLang   string `json:"srcLang"`
	TgtLang   string `json:"tgtLang"`
	Text      string `json:"text"`
}

// JobOutput is what came of it.
type JobOutput struct {
	Text string `json:"text"`
}
