package activities

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/testsuite"

	"berth"
	"berth/internal/breaker"
	"berth/internal/lease"
	"berth/internal/ledger"
	"berth/internal/llm"
	"berth/internal/sim"
	"berth/internal/stream"
	"berth/internal/template"
	"berth/internal/testdb"
	"berth/internal/testledger"
	"berth/internal/testredis"
	"berth/internal/testtemplate"
	"berth/internal/waiting"
	"berth/lua"
	"berth/workflows"
)

// stepTest runs steps of one task on a real Redis and PostgreSQL, with a provider that the test controls.
type stepTest struct {
	*Tasks
	t        *testing.T
	db       *testdb.Server // of newKillableStepTest
	redis    *redis.Client
	plan     berth.TaskPlan
	deadline time.Time
	calls    atomic.Int64 // of the provider
}

const stepModel = "deepseek-chat"

func newStepTest(t *testing.T, template berth.Template, provider http.HandlerFunc) *stepTest {
	t.Helper()
	h := &stepTest{t: t}
	h.start(testledger.Migrated.Postgres(t), template, provider)
	return h
}

// newKillableStepTest is newStepTest with a database server of its own.
func newKillableStepTest(t *testing.T, template berth.Template, provider http.HandlerFunc) *stepTest {
	t.Helper()
	h := &stepTest{t: t, db: testdb.Start(t)}
	h.start(h.db.Database(t), template, provider)
	return h
}

func (h *stepTest) start(dsn string, template berth.Template, provider http.HandlerFunc) {
	h.t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body) // or the server does not notice that its client left
		h.calls.Add(1)
		provider(w, r)
	}))
	h.t.Cleanup(server.Close)
	routing, err := llm.LoadConfig("")
	require.NoError(h.t, err)
	catalog, err := llm.NewCatalog(routing, llm.Settings{
		Keys: map[string]string{"DEEPSEEK_API_KEY": "key"}, BaseURLs: map[string]string{"deepseek": server.URL},
	})
	require.NoError(h.t, err)
	h.serve(dsn, template, catalog)
}

// serve starts the services of a worker with a catalog, of whose upstreams each has one slot.
func (h *stepTest) serve(dsn string, template berth.Template, catalog *llm.Catalog) {
	t := h.t
	t.Helper()
	h.deadline = time.Now().Add(time.Hour)
	limits := func(model string) lua.ModelLimits {
		l := catalog.Limits(model, 0)
		for i := range l.Upstreams {
			l.Upstreams[i].Cap = 1
		}
		return l
	}
	logger := slog.New(slog.NewTextHandler(t.Output(), nil))
	h.redis = redis.NewClient(&redis.Options{Addr: testredis.Start(t).Addr(), MaxRetries: -1, ContextTimeoutEnabled: true})
	scripts := lua.New(h.redis, lua.Keys{Cell: testredis.Cell(t)})
	_, err := scripts.MarkNew(t.Context())
	require.NoError(t, err)
	store, err := ledger.Open(t.Context(), dsn, logger)
	require.NoError(t, err)
	slots := lease.New(scripts, lease.Options{Limits: limits, Logger: logger})
	running := NewRunning(scripts, logger)
	hc := llm.NewHTTPClient()
	h.Tasks = &Tasks{
		Ledger: store, Streams: stream.NewPublisher(scripts, stream.Options{Logger: logger}), Slots: slots,
		Models: llm.NewClient(llm.Fixed(catalog), hc, logger), Catalog: llm.Fixed(catalog), Templates: testtemplate.Catalog(t, store), Running: running, Scripts: scripts,
		Waiting: waiting.New(scripts, waiting.Options{Limits: limits, Logger: logger}),
		Breaker: breaker.New(scripts, logger),
		Options: TaskOptions{CallTimeout: time.Minute, MaxAnswers: 3, Drain: time.Second}, Logger: logger,
	}
	ctx, cancel := context.WithCancel(context.Background())
	var services sync.WaitGroup
	services.Go(func() { _ = slots.Run(ctx) })
	services.Go(func() { _ = running.Run(ctx) })
	t.Cleanup(func() {
		cancel()
		services.Wait()
		hc.CloseIdleConnections()
		_ = store.Close()
		_ = h.redis.Close()
	})
	h.accept(template)
}

