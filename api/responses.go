package api

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"time"

	"github.com/labstack/echo/v4"
	"github.com/tidwall/gjson"

	"berth"
	"berth/internal/gateway"
	"berth/internal/openai"
	"berth/internal/responses"
)

const (
	// responsePath reads a response, with a ticket, too.
	responsePath = openAIPath + "/responses/:id"
)

func (s *server) responseRoutes(add func(method, path string, handler func(echo.Context, modelCaller) error)) {
	readResponse := queried(s.getResponse, "stream", startingAfter, include, obfuscation, "ticket")
	add(http.MethodPost, "/responses", s.createResponse)
	add(http.MethodGet, "/responses/:id", readResponse)
	add(http.MethodDelete, "/responses/:id", s.deleteResponse)
	add(http.MethodPost, "/responses/:id/cancel", s.cancelResponse)
	add(http.MethodPost, "/responses/:id/ticket", s.createResponseTicket)
	add(http.MethodGet, "/responses/:id/input_items", queried(s.listInputItems, "limit", "order", "after", include))
}

func (s *server) createResponse(c echo.Context, caller modelCaller) error {
	ctx := c.Request().Context()
	body, free, err := s.readOpenAIBody(c)
	if err != nil {
		return err
	}
	defer free()
	r, err := responses.Parse(body)
	if err != nil {
		return err
	}
	direct := caller.key.Durability != berth.DurabilityDurable // that of a user has none
	switch {
	case direct && r.Background:
		return openai.Invalid("background", "unsupported_value", "needs a key with durable calls: those of this one end with the connection")
	case direct && r.PreviousID != "":
		return openai.Invalid("previous_response_id", "unsupported_value", "needs a key with durable calls: nothing is stored of those of this one")
	case direct:
		r.Store = false
	}
	earlier, err := responses.Earlier(ctx, s.Ledger, caller.userID, r)
	if err != nil {
		return err
	}
	request, err := r.Forwarded(earlier)
	if err != nil {
		return err
	}
	call, err := s.modelCall(caller, request, berth.NewID(berth.ResponseIDPrefix))
	if err != nil {
		return err
	}
	as := &responding{request: r, after: -1, early: r.Background}
	if direct {
		return s.answerCall(c, call.Limits, r.Stream, as, func(ctx context.Context, client gateway.Client) error {
			return s.respondDirectly(ctx, r, call, client)
		})
	}
	repeated, err := repetition(c.Request().Header)
	if err != nil {
		return err
	}
	durable := s.durableCall(c, caller, call, repeated, body)
	durable.Stream, durable.IDPrefix = r.Stream, berth.ResponseIDPrefix
	durable.Response = &berth.ResponseCall{Background: r.Background, Store: r.Store, Replace: caller.key.ReplaceResponses}
	return s.answerCall(c, call.Limits, r.Stream, as, func(ctx context.Context, client gateway.Client) error {
		return s.Gateway.MakeDurable(ctx, durable, client)
	})
}

// respondDirectly makes a response that is not stored.
func (s *server) respondDirectly(ctx context.Context, r *responses.Request, call gateway.Call, client gateway.Client) error {
	shown := call.LLM.Raw.Shown
	plan := berth.TaskPlan{TaskRequest: berth.TaskRequest{ID: call.ID}, Forwarded: &berth.Forwarded{Created: shown.Created, ServiceTier: shown.ServiceTier}}
	client.Accepted(plan)
	var last []byte
	begun := false
	w := responses.NewWriter(r, responses.HeadOf(r, plan), func(event []byte) error {
		last = event
		if !r.Stream {
			return nil
		}
		return client.Object(event)
	})
	making := client
	making.Object = func(object []byte) error {
		if !begun {
			begun = true
			if err := w.Begin(); err != nil {
				return err
			}
			if err := w.Started(); err != nil {
				return err
			}
		}
		return w.Take(object)
	}
	err := s.Gateway.Make(ctx, call, making)
	switch {
	case err != nil && (!begun || !r.Stream || ctx.Err() != nil):
		return err
	case err != nil:
		return w.End(s.openAIError(err, callOf(ctx).requestID))
	}
	if err := w.End(nil); err != nil || r.Stream {
		return err
	}
	return client.Object(last)
}

// headOf returns the events with which a response begins.
func headOf(r *responses.Request, plan berth.TaskPlan) (events [][]byte) {
	_ = responses.NewWriter(r, responses.HeadOf(r, plan), func(event []byte) error { // no event fails
		events = append(events, event)
		return nil
	}).Begin()
	return events
}

