package tests

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/api/enums/v1"

	"berth"
	"berth/client"
	"berth/internal/unit"
	"berth/workflows"
)

// P4, P10: a process that was stopped for longer than its deadline changes nothing when it continues.
func TestFencing_StoppedPastDeadline_ChangesNothing(t *testing.T) {
	t.Parallel()
	s := newStack(t, with("TURN_TIMEOUT_MS=60000"))
	s.setTimes(berth.NodeTranslate, 500, 3000, 6000) // on a busy machine a node may report late, but must not be declared dead
	t.Run("a node's result is refused", func(t *testing.T) {
		// A node that continues may also learn first that its job was taken from it.
		require.True(t, slices.ContainsFunc([]string{"first", "second", "third", "fourth", "fifth"}, func(session string) bool {
			return stoppedNode(t, s, session)
		}), "no stopped node sent its result")
	})
	t.Run("a lease is not renewed", func(t *testing.T) { stoppedHolder(t, s) })
	t.Run("an old generation revives nothing", func(t *testing.T) { oldGeneration(t, s) })
}

// stoppedNode stops a node during a job until it is declared dead and another node has run the job. Its command ends
// meanwhile, so that it continues with a result. It reports whether the node has sent that: a heartbeat that is refused first cancels
// the job.
func stoppedNode(t *testing.T, s *stack, session string) (sent bool) {
	dir := t.TempDir()
	command := fmt.Sprintf(`read line; echo $BERTH_NODE_ID >>'%[1]s/'$BERTH_JOB_ID; sleep 1; echo "$line, said by $BERTH_NODE_ID"`, dir)
	nodes := map[string]*process{}
	for _, id := range []string{"n1", "n2"} {
		nodes[id] = s.start("berth", []string{"node", "--id", id, "--capabilities", enES, "--driver", "exec", "--exec", command},
			append([]string{"BERTH_URL=http://" + s.httpAddr, "BERTH_TOKEN=" + s.token("nodes", "node"), "BERTH_LOG_LEVEL=debug"}, s.settings...))
		s.awaitNode(id)
	}
	c := s.session("alice", session)
	first := c.submit("", 0, "")
	workers := func() []string {
		b, _ := os.ReadFile(filepath.Join(dir, first.JobID)) // the file may not exist yet
		return strings.Fields(string(b))
	}
	s.eventually("the job to run", func() bool { return len(workers()) == 1 })
	victim := nodes[first.NodeID]
	require.NoError(t, victim.cmd.Process.Signal(syscall.SIGSTOP))
	c.await(first.TurnID, berth.EventTranslation)
	require.Len(t, workers(), 2)
	operator := s.user("op", "operator")
	s.eventually("the node to be declared dead", func() bool {
		n, err := operator.Node(t.Context(), first.NodeID)
		return err == nil && n.State == berth.NodeDead
	})

	require.NoError(t, victim.cmd.Process.Signal(syscall.SIGCONT))
	s.eventually("its job to end", func() bool {
		ended := func(how string) bool {
			return strings.Contains(string(victim.output()), fmt.Sprintf(`"job %s" node=%s job=%s`, how, first.NodeID, first.JobID))
		}
		sent = ended("finished")
		return sent || ended("failed")
	})
	var back berth.Node
	s.eventually("it to be back as another generation", func() bool {
		var err error
		back, err = operator.Node(t.Context(), first.NodeID)
		return err == nil && back.State == berth.NodeReady
	})
	require.Greater(t, back.Generation, first.Generation)
	c.submit(first.TurnID, 1, berth.FinalizeManual)
	require.Equal(t, "turn, 0:text 0, said by n1, 1:text 1, said by n1, done(manual 0/2)",
		strings.ReplaceAll(c.await(first.TurnID, berth.EventDone), "n2", "n1"), "the reader receives each once")
	turn := c.turn(first.TurnID)
	require.NotEqual(t, first.NodeID, turn.Jobs[0].NodeID)
	require.Contains(t, turn.Jobs[0].Text, "said by "+turn.Jobs[0].NodeID)
	s.awaitEnd(workflows.TurnWorkflowID(first.TurnID))
	done := 0
	for _, ev := range s.history(t.Context(), s.temporal(), workflows.TurnWorkflowID(first.TurnID), "").GetEvents() {
		if ev.GetEventType() == enums.EVENT_TYPE_ACTIVITY_TASK_COMPLETED {
			done++
		}
	}
	require.Equal(t, 2, done, "one result per segment")
	s.noSlots("n1", "n2")
	for _, p := range nodes {
		require.True(t, p.stop(maxWait))
	}
	return sent
}

