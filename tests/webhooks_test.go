package tests

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"os/exec"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/openai/openai-go/v3"
	openaioption "github.com/openai/openai-go/v3/option"
	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"
	"github.com/stretchr/testify/require"
	"github.com/tidwall/gjson"

	"berth"
	"berth/client"
	"berth/internal/testclients"
	"berth/internal/testprovider"
	"berth/workflows"
)

// arrival is an event that a receiver got.
type arrival struct {
	body   []byte
	header http.Header
}

func (a arrival) id() string             { return a.header.Get(standardwebhooks.HeaderWebhookID) }
func (a arrival) get(path string) string { return gjson.GetBytes(a.body, path).Str }

// receiver is a server of webhooks.
type receiver struct {
	*httptest.Server
	mu      sync.Mutex
	respond func(w http.ResponseWriter) // nil accepts
	got     []arrival
}

func newReceiver(t *testing.T) *receiver {
	t.Helper()
	r := &receiver{}
	r.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		body, _ := io.ReadAll(req.Body)
		r.mu.Lock()
		r.got = append(r.got, arrival{body, req.Header})
		respond := r.respond
		r.mu.Unlock()
		if respond != nil {
			respond(w)
		}
	}))
	t.Cleanup(r.Close)
	return r
}

func (r *receiver) set(respond func(w http.ResponseWriter)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.respond = respond
}

func (r *receiver) received() []arrival {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.got)
}

// webhook creates a webhook of a receiver.
func (d *durable) webhook(t *testing.T, r *receiver, w client.Webhook) client.NewWebhook {
	t.Helper()
	w.URL = r.URL + "/events"
	hook, err := d.operator().CreateWebhook(t.Context(), w)
	require.NoError(t, err)
	return hook
}

// deliveries returns the deliveries of a webhook, the newest first.
func (d *durable) deliveries(t *testing.T, hook client.NewWebhook) (all []client.Delivery) {
	t.Helper()
	for delivery, err := range d.operator().Deliveries(t.Context(), hook.WebhookID, "") {
		require.NoError(t, err)
		all = append(all, delivery)
	}
	return all
}

// delivered returns the newest delivery once it has a state.
func (d *durable) delivered(t *testing.T, hook client.NewWebhook, state berth.DeliveryState) client.Delivery {
	t.Helper()
	var last client.Delivery
	d.eventually("a delivery in the state "+string(state), func() bool {
		all := d.deliveries(t, hook)
		if len(all) > 0 {
			last = all[0]
		}
		return len(all) > 0 && last.State == state
	})
	return last
}

// O8: the end of a background response is sent until it is accepted, whichever worker is killed, and official clients verify it.
func TestWebhooks_ResponseEnds_SentUntilAccepted(t *testing.T) {
	t.Parallel()
	d := newDurable(t, "BERTH_WEBHOOK_ALLOW_PRIVATE=true")
	d.provider.Answer(testprovider.Write(0, "One", " two"))
	r := newReceiver(t)
	hook := d.webhook(t, r, client.Webhook{TeamID: "research"})
	r.set(func(w http.ResponseWriter) { w.WriteHeader(http.StatusServiceUnavailable) })
	id := d.response(t, 200, "POST", "", responseBody(`,"background":true`)).Get("id").Str
	d.eventually("a failed attempt", func() bool { all := d.deliveries(t, hook); return len(all) > 0 && all[0].Attempts > 0 })
	first := d.deliveries(t, hook)[0]
	require.Equal(t, []any{berth.DeliveryPending, http.StatusServiceUnavailable, "the server returned 503"}, []any{first.State, first.Log[0].Status, first.Log[0].Error})
	d.worker.kill() // the next attempt is another worker's
	d.worker = d.startWorker()
	rotated, err := d.operator().RotateWebhook(t.Context(), hook.WebhookID)
	require.NoError(t, err)
	r.set(nil)
	last := d.delivered(t, hook, berth.DeliveryDelivered)
	require.Equal(t, []any{berth.EventResponseCompleted, id}, []any{last.Type, last.SubjectID})
	got := r.received()
	for _, a := range got {
		require.Equal(t, last.EventID, a.id())
		require.Equal(t, []string{"event", "response.completed", id, last.EventID}, []string{a.get("object"), a.get("type"), a.get("data.id"), a.get("id")})
	}
	accepted := got[len(got)-1]
	require.JSONEq(t, string(last.Event), string(accepted.body))
	noNode := testclients.Install(t)
	for _, secret := range []string{hook.Secret, rotated.Secret} { // both sign for a day
		verifier, err := standardwebhooks.NewWebhook(secret)
		require.NoError(t, err)
		require.NoError(t, verifier.Verify(accepted.body, accepted.header))
		official := openai.NewClient(openaioption.WithAPIKey("none"), openaioption.WithWebhookSecret(secret))
		event, err := official.Webhooks.Unwrap(accepted.body, accepted.header)
		require.NoError(t, err)
		require.Equal(t, id, event.AsResponseCompleted().Data.ID)
		require.Equal(t, last.EventID, event.ID)
		if noNode == "" {
			require.JSONEq(t, `{"type":"response.completed","id":"`+id+`"}`, unwrapInNode(t, accepted, secret))
		}
	}
	run := workflows.WebhookWorkflowID(last.DeliveryID)
	d.succeeds(run)
	d.saveHistory("webhook-accepted", run)
	require.Len(t, d.deliveries(t, hook), 1)
	log := string(d.worker.output()) + string(d.api.output())
	for _, hidden := range []string{hook.Secret, rotated.Secret, r.URL} {
		require.NotContains(t, log, hidden)
	}
}

