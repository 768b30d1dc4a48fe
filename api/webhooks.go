package api

import (
	"cmp"
	"context"
	"time"

	"berth"
	"berth/client"
	"berth/internal/ledger"
	"berth/internal/webhook"
	"berth/workflows"
)

// WebhookPath names a webhook in a path.
type WebhookPath struct {
	ID string `path:"id" maxLength:"128" doc:"Webhook id"`
}

type createWebhookInput struct {
	Body client.Webhook
}

type putWebhookInput struct {
	WebhookPath
	Body client.Webhook
}

type webhooksInput struct {
	TeamID string `query:"teamId" maxLength:"128" doc:"Only webhooks of this team"`
	AppID  string `query:"appId" maxLength:"128" doc:"Only webhooks of this application"`
	UserID string `query:"userId" maxLength:"255" doc:"Only webhooks of this user"`
	Limit  int    `query:"limit" minimum:"1" maximum:"200" default:"50"`
	CursorParam
}

type webhooksOutputBody struct {
	Webhooks   []client.Webhook `json:"webhooks"`
	NextCursor string           `json:"nextCursor,omitempty" doc:"Absent on the last page"`
}

type deliveriesInput struct {
	WebhookPath
	State berth.DeliveryState `query:"state" enum:"pending,delivered,failed" doc:"Only deliveries in this state"`
	Limit int                 `query:"limit" minimum:"1" maximum:"200" default:"50"`
	CursorParam
}

type deliveriesOutputBody struct {
	Deliveries []client.Delivery `json:"deliveries"`
	NextCursor string            `json:"nextCursor,omitempty" doc:"Absent on the last page"`
}

type resendInput struct {
	WebhookPath
	DeliveryID string `path:"deliveryId" maxLength:"128" doc:"Delivery id"`
}

func (s *server) webhookRoutes() {
	change := forTeam
	change.private = []string{"url"} // it may contain a secret
	register(s, "POST /v1/webhooks", change, s.createWebhook, withStatus(201, op("create-webhook", "webhooks", "Create a webhook",
		"With `teamId` it is about the work of a team, with `appId` too of an application of it, with `userId` of a user, with `all` of all teams and users. "+
			"Its `secret` is in this response only. 409: there are 50 of the same team, application or user.")))
	register(s, "GET /v1/webhooks", forTeam, s.listWebhooks, op("list-webhooks", "webhooks", "List the webhooks, the oldest first",
		"With the scope `team`, those of the caller's team. Also the other calls of webhooks are then about these."))
	register(s, "GET /v1/webhooks/{id}", forTeam, s.getWebhook, op("get-webhook", "webhooks", "Get a webhook"))
	register(s, "PUT /v1/webhooks/{id}", change, s.putWebhook, op("put-webhook", "webhooks", "Replace the settings of a webhook",
		"They apply to events that are not delivered yet, too. Team, application and user cannot be changed. `disabled` false enables it again."))
	registerOutput(s, "DELETE /v1/webhooks/{id}", forTeam, s.deleteWebhook, op("delete-webhook", "webhooks", "Delete a webhook with its deliveries"))
	register(s, "POST /v1/webhooks/{id}/secret", forTeam, s.rotateWebhook, op("rotate-webhook", "webhooks", "Give a webhook a new secret",
		"For a day, the former one signs events, too, as do up to two before it that still did. The `secret` is in this response only."))
	register(s, "POST /v1/webhooks/{id}/test", forTeam, s.testWebhook, withStatus(202, op("test-webhook", "webhooks",
		"Send an event of the type webhook.test", "Its delivery has the outcome. 409: the webhook is disabled.")))
	register(s, "GET /v1/webhooks/{id}/deliveries", forTeam, s.listDeliveries, op("list-deliveries", "webhooks",
		"List the deliveries to a webhook with their attempts, the newest first"))
	register(s, "POST /v1/webhooks/{id}/deliveries/{deliveryId}/resend", forTeam, s.resendDelivery, withStatus(202, op("resend-delivery", "webhooks",
		"Send an event to its webhook again", "With the same `webhook-id`, and immediately if it is pending. 409: the webhook is disabled.")))
}

