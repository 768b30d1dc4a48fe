package berth

import (
	"strconv"
	"time"
)

// Finalize is how a segment was finalised, which decides whether it ends its turn.
type Finalize string

// The values of Finalize. Only FinalizeManual and FinalizeTimeout end the turn.
const (
	FinalizeNone        Finalize = ""
	FinalizeMaxDuration Finalize = "max_duration" // split at the maximum duration; the utterance continues
	FinalizeManual      Finalize = "manual"
	FinalizeTimeout     Finalize = "timeout"
)

// Ends reports whether the segment ends its turn.
func (f Finalize) Ends() bool { return f == FinalizeManual || f == FinalizeTimeout }

// TurnStatus is the status of a turn.
type TurnStatus string

// The statuses of a turn. A finalized turn accepts no more jobs; its running jobs are completed.
const (
	TurnOpen      TurnStatus = "open"
	TurnFinalized TurnStatus = "finalized"
)

var turnTransitions = transitions[TurnStatus]{"": {TurnOpen}, TurnOpen: {TurnFinalized}}

// CanBecome reports whether a turn with this status can change to next.
func (s TurnStatus) CanBecome(next TurnStatus) bool { return turnTransitions.allow(s, next) }

// JobStatus is the status of a job.
type JobStatus string

// The statuses of a job.
const (
	JobRunning JobStatus = "running" // dispatched, or being dispatched again
	JobDone    JobStatus = "done"
	JobFailed  JobStatus = "failed"
)

var jobTransitions = transitions[JobStatus]{"": {JobRunning}, JobRunning: {JobDone, JobFailed}}

// CanBecome reports whether a job with this status can change to next.
func (s JobStatus) CanBecome(next JobStatus) bool { return jobTransitions.allow(s, next) }

// Limits of a turn, given by the size of a workflow's history and of one message.
const (
	// MaxSegments is the maximum number of jobs of a turn.
	MaxSegments = 1000
	// MaxSegmentBytes is the maximum length of the text of a segment in bytes.
	MaxSegmentBytes = 64 << 10
	// MaxTranslationBytes is that of its translation: a character of one byte may become one of three, and a text longer. As JSON, where a
	// character has up to six bytes, it is below the 2 MiB that Temporal stores of a result.
	MaxTranslationBytes = 256 << 10
)

// Turn is the state of one utterance.
type Turn struct {
	ID        string     `json:"turnId"`
	SessionID string     `json:"sessionId"`
	UserID    string     `json:"userId"`
	SrcLang   string     `json:"srcLang"`
	TgtLang   string     `json:"tgtLang"`
	Status    TurnStatus `json:"status"`
	// Reason is how the turn was finalised; empty while it is open.
	Reason Finalize `json:"reason,omitempty"`
	// AffinityNodeID is the node that later jobs prefer; empty once the turn is finalised.
	AffinityNodeID string    `json:"affinityNodeId,omitempty"`
	Jobs           []TurnJob `json:"jobs"` // by index
	StartedAt      time.Time `json:"startedAt"`
	FinalizedAt    time.Time `json:"finalizedAt,omitzero"`
	// Lost indicates that the run was ended or lost outside of berth: the jobs that were running have failed.
	Lost bool `json:"lost,omitempty"`
}

// TurnLost is the message of a turn whose run was lost, and of its jobs that were running.
const TurnLost = "the run of the turn was ended or lost outside of berth"

// Lose finalizes a turn whose run was ended or lost outside of berth.
func (t *Turn) Lose() {
	t.Lost, t.Status, t.AffinityNodeID = true, TurnFinalized, ""
	for i := range t.Jobs {
		if j := &t.Jobs[i]; j.Status == JobRunning {
			j.Status, j.Code, j.Message = JobFailed, CodeLost, TurnLost
		}
	}
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
	// Affinity and Missed describe the first dispatch; they are absent from a job that was dispatched again.
	Affinity Affinity      `json:"affinity,omitempty"`
	Missed   ExcludeReason `json:"missed,omitempty"`
	// Dispatches is how often the job was dispatched: more than once if a node failed it or died.
	Dispatches int    `json:"dispatches"`
	Text       string `json:"text,omitempty"` // the translation
	Code       Code   `json:"code,omitempty"` // of a failed job
	Message    string `json:"message,omitempty"`
}

// Activity types that a node registers on its own task queue, with any Temporal SDK. Inputs and outputs are JSON.
const (
	// ActivityTranslate runs one job of a turn: JobInput -> JobOutput.
	ActivityTranslate = "Translate"
	// ActivityExecute runs one named executor: ExecuteInput -> ExecuteOutput.
	ActivityExecute = "Execute"
)

// ErrorBusy is the type of the application error by which an activity returns work that the node cannot take at present, because what it
// calls is busy. Its delay, if it has one, is when the node may get it again.
const ErrorBusy = "busy"

// Job is a segment of a turn on its way from the API to its node, without the text: what the node gets of it.
type Job struct {
	SessionID string `json:"sessionId"`
	TurnID    string `json:"turnId"`
	JobID     string `json:"jobId"`
	// Dispatch is the number of this dispatch of the job, from 1: a job whose node died is dispatched again.
	Dispatch  int    `json:"dispatch"`
	Index     int    `json:"index"`
	SpeakerID string `json:"speakerId,omitempty"`
	// SrcLang and TgtLang are the languages as the nodes of the pool have declared them: by default those of the session.
	SrcLang string `json:"srcLang"`
	TgtLang string `json:"tgtLang"`
}

// LeaseID returns the lease of the job's slot.
func (j Job) LeaseID() string { return j.JobID + ":" + strconv.Itoa(j.Dispatch) }

// JobRequest is a job that requests a node, from the API to the script that chooses it. Nodes get its Job only.
type JobRequest struct {
	Job
	UserID    string `json:"userId"`
	RequestID string `json:"requestId"`
	PoolID    string `json:"poolId"` // the session's preferred pool as read by the API
	// EndsTurn indicates that the job's segment finalizes the turn, or that the turn is finalized: the job uses the turn's
	// affinity and does not set it.
	EndsTurn bool `json:"endsTurn,omitempty"`
	// AffinityNodeID is the turn's node as known to its workflow; the script restores it if Redis has lost it.
	AffinityNodeID string `json:"affinityNodeId,omitempty"`
}

// JobInput is the argument of Translate: one segment.
type JobInput struct {
	Job
	Text string `json:"text"`
}

// JobOutput is the result of Translate.
type JobOutput struct {
	Text string `json:"text"`
}
