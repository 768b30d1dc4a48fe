package workflows

import (
	"time"

	"go.temporal.io/sdk/workflow"

	"berth"
)

// TurnInput starts a turn. The workflow is the truth of what the turn has; Redis is what others decide by.
type TurnInput struct {
	TurnID    string `json:"turnId"`
	SessionID string `json:"sessionId"`
	UserID    string `json:"userId"`
	SrcLang   string `json:"srcLang"`
	TgtLang   string `json:"tgtLang"`
	// Timeout finalises a turn that long after its last segment (A1); JobTimeout is how long one node may take for one
	// job.
	Timeout    time.Duration `json:"timeout"`
	JobTimeout time.Duration `json:"jobTimeout"`
}

// DispatchRequest is the argument of the dispatch update.
type DispatchRequest struct {
	// SubmissionID is unique per HTTP request. Outcome and Refusal give it back, so that the API sees whether the
	// outcome is its own or an earlier one's of the same update id.
	SubmissionID string `json:"submissionId"`
	// UserID and SessionID have to be the turn's; the validator refuses others as not_found.
	UserID    string `json:"userId"`
	SessionID string `json:"sessionId"`
	// SrcLang and TgtLang are the session's as the API read it, and PoolID goes with them: where they are no longer the
	// turn's, the validator refuses with conflict, for the pool's nodes speak other languages.
	SrcLang string `json:"srcLang"`
	TgtLang string `json:"tgtLang"`
	// RequestID is one job's, whatever the update's id: that is the request id, or after a stored refusal that and a
	// number. A request of which the turn has a job, or is dispatching one, gets the same outcome as the first time, and
	// none of its fields counts any more.
	RequestID string `json:"requestId"`
	// RequestHash tells another body under the same request id; the API compares it with the outcome's.
	RequestHash string         `json:"requestHash"`
	Index       int            `json:"index"`
	SpeakerID   string         `json:"speakerId,omitempty"`
	Text        string         `json:"text"`
	Finalize    berth.Finalize `json:"finalize,omitempty"`
	// PoolID is the session's preferred pool as the API read it (L5).
	PoolID string `json:"poolId"`
}

// DispatchReply is the outcome of the dispatch update: the first dispatch of the job.
type DispatchReply struct {
	SubmissionID string `json:"submissionId"`
	RequestHash  string `json:"requestHash"`
	TurnID       string `json:"turnId"`
	berth.Assignment
}

// FinalizeRequest is the argument of the finalize update.
type FinalizeRequest struct {
	// UserID has to be the turn's; the validator refuses others as not_found.
	UserID string         `json:"userId"`
	Reason berth.Finalize `json:"reason"`
}

// FinalizeReply is the outcome of the finalize update.
type FinalizeReply struct {
	Status berth.TurnStatus `json:"status"`
	Reason berth.Finalize   `json:"reason"`
	Jobs   int              `json:"jobs"`
}

// DispatchInput is the argument of DispatchJob.
type DispatchInput struct {
	SessionID string `json:"sessionId"`
	TurnID    string `json:"turnId"`
	JobID     string `json:"jobId"`
	RequestID string `json:"requestId"`
	Dispatch  int    `json:"dispatch"`
	EndsTurn  bool   `json:"endsTurn,omitempty"`
	PoolID    string `json:"poolId"`
	// AffinityNodeID is the turn's node as the workflow knows it: where Redis has lost it, it is put back (L12).
	AffinityNodeID string `json:"affinityNodeId,omitempty"`
	// Excluded nodes failed the job already.
	Excluded []string `json:"excluded,omitempty"`
}

// HeldSlot is a slot that a workflow holds, in ConfirmSlots and ReleaseSlots.
type HeldSlot struct {
	berth.Assignment
	// Until is when the hold ends, by the workflow's clock; ConfirmSlots holds it for as long as is left.
	Left time.Duration `json:"left,omitempty"`
}

// TurnEvents is the argument of PublishTurn: events numbered from First, each of which is appended once.
type TurnEvents struct {
	UserID    string               `json:"userId"`
	SessionID string               `json:"sessionId"`
	TurnID    string               `json:"turnId"`
	First     int                  `json:"first"`
	Events    []berth.SessionEvent `json:"events"`
}

// Turn runs one utterance.
func Turn(_ workflow.Context, _ TurnInput) (berth.Turn, error) { return berth.Turn{}, nil }