// accept stores the task and opens its stream, as AcceptTask does. Its only step is the last one of the template.
func (h *stepTest) accept(template berth.Template) {
	h.t.Helper()
	spec := testtemplate.Find(h.t, template)
	asset, err := h.Ledger.PutAsset(h.t.Context(), berth.Asset{
		UserID: "alice", Kind: berth.AssetText, MediaType: berth.TextMediaType, Content: []byte("We look for a Go developer."),
	})
	require.NoError(h.t, err)
	h.plan = berth.TaskPlan{
		TaskRequest: berth.TaskRequest{
			ID: "t1", ServiceID: "career", Template: template, TemplateVersion: spec.Version, Locale: berth.LocaleEN, Tier: berth.TierPaid,
			Variables: map[string]string{"jobText": asset.ID, "resume": asset.ID},
		},
		UserID: "alice", RequestHash: "hash",
	}
	last := spec.Steps[len(spec.Steps)-1]
	h.plan.Steps = []berth.Step{{
		Name: berth.StepName(last.ID), Mode: last.Mode, Queue: berth.Queue("q_paid_" + string(last.Mode)), Model: stepModel, Status: last.Status,
	}}
	_, err = h.AcceptTask(h.t.Context(), workflows.TaskInput{TaskPlan: h.plan, Deadline: time.Until(h.deadline)})
	require.NoError(h.t, err)
}

// attempt runs the step once, in a worker that stops when stop is closed.
func (h *stepTest) attempt(stop chan struct{}) (workflows.StepOutput, error) {
	return h.attemptAfter(stop, nil)
}

// attemptAfter is attempt after another one with this heartbeat, if it has sent one.
func (h *stepTest) attemptAfter(stop chan struct{}, heartbeat any) (workflows.StepOutput, error) {
	var suite testsuite.WorkflowTestSuite
	env := suite.NewTestActivityEnvironment()
	env.SetTestTimeout(time.Minute)
	if stop != nil {
		env.SetWorkerStopChannel(stop)
	}
	if heartbeat != nil {
		env.SetHeartbeatDetails(heartbeat)
	}
	env.RegisterActivityWithOptions(h.RunStep, activity.RegisterOptions{Name: workflows.RunStepActivity})
	res, err := env.ExecuteActivity(workflows.RunStepActivity, workflows.StepInput{
		TaskRequest: h.plan.TaskRequest, UserID: "alice", Step: h.plan.Steps[0], Timeout: time.Minute, DeadlineAt: h.deadline,
	})
	var out workflows.StepOutput
	if err != nil {
		return out, err
	}
	return out, res.Get(&out)
}

// events returns the events of the task's stream.
func (h *stepTest) events() (all []berth.Event) {
	h.t.Helper()
	return h.eventsOf(channel("alice", "career", "t1"))
}

func (h *stepTest) eventsOf(ch lua.Channel) (all []berth.Event) {
	h.t.Helper()
	_, stored, err := h.Scripts.ReadStream(h.t.Context(), ch, "", 1000)
	require.NoError(h.t, err)
	for _, e := range stored {
		var ev berth.Event
		require.NoError(h.t, json.Unmarshal([]byte(e.Data), &ev))
		all = append(all, ev)
	}
	return all
}

// text returns the tokens since the last reset.
func (h *stepTest) text() (text string) {
	h.t.Helper()
	for _, ev := range h.events() {
		switch ev.Type {
		case berth.EventReset:
			text = ""
		case berth.EventToken, berth.EventTokenBatch:
			text += ev.Text
		default:
		}
	}
	return text
}

