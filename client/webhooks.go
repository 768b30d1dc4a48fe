package client

import (
	"context"
	"encoding/json"
	"iter"
	"net/http"
	"net/url"
	"time"

	"berth"
)

// WebhookSpec are the settings of a webhook.
type WebhookSpec struct {
	URL      string                   `json:"url" maxLength:"2000" doc:"Where events are sent: https://host/path"`
	Title    string                   `json:"title,omitempty" doc:"At most 100 characters"`
	Events   []berth.WebhookEventType `json:"events,omitempty" maxItems:"50" doc:"Types of the events; all if there are none"`
	Disabled bool                     `json:"disabled,omitempty" doc:"No events are sent, and those that are being sent fail"`
}

// Webhook is a webhook: its settings, which are what PUT takes, and its state.
type Webhook struct {
	WebhookID string `json:"webhookId,omitempty" readOnly:"true"`
	TeamID    string `json:"teamId,omitempty" maxLength:"128" doc:"Team whose work it is about. It cannot be changed"`
	AppID     string `json:"appId,omitempty" maxLength:"128" doc:"Application of the team whose work it is about; absent for all of the team. It cannot be changed"`
	UserID    string `json:"userId,omitempty" maxLength:"255" doc:"User whose work it is about, instead of a team. It cannot be changed"`
	All       bool   `json:"all,omitempty" doc:"It is about the work of all teams and users. It cannot be changed"`
	WebhookSpec
	CreatedAt   time.Time `json:"createdAt,omitzero" readOnly:"true"`
	CreatedBy   string    `json:"createdBy,omitempty" readOnly:"true"`
	DisabledAt  time.Time `json:"disabledAt,omitzero" readOnly:"true" doc:"Absent while events are sent"`
	DisabledWhy string    `json:"disabledWhy,omitempty" readOnly:"true" doc:"By request; the server returned 410; or no event was delivered for three days"`
	FormerUntil time.Time `json:"formerUntil,omitzero" readOnly:"true" doc:"Until when the former secret signs events, too; absent where none does"`
}

// NewWebhook is a webhook in the response of its creation, or of a new secret.
type NewWebhook struct {
	Webhook
	Secret string `json:"secret" readOnly:"true" doc:"With which receivers verify events. It is returned only here"`
}

// Delivery is an event and how far its delivery to a webhook has come.
type Delivery struct {
	DeliveryID string                 `json:"deliveryId"`
	EventID    string                 `json:"eventId" doc:"The header webhook-id: the same in every attempt, and for each webhook that gets the event"`
	Type       berth.WebhookEventType `json:"type"`
	SubjectID  string                 `json:"subjectId" doc:"Of the response, task or execution"`
	State      berth.DeliveryState    `json:"state" doc:"pending: not accepted yet, and sent again; delivered; failed: given up"`
	Attempts   int                    `json:"attempts"`
	Log        []berth.WebhookAttempt `json:"log" doc:"The last 20 attempts in their order"`
	Event      json.RawMessage        `json:"event" doc:"The body that is sent"`
	CreatedAt  time.Time              `json:"createdAt"`
	UpdatedAt  time.Time              `json:"updatedAt"`
}

// WebhookQuery selects webhooks. An empty field matches all.
type WebhookQuery struct{ TeamID, AppID, UserID string }

// newWebhookSpec is the body of POST.
type newWebhookSpec struct {
	TeamID string `json:"teamId,omitempty"`
	AppID  string `json:"appId,omitempty"`
	UserID string `json:"userId,omitempty"`
	All    bool   `json:"all,omitempty"`
	WebhookSpec
}

// CreateWebhook creates a webhook of a team, an application or a user, or of all work.
func (c *Client) CreateWebhook(ctx context.Context, w Webhook) (NewWebhook, error) {
	return fetch[NewWebhook](ctx, c, http.MethodPost, "/v1/webhooks", newWebhookSpec{w.TeamID, w.AppID, w.UserID, w.All, w.WebhookSpec})
}

// Webhooks yields the webhooks, the oldest first.
func (c *Client) Webhooks(ctx context.Context, q WebhookQuery) iter.Seq2[Webhook, error] {
	return pages[Webhook](ctx, c, "/v1/webhooks", url.Values{"teamId": {q.TeamID}, "appId": {q.AppID}, "userId": {q.UserID}, "limit": {"200"}}, "webhooks")
}

// Webhook returns a webhook.
func (c *Client) Webhook(ctx context.Context, id string) (Webhook, error) {
	return fetch[Webhook](ctx, c, http.MethodGet, webhookPath(id), nil)
}

// PutWebhook replaces the settings of a webhook.
func (c *Client) PutWebhook(ctx context.Context, id string, spec WebhookSpec) (Webhook, error) {
	return fetch[Webhook](ctx, c, http.MethodPut, webhookPath(id), spec)
}

// DeleteWebhook deletes a webhook with its deliveries.
func (c *Client) DeleteWebhook(ctx context.Context, id string) error {
	return c.call(ctx, http.MethodDelete, webhookPath(id), nil, nil, nil)
}

// RotateWebhook gives a webhook a new secret. The former one signs events beside it for a day.
func (c *Client) RotateWebhook(ctx context.Context, id string) (NewWebhook, error) {
	return fetch[NewWebhook](ctx, c, http.MethodPost, webhookPath(id)+"/secret", nil)
}

// TestWebhook sends an event of the type webhook.test.
func (c *Client) TestWebhook(ctx context.Context, id string) (Delivery, error) {
	return fetch[Delivery](ctx, c, http.MethodPost, webhookPath(id)+"/test", nil)
}

// Deliveries yields the deliveries to a webhook, the newest first. An empty state matches all.
func (c *Client) Deliveries(ctx context.Context, id string, state berth.DeliveryState) iter.Seq2[Delivery, error] {
	return pages[Delivery](ctx, c, webhookPath(id)+"/deliveries", url.Values{"state": {string(state)}, "limit": {"200"}}, "deliveries")
}

// ResendDelivery sends an event to its webhook again.
func (c *Client) ResendDelivery(ctx context.Context, id, deliveryID string) (Delivery, error) {
	return fetch[Delivery](ctx, c, http.MethodPost, webhookPath(id)+"/deliveries/"+url.PathEscape(deliveryID)+"/resend", nil)
}

func webhookPath(id string) string { return "/v1/webhooks/" + url.PathEscape(id) }
