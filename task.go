package berth

import "time"

// Tier is what a user's request is served as; fixed when the task is accepted (T18).
type Tier string

// The two tiers.
const (
	TierPaid Tier = "paid"
	TierFree Tier = "free"
)

// Mode is the experience of a model call: tokens as they come, one JSON answer, or reading an image.
type Mode string

// The modes. ModeBatch and ModeVision answer once, ModeStream token by token.
const (
	ModeStream Mode = "stream"
	ModeBatch  Mode = "batch"
	ModeVision Mode = "vision"
)

// Queue is experience mode x tier (T2), for instance q_paid_stream.
type Queue string

// QueueFor names the queue of a tier and mode.
func QueueFor(tier Tier, mode Mode) Queue { return Queue("q_" + string(tier) + "_" + string(mode)) }

// Queues lists the six queues from the highest weight to the lowest (T4).
func Queues() []Queue {
	return []Queue{
		QueueFor(TierPaid, ModeStream), QueueFor(TierPaid, ModeBatch), QueueFor(TierPaid, ModeVision),
		QueueFor(TierFree, ModeStream), QueueFor(TierFree, ModeBatch), QueueFor(TierFree, ModeVision),
	}
}

// TaskQueue is the Temporal task queue of one queue and model (T3): an exhausted model never blocks another.
func TaskQueue(q Queue, model string) string { return string(q) + "." + model }

// Locale is the language prompts and answers are in (T23).
type Locale string

// The locales with prompts of their own.
const (
	LocaleEN Locale = "en"
	LocaleZH Locale = "zh"
)

// TaskStatus is where a task stands (T17). Statuses only move forward, and the last three are final.
type TaskStatus string

// The statuses of a task.
const (
	TaskPending        TaskStatus = "PENDING"
	TaskOCRPending     TaskStatus = "OCR_PENDING"
	TaskSummaryPending TaskStatus = "SUMMARY_PENDING"
	TaskMatchPending   TaskStatus = "MATCH_PENDING"
	TaskStreaming      TaskStatus = "STREAMING"
	TaskCompleted      TaskStatus = "COMPLETED"
	TaskFailed         TaskStatus = "FAILED"
	TaskCancelled      TaskStatus = "CANCELLED"
)

// Final tells whether the status can no longer change.
func (s TaskStatus) Final() bool {
	return s == TaskCompleted || s == TaskFailed || s == TaskCancelled
}

// TaskStatuses lists all statuses.
func TaskStatuses() []TaskStatus {
	return []TaskStatus{
		TaskPending, TaskOCRPending, TaskSummaryPending, TaskMatchPending, TaskStreaming,
		TaskCompleted, TaskFailed, TaskCancelled,
	}
}

// StepName names one model call of a task. It keys the step's effects: (task, step) happens once.
type StepName string

// The steps.
const (
	StepOCR       StepName = "ocr"
	StepSummary   StepName = "summary"
	StepMatch     StepName = "match"
	StepInterview StepName = "interview"
	StepCustomize StepName = "customize"
)

// Step is one model call as it was planned when the task was accepted: routing is fixed there.
type Step struct {
	Name     StepName `json:"name"`
	Template Template `json:"template"`
	Mode     Mode     `json:"mode"`
	Queue    Queue    `json:"queue"`
	Model    string   `json:"model"`
}

// PendingStatus is the task's status while it waits for this step's model.
func (s Step) PendingStatus() TaskStatus {
	switch s.Name {
	case StepOCR:
		return TaskOCRPending
	case StepSummary:
		return TaskSummaryPending
	case StepMatch:
		return TaskMatchPending
	default:
		return TaskPending
	}
}

// Task is one LLM request as the ledger keeps it.
type Task struct {
	ID        string     `json:"taskId"`
	UserID    string     `json:"userId"`
	ServiceID string     `json:"serviceId"`
	Template  Template   `json:"template"`
	Locale    Locale     `json:"locale"`
	Tier      Tier       `json:"tier"`
	Status    TaskStatus `json:"status"`
	// Steps is the chain fixed at acceptance; StepIndex is the step it stands at.
	Steps     []Step `json:"steps"`
	StepIndex int    `json:"stepIndex"`
	// Variables maps a variable's name to the asset that holds its value (T26).
	Variables map[string]string `json:"variables"`
	// RequestHash tells two submissions with one id apart.
	RequestHash string `json:"-"`
	// Fence rises with every attempt at a model call of this task; what an older attempt writes is refused (T13).
	Fence int64 `json:"-"`
	// ResultAssetID holds the answer: text for a stream, JSON for a batch task. Empty until completed.
	ResultAssetID string    `json:"resultAssetId,omitempty"`
	ErrorCode     Code      `json:"errorCode,omitempty"`
	ErrorMessage  string    `json:"errorMessage,omitempty"`
	Usage         Usage     `json:"usage"`
	TraceID       string    `json:"traceId,omitempty"`
	RequestID     string    `json:"requestId,omitempty"`
	CreatedAt     time.Time `json:"createdAt"`
	UpdatedAt     time.Time `json:"updatedAt"`
	DeadlineAt    time.Time `json:"deadlineAt"`
	EndedAt       time.Time `json:"endedAt,omitzero"`
}

// Usage is what model calls consumed; best effort, some providers report none (T19).
type Usage struct {
	InputTokens  int64 `json:"inputTokens"`
	OutputTokens int64 `json:"outputTokens"`
}

// Add is the sum of both.
func (u Usage) Add(o Usage) Usage {
	return Usage{InputTokens: u.InputTokens + o.InputTokens, OutputTokens: u.OutputTokens + o.OutputTokens}
}

// AssetKind tells what an asset holds.
type AssetKind string

// The kinds of assets.
const (
	AssetImage  AssetKind = "image"
	AssetText   AssetKind = "text"
	AssetResult AssetKind = "result"
)

// Asset is an image or text kept by id (T26). Content is left out of listings.
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
}