func (h *stepTest) eventually(what string, ok func() bool) {
	h.t.Helper()
	require.Eventually(h.t, ok, 30*time.Second, 10*time.Millisecond, what)
}

// occupy takes the model's only slot until release is called, and returns once the attempt waits for it.
func (h *stepTest) occupy() (release func()) {
	h.t.Helper()
	slot, err := h.Slots.Acquire(h.t.Context(), lease.Request{Model: stepModel, Queue: "q_paid_stream", UserID: "other"})
	require.NoError(h.t, err)
	return slot.Release
}

func (h *stepTest) waiting() {
	h.t.Helper()
	h.eventually("the step waits for its slot", func() bool {
		n, err := h.redis.ZCard(h.t.Context(), h.Scripts.Keys().ModelWaiting(stepModel)).Result()
		return err == nil && n == 1
	})
}

// chunk sends one piece of an answer.
func chunk(w http.ResponseWriter, content, finish string) {
	w.Header().Set("Content-Type", "text/event-stream")
	delta, _ := json.Marshal(map[string]any{"choices": []any{map[string]any{
		"index": 0, "delta": map[string]any{"content": content}, "finish_reason": nonEmpty(finish),
	}}})
	_, _ = fmt.Fprintf(w, "data: %s\n\n", delta)
	w.(http.Flusher).Flush()
}

func nonEmpty(s string) any {
	if s == "" {
		return nil
	}
	return s
}

// newDatabaseDownTest returns a test whose provider kills the database in the middle of its answer.
func newDatabaseDownTest(t *testing.T) (h *stepTest) {
	t.Helper()
	h = newKillableStepTest(t, "interview_prep", func(w http.ResponseWriter, _ *http.Request) {
		chunk(w, "half ", "")
		h.eventually("the first tokens are published", func() bool { return h.text() == "half " })
		h.db.Kill()
		chunk(w, "an answer", "stop")
	})
	return h
}

// A database that fails when the answer is complete costs time, not another call.
func TestRunStep_DatabaseDownAtEnd_AnswerKept(t *testing.T) { // B2, T13, T21
	t.Parallel()
	h := newDatabaseDownTest(t)
	key := h.Scripts.Keys().Answer(h.plan.Ref(), 0)
	done := make(chan error, 1)
	go func() {
		_, err := h.attempt(nil)
		done <- err
	}()
	h.eventually("the answer is held", func() bool { return h.redis.Exists(t.Context(), key).Val() == 1 })
	h.db.Restart(t)
	require.NoError(t, <-done)
	require.EqualValues(t, 1, h.calls.Load())
	require.Equal(t, "half an answer", h.text())
	require.Zero(t, h.redis.Exists(t.Context(), key).Val(), "it is stored now")
	calls, err := h.Ledger.ModelCalls(t.Context(), h.plan.Ref())
	require.NoError(t, err)
	require.Len(t, calls, 1)
	require.True(t, calls[0].Success)
}

// The worker that has the answer stops before the database returns: the next attempt stores that answer.
func TestRunStep_WorkerStopsWithAnswer_NextAttemptStoresIt(t *testing.T) { // B2
	t.Parallel()
	h := newDatabaseDownTest(t)
	key := h.Scripts.Keys().Answer(h.plan.Ref(), 0)
	done, stop := make(chan error, 1), make(chan struct{})
	go func() {
		_, err := h.attempt(stop)
		done <- err
	}()
	h.eventually("the answer is held", func() bool { return h.redis.Exists(t.Context(), key).Val() == 1 })
	close(stop)
	app := applicationError(t, <-done)
	require.Equal(t, string(berth.CodeUnavailable), app.Type())
	require.False(t, app.NonRetryable())
	h.db.Restart(t)
	out, err := h.attempt(nil)
	require.NoError(t, err)
	require.EqualValues(t, 1, h.calls.Load(), "an answer that is held is not requested again")
	require.Equal(t, "half an answer", h.text(), "readers receive it after the reset")
	stored, err := h.Ledger.GetAsset(t.Context(), "alice", out.AssetID)
	require.NoError(t, err)
	require.JSONEq(t, `{"text":"half an answer"}`, string(stored.Content))
	calls, err := h.Ledger.ModelCalls(t.Context(), h.plan.Ref())
	require.NoError(t, err)
	require.Len(t, calls, 1, "of the attempt that made the call")
	require.True(t, calls[0].Success)
	require.EqualValues(t, 1, calls[0].Fence)
	require.Equal(t, "deepseek", calls[0].Provider)
	require.Zero(t, h.redis.Exists(t.Context(), key).Val())
}

