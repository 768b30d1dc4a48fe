package workflows

import (
	"time"

	"berth"
)

// TurnInput starts a turn.
type TurnInput struct {
	TurnID    string `json:"turnId"`
	SessionID string `json:"sessionId"`
	UserID    string `json:"userId"`
	SrcLang   string `json:"srcLang"`
	TgtLang   string `json:"tgtLang"`
	// Timeout finalises the turn that long after its last segment. JobTimeout is how long one node may take for one job.
	Timeout    time.Duration `json:"timeout"`
	JobTimeout time.Duration `json:"jobTimeout"`
	// Resumed is the state of the previous run, which continued as new.
	Resumed *TurnProgress `json:"resumed,omitempty"`
}

// TurnProgress is the state that a run hands to the next one. None of the jobs is running.
type TurnProgress struct {
	StartedAt      time.Time       `json:"startedAt"`
	LastSegment    time.Time       `json:"lastSegment"`
	AffinityNodeID string          `json:"affinityNodeId,omitempty"`
	Jobs           []FinishedJob   `json:"jobs"` // by index
	TextSize       int             `json:"textSize"`
	Unresponsive   []berth.NodeRef `json:"unresponsive,omitempty"`
	// Published is the number of published events, Reported of jobs whose result is among them.
	Published int `json:"published"`
	Reported  int `json:"reported"`
}

// FinishedJob is a finished job with the outcome of the update that submitted it.
type FinishedJob struct {
	Job   berth.TurnJob `json:"job"`
	Reply DispatchReply `json:"reply"`
}

// DispatchRequest is the argument of the dispatch update.
type DispatchRequest struct {
	// SubmissionID is unique per HTTP request. DispatchReply and berth.Refusal return it, so that the API can distinguish
	// its own outcome from an earlier one of the same update id.
	SubmissionID string `json:"submissionId"`
	// The workflow numbers the job, and decides on the affinity. UserID and SessionID must be the turn's; the validator rejects
	// others as not_found. RequestID identifies the job, whatever the update's id: that is the request id, followed by a number
	// after a stored refusal. A request whose job exists, or is being dispatched, has the first request's outcome; its other
	// fields are ignored.
	berth.JobRequest
	// SessionSrcLang and SessionTgtLang are the session's as read by the API, and PoolID belongs to them. If they differ from
	// the turn's, the validator rejects the request as conflict, because the pool's nodes serve other languages.
	SessionSrcLang string `json:"sessionSrcLang"`
	SessionTgtLang string `json:"sessionTgtLang"`
	// RequestHash distinguishes another body with the same request id; the API compares it with the outcome's.
	RequestHash string         `json:"requestHash"`
	Text        PackedText     `json:"text"`
	Finalize    berth.Finalize `json:"finalize,omitempty"`
}

// DispatchReply is the result of the dispatch update: the first dispatch of the job.
type DispatchReply struct {
	SubmissionID string `json:"submissionId"`
	RequestHash  string `json:"requestHash"`
	TurnID       string `json:"turnId"`
	berth.Assignment
}

// FinalizeRequest is the argument of the finalize update.
type FinalizeRequest struct {
	// UserID must be the turn's; the validator rejects others as not_found.
	UserID string         `json:"userId"`
	Reason berth.Finalize `json:"reason"`
}

// FinalizeReply is the result of the finalize update.
type FinalizeReply struct {
	Status berth.TurnStatus `json:"status"`
	Reason berth.Finalize   `json:"reason"`
	Jobs   int              `json:"jobs"`
}

// DispatchInput is the argument of DispatchJob.
type DispatchInput struct {
	berth.JobRequest
	// Wait is how a job that is dispatched again waits for a node if it gets none; nil for one that does not wait.
	Wait *NodeWait `json:"wait,omitempty"`
	// Excluded are generations that failed the job. A node that has registered again since is eligible.
	Excluded []berth.NodeRef `json:"excluded,omitempty"`
	// Avoided are generations that did not respond on another job of the turn, or failed this one earlier. They are chosen
	// only if no other node has capacity.
	Avoided []berth.NodeRef `json:"avoided,omitempty"`
}

// Availability is the result of CheckAvailability and CheckTemporal.
type Availability struct {
	// For is for how long segments could be submitted, or Temporal was reached, without interruption; 0 when that is not possible now.
	For time.Duration `json:"for"`
}

// TurnRef is the argument of FinalizeTurn.
type TurnRef struct {
	UserID    string `json:"userId,omitempty"`
	SessionID string `json:"sessionId"`
	TurnID    string `json:"turnId"`
	// Withdraw indicates that the turn never began. A decision whose reply was lost may have bound a node, and the turn id
	// may be used again.
	Withdraw bool `json:"withdraw,omitempty"`
}

// TurnEvents is the argument of PublishTurn: events numbered from First, each of which is appended once.
type TurnEvents struct {
	UserID    string               `json:"userId"`
	SessionID string               `json:"sessionId"`
	TurnID    string               `json:"turnId"`
	First     int                  `json:"first"`
	Events    []berth.SessionEvent `json:"events"`
}