func (s *server) createWebhook(ctx context.Context, in *createWebhookInput) (*client.NewWebhook, error) {
	b, own := in.Body, callOf(ctx).managed
	team, err := inTeam(ctx, b.TeamID)
	if err != nil {
		return nil, err
	}
	if err := s.hasApp(ctx, b.AppID); err != nil {
		return nil, err
	}
	switch {
	case own != "" && b.All:
		return nil, &berth.Error{Code: berth.CodeForbidden, Field: "all", Message: "only operators create webhooks of all work"}
	case b.All && (team != "" || b.UserID != ""):
		return nil, berth.Invalid("all", "must not be given beside teamId or userId")
	case team == "" && b.UserID == "" && b.AppID == "" && !b.All:
		return nil, berth.Invalid("teamId", "is required, unless userId or all is given")
	case own != "" && b.UserID != "":
		return nil, &berth.Error{Code: berth.CodeForbidden, Field: "userId", Message: "only operators create webhooks of users"}
	case b.UserID != "" && team != "":
		return nil, berth.Invalid("userId", "must not be given beside teamId")
	case b.AppID != "" && team == "":
		return nil, berth.Invalid("teamId", "is required for an application: its team")
	}
	if b.UserID != "" {
		if err := berth.ValidUserID("userId", b.UserID); err != nil {
			return nil, err
		}
	}
	if err := s.validWebhook(b.WebhookSpec); err != nil {
		return nil, err
	}
	if own != "" { // tokens may name teams that operators have not defined
		if err := s.Ledger.AddTeam(ctx, own); err != nil {
			return nil, err
		}
	}
	w := berth.Webhook{
		ID: berth.NewID(berth.WebhookIDPrefix), TeamID: team, AppID: b.AppID, UserID: b.UserID, Secrets: []string{webhook.NewSecret()},
		CreatedBy: callOf(ctx).user.UserID,
	}
	s.setWebhook(&w, b.WebhookSpec)
	if w, err = s.Ledger.CreateWebhook(ctx, w); err != nil {
		return nil, err
	}
	s.log.InfoContext(ctx, "webhook created", "webhook", w.ID, "team", w.TeamID, "app", w.AppID, "of", w.UserID, "by", w.CreatedBy)
	return &client.NewWebhook{Webhook: viewWebhook(w), Secret: w.Secrets[0]}, nil
}

// validWebhook checks the URL. The ledger checks the rest.
func (s *server) validWebhook(spec client.WebhookSpec) error {
	if err := webhook.ValidURL(spec.URL, s.Config.PrivateWebhooks); err != nil {
		return berth.Invalid("url", "%s", err)
	}
	return nil
}

// setWebhook sets what users choose.
func (s *server) setWebhook(w *berth.Webhook, spec client.WebhookSpec) {
	w.WebhookSettings = berth.WebhookSettings{URL: spec.URL, Title: spec.Title, Events: spec.Events}
	switch {
	case !spec.Disabled:
		w.DisabledAt, w.DisabledWhy = time.Time{}, ""
	case w.DisabledAt.IsZero():
		w.DisabledAt, w.DisabledWhy = s.Clock(), berth.WebhookDisabledByUser
	}
}

func (s *server) listWebhooks(ctx context.Context, in *webhooksInput) (*webhooksOutputBody, error) {
	team, err := inTeam(ctx, in.TeamID)
	if err != nil {
		return nil, err
	}
	found, next, err := s.Ledger.Webhooks(ctx, ledger.WebhookQuery{Team: team, App: in.AppID, User: in.UserID}, in.Cursor, in.Limit)
	if err != nil {
		return nil, err
	}
	return &webhooksOutputBody{Webhooks: convert(found, viewWebhook), NextCursor: next}, nil
}

