package berth

import (
	"slices"
	"strconv"
	"time"
)

// Tier is the service level of a request, fixed when the task is accepted.
type Tier string

// The two tiers.
const (
	TierPaid Tier = "paid"
	TierFree Tier = "free"
)

// Mode is the form of a model call: a streamed answer, one JSON answer, or the text of an image.
type Mode string

// The modes. ModeBatch and ModeVision return one result, ModeStream tokens.
const (
	ModeStream Mode = "stream"
	ModeBatch  Mode = "batch"
	ModeVision Mode = "vision"
)

// Queue is the name of a queue of calls, which the routing file defines.
type Queue string

// ModelTaskQueues begins the names of the Temporal task queues of models.
const ModelTaskQueues = "model."

// ModelTaskQueue returns the Temporal task queue of a model's calls. Each model has its own, so that an exhausted model does not block
// others; the order among the queues is that of the waiting room.
func ModelTaskQueue(model string) string { return ModelTaskQueues + model }

// Locale is the language of prompts and answers.
type Locale string

// The locales of the texts that berth itself writes. Templates declare their own.
const (
	LocaleEN Locale = "en"
	LocaleZH Locale = "zh"
)

// TaskStatus is the status of a task: one of those below, or that of a task that waits for the model of a step, which its template names,
// such as MATCH_PENDING. Statuses only move forward, and the last three are final.
type TaskStatus string

// The statuses of all tasks.
const (
	TaskPending   TaskStatus = "PENDING"
	TaskStreaming TaskStatus = "STREAMING"
	TaskCompleted TaskStatus = "COMPLETED"
	TaskFailed    TaskStatus = "FAILED"
	TaskCancelled TaskStatus = "CANCELLED"
)

// TaskStatusPattern is that of all statuses.
const TaskStatusPattern = `^(PENDING|STREAMING|COMPLETED|FAILED|CANCELLED|[A-Z][A-Z0-9_]{0,63}_PENDING)$`

// Final reports whether the status can no longer change.
func (s TaskStatus) Final() bool {
	return s == TaskCompleted || s == TaskFailed || s == TaskCancelled
}

// Repeatable reports whether a request that led to such a task is a new one: a failed or cancelled task is never replayed.
func (s TaskStatus) Repeatable() bool { return s == TaskFailed || s == TaskCancelled }

// Step is one model call with the routing that was fixed when the task was accepted.
type Step struct {
	Name  StepName `json:"name"`
	Mode  Mode     `json:"mode"`
	Queue Queue    `json:"queue"`
	Model string   `json:"model"`
	// Status is that of the task while it waits for the step's model.
	Status TaskStatus `json:"status"`
	// Timeout is the longest time that the call may take; 0 for that of the workers.
	Timeout time.Duration `json:"timeout,omitempty"`
}

// CanBecome reports whether a task of these steps can change from a status to next, also beyond statuses between them: a task whose row
// was restored from a backup continues where its run is.
func (p TaskPlan) CanBecome(now, next TaskStatus) bool {
	if now.Final() {
		return false
	}
	if now == "" {
		return next == TaskPending
	}
	if next == TaskFailed || next == TaskCancelled {
		return true
	}
	order := []TaskStatus{TaskPending}
	for _, step := range p.Steps {
		order = append(order, step.Status)
		if step.Mode == ModeStream {
			order = append(order, TaskStreaming)
		}
	}
	order = append(order, TaskCompleted)
	first := slices.Index(order, now)
	return first >= 0 && slices.Contains(order[first+1:], next)
}

// TaskRequest is the part of a task that is the same from its submission through the workflow to the ledger's row and
// the response: a fact about a task that all of them need belongs here.
type TaskRequest struct {
	ID        string `json:"taskId"`
	ServiceID string `json:"serviceId"`
	Group
	Template Template `json:"template"`
	// TemplateVersion is what all steps of the task use, also after the template was changed.
	TemplateVersion string `json:"templateVersion,omitempty"`
	Locale          Locale `json:"locale"`
	Tier            Tier   `json:"tier"`
	// Variables maps a variable's name to the asset that holds its value.
	Variables map[string]string `json:"variables"`
	TraceID   string            `json:"traceId,omitempty"`
	RequestID string            `json:"requestId,omitempty"`
}

// TaskPlan is a request that was checked and routed. It never changes.
type TaskPlan struct {
	TaskRequest
	UserID string `json:"userId"`
	// Steps is the chain of model calls.
	Steps []Step `json:"steps"`
	// RequestHash distinguishes requests that were submitted with the same id.
	RequestHash string `json:"requestHash"`
	// Price is what the task costs; 0 in the free tier. That of a metered task is reserved when it is accepted, and what its calls used when
	// it is settled.
	Price   Credits `json:"price,omitempty"`
	Metered bool    `json:"metered,omitempty"`
	// FreeSteps is the chain of the free tier, which replaces Steps if the price cannot be charged at acceptance.
	FreeSteps []Step `json:"freeSteps,omitempty"`
	// Key identifies the request among repeated ones of the user, and Number counts the tasks that were made for it from 0.
	// Key is empty for a task whose id the client chose.
	Key    string `json:"key,omitempty"`
	Number int64  `json:"number,omitempty"`
	// TitleAsset is the asset that the title is taken from when the row is stored: histories contain no texts.
	TitleAsset string `json:"titleAsset,omitempty"`
	// Forwarded is set for a call of OpenAI's protocol: the task has one step and no template. Its request is the variable VariableRequest.
	Forwarded *Forwarded `json:"forwarded,omitempty"`
}

