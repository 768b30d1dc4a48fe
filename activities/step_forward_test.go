package activities

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/testsuite"

	"berth"
	"berth/internal/llm"
	"berth/internal/stream"
	"berth/internal/testledger"
	"berth/workflows"
)

// forwardTest runs a streamed request with an API key, whose budget is 100 credits. The provider sends a chunk, and the rest once it may.
type forwardTest struct {
	*stepTest
	model llm.Model
	rest  chan struct{}
}

func newForwardTest(t *testing.T) *forwardTest {
	t.Helper()
	h := &forwardTest{stepTest: &stepTest{t: t}, rest: make(chan struct{})}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h.calls.Add(1)
		chunk(w, "half ", "")
		select {
		case <-h.rest:
			chunk(w, strings.Repeat("of a long answer ", 100), "stop")
		case <-r.Context().Done():
		}
	}))
	t.Cleanup(server.Close)
	content, err := llm.ParseContent("own.yaml", "providers: {p: {baseURL: \""+server.URL+"\", keyOptional: true}}\n"+
		"models: {"+stepModel+": {provider: p, maxOutputTokens: 1000, credits: {input: 1000, output: 10000}}}\n")
	require.NoError(t, err)
	catalog, err := llm.NewCatalog(content.Config, llm.Settings{})
	require.NoError(t, err)
	h.model, _ = catalog.Model(stepModel)
	h.serve(testledger.Migrated.Postgres(t), "interview_prep", catalog)
	h.Chunks = stream.NewPublisher(h.Scripts, stream.Options{FlushInterval: time.Millisecond, Logger: h.Logger})

	ctx := t.Context()
	require.NoError(t, h.Ledger.PutTeam(ctx, berth.Team{ID: "t"}, "op"))
	key, err := h.Ledger.CreateKey(ctx, berth.APIKey{ID: "key_1", TeamID: "t", KeySettings: berth.KeySettings{Durability: berth.DurabilityDurable}, CreatedBy: "op"}, "hash")
	require.NoError(t, err)
	require.NoError(t, h.Ledger.PutBudget(ctx, berth.Budget{Kind: berth.BudgetKey, ID: key.ID, Credits: 100 * berth.Credit, Period: berth.PeriodTotal}, "op"))
	request, err := h.Ledger.PutAsset(ctx, berth.Asset{
		UserID: key.ID, Kind: berth.AssetText, MediaType: berth.JSONMediaType,
		Content: []byte(`{"model":"` + stepModel + `","stream":true,"messages":[{"role":"user","content":"Hello"}]}`),
	})
	require.NoError(t, err)
	h.plan = berth.TaskPlan{
		TaskRequest: berth.TaskRequest{
			ID: "chatcmpl-1", ServiceID: "openai", Group: key.Group(""), Template: berth.TemplateChat, Locale: berth.LocaleEN, Tier: berth.TierPaid,
			Variables: map[string]string{berth.VariableRequest: request.ID},
		},
		UserID: key.ID, RequestHash: "hash", Price: 20 * berth.Credit, Metered: true,
		Steps:     []berth.Step{{Name: berth.StepChat, Mode: berth.ModeStream, Queue: "q_paid_stream", Model: stepModel, Status: berth.TaskPending}},
		Forwarded: &berth.Forwarded{KeyID: key.ID, Stream: true, Created: 1},
	}
	_, err = h.AcceptTask(ctx, workflows.TaskInput{TaskPlan: h.plan, Deadline: time.Until(h.deadline)})
	require.NoError(t, err)
	return h
}

// attempt runs the step on a worker.
func (h *forwardTest) attempt() error {
	var suite testsuite.WorkflowTestSuite
	env := suite.NewTestActivityEnvironment()
	env.SetTestTimeout(time.Minute)
	env.RegisterActivityWithOptions(h.RunStep, activity.RegisterOptions{Name: workflows.RunStepActivity})
	_, err := env.ExecuteActivity(workflows.RunStepActivity, workflows.StepInput{
		TaskRequest: h.plan.TaskRequest, UserID: h.plan.UserID, Forwarded: h.plan.Forwarded, Step: h.plan.Steps[0], Timeout: time.Minute, DeadlineAt: h.deadline,
	})
	return err
}

// published returns the text of the stream, and how many terminal events it has.
func (h *forwardTest) published() (text string, ends int) {
	h.t.Helper()
	for _, ev := range h.eventsOf(channel(h.plan.UserID, h.plan.ServiceID, h.plan.ID)) {
		text += ev.Text
		if ev.Type.Terminal() {
			ends++
		}
	}
	return text, ends
}

// The worker of a forwarded request is lost after it has passed on a chunk: the next attempt calls no provider, charges what arrived, and ends the
// answer as interrupted, once. What the lost worker does later changes nothing.
func TestRunStep_WorkerLostAfterChunk_InterruptedAndChargedOnce(t *testing.T) { // O4, O7
	t.Parallel()
	h := newForwardTest(t)
	lost := make(chan error, 1)
	go func() { lost <- h.attempt() }()
	h.eventually("a chunk is passed on", func() bool {
		text, _ := h.published()
		return strings.Contains(text, "half ")
	})

	app := applicationError(t, h.attempt())
	require.Equal(t, string(berth.CodeInterrupted), app.Type())
	require.True(t, app.NonRetryable())
	require.EqualValues(t, 1, h.calls.Load(), "of the provider")
	end := workflows.EndInput{TaskRef: h.plan.Ref(), Status: berth.TaskFailed, Code: berth.Code(app.Type()), Message: app.Message()}
	require.NoError(t, app.Details(&end.Detail))
	require.Contains(t, string(end.Detail), `"interrupted"`)
	_, err := h.FinishTask(t.Context(), end)
	require.NoError(t, err)
	require.NoError(t, h.PublishEnd(t.Context(), h.plan.Ref()))

	check := func() {
		t.Helper()
		calls, err := h.Ledger.ModelCalls(t.Context(), h.plan.Ref())
		require.NoError(t, err)
		require.Len(t, calls, 1, "of the lost worker")
		require.EqualValues(t, 1, calls[0].Fence)
		require.False(t, calls[0].Success)
		require.Positive(t, calls[0].Usage.InputTokens)
		require.InDelta(t, 2, calls[0].Usage.OutputTokens, 1, "of the chunk")
		charged := h.model.Credits.Of(calls[0].Usage)
		require.Equal(t, charged, calls[0].Credits)
		row, err := h.Ledger.GetTask(t.Context(), h.plan.Ref())
		require.NoError(t, err)
		require.Equal(t, []any{berth.TaskFailed, berth.CodeInterrupted, charged}, []any{row.Status, row.ErrorCode, row.Price})
		budget, err := h.Ledger.Budget(t.Context(), berth.BudgetKey, h.plan.UserID)
		require.NoError(t, err)
		require.Equal(t, charged, budget.Used, "the rest of the reservation has returned")
		_, ends := h.published()
		require.Equal(t, 1, ends)
	}
	check()
	close(h.rest)
	require.Error(t, <-lost)
	require.NoError(t, h.PublishEnd(t.Context(), h.plan.Ref()))
	check()
}