// responseOf returns the task of a response that the caller can read.
func (s *server) responseOf(c echo.Context, caller modelCaller) (berth.Task, error) {
	id := c.Param("id")
	t, err := s.Ledger.GetTask(c.Request().Context(), berth.TaskRef{UserID: caller.userID, TaskID: id})
	if berth.CodeOf(err) == berth.CodeNotFound || err == nil && !responses.Readable(t) {
		return t, &openai.Error{
			Status: http.StatusNotFound, Type: openai.TypeRequest, Param: "response_id", Code: "response_not_found", Final: true,
			Message: fmt.Sprintf("the response %q does not exist, was deleted, or is not kept any more", id),
		}
	}
	return t, err
}

func (s *server) getResponse(c echo.Context, caller modelCaller) error {
	stream, from, err := wantedEvents(c)
	if err != nil {
		return err
	}
	t, err := s.responseOf(c, caller)
	if err != nil {
		return err
	}
	if !stream {
		object, err := s.responseObject(c.Request().Context(), t)
		if err != nil {
			return err
		}
		return c.JSONBlob(http.StatusOK, object)
	}
	r, err := s.requestOf(c.Request().Context(), t)
	if err != nil {
		return err
	}
	return s.answerCall(c, caller.limits, true, &responding{request: r, after: from, early: true}, func(ctx context.Context, client gateway.Client) error {
		return s.Gateway.FollowResponse(ctx, t.Ref(), from, client)
	})
}

const (
	startingAfter = "starting_after"
	obfuscation   = "include_obfuscation"
	include       = "include"
	// maxGetBody bounds the body of a GET request, in bytes.
	maxGetBody = 4 << 10
)

// wantedEvents reports whether a request is for the events of a response, and after which one, -1 for all. openai-go states that in a body, which a GET
// request should not have, and a number after which to start is of use for events only.
func wantedEvents(c echo.Context) (stream bool, after int, err error) {
	after = -1
	if text := c.QueryParam(startingAfter); text != "" {
		if after, err = strconv.Atoi(text); err != nil || after < 0 {
			return false, 0, openai.Invalid(startingAfter, "invalid_value", "must be the sequence_number of an event")
		}
	}
	stream, given, err := queriedBool(c, "stream")
	switch _, _, wrong := queriedBool(c, obfuscation); { // events are not padded
	case err != nil || wrong != nil:
		return false, 0, cmp.Or(err, wrong)
	case given && !stream && after >= 0:
		return false, 0, openai.Invalid(startingAfter, "invalid_value", "needs stream=true, because only events have numbers")
	case given:
		return stream, after, nil
	}
	var body struct {
		Stream bool `json:"stream"`
	}
	b, err := io.ReadAll(io.LimitReader(c.Request().Body, maxGetBody))
	if err != nil {
		return false, 0, bodyError(err)
	}
	if len(b) > 0 && json.Unmarshal(b, &body) != nil {
		return false, 0, errorIn("", berth.CodeInvalid, "the request must have no body")
	}
	return body.Stream || after >= 0, after, nil
}

// queriedBool returns a query parameter that is true or false, and whether it is given.
func queriedBool(c echo.Context, name string) (v, given bool, err error) {
	switch c.QueryParam(name) {
	case "true":
		return true, true, nil
	case "false":
		return false, true, nil
	case "":
		return false, false, nil
	default:
		return false, false, openai.Invalid(name, "invalid_value", "must be true or false")
	}
}

// requestOf returns the request of a response.
func (s *server) requestOf(ctx context.Context, t berth.Task) (*responses.Request, error) {
	body, err := s.Ledger.GetAsset(ctx, t.UserID, t.Variables[berth.VariableRequest])
	if err != nil {
		return nil, err
	}
	return responses.Parse(body.Content)
}

// responseObject returns a response as far as it has come.
func (s *server) responseObject(ctx context.Context, t berth.Task) (json.RawMessage, error) {
	if t.ResultAssetID != "" {
		events, err := s.Ledger.GetAsset(ctx, t.UserID, t.ResultAssetID)
		if err != nil {
			return nil, err
		}
		return responses.Final(events.Content), nil
	}
	r, err := s.requestOf(ctx, t)
	if err != nil {
		return nil, err
	}
	var last []byte
	w := responses.NewWriter(r, responses.HeadOf(r, t.TaskPlan), func(event []byte) error {
		last = event
		return nil
	})
	switch { // no event fails
	case t.Status == berth.TaskCancelled:
		_ = w.Cancel()
	case t.Status.Final():
		_ = w.End(openai.ErrorOfTask(t))
	case t.Status == berth.TaskStreaming:
		_ = w.Started()
	default:
		_ = w.Begin()
	}
	return responses.Final(last), nil
}