// Forwarded describes a request of OpenAI's protocol that is forwarded as it is. Its price is taken from the budgets of its key and team.
type Forwarded struct {
	KeyID  string `json:"keyId"` // of the API key that has made the call
	Stream bool   `json:"stream,omitempty"`
	// Created and ServiceTier are in the answer.
	Created     int64  `json:"created"`
	ServiceTier string `json:"serviceTier,omitempty"`
	// Conversation: calls of the same one prefer the same upstream.
	Conversation string `json:"conversation,omitempty"`
	// Retention is how long the request and the answer are kept.
	Retention KeyRetention `json:"retention,omitempty"`
	// Response is set for a call of the responses API.
	Response *ResponseCall `json:"response,omitempty"`
}

// ResponseCall is what distinguishes a response from a chat. Its stream and its result are the events of the response, each on a line.
type ResponseCall struct {
	Background bool `json:"background,omitempty"` // no disconnect cancels it
	// Store: it can be read and continued until its retention ends. Otherwise only a retry of its client gets it.
	Store bool `json:"store,omitempty"`
	// Followed: a client may have read events before the end. From then on no attempt makes the answer again.
	Followed bool `json:"followed,omitempty"`
	// Replace: its key allows that another response replaces it if it breaks off after a client may have read a part.
	Replace bool `json:"replace,omitempty"`
	// Replaces is the response that this one replaces, the one with number Replacement in its row of replacements, from 1. ReplacedBy is the one
	// that replaces this one.
	Replaces    string `json:"replaces,omitempty"`
	Replacement int    `json:"replacement,omitempty"`
	ReplacedBy  string `json:"replacedBy,omitempty"`
}

// Alone reports whether no client waits for the response on a connection of its own, so that it continues when clients leave.
func (r ResponseCall) Alone() bool { return r.Background || r.Replaces != "" }

// maxReplacements is how many responses replace each other: the answer is made as often as one that no client has read.
const maxReplacements = 2

// Response returns what distinguishes the response from a chat; nil if the task is none of a response.
func (p TaskPlan) Response() *ResponseCall {
	if p.Forwarded == nil {
		return nil
	}
	return p.Forwarded.Response
}

// Replacement returns the plan of the response that replaces this one, which broke off, from its beginning; nil if none may.
func (p TaskPlan) Replacement(now time.Time) *TaskPlan {
	if p.Response() == nil {
		return nil
	}
	f, r := *p.Forwarded, *p.Response()
	if !r.Replace || !r.Store || r.Replacement == maxReplacements {
		return nil
	}
	r.Replaces, r.ReplacedBy, r.Followed = p.ID, "", false
	r.Replacement++
	f.Created, f.Stream, f.Response = now.Unix(), false, &r
	if p.Number++; p.Key == "" {
		p.ID = DerivedID(ResponseIDPrefix, p.UserID, p.ID)
	} else { // a request with the same key gets it
		p.ID = p.KeyedID(ResponseIDPrefix)
	}
	p.Forwarded = &f
	return &p
}

// ResponseIDPrefix begins the ids of responses.
const ResponseIDPrefix = "resp_"

// KeyedID returns the id of a task with the key and number of the plan.
func (p TaskPlan) KeyedID(prefix string) string {
	return DerivedID(prefix, p.UserID, p.Key, strconv.FormatInt(p.Number, 10))
}

// MayRepeat reports whether the answer may be made again although something of it was published: no client may have read that.
func (f *Forwarded) MayRepeat() bool {
	return f.Response != nil && !f.Stream && !f.Response.Followed
}

// Unread reports whether the client of a response that does not complete gets nothing of it.
func (f *Forwarded) Unread() bool { return f.MayRepeat() && !f.Response.Alone() }

// The names of the template, the step and the variable of a task with a forwarded request. No template that operators define has this name.
const (
	TemplateChat     Template = "openai/chat"
	TemplateResponse Template = "openai/responses"
	StepChat         StepName = "chat"
	VariableRequest           = "request"
)

// BudgetUse names a budget from which something was taken, and the period of it.
type BudgetUse struct {
	Kind    BudgetKind `json:"kind"`
	ID      string     `json:"id"`
	Counter string     `json:"counter"`
}

// TaskRef identifies a task. Its id is unique among the tasks of its user, who may have chosen it.
type TaskRef struct {
	UserID string `json:"userId"`
	TaskID string `json:"taskId"`
}

