package tests

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"berth"
	"berth/client"
	"berth/internal/testredis"
	"berth/workflows"
)

// L6, P7: one request is one job, even if it is sent many times and concurrently.
func TestTurn_ConcurrentDuplicates_OneJob(t *testing.T) {
	s := shareStack(t)
	d := s.testNode("dup-a", 100)
	d.held.Store(true)
	c := s.session("alice", "dup-s1")
	ask := func(spec client.JobSpec) (fresh int, same client.Dispatch) {
		const n = 100
		type answer struct {
			client.Dispatch
			err error
		}
		answers := make(chan answer, n)
		for range n {
			go func() {
				var a answer
				for range 20 { // a hundred concurrent requests may exceed the limit of a turn: retry on 503
					a.Dispatch, a.err = c.Dispatch(context.Background(), c.id, spec)
					if p := new(client.Problem); !errors.As(a.err, &p) || p.Status != http.StatusServiceUnavailable {
						break
					}
				}
				answers <- a
			}()
		}
		for i := range n {
			a := <-answers
			require.NoError(t, a.err)
			if !a.Replay {
				fresh++
			}
			a.Replay = false
			if i == 0 {
				same = a.Dispatch
			}
			require.Equal(t, same, a.Dispatch)
		}
		return fresh, same
	}
	first := client.JobSpec{RequestID: "r0", Segment: client.Segment{Text: "one"}}
	fresh, begun := ask(first)
	require.LessOrEqual(t, fresh, 1, "a lost response is repeated as a replay")
	next := client.JobSpec{RequestID: "r1", TurnID: begun.TurnID, Segment: client.Segment{Index: 1, Text: "two"}}
	fresh, second := ask(next)
	require.LessOrEqual(t, fresh, 1)
	require.Equal(t, begun.NodeID, second.NodeID)
	require.Len(t, c.turn(begun.TurnID).Jobs, 2)
	for range 2 {
		d.next(s).answer <- nil
	}

	other := next
	other.Segment.Text = "three"
	_, err := c.Dispatch(t.Context(), c.id, other)
	require.Equal(t, berth.CodeIdempotencyMismatch, problem(t, err).Code)
	require.Equal(t, http.StatusUnprocessableEntity, problem(t, err).Status)
	require.NoError(t, c.FinalizeTurn(t.Context(), begun.TurnID))
	require.Equal(t, "turn, 0:one, 1:two, done(manual 0/2)", c.await(begun.TurnID, berth.EventDone))
	s.eventually("the run to end", func() bool { return s.closed(workflows.TurnWorkflowID(begun.TurnID)) })
	fresh, again := ask(first)
	require.Zero(t, fresh)
	require.Equal(t, begun, again, "also after the turn has ended")
	_, err = c.Dispatch(t.Context(), c.id, other)
	require.Equal(t, berth.CodeIdempotencyMismatch, problem(t, err).Code)
	require.Empty(t, d.jobs, "no node ran it twice")
	s.noSlots("dup-a")
}

// A request that is refused in a running turn is retried with the same id until a node has a free slot.
func TestTurn_SegmentRefused_RetryIsAccepted(t *testing.T) {
	s := shareStack(t)
	d := s.testNode("refuse-a", 1)
	d.held.Store(true)
	c := s.session("alice", "refuse-s1")
	first := c.submit("", 0, "")
	job := d.next(s)
	for range 3 {
		_, err := c.trySubmit(first.TurnID, 1, berth.FinalizeManual)
		p := problem(t, err)
		require.Equal(t, berth.CodeNodeFull, p.Code)
		require.Equal(t, http.StatusServiceUnavailable, p.Status)
	}
	require.Equal(t, berth.TurnOpen, c.turn(first.TurnID).Status, "the refused segment did not end the turn")
	job.answer <- nil
	d.held.Store(false)
	s.noSlots("refuse-a")
	second := c.submit(first.TurnID, 1, berth.FinalizeManual)
	require.False(t, second.Replay)
	require.Equal(t, "turn, 0:text 0, 1:text 1, done(manual 0/2)", c.await(first.TurnID, berth.EventDone))
	s.eventually("the run to end", func() bool { return s.closed(workflows.TurnWorkflowID(first.TurnID)) })
	again, err := c.trySubmit(first.TurnID, 1, berth.FinalizeManual)
	require.NoError(t, err)
	require.True(t, again.Replay)
	require.Equal(t, second.JobID, again.JobID)
}

