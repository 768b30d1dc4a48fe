package client

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"mime/multipart"
	"net/http"
	"net/url"
	"path/filepath"
	"strconv"
	"time"

	"berth"
)

// Submission is the body of POST /v1/tasks. A variable is a string or an AssetVariable.
type Submission struct {
	TaskID    string         `json:"taskId,omitempty"`
	ServiceID string         `json:"serviceId"`
	EndUser   string         `json:"endUser,omitempty"` // of the application that the request counts for
	Title     string         `json:"title,omitempty"`
	Template  berth.Template `json:"template"`
	// TemplateVersion is one that an operator tries, active or not; the active one by default.
	TemplateVersion string         `json:"templateVersion,omitempty"`
	Locale          berth.Locale   `json:"locale,omitempty"`
	Variables       map[string]any `json:"variables"`
}

// Acceptance is the response to a submission.
type Acceptance struct {
	TaskID      string           `json:"taskId"`
	Status      berth.TaskStatus `json:"status"`
	Queue       berth.Queue      `json:"queue,omitempty"`
	Model       string           `json:"model,omitempty"`
	Tier        berth.Tier       `json:"tier,omitempty"`
	Downgraded  bool             `json:"downgraded,omitempty" doc:"The credits did not suffice: the task uses the free queue and model"`
	PollAfterMs int              `json:"pollAfterMs,omitempty" doc:"Recommended time until the next poll, in milliseconds"`
	EventsURL   string           `json:"eventsUrl"`
	Replay      bool             `json:"replay,omitempty" doc:"The task had already been accepted; nothing was started"`
	IdemKey     string           `json:"idemKey,omitempty" doc:"What identified the replay: taskId, the Idempotency-Key or a hash of the request"`
	Waiting     `doc:"Of the current step, unless its call has begun"`
}

// Waiting estimates how long a call waits for its model.
type Waiting struct {
	Position   *int     `json:"position,omitempty" doc:"Estimated number of calls that the model serves before, absent when unknown"`
	EtaSeconds *int     `json:"etaSeconds,omitempty" doc:"Estimated time until the call begins, absent when unknown"`
	Paused     bool     `json:"paused,omitempty" doc:"No call begins: an operator has paused what may serve it, or its provider fails or requested the pause"`
	Upstreams  []string `json:"upstreams,omitempty" doc:"The upstreams that may serve the call, where not all of the model may: those with room for its texts that have not failed it"`
}