// stoppedHolder lets a holder's lease expire until another caller has its slot: its renewals and releases do not affect that.
func stoppedHolder(t *testing.T, s *stack) {
	token := s.token("nodes", "node")
	_, err := s.user("nodes", "node").RegisterNode(t.Context(), client.Registration{NodeSpec: berth.NodeSpec{
		ID: "e1", Kind: berth.NodeEngine, Incarnation: berth.Incarnation{Host: "h", PID: 1, StartedAt: 1}, Capabilities: []string{"paint"}, MaxConcurrentJobs: 1,
	}})
	require.NoError(t, err)
	status, held := s.send(http.MethodPost, "/v1/assignments", token, map[string]any{"leaseId": "stopped", "poolId": "paint", "holdMs": 1000})
	require.Equal(t, http.StatusOK, status, "%v", held)
	other := s.token("others", "node")
	s.eventually("the slot to be another's", func() bool {
		status, _ := s.send(http.MethodPost, "/v1/assignments", other, map[string]any{"leaseId": "next", "poolId": "paint", "holdMs": 60_000})
		return status == http.StatusOK
	})
	for _, body := range []any{map[string]any{}, held} {
		status, p := s.send(http.MethodPut, "/v1/assignments/stopped", token, body)
		require.Equal(t, http.StatusConflict, status, "%v", p)
	}
	status, _ = s.send(http.MethodDelete, "/v1/assignments/stopped", token, nil)
	require.Equal(t, http.StatusNoContent, status)
	status, p := s.send(http.MethodPost, "/v1/assignments", token, map[string]any{"leaseId": "stopped", "poolId": "paint"})
	require.Equal(t, http.StatusServiceUnavailable, status, "it is still the other's: %v", p)
	status, _ = s.send(http.MethodPut, "/v1/assignments/next", other, map[string]any{})
	require.Equal(t, http.StatusOK, status)
}

// oldGeneration lets an old process send heartbeats for a node whose new process sends none. The new generation is declared
// dead in time, receives no jobs, and neither process can revive it.
func oldGeneration(t *testing.T, s *stack) {
	nodes, operator := s.user("nodes", "node"), s.user("op", "operator")
	register := func(pid int) int64 {
		r, err := nodes.RegisterNode(t.Context(), client.Registration{NodeSpec: berth.NodeSpec{
			ID: "twice", Kind: berth.NodeTranslate, Incarnation: berth.Incarnation{Host: "h", PID: pid, StartedAt: int64(pid)},
			Capabilities: []string{"translate:en-fr"}, MaxConcurrentJobs: 1,
		}})
		require.NoError(t, err)
		return r.Generation
	}
	old := register(1)
	now := register(2)
	require.Greater(t, now, old)
	c := s.user("alice")
	s.eventually("the pair to be served", func() bool {
		_, err := c.PutSession(t.Context(), "s2", client.SessionSpec{SrcLang: "en", TgtLang: "fr"})
		return err == nil
	})
	refused := func(generation int64) {
		_, err := nodes.HeartbeatNode(t.Context(), "twice", client.Heartbeat{Generation: generation})
		require.Equal(t, http.StatusConflict, problem(t, err).Status)
	}
	var last berth.Node
	s.eventually("the node to be declared dead", func() bool {
		refused(old)
		var err error
		last, err = operator.Node(t.Context(), "twice")
		return err == nil && last.State == berth.NodeDead
	})
	for _, generation := range []int64{old, now, now + 1, old, now} {
		refused(generation)
	}
	after, err := operator.Node(t.Context(), "twice")
	require.NoError(t, err)
	require.Equal(t, last.HeartbeatAt, after.HeartbeatAt)
	require.Equal(t, berth.NodeDead, after.State)
	_, err = c.Dispatch(t.Context(), "s2", jobSpec("r1", berth.FinalizeManual))
	require.Equal(t, berth.CodeNoNode, problem(t, err).Code)
	s.eventually("one recovery to begin", func() bool {
		return bytes.Contains(s.worker.output(), fmt.Appendf(nil, "node=twice generation=%d kind=translate reason=unresponsive", now))
	})
	require.Equal(t, 1, strings.Count(string(s.worker.output()), "node=twice generation="+fmt.Sprint(now)), "notified once")
	require.Greater(t, register(2), now, "only by registering again")
}

