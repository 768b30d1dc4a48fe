package responses

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"slices"

	"berth"
	"berth/internal/openai"
)

// Bounds of a conversation, which a model reads whole.
const (
	maxChain      = 1000
	maxChainBytes = openai.MaxBody
)

// Store has the responses; *ledger.Ledger is one.
type Store interface {
	GetTask(ctx context.Context, task berth.TaskRef) (berth.Task, error)
	GetAsset(ctx context.Context, userID, id string) (berth.Asset, error)
}

// Earlier returns the items of the conversation that a request continues, oldest first, and gives the request the items that it refers to. Its error is
// an *openai.Error that names the response that is missing.
func Earlier(ctx context.Context, s Store, userID string, r *Request) ([]json.RawMessage, error) {
	if err := resolve(ctx, s, userID, r); err != nil {
		return nil, err
	}
	var turns [][]json.RawMessage
	size := 0
	for id := r.PreviousID; id != ""; {
		if len(turns) == maxChain {
			return nil, invalid("previous_response_id", "context_length_exceeded", "the conversation has more than %d responses", maxChain)
		}
		t, output, err := completed(ctx, s, userID, id, "previous_response_id")
		if err != nil {
			return nil, err
		}
		body, err := s.GetAsset(ctx, userID, t.Variables[berth.VariableRequest])
		if err != nil {
			return nil, err
		}
		request, err := Parse(body.Content)
		if err != nil {
			return nil, err
		}
		if err := resolve(ctx, s, userID, request); err != nil {
			return nil, err
		}
		turn := slices.Concat(request.Input(), output)
		for _, item := range turn {
			size += len(item)
		}
		if size > maxChainBytes {
			return nil, invalid("previous_response_id", "context_length_exceeded", "the conversation has more than %d bytes", maxChainBytes)
		}
		turns, id = append(turns, turn), request.PreviousID
	}
	slices.Reverse(turns)
	return slices.Concat(turns...), nil
}

// resolve gives a request the items that it refers to.
func resolve(ctx context.Context, s Store, userID string, r *Request) error {
	for i, id := range r.References() {
		if i == maxChain {
			return invalid("input", "context_length_exceeded", "refers to items of more than %d responses", maxChain)
		}
		_, output, err := completed(ctx, s, userID, id, "input")
		if err != nil {
			return err
		}
		r.Resolve(output)
	}
	return nil
}

// completed returns a response that has completed, and its output. param is the field that names it.
func completed(ctx context.Context, s Store, userID, id, param string) (t berth.Task, output []json.RawMessage, err error) {
	t, err = s.GetTask(ctx, berth.TaskRef{UserID: userID, TaskID: id})
	switch {
	case berth.CodeOf(err) == berth.CodeNotFound || err == nil && !Readable(t):
		return t, nil, invalid(param, "previous_response_not_found",
			"the response %q does not exist, or is not kept any more: a conversation continues as long as all of its responses are stored", id)
	case err != nil:
		return t, nil, err
	case t.Response().ReplacedBy != "":
		return t, nil, invalid(param, "previous_response_not_completed", "the response %q broke off: continue %s, which replaces it", id, t.Response().ReplacedBy)
	case !t.Status.Final():
		return t, nil, invalid(param, "previous_response_not_completed", "the response %q has not ended yet: continue it when it has", id)
	case t.Status != berth.TaskCompleted:
		return t, nil, invalid(param, "previous_response_not_completed", "the response %q has no answer: only responses that are completed or incomplete can be continued", id)
	}
	events, err := s.GetAsset(ctx, userID, t.ResultAssetID)
	return t, Items(Final(events.Content)), err
}

// Readable reports whether a task is a response that its client can read.
func Readable(t berth.Task) bool {
	return t.Response() != nil && t.Response().Store && t.ContentErasedAt.IsZero()
}

// Chunks returns the texts of events as chunks of a chat, each on a line, by which their tokens are estimated.
func Chunks(events []byte) []byte {
	var out bytes.Buffer
	for line := range bytes.Lines(events) {
		var event struct {
			Delta json.RawMessage `json:"delta"`
		}
		if json.Unmarshal(line, &event) == nil && len(event.Delta) > 0 && event.Delta[0] == '"' {
			fmt.Fprintf(&out, `{"choices":[{"delta":{"content":%s}}]}`+"\n", event.Delta)
		}
	}
	return out.Bytes()
}

// HeadOf returns what the events of a task's response have in common.
func HeadOf(r *Request, plan berth.TaskPlan) Head {
	f := plan.Forwarded
	h := Head{ID: plan.ID, Model: r.Model, ServiceTier: f.ServiceTier, Created: f.Created}
	if f.Response != nil {
		h.Replaces, h.ReplacedBy = f.Response.Replaces, f.Response.ReplacedBy
	}
	return h
}