// Readers of a task that completes receive its end from the last step. Where that fails, the workflow publishes it.
func TestRunStep_LastStep_EndsTask(t *testing.T) { // T10, T13
	t.Parallel()
	for name, redisFails := range map[string]bool{"redis is available": false, "redis fails during the call": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var h *stepTest
			h = newStepTest(t, "interview_prep", func(w http.ResponseWriter, _ *http.Request) {
				if redisFails {
					h.eventually("the start is published", func() bool { return len(h.events()) > 1 })
					_ = h.redis.Close()
				}
				chunk(w, "an answer", "stop")
			})
			out, err := h.attempt(nil)
			require.NoError(t, err)
			row, err := h.Ledger.GetTask(t.Context(), h.plan.Ref())
			require.NoError(t, err)
			require.Equal(t, berth.TaskCompleted, row.Status)
			require.Equal(t, out.AssetID, row.ResultAssetID)
			require.Equal(t, !redisFails, out.Ended)
			if redisFails {
				return
			}
			all := h.events()
			require.Equal(t, berth.EventDone, all[len(all)-1].Type)
			require.Equal(t, "an answer", all[len(all)-1].Text)
			require.NoError(t, h.PublishEnd(t.Context(), h.plan.Ref()), "the workflow may publish it again")
			require.Len(t, h.events(), len(all))
		})
	}
}

// A worker that stops, or a task that ends, before the call leaves no row of a call.
func TestRunStep_EndedBeforeCall_NoUsageRow(t *testing.T) { // T19
	t.Parallel()
	for name, end := range map[string]func(h *stepTest, stop chan struct{}) error{
		"the worker stops": func(_ *stepTest, stop chan struct{}) error {
			close(stop)
			return nil
		},
		"the task is cancelled": func(h *stepTest, _ chan struct{}) error {
			_, _, err := h.Ledger.FinishTask(t.Context(), ledger.End{TaskRef: h.plan.Ref(), Status: berth.TaskCancelled, Code: berth.CodeCancelled})
			h.Running.NotifyEnd(t.Context(), h.plan.Ref())
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := newStepTest(t, "interview_prep", func(w http.ResponseWriter, _ *http.Request) { chunk(w, "never", "stop") })
			release := h.occupy()
			defer release()
			done, stop := make(chan error, 1), make(chan struct{})
			go func() {
				_, err := h.attempt(stop)
				done <- err
			}()
			h.waiting()
			require.NoError(t, end(h, stop))
			applicationError(t, <-done)
			require.Zero(t, h.calls.Load())
			calls, err := h.Ledger.ModelCalls(t.Context(), h.plan.Ref())
			require.NoError(t, err)
			require.Empty(t, calls)
		})
	}
}