// managedWebhook returns a webhook that the caller manages, CodeNotFound for any other.
func (s *server) managedWebhook(ctx context.Context, id string) (berth.Webhook, error) {
	own := callOf(ctx).managed
	w, err := s.Ledger.GetWebhook(ctx, id)
	if berth.CodeOf(err) == berth.CodeNotFound || err == nil && own != "" && w.TeamID != own {
		return berth.Webhook{}, berth.Errorf(berth.CodeNotFound, "webhook not found")
	}
	return w, err
}

func (s *server) getWebhook(ctx context.Context, in *WebhookPath) (*client.Webhook, error) {
	w, err := s.managedWebhook(ctx, in.ID)
	if err != nil {
		return nil, err
	}
	v := viewWebhook(w)
	return &v, nil
}

func (s *server) putWebhook(ctx context.Context, in *putWebhookInput) (*client.Webhook, error) {
	b := in.Body
	old, err := s.managedWebhook(ctx, in.ID)
	if err != nil {
		return nil, err
	}
	if b.All && (old.TeamID != "" || old.UserID != "") {
		return nil, berth.Invalid("all", "cannot be changed: create another webhook")
	}
	if err := cmp.Or(
		fixed("webhookId", "webhook", b.WebhookID, old.ID), fixed("teamId", "webhook", b.TeamID, old.TeamID),
		fixed("appId", "webhook", b.AppID, old.AppID), fixed("userId", "webhook", b.UserID, old.UserID),
	); err != nil {
		return nil, err
	}
	// The URL may be of a time when operators permitted others: a webhook with it can still be disabled, and given another title.
	if enabled := !b.Disabled && !old.DisabledAt.IsZero(); enabled || b.URL != old.URL {
		if err := s.validWebhook(b.WebhookSpec); err != nil {
			return nil, err
		}
	}
	return s.changeWebhook(ctx, in.ID, func(w *berth.Webhook) { s.setWebhook(w, b.WebhookSpec) })
}

// changeWebhook changes a webhook that the caller manages.
func (s *server) changeWebhook(ctx context.Context, id string, change func(*berth.Webhook)) (*client.Webhook, error) {
	w, err := s.Ledger.ChangeWebhook(ctx, id, func(w *berth.Webhook) error {
		change(w)
		return nil
	})
	if err != nil {
		return nil, err
	}
	s.log.InfoContext(ctx, "webhook changed", "webhook", w.ID, "by", callOf(ctx).user.UserID)
	v := viewWebhook(w)
	return &v, nil
}

func (s *server) deleteWebhook(ctx context.Context, in *WebhookPath) (*struct{}, error) {
	if _, err := s.managedWebhook(ctx, in.ID); err != nil {
		return nil, err
	}
	if err := s.Ledger.DeleteWebhook(ctx, in.ID); err != nil {
		return nil, err
	}
	s.log.InfoContext(ctx, "webhook deleted", "webhook", in.ID, "by", callOf(ctx).user.UserID)
	return nil, nil
}

func (s *server) rotateWebhook(ctx context.Context, in *WebhookPath) (*client.NewWebhook, error) {
	if _, err := s.managedWebhook(ctx, in.ID); err != nil {
		return nil, err
	}
	secret := webhook.NewSecret()
	v, err := s.changeWebhook(ctx, in.ID, func(w *berth.Webhook) {
		w.Rotate(secret, s.Clock())
	})
	if err != nil {
		return nil, err
	}
	s.log.InfoContext(ctx, "webhook has a new secret", "webhook", in.ID)
	return &client.NewWebhook{Webhook: *v, Secret: secret}, nil
}