// unwrapInNode returns what the official client for Node reads.
func unwrapInNode(t *testing.T, a arrival, secret string) string {
	t.Helper()
	headers := map[string]string{}
	for name := range a.header {
		headers[name] = a.header.Get(name)
	}
	in, err := json.Marshal(map[string]any{"body": string(a.body), "headers": headers, "secret": secret})
	require.NoError(t, err)
	cmd := exec.CommandContext(t.Context(), "node", "webhooks.mjs")
	cmd.Dir, cmd.Stdin = testclients.Programs, bytes.NewReader(in)
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s", out)
	return string(out)
}

// O8: a receiver may do anything, and each event arrives at least once, with one id, or ends by name.
func TestWebhooks_ReceiverMisbehaves_DeliveredOrEndsByName(t *testing.T) {
	t.Parallel()
	d := newDurable(t, "BERTH_WEBHOOK_ALLOW_PRIVATE=true")
	d.provider.Answer(testprovider.Write(0, "One"))
	status := func(code int, header ...string) func(http.ResponseWriter) {
		return func(w http.ResponseWriter) {
			for i := 0; i < len(header); i += 2 {
				w.Header().Set(header[i], header[i+1])
			}
			w.WriteHeader(code)
		}
	}
	elsewhere := newReceiver(t)
	release := make(chan struct{})
	type seen struct {
		receiver *receiver
		hook     client.NewWebhook
	}
	receivers := map[string]seen{}
	for name, respond := range map[string]func(http.ResponseWriter){
		"accepts": nil, "redirects": status(http.StatusFound, "Location", elsewhere.URL), "is gone": status(http.StatusGone),
		"rejects": status(http.StatusBadRequest), "loses its reply": func(http.ResponseWriter) { panic(http.ErrAbortHandler) },
		"hangs": func(http.ResponseWriter) { <-release },
	} {
		r := newReceiver(t)
		r.set(respond)
		receivers[name] = seen{r, d.webhook(t, r, client.Webhook{TeamID: "research", WebhookSpec: client.WebhookSpec{Title: name}})}
	}
	t.Cleanup(func() { close(release) }) // before the receivers close
	id := d.response(t, 200, "POST", "", responseBody(`,"background":true`)).Get("id").Str
	problem := map[string]string{
		"redirects": "the server returned 302", "rejects": "the server returned 400", "loses its reply": "the server closed the connection without a response",
	}
	for name, text := range problem {
		d.eventually("an attempt at the receiver that "+name, func() bool {
			all := d.deliveries(t, receivers[name].hook)
			return len(all) > 0 && all[0].Attempts > 0
		})
		delivery := d.deliveries(t, receivers[name].hook)[0]
		require.Equal(t, []any{berth.DeliveryPending, text}, []any{delivery.State, delivery.Log[0].Error}, name)
	}
	d.eventually("an attempt at the receiver that hangs", func() bool { return len(receivers["hangs"].receiver.received()) > 0 })
	require.Equal(t, 1, d.delivered(t, receivers["accepts"].hook, berth.DeliveryDelivered).Attempts, "others do not delay it")
	gone := receivers["is gone"]
	ended := d.delivered(t, gone.hook, berth.DeliveryFailed)
	require.Equal(t, http.StatusGone, ended.Log[0].Status)
	disabled, err := d.operator().Webhook(t.Context(), gone.hook.WebhookID)
	require.NoError(t, err)
	require.Equal(t, []any{true, berth.WebhookGone}, []any{disabled.Disabled, disabled.DisabledWhy})
	d.saveHistory("webhook-gone", workflows.WebhookWorkflowID(ended.DeliveryID))
	_, err = d.operator().ResendDelivery(t.Context(), gone.hook.WebhookID, ended.DeliveryID)
	require.ErrorContains(t, err, "disabled: the server returned 410")

	for name := range problem {
		s := receivers[name]
		s.receiver.set(nil)
		_, err := d.operator().ResendDelivery(t.Context(), s.hook.WebhookID, d.deliveries(t, s.hook)[0].DeliveryID) // not to wait for the next attempt
		require.NoError(t, err)
		d.delivered(t, s.hook, berth.DeliveryDelivered)
		got := s.receiver.received()
		require.GreaterOrEqual(t, len(got), 2, name)
		for _, a := range got {
			require.Equal(t, []string{got[0].id(), id}, []string{a.id(), a.get("data.id")}, name)
		}
	}
	require.Empty(t, elsewhere.received(), "a redirect is not followed")
	gone.receiver.set(nil)
	_, err = d.operator().PutWebhook(t.Context(), gone.hook.WebhookID, client.WebhookSpec{URL: gone.receiver.URL})
	require.NoError(t, err)
	_, err = d.operator().ResendDelivery(t.Context(), gone.hook.WebhookID, ended.DeliveryID)
	require.NoError(t, err)
	d.delivered(t, gone.hook, berth.DeliveryDelivered)
}

