package activities

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/api/serviceerror"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/testsuite"

	"berth"
	"berth/internal/webhook"
	"berth/workflows"
)

// ExecuteWorkflow records the workflow's id; a second start of one is refused.
func (s *fakeTemporal) ExecuteWorkflow(_ context.Context, o client.StartWorkflowOptions, _ any, _ ...any) (client.WorkflowRun, error) {
	for _, id := range s.started {
		if id == o.ID {
			return nil, serviceerror.NewWorkflowExecutionAlreadyStarted("started", "", "")
		}
	}
	s.started = append(s.started, o.ID)
	return nil, nil
}

// C22: the record of a conference that was accepted and has ended is sent once, where a URL is set.
func TestSaveConference_Ended_RecordIsSentOnce(t *testing.T) {
	t.Parallel()
	d := conferences(t)
	save := func(number string, status berth.ConferenceStatus) {
		t.Helper()
		c := request(number).Conference
		c.Status, c.EndedAt = status, time.Now()
		d.save(t, workflows.SaveInput{Conference: c})
	}
	save("1001", berth.ConferenceEnded)
	require.Empty(t, d.temporal.started, "no URL is set")
	d.RecordWithin = time.Hour
	save("1002", berth.ConferenceDeleted)
	require.Empty(t, d.temporal.started, "it was never accepted")
	save("1003", berth.ConferenceEnded)
	save("1003", berth.ConferenceEnded)
	require.Equal(t, []string{"record:c-1003"}, d.temporal.started)
}

// C22: each attempt has the same id and stores its outcome; the server decides about the time of the next one.
func TestSendRecord_Attempts_OutcomeIsStored(t *testing.T) {
	t.Parallel()
	d := conferences(t)
	var status atomic.Int64
	events := make(chan berth.RecordEvent, 10)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var e berth.RecordEvent
		body, _ := io.ReadAll(r.Body)
		_ = json.Unmarshal(body, &e)
		events <- e
		w.Header().Set("Retry-After", "7200")
		w.WriteHeader(int(status.Load()))
	}))
	t.Cleanup(server.Close)
	sender, err := webhook.New(webhook.Options{URL: server.URL, Secrets: []string{"whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"}, AllowPrivate: true})
	require.NoError(t, err)
	r := &Records{Ledger: d.Ledger, Webhook: sender, Logger: d.Logger}
	env := (&testsuite.WorkflowTestSuite{}).NewTestActivityEnvironment()
	env.RegisterActivity(r)
	in := workflows.RecordInput{ConferenceID: "c-1001"}
	run := func() error { _, err := env.ExecuteActivity(r.SendRecord, in); return err }
	var failed *temporal.ApplicationError
	require.ErrorAs(t, run(), &failed)
	require.True(t, failed.NonRetryable(), "conference not found")

	c := request("1001").Conference
	c.Status, c.End, c.EndedAt = berth.ConferenceEnded, berth.EndReleased, c.CreatedAt.Add(time.Minute)
	require.NoError(t, d.Ledger.SaveConference(t.Context(), c))
	owner := berth.ConferenceOwner{NodeID: "u1", Epoch: 1}
	require.NoError(t, d.Ledger.SaveLegs(t.Context(), c.ID, owner, []berth.ConferenceLeg{{ID: "PA_1", Identity: "anna", JoinedAt: c.CreatedAt}}))
	status.Store(http.StatusTooManyRequests)
	require.ErrorAs(t, run(), &failed)
	require.False(t, failed.NonRetryable())
	require.Equal(t, workflows.MaxSendPause, failed.NextRetryDelay(), "as requested, at most an hour")
	delivery := func() berth.RecordDelivery {
		d, err := d.Ledger.FindDelivery(t.Context(), c.ID)
		require.NoError(t, err)
		return d
	}
	require.Equal(t, berth.DeliveryPending, delivery().State)
	require.Equal(t, "the server returned 429", delivery().Error)
	require.NoError(t, r.AbandonRecord(t.Context(), in))
	require.Equal(t, berth.DeliveryFailed, delivery().State)
	status.Store(http.StatusGone)
	require.ErrorAs(t, run(), &failed)
	require.True(t, failed.NonRetryable())
	status.Store(http.StatusOK)
	require.NoError(t, run())
	require.Equal(t, berth.DeliveryDelivered, delivery().State)
	require.NoError(t, r.AbandonRecord(t.Context(), in))
	require.Equal(t, berth.DeliveryDelivered, delivery().State, "it was accepted")
	for range 3 {
		e := <-events
		require.Equal(t, berth.EventRecord, e.Type)
		require.Equal(t, c.ID, e.Data.ID)
		require.Len(t, e.Data.Legs, 1)
		require.Equal(t, berth.EndReleased, e.Data.Legs[0].Reason)
	}
	require.ErrorAs(t, (&Records{Ledger: d.Ledger, Logger: d.Logger}).send(t.Context(), "id", nil), &failed)
	require.True(t, failed.NonRetryable(), "no URL is set")
}
