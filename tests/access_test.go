package tests

import (
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"berth"
	"berth/client"
)

// X5: a user who requests a resource of another user gets exactly the response for an unknown one: ids may be guessed.
func TestAccess_ResourceOfAnotherUser_LooksUnknown(t *testing.T) {
	t.Parallel()
	s := newStack(t, with("TURN_TIMEOUT_MS=60000"))
	s.testNode("a", 8)
	s.engine("e", 1, false)
	s.media("u", 1)
	alice := s.session("alice", "s1")
	open, ended := alice.submit("", 0, ""), client.Dispatch{}
	s.eventually("a turn to have ended", func() (ok bool) {
		var err error
		ended, err = alice.Dispatch(t.Context(), alice.id, jobSpec("over", berth.FinalizeManual))
		return err == nil
	})
	asset, err := alice.Upload(t.Context(), "note.txt", []byte("mine"))
	require.NoError(t, err)
	task := submitMatch(t, alice.Client, berth.LocaleEN, "")
	s.conferences().open("8651230001")
	execution, err := alice.Execute(t.Context(), client.ExecutionSpec{ExecutionID: "x1", Executor: "wait"})
	require.NoError(t, err)
	s.session("mallory", "s2")

	mallory := s.token("mallory")
	job := func(turn, assetID string) map[string]any {
		segment := map[string]any{"index": 1, "text": "text"}
		if assetID != "" {
			segment = map[string]any{"index": 1, "assetId": assetID}
		}
		return map[string]any{"requestId": "r", "turnId": turn, "segment": segment}
	}
	for name, ask := range map[string]struct {
		method, path string
		body         func(id string) any
		ids          []string
		unknown      string
		status       int
	}{
		"turn":                 {method: "GET", path: "/v1/turns/{id}", ids: []string{open.TurnID, ended.TurnID}},
		"turn to end":          {method: "POST", path: "/v1/turns/{id}/finalize", body: func(string) any { return map[string]any{} }, ids: []string{open.TurnID, ended.TurnID}},
		"turn for a job":       {method: "POST", path: "/v1/sessions/s2/jobs", body: func(id string) any { return job(id, "") }, ids: []string{open.TurnID, ended.TurnID}},
		"session":              {method: "GET", path: "/v1/sessions/{id}", ids: []string{"s1"}},
		"session for a job":    {method: "POST", path: "/v1/sessions/{id}/jobs", body: func(string) any { return job("", "") }, ids: []string{"s1"}},
		"session events":       {method: "GET", path: "/v1/sessions/{id}/events", ids: []string{"s1"}},
		"session for a ticket": {method: "POST", path: "/v1/tickets", body: func(id string) any { return map[string]any{"sessionId": id} }, ids: []string{"s1"}},
		"task":                 {method: "GET", path: "/v1/tasks/{id}", ids: []string{task.TaskID}},
		"task to cancel":       {method: "DELETE", path: "/v1/tasks/{id}", ids: []string{task.TaskID}},
		"task events":          {method: "GET", path: "/v1/tasks/{id}/events", ids: []string{task.TaskID}},
		"task for a ticket":    {method: "POST", path: "/v1/tickets", body: func(id string) any { return map[string]any{"taskId": id} }, ids: []string{task.TaskID}},
		"asset":                {method: "GET", path: "/v1/assets/{id}", ids: []string{asset}},
		"asset for a job": {
			method: "POST", path: "/v1/sessions/s2/jobs", body: func(id string) any { return job("", id) }, ids: []string{asset}, status: http.StatusBadRequest,
		},
		"conference":              {method: "GET", path: "/v1/conferences/{id}", ids: []string{"8651230001"}, unknown: "8651230002"},
		"conference to end":       {method: "DELETE", path: "/v1/conferences/{id}", ids: []string{"8651230001"}, unknown: "8651230002"},
		"conference's record":     {method: "GET", path: "/v1/conferences/{id}/record", ids: []string{"8651230001"}, unknown: "8651230002"},
		"conference events":       {method: "GET", path: "/v1/conferences/{id}/events", ids: []string{"8651230001"}, unknown: "8651230002"},
		"conference for a ticket": {method: "POST", path: "/v1/tickets", body: func(id string) any { return map[string]any{"e164": id} }, ids: []string{"8651230001"}, unknown: "8651230002"},
		"execution":               {method: "GET", path: "/v1/executions/{id}", ids: []string{execution.ExecutionID}},
		"execution to cancel":     {method: "DELETE", path: "/v1/executions/{id}", ids: []string{execution.ExecutionID}},
	} {
		t.Run(name, func(t *testing.T) {
			if ask.unknown == "" {
				ask.unknown = "never-was"
			}
			if ask.status == 0 {
				ask.status = http.StatusNotFound
			}
			answer := func(id string) map[string]any {
				var body any
				if ask.body != nil {
					body = ask.body(id)
				}
				status, out := s.send(ask.method, strings.ReplaceAll(ask.path, "{id}", id), mallory, body)
				require.Equal(t, ask.status, status, "%s: %v", id, out)
				delete(out, "requestId")
				return out
			}
			unknown := answer(ask.unknown)
			for _, id := range ask.ids {
				require.Equal(t, unknown, answer(id))
			}
		})
	}
	status, own := s.send(http.MethodPut, "/v1/sessions/s1", mallory, map[string]any{"srcLang": "en", "tgtLang": "es"})
	require.Equal(t, http.StatusOK, status, "a session of another user with the same id")
	require.Equal(t, "mallory", own["userId"])
	require.NoError(t, alice.FinalizeTurn(t.Context(), open.TurnID), "no other user has ended it")
	require.NoError(t, alice.CancelExecution(t.Context(), execution.ExecutionID), "no other user has cancelled it")
}