// The provider is called while the start is recorded, and its tokens wait for that.
func TestRunStep_StartNotRecorded_TokensWait(t *testing.T) { // B2, T13
	t.Parallel()
	called, more := make(chan struct{}), make(chan struct{})
	h := newKillableStepTest(t, "interview_prep", func(w http.ResponseWriter, _ *http.Request) {
		chunk(w, "an ", "")
		close(called)
		<-more
		chunk(w, "answer", "stop")
	})
	release := h.occupy()
	done := make(chan error, 1)
	go func() {
		_, err := h.attempt(nil)
		done <- err
	}()
	h.waiting()
	h.db.Kill()
	release()
	<-called
	close(more)
	for _, ev := range h.events() {
		require.NotContains(t, []berth.EventType{berth.EventStart, berth.EventToken, berth.EventTokenBatch}, ev.Type)
	}
	h.db.Restart(t)
	require.NoError(t, <-done)
	require.Equal(t, "an answer", h.text())
	require.EqualValues(t, 1, h.calls.Load())
}

// A task that ended while its step waited has its call cancelled, and readers see nothing of it.
func TestRunStep_TaskEndedWhileWaiting_NothingPublished(t *testing.T) { // T13, T25
	t.Parallel()
	for name, end := range map[string]func(h *stepTest) error{
		"ended": func(h *stepTest) error {
			_, _, err := h.Ledger.FinishTask(t.Context(), ledger.End{TaskRef: h.plan.Ref(), Status: berth.TaskCancelled, Code: berth.CodeCancelled})
			return err
		},
		"a later attempt owns it": func(h *stepTest) error {
			_, err := h.Ledger.BeginAttempt(t.Context(), h.plan.Ref(), 0, h.plan.Steps[0].Status)
			return err
		},
	} {
		for _, template := range []berth.Template{"interview_prep", "resume_customize"} {
			t.Run(name+" "+string(template), func(t *testing.T) {
				t.Parallel()
				left := make(chan struct{})
				h := newStepTest(t, template, func(w http.ResponseWriter, r *http.Request) {
					chunk(w, "never shown", "")
					<-r.Context().Done()
					close(left)
				})
				release := h.occupy()
				done := make(chan error, 1)
				go func() {
					_, err := h.attempt(nil)
					done <- err
				}()
				h.waiting()
				require.NoError(t, end(h))
				release()
				app := applicationError(t, <-done)
				require.Equal(t, string(berth.CodeConflict), app.Type())
				require.True(t, app.NonRetryable())
				if h.calls.Load() > 0 {
					<-left
				}
				require.Empty(t, h.text())
				for _, ev := range h.events() {
					require.NotEqual(t, berth.EventStart, ev.Type)
				}
			})
		}
	}
}

// A call in progress that ends with its task or its worker is in the usage log with the reason.
func TestRunStep_EndedDuringCall_ReasonInUsage(t *testing.T) { // T19
	t.Parallel()
	for code, end := range map[berth.Code]func(h *stepTest, stop chan struct{}){
		berth.CodeUnavailable: func(_ *stepTest, stop chan struct{}) { close(stop) },
		berth.CodeCancelled: func(h *stepTest, _ chan struct{}) {
			_, _, err := h.Ledger.FinishTask(t.Context(), ledger.End{TaskRef: h.plan.Ref(), Status: berth.TaskCancelled, Code: berth.CodeCancelled})
			require.NoError(t, err)
			h.Running.NotifyEnd(t.Context(), h.plan.Ref())
		},
	} {
		t.Run(string(code), func(t *testing.T) {
			t.Parallel()
			called := make(chan struct{})
			h := newStepTest(t, "interview_prep", func(w http.ResponseWriter, r *http.Request) {
				chunk(w, "an ", "")
				close(called)
				<-r.Context().Done()
			})
			done, stop := make(chan error, 1), make(chan struct{})
			go func() {
				_, err := h.attempt(stop)
				done <- err
			}()
			<-called
			end(h, stop)
			applicationError(t, <-done)
			calls, err := h.Ledger.ModelCalls(t.Context(), h.plan.Ref())
			require.NoError(t, err)
			require.Len(t, calls, 1)
			require.Equal(t, code, calls[0].Code)
		})
	}
}