// P5, L12: Redis loses all data during a turn: segments are accepted again, on the turn's node unless that registered last,
// the reader continues, and nothing is lost or repeated.
func TestTurn_RedisLosesData_TurnContinues(t *testing.T) {
	t.Parallel()
	for name, lose := range map[string]func(*testing.T, *testredis.Server){
		"wiped": func(t *testing.T, r *testredis.Server) {
			t.Helper()
			require.NoError(t, r.Client().FlushAll(t.Context()).Err())
		},
		"restarted without data": func(_ *testing.T, r *testredis.Server) {
			r.Kill()
			r.Restart()
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			redis := testredis.Start(t)
			s := newStack(t, with("TURN_TIMEOUT_MS=30000", "BERTH_REDIS_ADDR="+redis.Addr()))
			testNodes := map[string]*testNode{"a": s.testNode("a", 8), "b": s.testNode("b", 8)}
			c := s.session("alice", "s1")
			first := c.submit("", 0, "")
			c.await(first.TurnID, berth.EventTranslation)
			for _, d := range testNodes {
				d.held.Store(true)
			}
			require.Equal(t, first.NodeID, c.submit(first.TurnID, 1, "").NodeID)
			running := testNodes[first.NodeID].next(s) // a job that runs during the loss

			lose(t, redis)
			began := time.Now()
			next := c.submitAfterPause(first.TurnID, 2)
			t.Logf("the next segment was accepted %s after the loss", time.Since(began).Round(10*time.Millisecond))
			require.Equal(t, first.NodeID, c.turn(first.TurnID).AffinityNodeID, "the turn keeps its node")
			if next.NodeID != first.NodeID { // it registered a moment ago, and gets no jobs until its slots are restored
				require.Equal(t, berth.AffinityMiss, next.Affinity)
				require.Equal(t, berth.ExcludeFull, next.Missed)
			}
			later := testNodes[next.NodeID].next(s)
			for _, d := range testNodes {
				d.held.Store(false)
			}
			later.answer <- nil
			running.answer <- nil
			c.submit(first.TurnID, 3, berth.FinalizeManual)
			require.Equal(t, "turn, 0:text 0, gap, 1:text 1, 2:text 2, 3:text 3, done(manual 0/4)", c.await(first.TurnID, berth.EventDone),
				"the reader is notified of lost history, and misses nothing")
			for _, j := range c.turn(first.TurnID).Jobs {
				require.Equal(t, 1, j.Dispatches, "no job was dispatched twice")
			}
			s.noSlotsIn(redis, "a", "b")
		})
	}
}

