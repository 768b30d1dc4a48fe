package tests

import (
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	commonpb "go.temporal.io/api/common/v1"
	failurepb "go.temporal.io/api/failure/v1"
	"go.temporal.io/api/history/v1"
	"go.temporal.io/api/proxy"
	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/converter"
	"google.golang.org/protobuf/proto"

	"berth"
	"berth/client"
	"berth/internal/clienttls"
	"berth/internal/payload"
	"berth/internal/sim"
	"berth/internal/temporalconn"
	"berth/internal/testcert"
	"berth/workflows"
)

// payloadKey is a key in base64 that consists of one repeated character.
func payloadKey(c string) string {
	return base64.StdEncoding.EncodeToString([]byte(strings.Repeat(c, 32)))
}

// withKeys makes API, workers and nodes encrypt what Temporal stores.
func withKeys(tb testing.TB, list string) option {
	tb.Helper()
	keys, err := payload.ParseKeys(list)
	require.NoError(tb, err)
	return func(s *stack) {
		s.settings = append(s.settings, "BERTH_PAYLOAD_KEYS="+list)
		s.connection.PayloadKeys = keys
	}
}

// withMutualTLS makes Temporal and its clients require certificates of each other.
func withMutualTLS(tb testing.TB) option {
	tb.Helper()
	ca := testcert.New(tb)
	server, own := ca.Issue(tb, "temporal.test"), ca.Issue(tb, "berth.test")
	settings := []string{
		"BERTH_TEMPORAL_TLS_CA=" + ca.File, "BERTH_TEMPORAL_TLS_CERT=" + own.Cert, "BERTH_TEMPORAL_TLS_KEY=" + own.Key,
		"BERTH_TEMPORAL_TLS_SERVER_NAME=temporal.test",
	}
	return func(s *stack) {
		s.settings = append(s.settings, settings...)
		s.infraSettings = append(append(s.infraSettings, settings...),
			"BERTH_TEMPORAL_TLS_SERVER_CERT="+server.Cert, "BERTH_TEMPORAL_TLS_SERVER_KEY="+server.Key)
		s.connection.TLS = clienttls.Files{CA: ca.File, Cert: own.Cert, Key: own.Key, ServerName: "temporal.test"}
	}
}

// histories returns the histories of all runs, by workflow id and run id.
func (s *stack) histories() map[string]*history.History {
	s.tb.Helper()
	c, all := s.temporal(), map[string]*history.History{}
	list, err := c.ListWorkflow(context.Background(), &workflowservice.ListWorkflowExecutionsRequest{PageSize: 1000})
	require.NoError(s.tb, err)
	require.Empty(s.tb, list.GetNextPageToken())
	for _, e := range list.GetExecutions() {
		id, run := e.GetExecution().GetWorkflowId(), e.GetExecution().GetRunId()
		all[id+" "+run] = s.history(context.Background(), c, id, run)
	}
	return all
}

// payloadsOf returns all payloads of a history, including those of failures, except the values of search attributes.
func payloadsOf(t *testing.T, h *history.History) (all []*commonpb.Payload) {
	t.Helper()
	for _, ev := range h.GetEvents() {
		require.NoError(t, proxy.VisitPayloads(t.Context(), ev, proxy.VisitPayloadsOptions{
			SkipSearchAttributes: true,
			Visitor: func(_ *proxy.VisitPayloadsContext, p []*commonpb.Payload) ([]*commonpb.Payload, error) {
				all = append(all, p...)
				return p, nil
			},
		}), ev)
	}
	return all
}

// remoteCodec is the codec of the Temporal UI: it decodes with the API and a token.
func (s *stack) remoteCodec(token string) converter.PayloadCodec {
	return converter.NewRemotePayloadCodec(converter.RemotePayloadCodecOptions{
		Endpoint: "http://" + s.httpAddr + "/v1/codec",
		ModifyRequest: func(req *http.Request) error {
			req.Header.Set("Authorization", "Bearer "+token)
			return nil
		},
	})
}

