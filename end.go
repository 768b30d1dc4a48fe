package berth

import (
	"encoding/json"
	"fmt"
)

// TerminalEvent returns the one event that ends a task's stream, made from its row and, if it completed, the stored
// result. That of a forwarded request has no result: it may be large, and its readers have the chunks. The worker publishes it, and the API sends the same event to late readers.
func TerminalEvent(t Task, result Asset) (Event, error) {
	ev := Event{
		TaskID: t.ID, ServiceID: t.ServiceID, Stage: StageDeliver, TS: t.EndedAt.UnixMilli(), Status: t.Status,
	}
	if t.Status != TaskCompleted {
		ev.Type, ev.Code, ev.Message = EventError, t.ErrorCode, t.ErrorMessage
		return ev, nil
	}
	ev.Type, ev.Usage = EventDone, &t.Usage
	if t.Forwarded != nil {
		ev.FinishReason = t.FinishReason
		return ev, nil
	}
	text, data, err := Result(result)
	if err != nil {
		return Event{}, fmt.Errorf("result of task %s: %w", t.ID, err)
	}
	ev.Text, ev.Result, ev.FinishReason, ev.PromptTruncated, ev.Simulated = text, data, t.FinishReason, t.PromptTruncated, t.Simulated
	return ev, nil
}

// Result returns the text and the JSON of a stored result. A batch task has only JSON; a stream task has text and, if there are
// items in it, these as JSON.
func Result(a Asset) (text string, data json.RawMessage, err error) {
	switch a.MediaType {
	case JSONMediaType:
		if !json.Valid(a.Content) {
			return "", nil, fmt.Errorf("asset %s is not JSON", a.ID)
		}
		return "", a.Content, nil
	case AnswerMediaType:
		var answer Answer
		if err := json.Unmarshal(a.Content, &answer); err != nil {
			return "", nil, fmt.Errorf("asset %s: %w", a.ID, err)
		}
		if len(answer.Items) == 0 {
			return answer.Text, nil, nil
		}
		data, err := json.Marshal(struct {
			Items []Item `json:"items"`
		}{answer.Items})
		return answer.Text, data, err
	default:
		return string(a.Content), nil, nil
	}
}
