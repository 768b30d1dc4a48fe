package tests

import (
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"berth"
	"berth/client"
	"berth/lua"
	"berth/workflows"
)

// A1-A8, A10 over HTTP, with real processes and two nodes.
func TestTurn_TwoNodes_FollowsNodeAndKeepsOrder(t *testing.T) {
	t.Parallel()
	s := newStack(t, with("TURN_TIMEOUT_MS=30000"))
	a, b := s.testNode("a", 8), s.testNode("b", 8)
	testNodes := map[string]*testNode{"a": a, "b": b}

	t.Run("a turn stays on its node and its results are in order", func(t *testing.T) { // A1-A4, A6, A7, A10
		c := s.session("alice", "s1")
		for _, d := range testNodes {
			d.held.Store(true)
		}
		first := c.submit("", 0, berth.FinalizeNone)
		require.Equal(t, berth.AffinityFirst, first.Affinity)
		again, err := c.trySubmit("", 0, berth.FinalizeNone)
		require.NoError(t, err)
		require.True(t, again.Replay)
		again.Replay = false
		require.Equal(t, first, again, "a retry returns the same turn and job")
		for i := 1; i < 5; i++ {
			next := c.submit(first.TurnID, i, berth.FinalizeMaxDuration)
			require.Equal(t, first.NodeID, next.NodeID)
			require.Equal(t, berth.AffinityHit, next.Affinity)
		}
		last := c.submit(first.TurnID, 5, berth.FinalizeManual)
		require.Equal(t, first.NodeID, last.NodeID, "the segment that ends the turn uses the same node")
		turn := c.turn(first.TurnID)
		require.Equal(t, berth.TurnFinalized, turn.Status)
		require.Empty(t, turn.AffinityNodeID)
		_, err = c.trySubmit(first.TurnID, 6, berth.FinalizeNone)
		require.Equal(t, berth.CodeTurnFinalized, problem(t, err).Code)

		jobs := make([]testJob, 6)
		for range jobs {
			job := testNodes[first.NodeID].next(s)
			jobs[job.in.Index] = job
		}
		for i := range jobs { // submitted in reverse order
			jobs[len(jobs)-1-i].answer <- nil
		}
		require.Equal(t, "turn, 0:text 0, 1:text 1, 2:text 2, 3:text 3, 4:text 4, 5:text 5, done(manual 0/6)", c.await(first.TurnID, berth.EventDone))
		for _, d := range testNodes {
			d.held.Store(false)
		}
		s.awaitEnd(workflows.TurnWorkflowID(first.TurnID))
		stored, err := c.trySubmit("", 0, berth.FinalizeNone)
		require.NoError(t, err)
		require.Equal(t, first.JobID, stored.JobID, "also after the turn has ended")
		_, err = c.trySubmit(first.TurnID, 7, berth.FinalizeNone)
		require.Equal(t, berth.CodeTurnFinalized, problem(t, err).Code)
		require.Equal(t, http.StatusConflict, problem(t, c.FinalizeTurn(t.Context(), first.TurnID)).Status)
		s.noSlots("a", "b")
		s.saveHistory("turn-in-order", workflows.TurnWorkflowID(first.TurnID))
	})

	t.Run("two speakers in one session have two turns", func(t *testing.T) { // A8
		c := s.session("alice", "s2")
		one := c.submit("", 0, "")
		two, err := c.Dispatch(t.Context(), c.id, client.JobSpec{RequestID: "other", SpeakerID: "eve", Segment: client.Segment{Text: "hello"}})
		require.NoError(t, err)
		require.NotEqual(t, one.TurnID, two.TurnID)
		require.Equal(t, berth.AffinityFirst, two.Affinity)
		for i := 1; i < 4; i++ {
			require.Equal(t, one.NodeID, c.submit(one.TurnID, i, "").NodeID)
			require.Equal(t, two.NodeID, c.submit(two.TurnID, i, "").NodeID)
		}
		require.NoError(t, c.FinalizeTurn(t.Context(), one.TurnID))
		require.Equal(t, two.NodeID, c.submit(two.TurnID, 4, berth.FinalizeTimeout).NodeID)
		require.Equal(t, "turn, 0:text 0, 1:text 1, 2:text 2, 3:text 3, done(manual 0/4)", c.await(one.TurnID, berth.EventDone))
		require.Equal(t, "turn, 0:hello, 1:text 1, 2:text 2, 3:text 3, 4:text 4, done(timeout 0/5)", c.await(two.TurnID, berth.EventDone))
	})

	t.Run("after a node fails, another node runs the job", func(t *testing.T) { // A11
		c := s.session("alice", "s3")
		for _, d := range testNodes {
			d.held.Store(true)
		}
		first := c.submit("", 0, "")
		job := testNodes[first.NodeID].next(s)
		job.answer <- berth.Errorf(berth.CodeNodeFailed, "out of memory")
		other := map[string]*testNode{"a": b, "b": a}[first.NodeID]
		redone := other.next(s)
		require.Equal(t, 2, redone.in.Dispatch)
		redone.answer <- nil
		c.submit(first.TurnID, 1, berth.FinalizeManual)
		testNodes[first.NodeID].next(s).answer <- berth.Invalid("text", "unknown language")
		for _, d := range testNodes {
			d.held.Store(false)
		}
		require.Equal(t, "turn, 0:text 0, 1:invalid, done(manual 1/2)", c.await(first.TurnID, berth.EventDone))
		s.awaitEnd(workflows.TurnWorkflowID(first.TurnID))
		s.noSlots("a", "b")
		s.saveHistory("turn-node-failed", workflows.TurnWorkflowID(first.TurnID))
	})

	t.Run("failed nodes are retried, and the last error is reported", func(t *testing.T) { // A11
		c := s.session("alice", "s3b")
		for _, d := range testNodes {
			d.held.Store(true)
		}
		first := c.submit("", 0, berth.FinalizeManual)
		var last string
		for dispatch, reason := range []string{"out of memory", "no such model", "still no memory", "exit status 3:\n broken"} {
			var job testJob
			select {
			case job = <-a.jobs:
				last = "a"
			case job = <-b.jobs:
				last = "b"
			case <-time.After(maxWait):
				t.Fatal("no node tries again")
			}
			require.Equal(t, dispatch+1, job.in.Dispatch)
			job.answer <- berth.Errorf(berth.CodeNodeFailed, "%s", reason)
		}
		require.Equal(t, "turn, 0:node_failed, done(manual 1/1)", c.await(first.TurnID, berth.EventDone))
		for _, d := range testNodes {
			d.held.Store(false)
		}
		s.awaitEnd(workflows.TurnWorkflowID(first.TurnID))
		turn, err := c.Turn(t.Context(), first.TurnID)
		require.NoError(t, err)
		require.Equal(t, "attempt 4 failed, on "+last+": exit status 3: broken", turn.Jobs[0].Message)
		s.noSlots("a", "b")
		s.saveHistory("turn-nodes-failed", workflows.TurnWorkflowID(first.TurnID))
	})

	t.Run("a cancelled run reports the end of its turn", func(t *testing.T) {
		c := s.session("alice", "s4")
		for _, d := range testNodes {
			d.held.Store(true)
		}
		first := c.submit("", 0, "")
		testNodes[first.NodeID].next(s)
		require.NoError(t, s.temporal().CancelWorkflow(t.Context(), workflows.TurnWorkflowID(first.TurnID), ""))
		require.Equal(t, "turn, 0:cancelled, done(manual 1/1)", c.await(first.TurnID, berth.EventDone))
		for _, d := range testNodes {
			d.held.Store(false)
		}
		s.noSlots("a", "b")
		s.awaitEnd(workflows.TurnWorkflowID(first.TurnID))
		s.saveHistory("turn-cancelled", workflows.TurnWorkflowID(first.TurnID))
	})

	t.Run("a long job keeps its slot", func(t *testing.T) { // L7
		c := s.session("alice", "s5")
		for _, d := range testNodes {
			d.held.Store(true)
		}
		first := c.submit("", 0, berth.FinalizeManual)
		job := testNodes[first.NodeID].next(s)
		slots := lua.New(s.redis(), lua.Keys{})
		s.eventually("the slot to be confirmed", func() bool {
			until, err := s.redis().ZScore(t.Context(), slots.Keys().NodeSlots(first.NodeID), first.JobID+":1").Result()
			return err == nil && until > float64(time.Now().Add(10*time.Second).UnixMilli())
		})
		// L12: after a signal that Redis may have lost data, the turn restores the slot.
		scripts := s.redis()
		require.NoError(t, scripts.ZRem(t.Context(), slots.Keys().NodeSlots(first.NodeID), first.JobID+":1").Err())
		require.NoError(t, scripts.HSet(t.Context(), slots.Keys().Guard(), "grace", time.Now().Add(time.Second).UnixMilli()).Err())
		require.NoError(t, s.temporal().SignalWorkflow(t.Context(), workflows.TurnWorkflowID(first.TurnID), "", workflows.SignalRestore, nil))
		s.eventually("the slot to be restored", func() bool {
			return scripts.ZScore(t.Context(), slots.Keys().NodeSlots(first.NodeID), first.JobID+":1").Err() == nil
		})
		for _, d := range testNodes {
			d.held.Store(false)
		}
		job.answer <- nil
		require.Equal(t, "turn, 0:text 0, done(manual 0/1)", c.await(first.TurnID, berth.EventDone))
		s.awaitEnd(workflows.TurnWorkflowID(first.TurnID))
		s.noSlots("a", "b")
		s.saveHistory("turn-long-job", workflows.TurnWorkflowID(first.TurnID))
	})

	t.Run("the deadline of a drain interrupts no job", func(t *testing.T) { // S11
		c := s.session("alice", "s7")
		for _, d := range testNodes {
			d.held.Store(true)
		}
		first := c.submit("", 0, "")
		other := map[string]*testNode{"a": b, "b": a}[first.NodeID]
		job := testNodes[first.NodeID].next(s)
		order := func(what string) {
			status, out := s.send(http.MethodPost, "/v1/nodes/"+first.NodeID+"/"+what, s.token("op", "operator"), map[string]any{"withinMs": 1000})
			require.Equal(t, http.StatusOK, status, out)
		}
		order("drain")
		keys := lua.Keys{}
		s.eventually("the drain's deadline", func() bool {
			left, err := s.redis().ZCard(t.Context(), keys.NodesDraining()).Result()
			return err == nil && left == 0
		})
		n, err := s.user("op", "operator").Node(t.Context(), first.NodeID)
		require.NoError(t, err)
		require.Equal(t, berth.ExcludeDraining, n.Excluded, "the node is still excluded")
		require.Equal(t, 1, n.Leases)
		require.Equal(t, other.id, c.submit(first.TurnID, 1, berth.FinalizeManual).NodeID)
		other.next(s).answer <- nil
		job.answer <- nil
		require.Equal(t, "turn, 0:text 0, 1:text 1, done(manual 0/2)", c.await(first.TurnID, berth.EventDone))
		turn, err := c.Turn(t.Context(), first.TurnID)
		require.NoError(t, err)
		require.Equal(t, first.NodeID, turn.Jobs[0].NodeID)
		require.Equal(t, 1, turn.Jobs[0].Dispatches)
		for _, d := range testNodes {
			d.held.Store(false)
		}
		order("undrain")
	})

	t.Run("what is not there and what is not yours", func(t *testing.T) {
		c, mallory := s.session("alice", "s6"), s.user("mallory")
		mine := c.submit("", 0, "")
		_, err := c.trySubmit("t-none", 1, "")
		require.Equal(t, http.StatusNotFound, problem(t, err).Status)
		_, err = mallory.Turn(t.Context(), mine.TurnID)
		require.Equal(t, http.StatusNotFound, problem(t, err).Status)
		require.Equal(t, http.StatusNotFound, problem(t, mallory.FinalizeTurn(t.Context(), mine.TurnID)).Status)
		_, err = c.trySubmit(mine.TurnID, 0, "") // another request with the same index
		require.Equal(t, berth.CodeConflict, problem(t, err).Code)
		require.NoError(t, c.FinalizeTurn(t.Context(), mine.TurnID))
		c.await(mine.TurnID, berth.EventDone)
	})
}