func TestTemporal_MutualTLSAndKeys_HistoriesAreUnreadable(t *testing.T) { // B7
	t.Parallel()
	s := newStack(t, withMutualTLS(t), withKeys(t, "k1:"+payloadKey("1")))
	const (
		segment = "the queen sails at dawn"
		reason  = "the mast is broken"
		title   = "about the merger"
		fault   = "the API key is not valid (fault on demand)" // of the model simulator
	)

	// A chain that completes, a task that fails, a job that fails on a node and runs on another one, a conference.
	alice := s.user("alice")
	chain := watch(t, alice, submitMatch(t, alice, berth.LocaleEN, "").TaskID, nil)
	require.Equal(t, berth.EventDone, chain.last.Type)
	s.fault(sim.Fault{Kind: sim.Fault401})
	acc, err := alice.Submit(t.Context(), client.Submission{
		TaskID: "fails", ServiceID: "career", Template: "job_summary", Variables: map[string]any{"jobText": "harpooner"},
	}, "")
	require.NoError(t, err)
	require.Equal(t, berth.EventError, watch(t, alice, acc.TaskID, nil).last.Type)

	broken := s.testNode("broken", 2)
	broken.held.Store(true)
	session := s.session("alice", "s1")
	turn, err := session.Dispatch(t.Context(), "s1", client.JobSpec{RequestID: "r1", Segment: client.Segment{Text: segment}, Finalize: berth.FinalizeManual})
	require.NoError(t, err)
	broken.next(s).answer <- errors.New(reason)
	s.translator("translates")
	require.Contains(t, session.await(turn.TurnID, berth.EventDone), "done(manual")
	s.awaitEnd(workflows.TurnWorkflowID(turn.TurnID))

	s.media("unit", 2)
	conferences := s.conferences()
	conferences.open("8881000001", func(spec *client.ConferenceSpec) { spec.Title = title })
	conferences.await("8881000001", "open", on("unit"))
	conferences.end("8881000001", "")

	ids := []string{
		workflows.TaskWorkflowID(berth.TaskRef{UserID: "alice", TaskID: acc.TaskID}), workflows.TurnWorkflowID(turn.TurnID), workflows.ConferenceWorkflowID("8881000001"),
	}
	var all map[string]*history.History
	s.eventually("all runs to be listed", func() bool {
		all = s.histories()
		listed := slices.Collect(maps.Keys(all))
		return !slices.ContainsFunc(ids, func(id string) bool {
			return !slices.ContainsFunc(listed, func(run string) bool { return strings.HasPrefix(run, id+" ") })
		})
	})

	operator, opened := s.remoteCodec(s.token("op", "operator")), &bytes.Buffer{}
	for run, h := range all {
		for _, ev := range h.GetEvents() {
			b, err := proto.Marshal(ev)
			require.NoError(t, err)
			for _, text := range []string{segment, "queen", reason, title, "harpooner", "PostgreSQL", chain.last.Text[:20], fault} {
				require.NotContains(t, string(b), text, "%s: %s", run, ev.GetEventType())
			}
			require.NoError(t, proxy.VisitFailures(t.Context(), ev, proxy.VisitFailuresOptions{Visitor: requireEncodedFailure(t, run)}))
		}
		sealed := payloadsOf(t, h)
		for _, p := range sealed {
			require.Equal(t, "binary/encrypted", string(p.GetMetadata()["encoding"]), "%s: %s", run, p)
		}
		if len(sealed) == 0 {
			continue
		}
		plain, err := operator.Decode(sealed)
		require.NoError(t, err, run)
		for _, p := range plain {
			opened.Write(p.GetData())
		}
		_, err = s.remoteCodec(s.token("alice")).Decode(sealed)
		require.ErrorContains(t, err, "Forbidden")
	}
	for _, text := range []string{segment, reason, title, fault} {
		require.Contains(t, opened.String(), text, "the codec endpoint decodes")
	}

	plainClient, err := temporalconn.Open(temporalconn.Options{Addr: s.ready.TemporalAddr})
	require.NoError(t, err)
	defer plainClient.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	_, err = plainClient.CheckHealth(ctx, nil)
	require.Error(t, err, "Temporal accepts no client without TLS")
}

// requireEncodedFailure returns a visitor of failures. Those that the server makes, such as timeouts, have a constant message.
func requireEncodedFailure(t *testing.T, run string) func(*proxy.VisitFailuresContext, *failurepb.Failure) error {
	return func(_ *proxy.VisitFailuresContext, f *failurepb.Failure) error {
		if f.GetSource() == "GoSDK" {
			require.Equal(t, "Encoded failure", f.GetMessage(), run)
			require.Empty(t, f.GetStackTrace(), run)
		}
		return nil
	}
}

// A worker whose settings lack the key must not fail what it cannot read.
func TestWorker_PayloadKeyMissing_TaskCompletesWhenItIsSet(t *testing.T) { // B7
	t.Parallel()
	s := prepareStack(t, t.TempDir(), withKeys(t, "k1:"+payloadKey("1")))
	t.Cleanup(s.close)
	s.startInfra()
	s.startAPI()
	without := s.start("berth", []string{"worker"}, append(slices.Clone(s.settings), "BERTH_PAYLOAD_KEYS="))
	submitted := make(chan client.Acceptance, 1)
	alice := s.user("alice")
	go func() {
		for { // the API returns 503 until a worker accepts the task
			acc, err := alice.Submit(t.Context(), client.Submission{
				TaskID: "t1", ServiceID: "career", Template: "job_summary", Variables: map[string]any{"jobText": "harpooner"},
			}, "")
			if err == nil || t.Context().Err() != nil {
				submitted <- acc
				return
			}
		}
	}()
	s.awaitOutput(without, `payload is encrypted with key .*k1.*, but BERTH_PAYLOAD_KEYS is not set`)
	require.True(t, without.stop(maxWait))
	s.worker = s.startWorker()
	acc := <-submitted
	require.Equal(t, berth.EventDone, watch(t, alice, acc.TaskID, nil).last.Type)
	s.succeeds(workflows.TaskWorkflowID(berth.TaskRef{UserID: "alice", TaskID: "t1"}))
}
