package api_test

import (
	"os"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/stretchr/testify/require"
)

// A generator of clients makes one type for each event from this, with the fields that the event can have.
func TestDescription_Events_UnionWithTheFieldsOfEachType(t *testing.T) {
	t.Parallel()
	b, err := os.ReadFile("openapi.yaml")
	require.NoError(t, err)
	compiler, err := schemasOf(b)
	require.NoError(t, err)
	const (
		task       = `"taskId": "t", "serviceId": "s", "stage": "answer", "ts": 1`
		session    = `"sessionId": "s", "turnId": "t", "ts": 1`
		conference = `"e164": "861", "ts": 1`
	)
	for _, row := range []struct{ schema, event, not string }{
		{"Event", `{"type": "token", ` + task + `, "text": "a"}`, "usage"},
		{"Event", `{"type": "token_batch", ` + task + `, "text": "a", "count": 2}`, "position"},
		{"Event", `{"type": "queued", ` + task + `, "position": 2}`, "text"},
		{"Event", `{"type": "done", ` + task + `, "text": "a", "finishReason": "stop"}`, "code"},
		{"Event", `{"type": "error", ` + task + `, "code": "internal", "message": "m"}`, "text"},
		{"Event", `{"type": "gap", ` + task + `}`, "message"},
		{"SessionEvent", `{"type": "turn", ` + session + `, "speakerId": "ann"}`, "index"},
		{"SessionEvent", `{"type": "translation_failed", ` + session + `, "index": 0, "code": "no_node"}`, "text"},
		{"ConferenceEvent", `{"type": "done", ` + conference + `, "conferenceId": "c", "status": "ended"}`, "epoch"},
		{"ParticipationEvent", `{"type": "conference", ` + conference + `, "conferenceId": "c", "epoch": 2}`, "owner"},
		{"OperatorEvent", `{"type": "node", "ts": 1, "nodeId": "n", "status": "dead"}`, "passId"},
		{"OperatorEvent", `{"type": "reset", "ts": 1}`, "status"},
	} {
		schema, err := compiler.Compile("openapi.json#/components/schemas/" + row.schema)
		require.NoError(t, err)
		valid := func(event string) error {
			v, err := jsonschema.UnmarshalJSON(strings.NewReader(event))
			require.NoError(t, err)
			return schema.Validate(v)
		}
		require.NoError(t, valid(row.event))
		require.Error(t, valid(strings.TrimSuffix(row.event, "}")+`, "`+row.not+`": "x"}`), row.event)
		require.Error(t, valid(`{"type": "weather"`+row.event[strings.Index(row.event, ","):]), row.event)
	}
}
