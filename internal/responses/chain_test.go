package responses

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"berth"
	"berth/internal/openai"
)

// oneResponse has one response, in a state.
type oneResponse berth.Task

func (s oneResponse) GetTask(_ context.Context, ref berth.TaskRef) (berth.Task, error) {
	if ref.TaskID != s.ID {
		return berth.Task{}, berth.Errorf(berth.CodeNotFound, "task not found")
	}
	return berth.Task(s), nil
}

func (s oneResponse) GetAsset(context.Context, string, string) (berth.Asset, error) {
	return berth.Asset{}, berth.Errorf(berth.CodeNotFound, "asset not found")
}

// Each row is the state of a response that cannot be continued, with what the client reads.
func TestEarlier_ResponseCannotBeContinued_SaysWhy(t *testing.T) { // O8
	t.Parallel()
	next, err := Parse([]byte(`{"model":"m","input":"x","previous_response_id":"resp_1"}`))
	require.NoError(t, err)
	for name, row := range map[string]struct {
		id     string
		status berth.TaskStatus
		call   berth.ResponseCall
		code   string
		says   string
	}{
		"another":    {"resp_2", berth.TaskCompleted, berth.ResponseCall{Store: true}, "previous_response_not_found", "does not exist"},
		"not stored": {"resp_1", berth.TaskCompleted, berth.ResponseCall{}, "previous_response_not_found", "does not exist"},
		"pending":    {"resp_1", berth.TaskPending, berth.ResponseCall{Store: true}, "previous_response_not_completed", "has not ended yet"},
		"streaming":  {"resp_1", berth.TaskStreaming, berth.ResponseCall{Store: true}, "previous_response_not_completed", "has not ended yet"},
		"failed":     {"resp_1", berth.TaskFailed, berth.ResponseCall{Store: true}, "previous_response_not_completed", "has no answer"},
		"cancelled":  {"resp_1", berth.TaskCancelled, berth.ResponseCall{Store: true}, "previous_response_not_completed", "has no answer"},
		"replaced":   {"resp_1", berth.TaskFailed, berth.ResponseCall{Store: true, ReplacedBy: "resp_9"}, "previous_response_not_completed", "continue resp_9"},
	} {
		task := berth.Task{Status: row.status}
		task.ID, task.Forwarded = row.id, &berth.Forwarded{Response: &row.call}
		_, err := Earlier(t.Context(), oneResponse(task), "u", next)
		var refused *openai.Error
		require.ErrorAs(t, err, &refused, name)
		require.Equal(t, []any{400, row.code, "previous_response_id"}, []any{refused.Status, refused.Code, refused.Param}, name)
		require.Contains(t, refused.Message, row.says, name)
	}
}
