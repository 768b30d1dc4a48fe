package tests

import (
	"encoding/hex"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/encoding/protojson"

	"berth"
	"berth/client"
	"berth/internal/sim"
	"berth/workflows"
)

// One trace through every layer for a chain, a segment and a recovery. The worker of the chain is killed in between: the
// workflow is executed again from its history, and still has one span.
func TestTrace_ChainSegmentRecovery_OneTraceEachWithoutTexts(t *testing.T) { // X3
	t.Parallel()
	c := newTraces(t)
	s := newStack(t, with(c.settings()...), withModel(sim.Options{TokensPerSecond: 300}))
	user := s.user("alice")

	acc := submitMatch(t, user, berth.LocaleEN, "")
	s.eventually("the last step to begin", func() bool {
		task, err := user.Get(t.Context(), acc.TaskID)
		return err == nil && task.Status == berth.TaskStreaming
	})
	s.worker.kill()
	s.worker = s.startWorker()
	watch(t, user, acc.TaskID, nil)
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("all spans:\n%s", tree(c.all()))
		}
	})
	await := func(name string, wanted ...string) []recorded {
		s.eventually("the trace of "+name, func() bool { return has(c.traceOf(name), wanted...) })
		trace := c.traceOf(name)
		t.Logf("%s:\n%s", name, tree(trace))
		return trace
	}
	chain := await("RunWorkflow Task", "berth-api POST /v1/tasks", "berth-api UpdateWithStartWorkflow", "berth-worker HandleUpdate",
		"berth-worker RunWorkflow Task", "berth-worker RunActivity RunStep", "berth-worker wait for slot", "berth-worker chat deepseek-reasoner")
	runs := 0
	for _, span := range chain {
		if span.GetName() == "RunWorkflow Task" {
			runs++
		}
	}
	require.Equal(t, 1, runs)

	s.translator("n1")
	talk := s.session("alice", "traced")
	first, err := talk.Dispatch(t.Context(), talk.id, client.JobSpec{RequestID: "r1", Segment: client.Segment{Text: "a secret sentence"}})
	require.NoError(t, err)
	_, err = talk.Dispatch(t.Context(), talk.id, client.JobSpec{
		RequestID: "r2", TurnID: first.TurnID, Segment: client.Segment{Index: 1, Text: "another"}, Finalize: berth.FinalizeManual,
	})
	require.NoError(t, err)
	s.awaitEnd(workflows.TurnWorkflowID(first.TurnID))
	segment := []string{"berth-api POST /v1/sessions/:id/jobs", "berth-worker dispatch_job", "berth-node RunActivity Translate"}
	connected(t, await("RunWorkflow Turn", append(segment, "berth-worker append_events")...))
	connected(t, await("UpdateWorkflow dispatch", segment...))

	m := s.conferences()
	u1 := s.media("u1", 5)
	conf := m.open("8687000001", func(spec *client.ConferenceSpec) { spec.Title = "a secret title" }).Conference
	s.media("u2", 5)
	u1.kill()
	m.await(conf.E164, "on u2", on("u2"))
	recovery := await("node unresponsive", "berth-worker RunWorkflow Link", "berth-worker HandleSignal unit", "berth-worker RunActivity PlaceConference",
		"berth-worker assign", "berth-media RunActivity RecoverConference")
	for _, span := range recovery {
		if strings.HasPrefix(span.GetName(), "HandleSignal unit") {
			require.Len(t, span.GetLinks(), 1, "it is linked to the conference's own trace")
		}
	}

	appends := 0
	for _, span := range chain {
		if span.GetName() == "append_events" {
			appends++
		}
	}
	require.LessOrEqual(t, appends, 1, "only the end of a task's stream has a span")

	secrets := []string{"secret sentence", "secret title", secret, s.token("alice")[:20], strings.Fields(string(example(t, "resume-en.txt")))[0]}
	for _, span := range c.all() {
		text, err := protojson.Marshal(span.Span)
		require.NoError(t, err)
		for _, word := range secrets {
			require.NotContains(t, string(text), word)
		}
		for _, quiet := range []string{"heartbeat_node", "renew_slots", "sweep_nodes", "POST /v1/nodes/:id/heartbeat"} {
			require.NotEqual(t, quiet, span.GetName())
		}
	}
}