// sendingWebhook returns a webhook that the caller manages, CodeConflict for one that is disabled.
func (s *server) sendingWebhook(ctx context.Context, id string) (berth.Webhook, error) {
	w, err := s.managedWebhook(ctx, id)
	if err == nil && !w.DisabledAt.IsZero() {
		err = berth.Errorf(berth.CodeConflict, "the webhook is disabled: %s; enable it first", w.DisabledWhy)
	}
	return w, err
}

func (s *server) testWebhook(ctx context.Context, in *WebhookPath) (*client.Delivery, error) {
	w, err := s.sendingWebhook(ctx, in.ID)
	if err != nil {
		return nil, err
	}
	data := berth.WebhookData{ID: w.ID, TeamID: w.TeamID, AppID: w.AppID, UserID: w.UserID}
	d, err := s.Ledger.AddDelivery(ctx, w.ID, berth.NewWebhookEvent(berth.EventWebhookTest, s.Clock(), data))
	if err != nil {
		return nil, err
	}
	return s.startDelivery(ctx, d), nil
}

// startDelivery starts sending an event. If that fails, the reconciliation starts it.
func (s *server) startDelivery(ctx context.Context, d berth.WebhookDelivery) *client.Delivery {
	if err := s.Starter.SendEvent(ctx, workflows.WebhookInput{DeliveryID: d.ID}, true); err != nil {
		s.log.WarnContext(ctx, "sending of an event not started; the reconciliation starts it", "delivery", d.ID, "error", err)
	}
	v := viewDelivery(d)
	return &v
}

func (s *server) listDeliveries(ctx context.Context, in *deliveriesInput) (*deliveriesOutputBody, error) {
	if _, err := s.managedWebhook(ctx, in.ID); err != nil {
		return nil, err
	}
	found, next, err := s.Ledger.Deliveries(ctx, in.ID, in.State, in.Cursor, in.Limit)
	if err != nil {
		return nil, err
	}
	return &deliveriesOutputBody{Deliveries: convert(found, viewDelivery), NextCursor: next}, nil
}

func (s *server) resendDelivery(ctx context.Context, in *resendInput) (*client.Delivery, error) {
	w, err := s.sendingWebhook(ctx, in.ID)
	if err != nil {
		return nil, err
	}
	d, err := s.Ledger.GetDelivery(ctx, in.DeliveryID)
	if berth.CodeOf(err) == berth.CodeNotFound || err == nil && d.WebhookID != w.ID {
		return nil, berth.Errorf(berth.CodeNotFound, "delivery not found")
	}
	if err != nil {
		return nil, err
	}
	if d, err = s.Ledger.ResendDelivery(ctx, d.ID); err != nil {
		return nil, err
	}
	s.log.InfoContext(ctx, "event sent to a webhook again on request", "webhook", w.ID, "delivery", d.ID, "by", callOf(ctx).user.UserID)
	return s.startDelivery(ctx, d), nil
}

func viewWebhook(w berth.Webhook) client.Webhook {
	v := client.Webhook{
		WebhookID: w.ID, TeamID: w.TeamID, AppID: w.AppID, UserID: w.UserID, All: w.TeamID == "" && w.UserID == "", WebhookSpec: client.WebhookSpec{
			URL: w.URL, Title: w.Title, Events: w.Events, Disabled: !w.DisabledAt.IsZero(),
		},
		CreatedAt: w.CreatedAt, CreatedBy: w.CreatedBy, DisabledAt: w.DisabledAt, DisabledWhy: w.DisabledWhy,
	}
	if len(w.Signing(time.Now())) > 1 {
		v.FormerUntil = w.FormerUntil
	}
	return v
}

func viewDelivery(d berth.WebhookDelivery) client.Delivery {
	return client.Delivery{
		DeliveryID: d.ID, EventID: d.EventID, Type: d.Type, SubjectID: d.SubjectID, State: d.State, Attempts: d.Attempts, Log: d.Log, Event: d.Event,
		CreatedAt: d.CreatedAt, UpdatedAt: d.UpdatedAt,
	}
}