// Task is a task as its owner sees it. Lists leave out the results.
type Task struct {
	UserID string `json:"userId" doc:"Owner of the task"`
	berth.TaskRequest
	// Variables replaces that of TaskRequest by the form in which a Submission takes it.
	Variables map[string]AssetVariable `json:"variables" doc:"The inputs, in the form in which POST /v1/tasks takes them: texts are assets, too"`
	Inputs    []TaskInput              `json:"inputs,omitempty" doc:"What was submitted, in the order of the template's variables; lists leave it out"`
	Title     string                   `json:"title,omitempty" doc:"The title that was submitted, else the name of the first uploaded file, else the first words of the first text; absent once it is erased, and for an image without a name"`
	Price     berth.Credits            `json:"price,omitempty" doc:"Credits that the task was charged, also if they were refunded. Of a metered task: what is reserved for it, and after its end what it used"`
	Metered   bool                     `json:"metered,omitempty" doc:"The price is what the model calls used"`

	Status    berth.TaskStatus `json:"status"`
	Steps     []TaskStep       `json:"steps" doc:"The chain of model calls, in order"`
	StepIndex int              `json:"stepIndex" doc:"Index of the current step"`
	// Waiting is where the call of the current step waits.
	Waiting    *Waiting        `json:"waiting,omitempty" doc:"The current step waits for its model, and how long; absent while its call runs, or where that is not known"`
	Downgraded bool            `json:"downgraded,omitempty" doc:"The credits did not suffice: the task uses the free queue and model"`
	Text       string          `json:"text,omitempty" doc:"The answer of a stream task; of a call of OpenAI's protocol the chunks or events, each on a line"`
	Result     json.RawMessage `json:"result,omitempty" doc:"The answer of a batch task; of a stream {\"items\"}, if it has any"`
	Error      *TaskError      `json:"error,omitempty"`
	Simulated  bool            `json:"simulated,omitempty" doc:"The local simulator served at least one step"`
	Usage      berth.Usage     `json:"usage"`
	// FinishReason is why the model stopped.
	FinishReason    string `json:"finishReason,omitempty" doc:"Why the model stopped: stop, unknown if its provider did not say, or length when a token limit truncated the answer of any step"`
	PromptTruncated bool   `json:"promptTruncated,omitempty" doc:"The provider of a step read only a part of its prompt, by its own count of tokens"`
	// Replaces and ReplacedBy are ids of tasks.
	Replaces   string `json:"replaces,omitempty" doc:"The response that this one replaces, which broke off"`
	ReplacedBy string `json:"replacedBy,omitempty" doc:"The response that replaces this one"`
	// PollAfterMs shortens as the end nears: with each step, and with the estimate of the wait. Absent once the task is final.
	PollAfterMs int       `json:"pollAfterMs,omitempty" doc:"Recommended time until the next poll, in milliseconds"`
	Links       TaskLinks `json:"links"`
	CreatedAt   time.Time `json:"createdAt"`
	UpdatedAt   time.Time `json:"updatedAt"`
	DeadlineAt  time.Time `json:"deadlineAt"`
	EndedAt     time.Time `json:"endedAt,omitzero"`

	ContentErased bool `json:"contentErased,omitempty" doc:"The texts of the task were erased: it has neither text nor result any more"`
}

// AssetVariable is the value of a variable that refers to an asset: an upload, or a text of an earlier submission.
type AssetVariable struct {
	AssetID string             `json:"assetId"`
	Kind    berth.VariableKind `json:"kind,omitempty" enum:"text_asset,image_asset" doc:"What the asset is; absent once it is deleted"`
}

// TaskInput describes the value of one variable of a task.
type TaskInput struct {
	Variable  string             `json:"variable"`
	AssetID   string             `json:"assetId"`
	Kind      berth.VariableKind `json:"kind,omitempty" enum:"text_asset,image_asset"`
	Name      string             `json:"name,omitempty" doc:"Name of the uploaded file; absent for a text in the request"`
	MediaType string             `json:"mediaType,omitempty"`
	Size      int64              `json:"size,omitempty" doc:"Bytes"`
	Erased    bool               `json:"erased,omitempty" doc:"The content was erased: submitting the variable again is refused"`
}

// TaskStep is one model call of a task.
type TaskStep struct {
	Name  berth.StepName `json:"name"`
	Mode  berth.Mode     `json:"mode"`
	Queue berth.Queue    `json:"queue"`
	Model string         `json:"model"`
	State string         `json:"state" enum:"waiting,current,done,failed,cancelled"`
	// Status is one of those of the task.
	Status berth.TaskStatus `json:"status" doc:"Status of the task while the step waits and runs"`
	Label  Labels           `json:"label,omitempty" doc:"By language, as the task's version of the template has it; lists leave it out, and it is absent where the version cannot be read"`
	// OutputAssetID, Provider and Upstream are known once the step is recorded; lists leave them out.
	OutputAssetID string `json:"outputAssetId,omitempty" doc:"Asset that the step stored, see /v1/assets/{id}; absent once it is erased"`
	Provider      string `json:"provider,omitempty" doc:"Provider that answered"`
	Upstream      string `json:"upstream,omitempty" doc:"Upstream of the model that answered, see the routing file"`
	FinishReason  string `json:"finishReason,omitempty" doc:"Why the model stopped in this step"`
}

// TaskError is why a task failed.
type TaskError struct {
	Code    berth.Code `json:"code"`
	Message string     `json:"message"`
}

// TaskLinks are the links of a task.
type TaskLinks struct {
	Self     string `json:"self"`
	Events   string `json:"events"`
	Temporal string `json:"temporal,omitempty" doc:"The run in the Temporal UI"`
}

