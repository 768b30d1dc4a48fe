package berth

import (
	"encoding/json"
	"slices"
)

// EventType is the name of an event of a stream; SSE carries it as `event:`. This file has the events of tasks; those of
// sessions are in session.go, those of conferences in conference_event.go.
type EventType string

// The events of a task, in the order in which they can occur.
const (
	EventQueued        EventType = "queued"
	EventStart         EventType = "start"
	EventStageProgress EventType = "stage_progress"
	EventToken         EventType = "token"
	EventTokenBatch    EventType = "token_batch"
	EventReset         EventType = "reset"
	EventDebug         EventType = "debug"
	EventGap           EventType = "gap"
	EventDone          EventType = "done"
	EventError         EventType = "error"
)

// eventRules are the rules that the stream follows for one type of event.
type eventRules struct {
	Type EventType
	// Terminal events end the stream: each stream has exactly one.
	Terminal bool
	// Once: a stream keeps only the first.
	Once bool
	// Derived events are made for one reader and never stored.
	Derived bool
	// DevelopmentOnly events are dropped in production.
	DevelopmentOnly bool
}

// taskEvents lists the event types of a task. A new type needs an entry here, its fields in Event, the code that
// publishes it, and a case where a client shows it.
var taskEvents = []eventRules{
	{Type: EventQueued},
	{Type: EventStart, Once: true},
	{Type: EventStageProgress},
	{Type: EventToken},
	{Type: EventTokenBatch},
	{Type: EventReset},
	{Type: EventDebug, DevelopmentOnly: true},
	{Type: EventGap, Derived: true}, // events between the reader's last id and the next event were trimmed
	{Type: EventDone, Terminal: true},
	{Type: EventError, Terminal: true},
}

// EventTypes returns the event types of a task, the terminal ones last.
func EventTypes() []EventType {
	types := make([]EventType, len(taskEvents))
	for i, e := range taskEvents {
		types[i] = e.Type
	}
	return types
}

func (t EventType) rules() eventRules {
	i := slices.IndexFunc(taskEvents, func(r eventRules) bool { return r.Type == t })
	if i < 0 {
		return eventRules{Type: t}
	}
	return taskEvents[i]
}

// Terminal reports whether the event ends its stream.
func (t EventType) Terminal() bool { return t.rules().Terminal }

// Appendable reports whether the event can be appended to an open stream.
func (t EventType) Appendable() bool { return !t.rules().Terminal && !t.rules().Derived }

// Once reports whether a stream keeps only the first event of this type.
func (t EventType) Once() bool { return t.rules().Once }

// DevelopmentOnly reports whether the event is dropped in production.
func (t EventType) DevelopmentOnly() bool { return t.rules().DevelopmentOnly }

// Stage is what a task is doing, as shown to users.
type Stage string

// The stages. The first four are those of a match.
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
// belong to the types named beside them and are omitted from all other types.
type Event struct {
	Type      EventType `json:"type"`
	TaskID    string    `json:"taskId"`
	ServiceID string    `json:"serviceId"`
	Stage     Stage     `json:"stage"`
	// TS is the publisher's clock in Unix milliseconds; for display only, no decision depends on it.
	TS int64 `json:"ts"`

	// queued: Position is the number of calls that the model serves before, Paused that it serves none until it is resumed
	Position   *int `json:"position,omitempty"`
	EtaSeconds *int `json:"etaSeconds,omitempty"`
	Paused     bool `json:"paused,omitempty"`

	// start: the routing decision of the step that starts
	Queue      Queue  `json:"queue,omitempty"`
	Model      string `json:"model,omitempty"`
	Tier       Tier   `json:"tier,omitempty"`
	TimeoutSec int    `json:"timeoutSec,omitempty"`
	RequestID  string `json:"requestId,omitempty"`
	TraceID    string `json:"traceId,omitempty"`
	// StandIn is true when berth's local simulator serves the model; on start, stage_progress and done.
	StandIn bool `json:"standIn,omitempty"`

	// token, token_batch; done of a stream task contains the whole text
	Text      string `json:"text,omitempty"`
	Count     int    `json:"count,omitempty"`
	StartedAt int64  `json:"startedAt,omitempty"`
	EndedAt   int64  `json:"endedAt,omitempty"`

	// stage_progress: Status is the task's new status, Message a short text in the task's locale, Points what a match
	// found with the passages that prove it; reset: Message is the reason
	Status  TaskStatus   `json:"status,omitempty"`
	Message string       `json:"message,omitempty"`
	Attempt int64        `json:"attempt,omitempty"`
	Points  []MatchPoint `json:"points,omitempty"`

	// done
	Result json.RawMessage `json:"result,omitempty"`
	Usage  *Usage          `json:"usage,omitempty"`
	// FinishReason is why the model stopped: stop, unknown if its provider did not say, or length when a token limit truncated the answer
	// of any step. PromptTruncated: a provider read only a part of the prompt of a step.
	FinishReason    string `json:"finishReason,omitempty"`
	PromptTruncated bool   `json:"promptTruncated,omitempty"`

	// error
	Code Code `json:"code,omitempty"`
}

// MatchPoint compares one requirement of a posting with a résumé; Evidence quotes the passage that proves it.
type MatchPoint struct {
	Requirement string `json:"requirement"`
	Matched     bool   `json:"matched"`
	Evidence    string `json:"evidence,omitempty"`
}

// Answer is the stored result of a stream step: the visible text and what the compare stage found. Its media type is
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
