package activities

import (
	"context"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"
	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/testsuite"

	"berth"
	"berth/internal/starter"
	"berth/internal/testledger"
	"berth/internal/webhook"
	"berth/workflows"
)

// hooks are the activities of webhooks with a webhook whose server respond serves.
type hooks struct {
	*Webhooks
	hook berth.Webhook
	env  *testsuite.TestActivityEnvironment
}

func newHooks(t *testing.T, respond http.HandlerFunc) *hooks {
	t.Helper()
	l := testledger.Open(t, testledger.Migrated.SQLite(t))
	h := &hooks{Webhooks: &Webhooks{Ledger: l, AllowPrivate: true, Logger: slog.New(slog.DiscardHandler)}}
	server := httptest.NewServer(respond)
	t.Cleanup(server.Close)
	var err error
	h.hook, err = l.CreateWebhook(t.Context(), berth.Webhook{
		ID: berth.NewID(berth.WebhookIDPrefix), Secrets: []string{webhook.NewSecret()}, WebhookSettings: berth.WebhookSettings{URL: server.URL},
	})
	require.NoError(t, err)
	h.env = (&testsuite.WorkflowTestSuite{}).NewTestActivityEnvironment()
	h.env.RegisterActivity(h.Webhooks)
	return h
}

func (h *hooks) add(t *testing.T) workflows.WebhookInput {
	t.Helper()
	d, err := h.Ledger.AddDelivery(t.Context(), h.hook.ID, berth.NewWebhookEvent(berth.EventTaskCompleted, time.Now(), berth.WebhookData{ID: "t1"}))
	require.NoError(t, err)
	return workflows.WebhookInput{DeliveryID: d.ID}
}

// send makes an attempt and returns the failure, nil if the event was accepted.
func (h *hooks) send(t *testing.T, in workflows.WebhookInput) *temporal.ApplicationError {
	t.Helper()
	_, err := h.env.ExecuteActivity(h.SendEvent, in)
	if err == nil {
		return nil
	}
	var failed *temporal.ApplicationError
	require.ErrorAs(t, err, &failed)
	return failed
}

func (h *hooks) delivery(t *testing.T, in workflows.WebhookInput) berth.WebhookDelivery {
	t.Helper()
	d, err := h.Ledger.GetDelivery(t.Context(), in.DeliveryID)
	require.NoError(t, err)
	return d
}

// O8: each attempt has the same id and is kept; a redirect is not followed, 410 disables the webhook, and the server decides about the next attempt.
func TestSendEvent_EachResponse_AttemptKept(t *testing.T) {
	t.Parallel()
	var status atomic.Int64
	var retryAfter atomic.Value
	var mu sync.Mutex
	var ids []string
	h := newHooks(t, func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		ids = append(ids, r.Header.Get(standardwebhooks.HeaderWebhookID))
		w.Header().Set("Location", "/elsewhere")
		w.Header().Set("Retry-After", retryAfter.Load().(string))
		w.WriteHeader(int(status.Load()))
	})
	in := h.add(t)
	refused := []int{http.StatusBadRequest, http.StatusUnauthorized, http.StatusFound, http.StatusTooManyRequests, http.StatusInternalServerError, http.StatusServiceUnavailable}
	for i, code := range refused {
		status.Store(int64(code))
		retryAfter.Store("1")
		if i%2 == 0 {
			retryAfter.Store("7200")
		}
		failed := h.send(t, in)
		require.False(t, failed.NonRetryable(), "%d", code)
		want := workflows.FirstSendPause // the request does not shorten it
		if i%2 == 0 {
			want = workflows.MaxSendPause
		}
		require.Equal(t, want, failed.NextRetryDelay())
		d := h.delivery(t, in)
		require.Equal(t, berth.DeliveryPending, d.State)
		require.Equal(t, i+1, d.Attempts)
		require.Equal(t, code, d.Log[i].Status)
		require.Contains(t, d.Log[i].Error, "the server returned")
	}
	status.Store(http.StatusNoContent)
	require.Nil(t, h.send(t, in))
	d := h.delivery(t, in)
	require.Equal(t, berth.DeliveryDelivered, d.State)
	require.Nil(t, h.send(t, in), "started again by mistake")
	require.Len(t, ids, len(refused)+1)
	for _, id := range ids {
		require.Equal(t, d.EventID, id)
	}

	gone, next := h.add(t), h.add(t)
	status.Store(http.StatusGone)
	require.True(t, h.send(t, gone).NonRetryable())
	w, err := h.Ledger.GetWebhook(t.Context(), h.hook.ID)
	require.NoError(t, err)
	require.Equal(t, berth.WebhookGone, w.DisabledWhy)
	status.Store(http.StatusOK)
	failed := h.send(t, next)
	require.True(t, failed.NonRetryable())
	require.Contains(t, failed.Message(), "disabled: the server returned 410")
	for _, in := range []workflows.WebhookInput{gone, next} {
		require.NoError(t, h.AbandonEvent(t.Context(), in))
		require.Equal(t, berth.DeliveryFailed, h.delivery(t, in).State)
	}
	require.NoError(t, h.Ledger.DeleteWebhook(t.Context(), h.hook.ID))
	require.Nil(t, h.send(t, next), "deleted with its webhook")
	require.NoError(t, h.AbandonEvent(t.Context(), next))
}