// The first delta of a server without streaming has reasoning and content.
func TestRunStep_AnswerInOnePieceWithReasoning_Complete(t *testing.T) { // T27
	t.Parallel()
	h := newStepTest(t, "interview_prep", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, `{"choices":[{"index":0,"finish_reason":"stop","message":{"content":"all of it","reasoning_content":"hm"}}]}`)
	})
	_, err := h.attempt(nil)
	require.NoError(t, err)
	require.Equal(t, "all of it", h.text())
	require.EqualValues(t, 1, h.calls.Load())
}

// A slot that is held for longer than a call may take ends the task, instead of another paid call.
func TestRunStep_CallTakesTooLong_NotRepeated(t *testing.T) { // T20
	t.Parallel()
	h := newStepTest(t, "interview_prep", func(w http.ResponseWriter, r *http.Request) {
		for r.Context().Err() == nil {
			chunk(w, "word ", "")
			<-time.After(10 * time.Millisecond) // the pace of the provider
		}
	})
	h.Options.CallTimeout = 3 * time.Second // enough to record the start of the call and to reach the provider
	_, err := h.attempt(nil)
	app := applicationError(t, err)
	require.Equal(t, string(berth.CodeDeadlineExceeded), app.Type())
	require.True(t, app.NonRetryable())
	require.EqualValues(t, 1, h.calls.Load())
	calls, err := h.Ledger.ModelCalls(t.Context(), h.plan.Ref())
	require.NoError(t, err)
	require.Len(t, calls, 1, "it is paid for")
	require.Equal(t, berth.CodeDeadlineExceeded, calls[0].Code)
}

// answers returns a provider whose calls get these answers in order, each with its finish reason.
func answers(list ...[2]string) http.HandlerFunc {
	var n atomic.Int64
	return func(w http.ResponseWriter, _ *http.Request) {
		a := list[min(int(n.Add(1)), len(list))-1]
		chunk(w, a[0], a[1])
		if a[1] == "" {
			_, _ = io.WriteString(w, "data: [DONE]\n\n")
		}
	}
}

// validJSON returns an answer that matches the schema of a batch template, from the model simulator.
func validJSON(t *testing.T, name berth.Template) string {
	t.Helper()
	server := httptest.NewServer(sim.ModelServer(sim.Options{}))
	t.Cleanup(server.Close)
	routing, err := llm.LoadConfig("")
	require.NoError(t, err)
	catalog, err := llm.NewCatalog(routing, llm.Settings{LocalURL: server.URL})
	require.NoError(t, err)
	spec := testtemplate.Find(t, name)
	rendered, err := spec.Messages(t.Context(), spec.Steps[len(spec.Steps)-1].ID, berth.LocaleEN, template.Input{Texts: map[string]string{
		"jobText": "Go developer", "resume": "Six years of Go.",
	}})
	require.NoError(t, err)
	messages := llm.MessagesOf(rendered)
	res, err := llm.NewClient(llm.Fixed(catalog), server.Client(), slog.New(slog.DiscardHandler)).
		Stream(t.Context(), llm.Call{Model: stepModel, Messages: messages}, nil)
	require.NoError(t, err)
	return res.Text
}

// A provider would refuse a call without messages, as if its model were wrong.
func TestRunStep_PromptWithoutText_FailsWithoutCall(t *testing.T) { // G1
	t.Parallel()
	h := newStepTest(t, "interview_prep", answers([2]string{"an answer", "stop"}))
	silent, err := template.Load("interview_prep", map[string]string{"x.prompt": "---\ntitle: S\ninput: {schema: {\"mood?\": string}}\n---\n{{#if mood}}Be {{mood}}.{{/if}}"})
	require.NoError(t, err)
	_, err = h.Ledger.PutTemplate(t.Context(), ledger.TemplateVersion{
		Template: silent.Name, Version: silent.Version, Source: ledger.TemplateAPI, Files: silent.Files(),
	}, false)
	require.NoError(t, err)
	h.plan.TemplateVersion, h.plan.Steps[0].Name = silent.Version, berth.StepName(silent.Steps[0].ID)
	_, err = h.attempt(nil)
	app := applicationError(t, err)
	require.Equal(t, string(berth.CodeInvalid), app.Type())
	require.Equal(t, "the prompt of step answer has no text with these values of mood", app.Message())
	require.True(t, app.NonRetryable())
	require.Zero(t, h.calls.Load())
}