// O8: tasks and executions of a user have events, too.
func TestWebhooks_TasksAndExecutions_HaveEvents(t *testing.T) {
	t.Parallel()
	d := newDurable(t, "BERTH_WEBHOOK_ALLOW_PRIVATE=true")
	r := newReceiver(t)
	hook := d.webhook(t, r, client.Webhook{UserID: "alice"})
	other := d.webhook(t, newReceiver(t), client.Webhook{UserID: "bob"})
	n1 := d.engine("n1", 1, false)
	d.afterGrace(n1.scripts)
	status, out := d.stack.send(http.MethodPost, "/v1/executions", d.token("alice"), map[string]any{"executionId": "x1", "executor": "echo"})
	require.Less(t, status, 300, "%v", out)
	d.delivered(t, hook, berth.DeliveryDelivered)
	test, err := d.operator().TestWebhook(t.Context(), hook.WebhookID)
	require.NoError(t, err)
	d.eventually("the test", func() bool { return len(r.received()) == 2 })
	types := []string{r.received()[0].get("type"), r.received()[1].get("type")}
	slices.Sort(types)
	require.Equal(t, []string{"execution.completed", "webhook.test"}, types)
	d.delivered(t, hook, berth.DeliveryDelivered)
	require.Equal(t, berth.EventWebhookTest, test.Type)
	require.Empty(t, d.deliveries(t, other))
	require.WithinDuration(t, time.Now(), test.CreatedAt, time.Minute)
}

// O8: an event whose run was never started, because its process died in between, or whose run was terminated, is sent by the reconciliation.
func TestWebhooks_RunLost_ReconciliationSends(t *testing.T) {
	t.Parallel()
	s := newStack(t, reconciling(), with("BERTH_WEBHOOK_ALLOW_PRIVATE=true"))
	d := &durable{stack: s}
	r := newReceiver(t)
	r.set(func(w http.ResponseWriter) { w.WriteHeader(http.StatusServiceUnavailable) })
	hook := d.webhook(t, r, client.Webhook{All: true})
	sent, err := s.operator().TestWebhook(t.Context(), hook.WebhookID)
	require.NoError(t, err)
	s.eventually("an attempt", func() bool { return len(r.received()) > 0 })
	s.settled()
	r.set(nil)
	run := workflows.WebhookWorkflowID(sent.DeliveryID)
	require.NoError(t, s.temporal().TerminateWorkflow(t.Context(), run, "", ""))
	s.execute(`UPDATE webhook_deliveries SET updated_at = 1, attempts = 0 WHERE id = $1`, sent.DeliveryID)
	s.repaired(berth.RuleDeliveryWithoutRun, run)
	d.delivered(t, hook, berth.DeliveryDelivered)
}