// X5, X6: an invalid request is rejected with a clear error and has no partial effect.
func TestTurn_InvalidInput_RejectedWithoutEffect(t *testing.T) {
	s := shareStack(t)
	s.testNode("invalid-a", 8)
	c := s.session("alice", "invalid-s1")
	put := func(who *client.Client, id, src, tgt string) *client.Problem {
		_, err := who.PutSession(t.Context(), id, client.SessionSpec{SrcLang: src, TgtLang: tgt})
		return problem(t, err)
	}
	p := put(c.Client, "invalid-s9", "en", "klingon")
	require.Equal(t, http.StatusBadRequest, p.Status)
	require.Equal(t, "tgtLang", p.Field)
	s.eventually("the grace of a new Redis to be over", func() bool {
		p = put(c.Client, "invalid-s9", "en", "zh")
		return p.Code != berth.CodeUnavailable
	})
	require.Equal(t, berth.CodeNoNode, p.Code)
	require.Contains(t, p.Detail, "translate:en-zh", "an unsupported pair is named")

	first := c.submit("", 0, "")
	mallory := s.session("mallory", "invalid-s2")
	_, err := mallory.trySubmit(first.TurnID, 1, "")
	require.Equal(t, http.StatusNotFound, problem(t, err).Status, "a turn's id does not open it")
	_, err = mallory.Dispatch(t.Context(), "invalid-s2", client.JobSpec{
		RequestID: "invalid-s1..0", TurnID: first.TurnID, Segment: client.Segment{Text: "text 0"},
	})
	require.Equal(t, http.StatusNotFound, problem(t, err).Status, "nor does a request id of the turn")
	_, err = mallory.Dispatch(t.Context(), "invalid-s1", client.JobSpec{RequestID: "r", Segment: client.Segment{Text: "x"}})
	require.Equal(t, http.StatusNotFound, problem(t, err).Status)
	other := s.session("alice", "invalid-s3")
	_, err = other.trySubmit(first.TurnID, 1, "")
	require.Equal(t, http.StatusNotFound, problem(t, err).Status, "a turn belongs to its session")

	for name, spec := range map[string]client.JobSpec{
		"segment.text":  {RequestID: "r2", TurnID: first.TurnID, Segment: client.Segment{Index: 1}},
		"segment.index": {RequestID: "r2", TurnID: first.TurnID, Segment: client.Segment{Index: berth.MaxSegments, Text: "x"}},
		"finalize":      {RequestID: "r2", TurnID: first.TurnID, Segment: client.Segment{Index: 1, Text: "x"}, Finalize: "never"},
		"requestId":     {RequestID: "", TurnID: first.TurnID, Segment: client.Segment{Index: 1, Text: "x"}},
	} {
		_, err := c.Dispatch(t.Context(), c.id, spec)
		require.Equal(t, name, problem(t, err).Field)
		require.Equal(t, http.StatusBadRequest, problem(t, err).Status)
	}
	require.Len(t, c.turn(first.TurnID).Jobs, 1)
	require.NoError(t, c.FinalizeTurn(t.Context(), first.TurnID))
	require.Equal(t, berth.CodeTurnFinalized, problem(t, c.FinalizeTurn(t.Context(), first.TurnID)).Code, "finalising twice")
	_, err = c.trySubmit(first.TurnID, 1, "")
	require.Equal(t, berth.CodeTurnFinalized, problem(t, err).Code, "a job for a finished turn")
	require.Equal(t, "turn, 0:text 0, done(manual 0/1)", c.await(first.TurnID, berth.EventDone))
}

// L5: after a change of the session's languages, its open turns accept no more segments, because their nodes serve the old
// ones.
func TestSession_LanguagesChange_OpenTurnTakesNoMore(t *testing.T) {
	s := shareStack(t)
	s.testNode("change-a", 8)
	c := s.session("alice", "change-s1")
	first := c.submit("", 0, "")
	_, err := s.user("nodes", "node").RegisterNode(t.Context(), client.Registration{NodeSpec: berth.NodeSpec{
		ID: "change-fr", Kind: berth.NodeTranslate, Incarnation: berth.Incarnation{Host: "h", PID: 1, StartedAt: 1},
		Capabilities: []string{"translate:en-fr"}, MaxConcurrentJobs: 4,
	}})
	require.NoError(t, err)
	s.eventually("the pair to be known", func() bool {
		sn, err := c.PutSession(t.Context(), c.id, client.SessionSpec{SrcLang: "en", TgtLang: "fr"})
		return err == nil && sn.PreferredPool == "translate:en-fr"
	})
	_, err = c.trySubmit(first.TurnID, 1, "")
	require.Equal(t, berth.CodeConflict, problem(t, err).Code)
	fresh, err := c.Dispatch(t.Context(), c.id, client.JobSpec{RequestID: "r9", Segment: client.Segment{Text: "x"}, Finalize: berth.FinalizeManual})
	require.NoError(t, err)
	require.Equal(t, "change-fr", fresh.NodeID)
	require.NoError(t, c.FinalizeTurn(t.Context(), first.TurnID))
	require.Equal(t, fmt.Sprintf("turn, 0:text 0, done(%s 0/1)", berth.FinalizeManual), c.await(first.TurnID, berth.EventDone))
}