// The outcome of an answer that reached the token limit depends on the template.
func TestRunStep_AnswerTruncated_ContinuedFailedOrMarked(t *testing.T) { // B3
	t.Parallel()
	letter := validJSON(t, "resume_customize")
	half := len(letter) / 2
	for name, c := range map[string]struct {
		template berth.Template
		answers  [][2]string
		calls    int
		code     berth.Code
		finish   string
	}{
		"a stream is marked":                 {"interview_prep", [][2]string{{"half an", "length"}}, 1, "", "length"},
		"a batch is continued":               {"resume_customize", [][2]string{{letter[:half], "length"}, {letter[half:], "stop"}}, 2, "", "stop"},
		"a batch is continued twice":         {"resume_customize", [][2]string{{letter[:half], "length"}, {letter[half : half+3], "length"}, {letter[half+3:], "stop"}}, 3, "", "stop"},
		"a batch never ends":                 {"resume_customize", [][2]string{{letter[:half], "length"}, {"", "length"}, {" ", "length"}}, 2, berth.CodeInvalidOutput, ""},
		"a batch that may not be continued":  {"job_summary", [][2]string{{`{"title":"a`, "length"}}, 1, berth.CodeInvalidOutput, ""},
		"a complete object before the limit": {"resume_customize", [][2]string{{letter + " and so on", "length"}}, 1, "", "length"},
		"an answer that is repaired":         {"resume_customize", [][2]string{{"{}", "stop"}, {letter, "stop"}}, 2, "", "stop"},
		"an answer that is repaired twice":   {"resume_customize", [][2]string{{"{}", "stop"}, {"[]", "stop"}, {letter, "stop"}}, 3, "", "stop"},
		"an answer that is not repaired":     {"resume_customize", [][2]string{{"{}", "stop"}}, 3, berth.CodeInvalidOutput, ""},
		"an answer that is continued, then not repaired": {
			"resume_customize", [][2]string{{letter[:half], "length"}, {"}", "stop"}, {"{}", "stop"}}, 3, berth.CodeInvalidOutput, "",
		},
		"an empty answer, counted as unusable": {"interview_prep", [][2]string{{"", "stop"}}, 1, berth.CodeInvalidOutput, ""},
		"a batch without a finish reason":      {"resume_customize", [][2]string{{letter, ""}, {"", "done"}}, 1, "", "unknown"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := newStepTest(t, c.template, answers(c.answers...))
			_, err := h.attempt(nil)
			require.EqualValues(t, c.calls, h.calls.Load())
			calls, lerr := h.Ledger.ModelCalls(t.Context(), h.plan.Ref())
			require.NoError(t, lerr)
			require.Len(t, calls, c.calls, "every call is accounted for")
			task, lerr := h.Ledger.GetTask(t.Context(), h.plan.Ref())
			require.NoError(t, lerr)
			require.Equal(t, c.finish, task.FinishReason)
			if c.code != "" {
				require.Equal(t, string(c.code), applicationError(t, err).Type())
				return
			}
			require.NoError(t, err)
			require.Equal(t, c.finish, calls[c.calls-1].FinishReason)
			steps, err := h.Ledger.FinishedSteps(t.Context(), h.plan.Ref())
			require.NoError(t, err)
			require.Equal(t, c.finish, steps[0].FinishReason)
		})
	}
}
