package client

import (
	"context"
	"net/http"
	"net/url"
	"time"

	"berth"
)

// ModelLimits limit the calls of a model, of all processes together.
type ModelLimits struct {
	Cap int `json:"cap" doc:"Maximum number of concurrent calls"`
	RPM int `json:"rpm" doc:"Maximum number of calls per minute; 0 for no limit"`
	TPM int `json:"tpm" doc:"Maximum number of tokens per minute; 0 for no limit"`
}

// ModelPause states whether slots of a model are granted.
type ModelPause struct {
	Paused      bool      `json:"paused" doc:"No slot is granted"`
	PausedBy    string    `json:"pausedBy,omitempty" enum:"operator,provider" doc:"provider: the calls fail, or the provider requested the pause"`
	PausedUntil time.Time `json:"pausedUntil,omitzero" doc:"End of the pause; absent for a pause by an operator"`
	Probing     bool      `json:"probing,omitempty" doc:"The pause has ended after failures of the provider: one call at a time is started until one succeeds"`
	Reason      string    `json:"reason,omitempty" doc:"Reason of the pause, or of the last one while the provider is probed"`
}

// What Missing of a model is.
const (
	ModelRemoved = "removed"
	ModelUnknown = "unknown"
)

// ModelService states why calls of a model are not made, or not any more.
type ModelService struct {
	Missing  string `json:"missing,omitempty" enum:"removed,unknown" doc:"The routing does not have the model. removed: accepted tasks finish with the last revision that had it; unknown: no revision has it, and its tasks wait until their deadline"`
	Unpolled bool   `json:"unpolled,omitempty" doc:"Tasks use or need the model, and no worker polls its task queue: they wait until one does, or their deadline"`
}

// Model is the state of a model: its limits, its slots, and the calls that wait for one.
type Model struct {
	Name     string `json:"name"`
	Provider string `json:"provider"`
	ModelLimits
	Configured ModelLimits `json:"configured" doc:"The limits of the routing file, which apply where operators have set none"`
	InUse      int         `json:"inUse" doc:"Number of slots in use; after the cap was lowered perhaps more than the cap"`
	Waiting    int         `json:"waiting" doc:"Number of calls that wait for a slot"`
	ModelPause
	ModelService
	Tasks       int        `json:"tasks,omitempty" doc:"Open tasks that need a missing model, as counted within the last minute"`
	NextGrantMs int64      `json:"nextGrantMs" doc:"Time until the pace or a provider's pause permits the next call"`
	Upstreams   []Upstream `json:"upstreams" doc:"What serves the model, in the order in which it is preferred. The limits of the model are the sums of those that have a key; it is paused where none works"`
	// UnknownUpstreams are set for names that the routing does not have.
	UnknownUpstreams []string       `json:"unknownUpstreams,omitempty" doc:"Upstreams for which operators have set limits or a pause, and which the routing does not have, as after a rename: the settings have no effect. Set them for the new name, and remove them with the PATCH of the old one"`
	EtaSeconds       *int           `json:"etaSeconds,omitempty" doc:"Estimated wait of a call that a user without other calls submits now, in the queue in which it is longest; absent when unknown or paused by an operator"`
	Queues           []ModelQueue   `json:"queues" doc:"The queues of the model, by falling weight"`
	Users            []WaitingCalls `json:"users" doc:"The users with the most waiting calls, at most 20"`
}

// Upstream is the state of one server, or one key of it, that serves a model.
type Upstream struct {
	Name     string `json:"name"`
	Provider string `json:"provider"`
	Rank     int    `json:"rank" doc:"The lowest with a free slot is used first"`
	ModelLimits
	Configured ModelLimits `json:"configured" doc:"The limits of the routing file, which apply where operators have set none; of an automatic cap the maximum"`
	Auto       bool        `json:"auto,omitempty" doc:"The cap is learned from the provider's answers"`
	Min        int         `json:"min,omitempty" doc:"Minimum of an automatic cap"`
	InUse      int         `json:"inUse"`
	NoKey      bool        `json:"noKey,omitempty" doc:"No worker that runs has the API key of the upstream, which gets no calls: the limits of the model do not count it"`
	ModelPause
	NextGrantMs int64 `json:"nextGrantMs" doc:"Time until the pace or a provider's pause permits the next call"`

	ProviderCap   int `json:"providerCap,omitempty" doc:"Maximum number of concurrent calls of the provider, of the upstreams of all models together; absent without one"`
	ProviderInUse int `json:"providerInUse,omitempty" doc:"How many of these are in use"`
}

// ModelQueue is what the calls of one queue use of a model.
type ModelQueue struct {
	Queue   berth.Queue `json:"queue"`
	Weight  int         `json:"weight" doc:"Share of the slots while calls of several queues wait"`
	InUse   int         `json:"inUse"`
	Waiting int         `json:"waiting"`
}

// WaitingCalls is the number of calls of a user that wait in a queue for a model.
type WaitingCalls struct {
	UserID string `json:"userId"`
	berth.Group
	Queue   berth.Queue `json:"queue"`
	Model   string      `json:"model"`
	Waiting int         `json:"waiting"`
}

// Queue is the state of a queue over all of its models.
type Queue struct {
	Queue   berth.Queue    `json:"queue"`
	Weight  int            `json:"weight" doc:"Share of a model's slots while calls of several queues wait"`
	InUse   int            `json:"inUse" doc:"Number of slots in use"`
	Waiting int            `json:"waiting" doc:"Number of calls that wait for a slot"`
	Models  []QueueModel   `json:"models"`
	Users   []WaitingCalls `json:"users" doc:"The users with the most waiting calls, at most 20"`
}

// QueueModel is what the calls of a queue use of one model.
type QueueModel struct {
	Name    string `json:"name"`
	Cap     int    `json:"cap" doc:"Maximum number of concurrent calls of the model, of all queues"`
	InUse   int    `json:"inUse"`
	Waiting int    `json:"waiting"`
	ModelPause
	ModelService
	NextGrantMs int64 `json:"nextGrantMs"`
	EtaSeconds  *int  `json:"etaSeconds,omitempty" doc:"Estimated wait of a call that a user without other calls submits now; absent when unknown or paused by an operator"`
}

// Models returns the state of all models.
func (c *Client) Models(ctx context.Context) ([]Model, error) {
	out, err := fetch[struct {
		Models []Model `json:"models"`
	}](ctx, c, http.MethodGet, "/v1/models", nil)
	return out.Models, err
}

// Queues returns the state of all queues.
func (c *Client) Queues(ctx context.Context) ([]Queue, error) {
	out, err := fetch[struct {
		Queues []Queue `json:"queues"`
	}](ctx, c, http.MethodGet, "/v1/queues", nil)
	return out.Queues, err
}

// PatchModel changes the operator's settings of a model: cap, rpm and tpm (a number, or nil for the configured value), paused and
// reason. Those that are absent keep their values.
func (c *Client) PatchModel(ctx context.Context, name string, change map[string]any) (Model, error) {
	return fetch[Model](ctx, c, http.MethodPatch, "/v1/models/"+url.PathEscape(name), change)
}

// PatchUpstream changes the operator's settings of one upstream of a model, as PatchModel.
func (c *Client) PatchUpstream(ctx context.Context, model, upstream string, change map[string]any) (Model, error) {
	return fetch[Model](ctx, c, http.MethodPatch, "/v1/models/"+url.PathEscape(model)+"/upstreams/"+url.PathEscape(upstream), change)
}
