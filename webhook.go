package berth

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"
)

// The limits of webhooks.
const (
	MaxWebhookTitle = 100 // characters
	MaxWebhooks     = 50  // of one team, user or application, and of all users
	MaxWebhookLog   = 20  // attempts that a delivery lists
	WebhookRotation = 24 * time.Hour

	MaxWebhookSecrets = 4 // that sign an event: the present one and former ones

	WebhookIDPrefix  = "wh_"
	DeliveryIDPrefix = "dlv_"
	eventIDPrefix    = "evt_"
)

// WebhookEventType is the type of an event that webhooks receive.
type WebhookEventType string

// The types of events. Those of responses are OpenAI's.
const (
	EventResponseCompleted  WebhookEventType = "response.completed"
	EventResponseFailed     WebhookEventType = "response.failed"
	EventResponseCancelled  WebhookEventType = "response.cancelled"
	EventResponseIncomplete WebhookEventType = "response.incomplete"
	EventTaskCompleted      WebhookEventType = "task.completed"
	EventTaskFailed         WebhookEventType = "task.failed"
	EventTaskCancelled      WebhookEventType = "task.cancelled"
	EventExecutionCompleted WebhookEventType = "execution.completed"
	EventExecutionFailed    WebhookEventType = "execution.failed"
	EventExecutionCancelled WebhookEventType = "execution.cancelled"
	// EventWebhookTest is sent on request only, to one webhook.
	EventWebhookTest WebhookEventType = "webhook.test"
)

// WebhookEventTypes returns the types that a webhook can choose.
func WebhookEventTypes() []WebhookEventType {
	return []WebhookEventType{
		EventResponseCompleted, EventResponseFailed, EventResponseCancelled, EventResponseIncomplete, EventTaskCompleted, EventTaskFailed,
		EventTaskCancelled, EventExecutionCompleted, EventExecutionFailed, EventExecutionCancelled,
	}
}

// Webhook is a URL to which events about ended work are sent. It gets those of a team, of an application of the team, of a user, or of all if it
// names none of them.
type Webhook struct {
	ID                    string
	TeamID, AppID, UserID string
	WebhookSettings
	// Secrets sign the events, the present one first. The former ones sign them beside it until FormerUntil.
	Secrets     []string
	FormerUntil time.Time
	CreatedAt   time.Time
	CreatedBy   string
	// DisabledAt is when it was disabled, zero while events are sent, and DisabledWhy the reason.
	DisabledAt  time.Time
	DisabledWhy string
}

// WebhookSettings are what users choose for a webhook.
type WebhookSettings struct {
	URL   string `json:"url"`
	Title string `json:"title,omitempty"`
	// Events are the types of its events; empty for all.
	Events []WebhookEventType `json:"events,omitempty"`
}

// The reasons why a webhook is disabled.
const (
	WebhookDisabledByUser = "by request"
	WebhookGone           = "the server returned 410"
	WebhookFailing        = "no event was delivered for three days"
)

// Normalize checks the settings except for the URL, and leaves out repeated types. It returns CodeInvalid for the first invalid field.
func (s *WebhookSettings) Normalize() (err error) {
	if s.Title, err = Name("title", s.Title, MaxWebhookTitle); err != nil {
		return err
	}
	for i, t := range s.Events {
		if !slices.Contains(WebhookEventTypes(), t) {
			names := make([]string, 0, len(WebhookEventTypes()))
			for _, name := range WebhookEventTypes() {
				names = append(names, string(name))
			}
			return Invalid(fmt.Sprintf("events[%d]", i), "must be one of %s", strings.Join(names, ", "))
		}
	}
	s.Events = Distinct(s.Events)
	return nil
}

// Wants reports whether the webhook gets events of a type when work ends.
func (s WebhookSettings) Wants(t WebhookEventType) bool {
	return len(s.Events) == 0 || slices.Contains(s.Events, t)
}

// Signing returns the secrets that sign an event at a time.
func (w Webhook) Signing(now time.Time) []string {
	if len(w.Secrets) > 1 && !now.Before(w.FormerUntil) {
		return w.Secrets[:1]
	}
	return w.Secrets
}

// Rotate gives the webhook a secret. The former ones that sign at this time do so for another WebhookRotation: a repeated request invalidates none.
func (w *Webhook) Rotate(secret string, now time.Time) {
	former := w.Signing(now)
	w.Secrets = append([]string{secret}, former[:min(len(former), MaxWebhookSecrets-1)]...)
	w.FormerUntil = now.Add(WebhookRotation)
}

// WebhookEvent is the body that a webhook receives. It has what Standard Webhooks and OpenAI's clients read.
type WebhookEvent struct {
	ID        string           `json:"id"`
	Object    string           `json:"object"` // "event"
	Type      WebhookEventType `json:"type"`
	CreatedAt int64            `json:"created_at"` // Unix seconds
	Timestamp time.Time        `json:"timestamp"`
	Data      WebhookData      `json:"data"`
}

// WebhookData is what an event is about. Texts are not part of it: receivers read the result by its id.
type WebhookData struct {
	ID       string   `json:"id"` // of the response, task or execution
	UserID   string   `json:"userId,omitempty"`
	TeamID   string   `json:"teamId,omitempty"`
	AppID    string   `json:"appId,omitempty"`
	KeyID    string   `json:"keyId,omitempty"`
	Template Template `json:"template,omitempty"`
	Executor string   `json:"executor,omitempty"`
	Code     Code     `json:"code,omitempty"` // of what has failed
	// ReplacedBy is the response that replaces a failed one.
	ReplacedBy string `json:"replacedBy,omitempty"`
}

// NewWebhookEvent returns an event with an id of its own.
func NewWebhookEvent(t WebhookEventType, at time.Time, data WebhookData) WebhookEvent {
	at = at.UTC().Truncate(time.Millisecond)
	return WebhookEvent{ID: NewID(eventIDPrefix), Object: "event", Type: t, CreatedAt: at.Unix(), Timestamp: at, Data: data}
}

// WebhookDelivery is an event and how far its delivery to a webhook has come.
type WebhookDelivery struct {
	ID        string
	WebhookID string
	EventID   string
	Type      WebhookEventType
	SubjectID string // of the response, task or execution
	State     DeliveryState
	Attempts  int
	// Log has the last MaxWebhookLog attempts in their order.
	Log       []WebhookAttempt
	Event     json.RawMessage // a WebhookEvent, as it is sent
	CreatedAt time.Time
	UpdatedAt time.Time
}

// WebhookAttempt is one attempt at a delivery.
type WebhookAttempt struct {
	At     time.Time `json:"at"`
	TookMs int64     `json:"tookMs"`
	Status int       `json:"status,omitempty" doc:"HTTP status of the response; absent without one"`
	Error  string    `json:"error,omitempty" doc:"Why it failed; absent if the event was accepted"`
}