// String returns both ids as one that no other task has, for a key in Redis or the id of a workflow.
func (r TaskRef) String() string { return EscapeID(r.UserID) + ":" + r.TaskID }

// Queues returns the queues of all steps, also of those that the plan may get in the free tier.
func (p TaskPlan) Queues() (queues []Queue) {
	for _, st := range slices.Concat(p.Steps, p.FreeSteps) {
		if !slices.Contains(queues, st.Queue) {
			queues = append(queues, st.Queue)
		}
	}
	return queues
}

// Free returns the plan of the same request in the free tier.
func (p TaskPlan) Free() TaskPlan {
	if p.Tier != TierFree {
		p.Tier, p.Price, p.Metered, p.Steps = TierFree, 0, false, p.FreeSteps
	}
	p.FreeSteps = nil
	return p
}

// Ref returns the identity of the task.
func (p TaskPlan) Ref() TaskRef { return TaskRef{UserID: p.UserID, TaskID: p.ID} }

// Task is one LLM request as the ledger stores it.
type Task struct {
	TaskPlan
	// Title is the one that the client gave, the name of a file, or the first words of a text; empty when it was erased.
	Title  string
	Status TaskStatus
	// Unsettled: the price is still what was reserved. Budgets are those from which it was taken.
	Unsettled bool
	Budgets   []BudgetUse
	// StepIndex is the current step.
	StepIndex int
	// Fence rises with every attempt at a model call of this task; writes of older attempts are rejected.
	Fence int64
	// ResultAssetID is the stored result: text for a stream task, JSON for a batch task. Empty until the task completed. That of a response are its
	// events, whichever way it has ended.
	ResultAssetID string
	ErrorCode     Code
	ErrorMessage  string
	// ErrorDetail is the error as a client of OpenAI's protocol reads it, as JSON, if the request was forwarded.
	ErrorDetail string
	Usage       Usage
	// FinishReason is why the model stopped in the last recorded step; FinishLength if it was the token limit in any step.
	FinishReason string
	// PromptTruncated: a provider read only a part of the prompt of a step, by its own count of tokens.
	PromptTruncated bool
	// Simulated: the local simulator answered in at least one step.
	Simulated  bool
	CreatedAt  time.Time
	UpdatedAt  time.Time
	DeadlineAt time.Time
	EndedAt    time.Time
	// ContentErasedAt is when the texts of the task were erased, zero before that.
	ContentErasedAt time.Time
}

// Reasons why a model stopped. Other words of providers are translated, or are faults.
const (
	FinishStop    = "stop"
	FinishLength  = "length"  // the answer reached the token limit: it is truncated
	FinishUnknown = "unknown" // the stream ended as complete streams do, without a reason
	// FinishFiltered is of forwarded requests only: the provider withheld a part of the answer.
	FinishFiltered = "content_filter"
)

// Incomplete reports whether a part of the answer of a task that has completed is missing.
func (t Task) Incomplete() bool {
	return t.FinishReason == FinishLength || t.FinishReason == FinishFiltered
}

// Usage is what model calls consumed. It is estimated for providers that report none.
type Usage struct {
	InputTokens  int64 `json:"inputTokens"`
	OutputTokens int64 `json:"outputTokens"`
	// CachedTokens are the input tokens that the provider had cached, ReasoningTokens the output tokens of reasoning. They are
	// part of the others, and recorded for single calls of providers that report them.
	CachedTokens    int64 `json:"cachedTokens,omitempty"`
	ReasoningTokens int64 `json:"reasoningTokens,omitempty"`
}

// Add returns the sum of both.
func (u Usage) Add(o Usage) Usage {
	return Usage{
		InputTokens: u.InputTokens + o.InputTokens, OutputTokens: u.OutputTokens + o.OutputTokens,
		CachedTokens: u.CachedTokens + o.CachedTokens, ReasoningTokens: u.ReasoningTokens + o.ReasoningTokens,
	}
}

// AssetKind is the kind of an asset's content.
type AssetKind string

// The kinds of assets.
const (
	AssetImage  AssetKind = "image"
	AssetText   AssetKind = "text"
	AssetResult AssetKind = "result"
	AssetTitle  AssetKind = "title" // of a task, as its client gave it
)

// MaxUploadBytes is the largest upload that a server can be set to accept, because both sides hold it in memory. BERTH_MAX_UPLOAD_BYTES may be
// smaller.
const MaxUploadBytes = 64 << 20

// Asset is a stored image or text. A text without a name was not uploaded as a file.
type Asset struct {
	ID        string    `json:"assetId"`
	UserID    string    `json:"userId"`
	Kind      AssetKind `json:"kind"`
	MediaType string    `json:"mediaType"`
	Name      string    `json:"name,omitempty"`
	Size      int64     `json:"size"`
	SHA256    string    `json:"sha256"`
	CreatedAt time.Time `json:"createdAt"`
	Content   []byte    `json:"-"`
	// ErasedAt is when the content was erased, zero before that.
	ErasedAt time.Time `json:"-"`
}