// O8: an attempt that was accepted has the status that the server sent.
func TestSendEvent_Accepted_StatusKept(t *testing.T) {
	t.Parallel()
	var status atomic.Int64
	h := newHooks(t, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(int(status.Load())) })
	for _, code := range []int{http.StatusOK, http.StatusCreated, http.StatusAccepted, http.StatusNoContent, 299} {
		status.Store(int64(code))
		in := h.add(t)
		require.Nil(t, h.send(t, in))
		d := h.delivery(t, in)
		require.Equal(t, berth.DeliveryDelivered, d.State)
		require.Equal(t, code, d.Log[0].Status)
		require.Empty(t, d.Log[0].Error)
	}
}

// O8: a server that hangs holds a bounded number of attempts of its own; events of others are sent.
func TestSendEvent_ServerHangs_OthersAreSent(t *testing.T) {
	t.Parallel()
	release := make(chan struct{})
	arrived := make(chan struct{}, maxWebhookCalls)
	h := newHooks(t, func(w http.ResponseWriter, r *http.Request) {
		arrived <- struct{}{}
		<-release
	})
	var hanging sync.WaitGroup
	for range maxWebhookCalls {
		in := h.add(t)
		hanging.Go(func() { _ = h.SendEvent(context.WithoutCancel(t.Context()), in) })
	}
	for range maxWebhookCalls {
		<-arrived
	}
	waits := h.add(t)
	failed := h.send(t, waits)
	require.Equal(t, webhookBusy, failed.NextRetryDelay())
	require.Zero(t, h.delivery(t, waits).Attempts, "no attempt was made")
	server := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	t.Cleanup(server.Close)
	other, err := h.Ledger.CreateWebhook(t.Context(), berth.Webhook{
		ID: berth.NewID(berth.WebhookIDPrefix), Secrets: []string{webhook.NewSecret()}, WebhookSettings: berth.WebhookSettings{URL: server.URL},
	})
	require.NoError(t, err)
	d, err := h.Ledger.AddDelivery(t.Context(), other.ID, berth.NewWebhookEvent(berth.EventWebhookTest, time.Now(), berth.WebhookData{ID: other.ID}))
	require.NoError(t, err)
	require.Nil(t, h.send(t, workflows.WebhookInput{DeliveryID: d.ID}))
	close(release)
	hanging.Wait()
	require.Nil(t, h.send(t, waits))
}

// O8: deliveries that the ledger adds are started; one that was missed is found by the reconciliation, once its run is not there.
func TestDeliveries_Added_StartedOnce(t *testing.T) {
	t.Parallel()
	h := newHooks(t, func(http.ResponseWriter, *http.Request) {})
	fake := &fakeTemporal{}
	h.Starter = &starter.Starter{Client: fake}
	on, added := AddedDeliveries()
	on([]string{"dlv_1"})
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- h.StartDeliveries(ctx, added) }()
	require.Eventually(t, func() bool { return len(added) == 0 }, 10*time.Second, time.Millisecond)
	cancel()
	require.NoError(t, <-done)
	require.Equal(t, []string{workflows.WebhookWorkflowID("dlv_1")}, fake.started)
	for range waitingStarts + 5 {
		on([]string{"dlv_2"}) // returns although nothing reads
	}
}
