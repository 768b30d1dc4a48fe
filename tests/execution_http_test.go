package tests

import (
	"context"
	"encoding/json"
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"berth"
	"berth/client"
)

// S8 over HTTP: an execution that no node supports is refused and may be retried; one that has ended never runs again.
func TestExecution_OverHTTP_RunsOnce(t *testing.T) {
	s := shareStack(t)
	c := s.user("alice")
	spec := client.ExecutionSpec{ExecutionID: "http-e1", Executor: "echo", Input: json.RawMessage(`{"pages": [1, 2]}`), DeadlineMs: 60_000}
	for range 3 {
		_, err := c.Execute(t.Context(), spec)
		p := problem(t, err)
		if p.Code == berth.CodeUnavailable { // a new Redis grants nothing during a grace
			s.eventually("the grace to end", func() bool {
				_, err = c.Execute(context.Background(), spec)
				p = problem(t, err)
				return p.Code != berth.CodeUnavailable
			})
		}
		// Unless a node of another test has offered it before.
		require.Contains(t, []berth.Code{berth.CodeInvalid, berth.CodeNoNode}, p.Code, p.Detail)
		require.Contains(t, p.Detail, "echo", "the missing capability is named")
		_, err = c.Execution(t.Context(), "http-e1")
		require.Equal(t, http.StatusNotFound, problem(t, err).Status, "a refused execution does not exist")
		require.Equal(t, http.StatusNotFound, problem(t, c.CancelExecution(t.Context(), "http-e1")).Status)
	}
	n := s.engine("http-n1", 1, false)
	first, err := c.Execute(t.Context(), spec)
	require.NoError(t, err)
	require.Equal(t, client.AcceptedExecution{ExecutionID: "http-e1", Status: berth.ExecutionRunning, NodeID: "http-n1"}, first)
	<-n.started
	ended := func(id string, status berth.ExecutionStatus) (current berth.Execution) {
		s.eventually(id+" to end", func() bool {
			current, err = c.Execution(context.Background(), id)
			return err == nil && current.Status == status
		})
		return current
	}
	current := ended("http-e1", berth.ExecutionCompleted)
	require.JSONEq(t, string(spec.Input), string(current.Output))
	require.Len(t, current.Attempts, 1)
	first.Replay, first.Status = true, berth.ExecutionCompleted
	for range 2 {
		again, err := c.Execute(t.Context(), spec)
		require.NoError(t, err)
		require.Equal(t, first, again)
	}

	broken := client.ExecutionSpec{ExecutionID: "http-e2", Executor: "refuse"}
	_, err = c.Execute(t.Context(), broken)
	require.NoError(t, err)
	<-n.started
	require.Equal(t, berth.CodeInvalid, ended("http-e2", berth.ExecutionFailed).Code)
	again, err := c.Execute(t.Context(), broken)
	require.NoError(t, err)
	require.True(t, again.Replay, "a failed one does not run again")

	waiting := client.ExecutionSpec{ExecutionID: "http-e3", Executor: "wait"}
	_, err = c.Execute(t.Context(), waiting)
	require.NoError(t, err)
	<-n.started
	mallory := s.user("mallory")
	for _, id := range []string{"http-e1", "http-e2", "http-e3"} {
		other := client.ExecutionSpec{ExecutionID: id, Executor: "echo"}
		_, err = c.Execute(t.Context(), other)
		require.Equal(t, http.StatusUnprocessableEntity, problem(t, err).Status, id)
		_, err = mallory.Execution(t.Context(), id)
		require.Equal(t, http.StatusNotFound, problem(t, err).Status, id)
		require.Equal(t, http.StatusNotFound, problem(t, mallory.CancelExecution(t.Context(), id)).Status, id)
		_, err = s.user("root", "operator").Execution(t.Context(), id)
		require.NoError(t, err)
	}
	queued, err := c.Execute(t.Context(), client.ExecutionSpec{Executor: "echo"})
	require.NoError(t, err)
	require.Equal(t, berth.ExecutionWaiting, queued.Status, "an execution for full nodes is accepted and waits")
	require.NoError(t, c.CancelExecution(t.Context(), "http-e3"))
	require.Equal(t, berth.CodeCancelled, ended("http-e3", berth.ExecutionCancelled).Code)
	require.Equal(t, http.StatusConflict, problem(t, c.CancelExecution(t.Context(), "http-e3")).Status)
	again, err = c.Execute(t.Context(), waiting)
	require.NoError(t, err)
	require.True(t, again.Replay, "a cancelled one does not run again")
	ended(queued.ExecutionID, berth.ExecutionCompleted)
}