// A turn whose first job finds no node is not started; the same request starts it later.
func TestTurn_NoNode_SameRequestStartsItLater(t *testing.T) {
	t.Parallel()
	s := newStack(t, with("TURN_TIMEOUT_MS=1500"))
	a := s.testNode("a", 1)
	c := s.session("alice", "s1")
	a.held.Store(true)
	busy := c.submit("", 0, berth.FinalizeManual)
	job := a.next(s)
	refused := client.JobSpec{RequestID: "r1", Segment: client.Segment{Text: "text 0"}}
	for range 2 {
		_, err := c.Dispatch(t.Context(), c.id, refused)
		require.Equal(t, berth.CodeNodeFull, problem(t, err).Code)
	}
	run := workflows.TurnWorkflowID(berth.DerivedID("t-", berth.SessionKey("alice", c.id), refused.RequestID)) // of the turn that was not started
	s.awaitEnd(run)
	s.saveHistory("turn-refused", run)
	a.held.Store(false)
	job.answer <- nil
	c.await(busy.TurnID, berth.EventDone)
	s.noSlots("a")
	begun, err := c.Dispatch(t.Context(), c.id, refused)
	require.NoError(t, err)
	require.False(t, begun.Replay)

	// A1: no more segments arrive, so the turn's timer ends it.
	require.Equal(t, "turn, 0:text 0, done(timeout 0/1)", c.await(begun.TurnID, berth.EventDone))
	s.awaitEnd(workflows.TurnWorkflowID(begun.TurnID))
	s.saveHistory("turn-timeout", workflows.TurnWorkflowID(begun.TurnID))
}
