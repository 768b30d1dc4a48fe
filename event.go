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

// The stages of all tasks. Templates declare others; StageAnswer is that of a step without any.
const (
	StageQueue   Stage = "queue"
	StageAnswer  Stage = "answer"
	StageDeliver Stage = "deliver" // the end
)

// Event is one event of a task's stream. TaskID, ServiceID, Stage and TS are always set. The other fields belong to the types that
// their tag `on` lists, and are omitted from all others: the OpenAPI description has a schema for each type.
type Event struct {
	Type      EventType `json:"type"`
	TaskID    string    `json:"taskId"`
	ServiceID string    `json:"serviceId"`
	Stage     Stage     `json:"stage"`
	TS        int64     `json:"ts" doc:"The publisher's clock in Unix milliseconds; for display only"`

	Position   *int     `json:"position,omitempty" on:"queued" doc:"Number of calls that the model serves before"`
	EtaSeconds *int     `json:"etaSeconds,omitempty" on:"queued" doc:"Estimated time until the call begins"`
	Paused     bool     `json:"paused,omitempty" on:"queued" doc:"No call begins: an operator has paused what may serve it, or its provider fails or requested the pause"`
	Upstreams  []string `json:"upstreams,omitempty" on:"queued" doc:"The upstreams that may serve the call, where not all of the model may: those with room for its texts that have not failed it"`

	// The routing decision of the step that starts.
	Queue      Queue  `json:"queue,omitempty" on:"queued start stage_progress"`
	Model      string `json:"model,omitempty" on:"queued start stage_progress"`
	Tier       Tier   `json:"tier,omitempty" on:"queued start"`
	TimeoutSec int    `json:"timeoutSec,omitempty" on:"start"`
	RequestID  string `json:"requestId,omitempty" on:"start"`
	TraceID    string `json:"traceId,omitempty" on:"start"`
	Simulated  bool   `json:"simulated,omitempty" on:"start stage_progress done" doc:"berth's local simulator serves the model"`

	Text      string `json:"text,omitempty" on:"token token_batch done" doc:"In done, all of it"`
	Count     int    `json:"count,omitempty" on:"token_batch" doc:"Number of tokens"`
	StartedAt int64  `json:"startedAt,omitempty" on:"token_batch" doc:"When the first token came, in Unix milliseconds"`
	EndedAt   int64  `json:"endedAt,omitempty" on:"token_batch" doc:"When the last token came, in Unix milliseconds"`

	Status  TaskStatus `json:"status,omitempty" on:"queued stage_progress reset done error" doc:"The task's new status"`
	Message string     `json:"message,omitempty" on:"stage_progress reset debug error" doc:"A short text in the task's locale; in reset the reason"`
	Attempt int64      `json:"attempt,omitempty" on:"reset" doc:"Number of the attempt, counted over all steps"`
	Items   []Item     `json:"items,omitempty" on:"stage_progress" doc:"Objects within the answer, as the template declares them"`

	Result          json.RawMessage `json:"result,omitempty" on:"done" doc:"The answer of a batch task; of a stream {\"items\"}, if it has any"`
	Usage           *Usage          `json:"usage,omitempty" on:"done"`
	FinishReason    string          `json:"finishReason,omitempty" on:"done" doc:"Why the model stopped: stop, unknown if its provider did not say, or length when a token limit truncated the answer of any step"`
	PromptTruncated bool            `json:"promptTruncated,omitempty" on:"done" doc:"A provider read only a part of the prompt of a step"`

	Code Code `json:"code,omitempty" on:"stage_progress error" doc:"In stage_progress, of a fault that will be retried"`
}

// Item is an object within an answer, of a kind that the template declares.
type Item struct {
	Kind  string          `json:"kind" doc:"Id of the kind in the template"`
	Value json.RawMessage `json:"value" doc:"Valid against the schema of the kind"`
}

// Answer is the stored result of a stream step: the visible text and the items in it. Its media type is AnswerMediaType.
type Answer struct {
	Text  string `json:"text"`
	Items []Item `json:"items,omitempty"`
}

// Media types of stored results.
const (
	ChunksMediaType = "application/x-ndjson" // chunks of OpenAI's protocol, each on a line
	AnswerMediaType = "application/vnd.berth.answer+json"
	JSONMediaType   = "application/json"
	TextMediaType   = "text/plain; charset=utf-8"
)