// AssetRef returns the value of a variable that refers to an uploaded asset.
func AssetRef(id string) AssetVariable { return AssetVariable{AssetID: id} }

// Submit submits a task. key is the Idempotency-Key of a task without a TaskID; if it is empty, none is sent.
func (c *Client) Submit(ctx context.Context, s Submission, key string) (Acceptance, error) {
	header := http.Header{}
	if key != "" {
		header.Set("Idempotency-Key", key)
	}
	var out Acceptance
	err := c.call(ctx, http.MethodPost, "/v1/tasks", header, s, &out)
	return out, err
}

// Get returns a task's status and result.
func (c *Client) Get(ctx context.Context, taskID string) (Task, error) {
	return fetch[Task](ctx, c, http.MethodGet, c.taskPath(taskID, ""), nil)
}

// TaskQuery selects tasks. Empty fields match all; UserID is for operators, the default is the token's user.
type TaskQuery struct {
	UserID    string
	Status    berth.TaskStatus
	Template  berth.Template
	ServiceID string
	TeamID    string
	Open      bool   // that have not ended
	Title     string // words that occur in the title in this order, whatever their case
	From, To  time.Time
	Cursor    string
	Limit     int
}

// Tasks returns a page of tasks, newest first and without results, and the cursor of the next page, empty after the last.
func (c *Client) Tasks(ctx context.Context, t TaskQuery) (tasks []Task, next string, err error) {
	q := url.Values{"limit": {strconv.Itoa(t.Limit)}}
	for name, value := range map[string]string{
		"userId": t.UserID, "status": string(t.Status), "template": string(t.Template), "serviceId": t.ServiceID, "teamId": t.TeamID, "q": t.Title, "cursor": t.Cursor,
	} {
		if value != "" {
			q.Set(name, value)
		}
	}
	if t.Open {
		q.Set("open", "true")
	}
	for name, at := range map[string]time.Time{"from": t.From, "to": t.To} {
		if !at.IsZero() {
			q.Set(name, at.Format(time.RFC3339Nano))
		}
	}
	out, err := fetch[struct {
		Tasks      []Task `json:"tasks"`
		NextCursor string `json:"nextCursor"`
	}](ctx, c, http.MethodGet, "/v1/tasks?"+q.Encode(), nil)
	return out.Tasks, out.NextCursor, err
}

// Describe returns the JSON document of a task as the API returns it.
func (c *Client) Describe(ctx context.Context, taskID string) (json.RawMessage, error) {
	return fetch[json.RawMessage](ctx, c, http.MethodGet, c.taskPath(taskID, ""), nil)
}

// Cancel requests the cancellation of a task.
func (c *Client) Cancel(ctx context.Context, taskID string) error {
	return c.call(ctx, http.MethodDelete, c.taskPath(taskID, ""), nil, nil, nil)
}

// taskPath returns the path of a task, or with a suffix of what belongs to it.
func (c *Client) taskPath(taskID, suffix string) string {
	return c.ownedPath("/v1/tasks/" + url.PathEscape(taskID) + suffix)
}

// Upload stores an image or a text and returns the asset's id.
func (c *Client) Upload(ctx context.Context, name string, content []byte) (string, error) {
	var body bytes.Buffer
	form := multipart.NewWriter(&body)
	part, err := form.CreateFormFile("file", filepath.Base(name))
	if err != nil {
		return "", fmt.Errorf("build upload: %w", err)
	}
	if _, err := part.Write(content); err != nil {
		return "", fmt.Errorf("build upload: %w", err)
	}
	if err := form.Close(); err != nil {
		return "", fmt.Errorf("build upload: %w", err)
	}
	req, err := c.request(ctx, http.MethodPost, "/v1/assets", &body)
	if err != nil {
		return "", err
	}
	req.Header.Set("Content-Type", form.FormDataContentType())
	var out struct {
		AssetID string `json:"assetId"`
	}
	err = c.do(req, &out)
	return out.AssetID, err
}
