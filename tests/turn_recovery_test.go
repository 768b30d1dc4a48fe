package tests

import (
	"errors"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"berth"
	"berth/lua"
	"berth/workflows"
)

// A11, P2: a node is killed, or stopped, with jobs on it: other nodes run them, and the reader receives each segment once
// and in order. P4: results of a stopped node that continues later are ignored.
func TestTurn_NodeDies_JobRunsElsewhereOnce(t *testing.T) {
	t.Parallel()
	for name, signal := range map[string]syscall.Signal{"killed": syscall.SIGKILL, "stopped": syscall.SIGSTOP} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newStack(t, with("TURN_TIMEOUT_MS=60000"))
			nodes := map[string]*process{"n1": s.translator("n1", "--delay", "1s"), "n2": s.translator("n2", "--delay", "1s")}
			c := s.session("alice", "s1")
			first := c.submit("", 0, "")
			c.await(first.TurnID, berth.EventTranslation)
			require.Equal(t, first.NodeID, c.submit(first.TurnID, 1, "").NodeID)
			victim := nodes[first.NodeID]
			require.NoError(t, victim.cmd.Process.Signal(signal))
			require.Equal(t, first.NodeID, c.submit(first.TurnID, 2, berth.FinalizeMaxDuration).NodeID, "not detected yet")
			s.eventually("the jobs to go elsewhere", func() bool {
				jobs := c.turn(first.TurnID).Jobs
				return jobs[1].Dispatches == 2 && jobs[2].Dispatches == 2
			})
			next := c.submit(first.TurnID, 3, "")
			require.NotEqual(t, first.NodeID, next.NodeID, "the turn detects the failure before the fleet does")
			require.Equal(t, berth.AffinityMiss, next.Affinity)
			require.Equal(t, first.NodeID, c.turn(first.TurnID).AffinityNodeID, "A4: written once")
			if signal == syscall.SIGSTOP {
				require.NoError(t, victim.cmd.Process.Signal(syscall.SIGCONT))
			}
			c.submit(first.TurnID, 4, berth.FinalizeManual)
			all := "turn, 0:text 0 [sim], 1:text 1 [sim], 2:text 2 [sim], 3:text 3 [sim], 4:text 4 [sim], done(manual 0/5)"
			require.Equal(t, all, c.await(first.TurnID, berth.EventDone))
			s.awaitEnd(workflows.TurnWorkflowID(first.TurnID))
			s.noSlots("n1", "n2")
			s.saveHistory("turn-node-"+name, workflows.TurnWorkflowID(first.TurnID))

			other, err := c.Dispatch(t.Context(), c.id, jobSpec("another-turn", berth.FinalizeManual))
			require.NoError(t, err)
			c.await(other.TurnID, berth.EventDone)
			require.Equal(t, all, c.received(first.TurnID), "no further event arrived")
		})
	}
}

func TestTurn_WorkerDies_Continues(t *testing.T) { // P2
	t.Parallel()
	s := newStack(t, with("TURN_TIMEOUT_MS=60000"))
	a := s.testNode("a", 8)
	c := s.session("alice", "s1")
	a.held.Store(true)
	first := c.submit("", 0, "")
	job := a.next(s)
	s.worker.kill()
	job.answer <- nil // while no worker runs the turn
	s.worker = s.startWorker()
	for i := 1; i < 4; i++ {
		require.Equal(t, berth.AffinityHit, c.submit(first.TurnID, i, "").Affinity)
	}
	for range 3 {
		a.next(s).answer <- nil
	}
	require.NoError(t, c.FinalizeTurn(t.Context(), first.TurnID))
	require.Equal(t, "turn, 0:text 0, 1:text 1, 2:text 2, 3:text 3, done(manual 0/4)", c.await(first.TurnID, berth.EventDone))
	s.awaitEnd(workflows.TurnWorkflowID(first.TurnID))
	s.noSlots("a")
	s.saveHistory("turn-worker-killed", workflows.TurnWorkflowID(first.TurnID))
}

// Everything but the nodes is killed during a turn: the running job continues, and so does the turn. No test runs beside it: beside
// others, the restart may take as long as heartbeats may be missing, after which a job is dispatched again.
func TestTurn_AllProcessesKilled_Completes(t *testing.T) { // X7, P2
	s := newStack(t, with("TURN_TIMEOUT_MS=60000"))
	a := s.testNode("a", 8)
	c := s.session("alice", "s1")
	first := c.submit("", 0, "")
	c.await(first.TurnID, berth.EventTranslation)
	a.held.Store(true)
	c.submit(first.TurnID, 1, "")
	job := a.next(s)
	for _, p := range []*process{s.worker, s.api, s.infra} {
		p.kill()
	}
	s.startInfra()
	s.startAPI()
	s.worker = s.startWorker()
	a.held.Store(false)
	job.answer <- nil
	last := c.submit(first.TurnID, 2, berth.FinalizeManual)
	require.Equal(t, berth.AffinityHit, last.Affinity)
	require.Equal(t, "turn, 0:text 0, 1:text 1, 2:text 2, done(manual 0/3)", strings.ReplaceAll(c.await(first.TurnID, berth.EventDone), "gap, ", ""))
	for _, j := range c.turn(first.TurnID).Jobs {
		require.Equal(t, 1, j.Dispatches, "no job was dispatched twice")
	}
	s.awaitEnd(workflows.TurnWorkflowID(first.TurnID))
	s.noSlots("a")
	s.saveHistory("turn-everything-killed", workflows.TurnWorkflowID(first.TurnID))
}

// A job whose node failed waits for another one in the room of its pool. No worker runs while a node becomes free: the job gets it when
// one is back.
func TestTurn_WorkerDiesWhileJobWaits_Continues(t *testing.T) { // A11, P2
	t.Parallel()
	s := newStack(t, with("TURN_TIMEOUT_MS=60000"))
	only := s.testNode("a", 1)
	only.held.Store(true)
	c := s.session("alice", "s1")
	first := c.submit("", 0, berth.FinalizeManual)
	job := only.next(s)
	operator := s.user("op", "operator")
	_, err := operator.CordonNode(t.Context(), "a")
	require.NoError(t, err)
	job.answer <- errors.New("out of memory")
	waiting := lua.Keys{}.PoolWaiting(s.pair())
	s.eventually("the job to wait", func() bool { return s.redis().ZCard(t.Context(), waiting).Val() == 1 })
	s.worker.kill()
	_, err = operator.UncordonNode(t.Context(), "a")
	require.NoError(t, err)
	s.worker = s.startWorker()
	only.next(s).answer <- nil
	require.Equal(t, "turn, 0:text 0, done(manual 0/1)", c.await(first.TurnID, berth.EventDone))
	require.Equal(t, 2, c.turn(first.TurnID).Jobs[0].Dispatches)
	s.eventually("nothing to wait", func() bool { return s.redis().ZCard(t.Context(), waiting).Val() == 0 })
	s.awaitEnd(workflows.TurnWorkflowID(first.TurnID))
	s.noSlots("a")
}
