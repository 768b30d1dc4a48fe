package tests

import (
	"database/sql"
	"net/http"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/api/enums/v1"
	temporalclient "go.temporal.io/sdk/client"
	"go.temporal.io/sdk/converter"

	"berth"
	"berth/workflows"
)

// C1, C16: Temporal has started the run of a conference and lost the request, and the database is unavailable. The request that
// reaches the run when it has been refused does not decide later ones: they are placed when the database is available again.
func TestConference_RefusedBeforeRequestArrives_NumberCanBeUsedAgain(t *testing.T) {
	t.Parallel()
	s := newStack(t)
	s.media("u1", 2)
	const id = "conference:8684000021"
	request := map[string]any{"e164": "8684000021", "durationMs": time.Hour.Milliseconds()}
	create := func() (int, map[string]any) {
		return s.send(http.MethodPost, "/v1/conferences", s.token("alice"), request)
	}
	s.eventually("the unit to take conferences", func() bool { status, _ := create(); return status == http.StatusCreated })
	status, _ := s.send(http.MethodDelete, "/v1/conferences/8684000021", s.token("alice"), nil)
	require.Less(t, status, 300)
	s.awaitEnd(id)
	c := s.temporal()
	var in workflows.ConferenceInput
	began := s.history(t.Context(), c, id, "").GetEvents()[0].GetWorkflowExecutionStartedEventAttributes()
	require.NoError(t, converter.GetDefaultDataConverter().FromPayloads(began.GetInput(), &in))

	db, err := sql.Open("sqlite", "file:"+filepath.Join(s.dir, "berth.db")+"?_pragma=busy_timeout(10000)")
	require.NoError(t, err)
	defer func() { require.NoError(t, db.Close()) }()
	lock, err := db.Conn(t.Context())
	require.NoError(t, err)
	_, err = lock.ExecContext(t.Context(), "BEGIN IMMEDIATE")
	require.NoError(t, err)
	in.ConferenceID = "c-lost"
	run, err := c.ExecuteWorkflow(t.Context(), temporalclient.StartWorkflowOptions{
		ID: id, TaskQueue: workflows.TaskQueueConferences, WorkflowTaskTimeout: 2 * time.Second,
	}, workflows.ConferenceWorkflow, in)
	require.NoError(t, err)
	s.eventually("the conference to be refused", func() bool {
		v, err := c.QueryWorkflow(t.Context(), id, run.GetRunID(), workflows.QueryConference)
		var is berth.Conference
		return err == nil && v.Get(&is) == nil && is.End == berth.EndNoCapacity
	})
	late := make(chan int, 1)
	go func() {
		status, _ := create()
		late <- status
	}()
	s.eventually("the run to receive the request", func() bool {
		for _, e := range s.history(t.Context(), c, id, run.GetRunID()).GetEvents() {
			if e.GetEventType() == enums.EVENT_TYPE_WORKFLOW_EXECUTION_UPDATE_ACCEPTED {
				return true
			}
		}
		return false
	})
	_, err = lock.ExecContext(t.Context(), "ROLLBACK")
	require.NoError(t, err)
	require.NoError(t, lock.Close())
	require.Equal(t, http.StatusServiceUnavailable, <-late)
	require.NoError(t, run.Get(t.Context(), nil))

	status, made := create()
	require.Equal(t, http.StatusCreated, status, "%v", made)
	require.NotEqual(t, in.ConferenceID, made["conferenceId"])
}