func (s *server) cancelResponse(c echo.Context, caller modelCaller) error {
	ctx := c.Request().Context()
	t, err := s.responseOf(c, caller)
	if err != nil {
		return err
	}
	if !t.Response().Alone() {
		return openai.Invalid("response_id", "invalid_value", "only a response that was created with background can be cancelled")
	}
	if !t.Status.Final() {
		if err := s.Starter.CancelTask(ctx, t.Ref()); err != nil && berth.CodeOf(err) != berth.CodeConflict && berth.CodeOf(err) != berth.CodeNotFound {
			return fmt.Errorf("cancel response %s: %w", t.ID, err)
		}
		if t, err = s.awaitEnd(ctx, t); err != nil {
			return err
		}
	}
	object, err := s.responseObject(ctx, t)
	if err != nil {
		return err
	}
	return c.JSONBlob(http.StatusOK, object)
}

// Times of a response that is being cancelled.
const (
	cancelledWithin = 5 * time.Second
	lookEvery       = 50 * time.Millisecond
)

// awaitEnd returns a response once it has ended and its events are stored, or after a time as it is then.
func (s *server) awaitEnd(ctx context.Context, t berth.Task) (berth.Task, error) {
	for until := time.Now().Add(cancelledWithin); t.ResultAssetID == "" && time.Now().Before(until); {
		select {
		case <-ctx.Done():
			return t, context.Cause(ctx)
		case <-time.After(lookEvery):
		}
		var err error
		if t, err = s.Ledger.GetTask(ctx, t.Ref()); err != nil {
			return t, err
		}
	}
	return t, nil
}

func (s *server) deleteResponse(c echo.Context, caller modelCaller) error {
	ctx := c.Request().Context()
	t, err := s.responseOf(c, caller)
	if err != nil {
		return err
	}
	if !t.Status.Final() {
		return &openai.Error{
			Status: http.StatusConflict, Type: openai.TypeRequest, Param: "response_id", Code: "response_in_progress", Final: true,
			Message: "the response has not ended: cancel it before it is deleted",
		}
	}
	if err := s.eraseContent(ctx, t); err != nil {
		return err
	}
	return c.JSON(http.StatusOK, map[string]any{"id": t.ID, "object": "response", "deleted": true})
}

func (s *server) listInputItems(c echo.Context, caller modelCaller) (err error) {
	limit, order := defaultItems, cmp.Or(c.QueryParam("order"), "desc")
	if text := c.QueryParam("limit"); text != "" {
		if limit, err = strconv.Atoi(text); err != nil || limit < 1 || limit > maxItems {
			return openai.Invalid("limit", "invalid_value", "must be a number from 1 to %d", maxItems)
		}
	}
	if order != "asc" && order != "desc" {
		return openai.Invalid("order", "invalid_value", "must be asc or desc")
	}
	t, err := s.responseOf(c, caller)
	if err != nil {
		return err
	}
	r, err := s.requestOf(c.Request().Context(), t)
	if err != nil {
		return err
	}
	items := r.Input()
	if order == "desc" {
		slices.Reverse(items)
	}
	if after := c.QueryParam("after"); after != "" {
		at := slices.IndexFunc(items, func(item json.RawMessage) bool { return itemID(item) == after })
		if at < 0 {
			return openai.Invalid("after", "invalid_value", "must be the id of an item of the list")
		}
		items = items[at+1:]
	}
	list := itemList{Object: "list", Data: items[:min(limit, len(items))], HasMore: len(items) > limit}
	if n := len(list.Data); n > 0 {
		list.FirstID, list.LastID = itemID(list.Data[0]), itemID(list.Data[n-1])
	}
	return c.JSON(http.StatusOK, list)
}

// Numbers of items that are listed together, as with OpenAI.
const (
	defaultItems = 20
	maxItems     = 100
)

// itemList is a page of the items of a request.
type itemList struct {
	Object  string            `json:"object"`
	Data    []json.RawMessage `json:"data"`
	FirstID string            `json:"first_id,omitempty"`
	LastID  string            `json:"last_id,omitempty"`
	HasMore bool              `json:"has_more"`
}

func itemID(item json.RawMessage) string { return gjson.GetBytes(item, "id").Str }