// A caller's trace is linked, and continued only where callers are trusted.
func TestTrace_CallersTraceparent_LinkedOrContinued(t *testing.T) { // X3
	t.Parallel()
	const caller = "4bf92f3577b34da6a3ce929d0e0e4736"
	for _, trusted := range []bool{false, true} {
		c := newTraces(t)
		s := newStack(t, with(append(c.settings(), "BERTH_TRUST_TRACEPARENT="+map[bool]string{true: "true", false: "false"}[trusted])...))
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+s.httpAddr+"/v1/tasks?ticket=hidden", nil)
		require.NoError(t, err)
		req.Header.Set("Authorization", "Bearer "+s.token("alice"))
		req.Header.Set("Traceparent", "00-"+caller+"-00f067aa0ba902b7-01")
		res, err := http.DefaultClient.Do(req)
		require.NoError(t, err)
		require.NoError(t, res.Body.Close())
		s.eventually("the span of the request", func() bool { return c.traceOf("GET /v1/tasks") != nil })
		span := c.traceOf("GET /v1/tasks")[0]
		text, err := protojson.Marshal(span.Span)
		require.NoError(t, err)
		require.NotContains(t, string(text), "hidden", "queries may contain tickets")
		own := string(span.GetTraceId())
		if trusted {
			require.Equal(t, caller, hex.EncodeToString([]byte(own)))
		} else {
			require.NotEqual(t, caller, hex.EncodeToString([]byte(own)))
			require.Len(t, span.GetLinks(), 1)
			require.Equal(t, caller, hex.EncodeToString(span.GetLinks()[0].GetTraceId()))
		}
	}
}

// Every kind of process serves its metrics, with berth's, Temporal's and Go's own.
func TestMetrics_EveryProcess_ServesThem(t *testing.T) { // X3
	t.Parallel()
	addrs := map[string]string{"worker": freeAddr(t), "node": freeAddr(t)}
	s := newStack(t, with("BERTH_METRICS_ADDR=127.0.0.1:0"))
	s.worker.kill()
	s.settings = append(s.settings, "BERTH_METRICS_ADDR="+addrs["worker"])
	s.worker = s.startWorker()
	s.settings[len(s.settings)-1] = "BERTH_METRICS_ADDR=" + addrs["node"]
	s.translator("n1")
	acc := submitMatch(t, s.user("alice"), berth.LocaleEN, "")
	watch(t, s.user("alice"), acc.TaskID, nil)
	status, _ := s.send(http.MethodPatch, "/v1/models/deepseek-reasoner", s.token("op", "operator"), map[string]any{"cap": 7})
	require.Equal(t, http.StatusOK, status)
	s.settled()
	s.execute(`UPDATE accounts SET credits = credits + 7 WHERE user_id = 'alice'`)
	require.EqualValues(t, 1, s.fullPass(true).Found())
	for process, wanted := range map[string][]string{
		"worker": {
			`berth_steps_total{model="deepseek-reasoner",outcome="ok",queue="q_paid_stream"} 1`, "berth_step_duration_seconds_bucket", "berth_publishes_total",
			"berth_slot_wait_seconds_bucket", `berth_slots_limit{model="deepseek-reasoner",upstream="deepseek"} 7`, `berth_nodes{kind="translate",state="ready"} 1`,
			`berth_sweeps_total{outcome="ok"}`, `db_client_operation_duration_seconds_bucket{db_stored_procedure_name="acquire_slot"`,
			"gen_ai_client_token_usage_bucket", `gen_ai_provider_name="simulator"`, `berth_dependency_up{dependency="redis"} 1`, `berth_build_info{version="`, "temporal_workflow_completed", "go_goroutines",
			`berth_reconcile_passes_total{kind="full",outcome="stopped"} 0`, `berth_reconcile_findings_total{outcome="repaired",rule="balance"} 0`,
		},
		"node": {`berth_dependency_up{dependency="api"} 1`, `berth_dependency_up{dependency="temporal"} 1`, "berth_build_info"},
	} {
		body := ""
		t.Cleanup(func() {
			if t.Failed() {
				t.Logf("metrics of the %s:\n%s", process, body)
			}
		})
		s.eventually("metrics of the "+process, func() bool {
			body = scrape(addrs[process])
			for _, w := range wanted {
				if !strings.Contains(body, w) {
					return false
				}
			}
			return true
		})
		require.NotContains(t, body, "task_queue=", "a node's queue has its id")
		require.NotContains(t, body, `berth_reconcile_findings_total{outcome="holds"`, "a dry run is not counted")
		require.NotContains(t, body, acc.TaskID, "labels have few values")
		res, err := http.Get("http://" + addrs[process] + "/readyz") //nolint:noctx // a test's own server
		require.NoError(t, err)
		require.Equal(t, http.StatusOK, res.StatusCode)
		require.NoError(t, res.Body.Close())
	}
}

// scrape returns the metrics of a process, empty if it does not serve them.
func scrape(addr string) string {
	res, err := http.Get("http://" + addr + "/metrics") //nolint:noctx // a test's own server
	if err != nil {
		return ""
	}
	defer func() { _ = res.Body.Close() }()
	b, err := io.ReadAll(res.Body)
	if err != nil {
		return ""
	}
	return string(b)
}