// P4 for conferences: a unit is stopped for longer than its deadline and its conferences are recovered elsewhere. Its
// reports with the old epochs are dropped and counted, its late creation is not acknowledged, and it is requested to
// release stale copies.
func TestFencing_UnitStoppedPastDeadline_ReportsAreDropped(t *testing.T) { // C7, C16, C17, C20
	s := shareStack(t)
	m := s.conferences()
	u1 := s.media("stop-u1", 5)
	stays, ends := m.open("8660000001").Conference, m.open("8660000002").Conference
	u1.fail(unit.FaultSlow)
	const late = "8660000003"
	answered := make(chan error, 1)
	go func() {
		_, err := m.CreateConference(context.Background(), client.ConferenceSpec{E164: late, DurationMs: time.Hour.Milliseconds(), Zone: s.zone})
		answered <- err
	}()
	tc := s.temporal()
	s.eventually("u1 to be creating it", func() bool {
		d, err := tc.DescribeWorkflowExecution(t.Context(), workflows.ConferenceWorkflowID(late), "")
		return err == nil && len(d.GetPendingActivities()) == 1 && d.GetPendingActivities()[0].GetState() == enums.PENDING_ACTIVITY_STATE_STARTED
	})
	require.NoError(t, u1.cmd.Process.Signal(syscall.SIGSTOP))
	u2 := s.media("stop-u2", 5)
	for _, e164 := range []string{stays.E164, ends.E164, late} {
		m.await(e164, "on u2", on("stop-u2"))
	}
	require.NoError(t, <-answered)
	owned := m.await(late, "on u2", on("stop-u2")).Owner
	begun := owned.Epoch - 1
	m.end(ends.E164, "conference-recovered")

	units := s.user("units", "node")
	reported := 0
	says := func(e164 string, epoch int64, status int) {
		for _, in := range []berth.ConferenceInfo{
			{Full: true, Live: json.RawMessage(`{"participantCount":9}`)}, // information
			{Ended: true}, // C17: a release notice
		} {
			in.NodeID, in.Generation, in.Epoch = "stop-u1", stays.Owner.Generation, epoch
			require.Equal(t, status, problem(t, units.ReportConference(t.Context(), e164, in)).Status)
			if status == http.StatusConflict {
				reported++
			}
		}
	}
	stale := func() {
		says(stays.E164, stays.Owner.Epoch, http.StatusConflict)
		says(late, begun, http.StatusConflict)
		says(ends.E164, ends.Owner.Epoch, http.StatusNotFound)
	}
	stale()
	require.NoError(t, u1.cmd.Process.Signal(syscall.SIGCONT))
	s.eventually("the late creation to be done", func() bool { // or cancelled, if its heartbeat is sent first
		return bytes.Contains(u1.output(), []byte(`"job finished" unit=stop-u1 node=stop-u1 job=`+late)) ||
			bytes.Contains(u1.output(), []byte(`"job failed" unit=stop-u1 node=stop-u1 job=`+late))
	})
	stale()
	back := m.await(stays.E164, "the earlier copy again (C7)", on("stop-u1"))
	s.eventually("each conference to be on one unit", func() bool { // u1 is requested to release ended and late copies
		return maps.Equal(u1.runs(), map[string]int64{stays.E164: back.Owner.Epoch}) && maps.Equal(u2.runs(), map[string]int64{late: owned.Epoch})
	})
	stale()
	require.Equal(t, owned, m.await(late, "still on u2", on("stop-u2")).Owner)
	require.Greater(t, back.Owner.Epoch, stays.Owner.Epoch)
	m.awaitParticipants(stays.E164, 0) // the report of its unit, not the dropped one
	var dropped struct{ Stale map[string]int }
	status, stats := s.send(http.MethodGet, "/v1/stats/conferences", s.token("op", "operator"), nil)
	require.Equal(t, http.StatusOK, status)
	b, err := json.Marshal(stats)
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(b, &dropped))
	require.GreaterOrEqual(t, dropped.Stale["stop-u1"], reported, "dropped reports are counted")
	lines := bytes.Count(s.api.output(), []byte(`msg="report rejected: unit is not the owner"`))
	require.GreaterOrEqual(t, lines, reported, "dropped reports are logged")
	for _, o := range m.await(late, "still on u2", on("stop-u2")).Orders {
		if o.NodeID == "stop-u1" && o.Command == berth.ActivityCreateConference {
			require.Contains(t, o.Outcome, "lost", "its acknowledgement was not accepted")
		}
	}
	m.end(stays.E164, "conference-adopted")
	m.end(late, "conference-stopped-creation")
	s.noSlots("stop-u1", "stop-u2")
}
