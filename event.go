package berth

import "encoding/json"

// EventType is the name of an event of a task's stream (T10); SSE carries it as `event:`.
type EventType string

// The events of a task, in the order they can come. EventDone and EventError are terminal: exactly one ends a stream.
const (
	EventQueued        EventType = "queued"
	EventStart         EventType = "start"
	EventStageProgress EventType = "stage_progress"
	EventToken         EventType = "token"
	EventTokenBatch    EventType = "token_batch"
	EventReset         EventType = "reset"
	EventDebug         EventType = "debug"
	EventDone          EventType = "done"
	EventError         EventType = "error"
	// EventGap is made by the reader's side, never stored: history between the client's last id and the
	// next event was trimmed (T15).
	EventGap EventType = "gap"
)

// Terminal tells whether the event ends its stream.
func (t EventType) Terminal() bool { return t == EventDone || t == EventError }

// Stage is what a task is doing, as people see it. The first four are those of a match (T10).
type Stage string

// The stages.
const (
	StageIngest  Stage = "ingest"
	StageCompare Stage = "compare"
	StageScore   Stage = "score"
	StageDeliver Stage = "deliver"
	StageQueue   Stage = "queue"
	StageOCR     Stage = "ocr"
	StageSummary Stage = "summary"
	StageAnswer  Stage = "answer"
)

// Event is one event of a task's stream. TaskID, ServiceID, Stage and TS are always set; the other fields
// belong to the types named beside them and are left out elsewhere.
type Event struct {
	Type      EventType `json:"type"`
	TaskID    string    `json:"taskId"`
	ServiceID string    `json:"serviceId"`
	Stage     Stage     `json:"stage"`
	// TS is the publisher's clock in Unix milliseconds; for people, never for a decision.
	TS int64 `json:"ts"`

	// queued: Position is how many wait before this one
	Position   *int `json:"position,omitempty"`
	EtaSeconds int  `json:"etaSeconds,omitempty"`

	// start: the routing decision of the step that starts
	Queue      Queue  `json:"queue,omitempty"`
	Model      string `json:"model,omitempty"`
	Tier       Tier   `json:"tier,omitempty"`
	TimeoutSec int    `json:"timeoutSec,omitempty"`
	RequestID  string `json:"requestId,omitempty"`
	TraceID    string `json:"traceId,omitempty"`
	// StandIn says that berth's local stand-in answers in the model's place (T27); on start and done.
	StandIn bool `json:"standIn,omitempty"`

	// token, token_batch; done of a stream task carries the whole text
	Text      string `json:"text,omitempty"`
	Count     int    `json:"count,omitempty"`
	StartedAt int64  `json:"startedAt,omitempty"`
	EndedAt   int64  `json:"endedAt,omitempty"`

	// stage_progress: Status is the task's status it moved to, Message a short text in the task's locale,
	// Points what a match found with the passages that prove it; reset: Message says why
	Status  TaskStatus   `json:"status,omitempty"`
	Message string       `json:"message,omitempty"`
	Attempt int64        `json:"attempt,omitempty"`
	Points  []MatchPoint `json:"points,omitempty"`

	// done
	Result json.RawMessage `json:"result,omitempty"`
	Usage  *Usage          `json:"usage,omitempty"`

	// error
	Code Code `json:"code,omitempty"`
}

// MatchPoint is one requirement of a posting held against a résumé, with the passages that prove it (T10).
type MatchPoint struct {
	Requirement string `json:"requirement"`
	Matched     bool   `json:"matched"`
	Evidence    string `json:"evidence,omitempty"`
}

// Answer is what a stream step stores: the visible text and what the compare stage found. Its media type is
// AnswerMediaType.
type Answer struct {
	Text   string       `json:"text"`
	Points []MatchPoint `json:"points,omitempty"`
}

// Media types of stored results.
const (
	AnswerMediaType = "application/vnd.berth.answer+json"
	JSONMediaType   = "application/json"
	TextMediaType   = "text/plain; charset=utf-8"
)
