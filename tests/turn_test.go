package tests

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/api/enums/v1"
	temporalclient "go.temporal.io/sdk/client"

	"berth"
	"berth/internal/client"
	"berth/internal/node"
	"berth/lua"
	"berth/workflows"
)

const enES = "translate:en-es"

// desk is a translating node whose jobs the test does: by itself at once, or by hand when it is held.
type desk struct {
	id   string
	held atomic.Bool
	jobs chan deskJob
	stop context.CancelFunc
}

type deskJob struct {
	in     berth.JobInput
	answer chan error
}

// Translate says who translated.
func (d *desk) Translate(ctx context.Context, in berth.JobInput) (berth.JobOutput, error) {
	out := berth.JobOutput{Text: in.Text + " @" + d.id}
	if !d.held.Load() {
		return out, nil
	}
	job := deskJob{in, make(chan error, 1)}
	d.jobs <- job
	select {
	case err := <-job.answer:
		return out, err
	case <-ctx.Done():
		return out, ctx.Err()
	}
}

func (d *desk) Execute(context.Context, berth.ExecuteInput) (berth.ExecuteOutput, error) {
	return berth.ExecuteOutput{}, errors.New("a desk translates")
}

// next is the next job that reaches a held desk.
func (d *desk) next(s *stack) deskJob {
	s.tb.Helper()
	select {
	case job := <-d.jobs:
		return job
	case <-time.After(patience):
		s.tb.Fatalf("no job reached %s", d.id)
		return deskJob{}
	}
}

// desk starts a node of the test's own and waits until jobs can go to it.
func (s *stack) desk(id string, slots int) *desk {
	s.tb.Helper()
	incarnation, err := node.NewIncarnation()
	require.NoError(s.tb, err)
	ctx, stop := context.WithCancel(context.Background())
	d := &desk{id: id, jobs: make(chan deskJob, 1000), stop: stop}
	options := node.Options{
		Spec: berth.NodeSpec{
			ID: id, Kind: berth.NodeTranslate, Incarnation: incarnation, Capabilities: []string{enES}, MaxConcurrentJobs: slots,
		},
		API: s.user("nodes", "node"), Temporal: s.temporal(), Driver: d, Drain: time.Second, Logger: slog.New(slog.DiscardHandler),
	}
	var running sync.WaitGroup
	running.Go(func() { _ = node.Run(ctx, options) }) // how it ends is seen by what it did
	s.tb.Cleanup(func() { stop(); running.Wait() })
	s.awaitNode(id)
	return d
}

func (s *stack) awaitNode(id string) {
	s.tb.Helper()
	operator := s.user("op", "operator")
	s.eventually("node "+id+" to be ready", func() bool {
		n, err := operator.Node(context.Background(), id)
		return err == nil && n.State == berth.NodeReady
	})
}

// conversation is one user's session with its listener.
type conversation struct {
	*client.Client
	s    *stack
	id   string
	said chan client.SessionEvent
	all  []client.SessionEvent
}

func (s *stack) converse(user, id string) *conversation {
	s.tb.Helper()
	c := &conversation{Client: s.user(user), s: s, id: id, said: make(chan client.SessionEvent, 1000)}
	s.eventually("a pool for "+id, func() bool {
		_, err := c.PutSession(context.Background(), id, client.SessionSpec{SrcLang: "en", TgtLang: "es"})
		return err == nil
	})
	ctx, cancel := context.WithCancel(context.Background())
	var following sync.WaitGroup
	following.Go(func() {
		for ev, err := range c.FollowSession(ctx, id, "", false) {
			if err != nil {
				return
			}
			c.said <- ev
		}
	})
	s.tb.Cleanup(func() { cancel(); following.Wait() })
	return c
}

// speak hands a segment in, again and again while berth asks for that.
func (c *conversation) speak(turn string, index int, f berth.Finalize) client.Dispatch {
	c.s.tb.Helper()
	var out client.Dispatch
	c.s.eventually(fmt.Sprintf("segment %d of turn %q to be taken", index, turn), func() bool {
		var err error
		out, err = c.trySpeak(turn, index, f)
		if p := new(client.Problem); errors.As(err, &p) {
			require.Equal(c.s.tb, http.StatusServiceUnavailable, p.Status, "%v", err)
		}
		return err == nil
	})
	return out
}

func (c *conversation) trySpeak(turn string, index int, f berth.Finalize) (client.Dispatch, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	return c.Dispatch(ctx, c.id, client.JobSpec{
		RequestID: fmt.Sprintf("%s.%s.%d", c.id, turn, index), TurnID: turn, SpeakerID: "bob",
		Segment: client.Segment{Index: index, Text: fmt.Sprintf("text %d", index)}, Finalize: f,
	})
}

// jobSpec is a segment that begins a turn.
func jobSpec(requestID string, f berth.Finalize) client.JobSpec {
	return client.JobSpec{RequestID: requestID, Segment: client.Segment{Text: "hello"}, Finalize: f}
}

// until collects what the listener hears until the turn is done.
func (c *conversation) until(turn string, done berth.EventType) string {
	c.s.tb.Helper()
	for {
		for _, ev := range c.all {
			if ev.Event.TurnID == turn && ev.Event.Type == done {
				return c.heard(turn)
			}
		}
		select {
		case ev := <-c.said:
			c.all = append(c.all, ev)
		case <-time.After(patience):
			c.s.tb.Fatalf("no %s of turn %s, but %s", done, turn, c.heard(turn))
		}
	}
}

// heard is what the listener heard of a turn so far, in short.
func (c *conversation) heard(turn string) string {
	var out []string
	for _, ev := range c.all {
		if ev.Event.TurnID != turn {
			continue
		}
		switch e := ev.Event; e.Type {
		case berth.EventDone:
			out = append(out, fmt.Sprintf("done(%s %d/%d)", e.Reason, e.Failed, e.Jobs))
		case berth.EventTranslation:
			text, _, _ := strings.Cut(e.Text, " @")
			out = append(out, fmt.Sprintf("%d:%s", *e.Index, text))
		case berth.EventTranslationFailed:
			out = append(out, fmt.Sprintf("%d:%s", *e.Index, e.Code))
		default:
			out = append(out, string(e.Type))
		}
	}
	return strings.Join(out, ", ")
}

func (c *conversation) turn(id string) berth.Turn {
	c.s.tb.Helper()
	out, err := c.Turn(context.Background(), id)
	require.NoError(c.s.tb, err)
	return out
}

// closed tells whether a workflow's last run is over.
func (s *stack) closed(workflowID string) bool {
	c, err := temporalclient.Dial(temporalclient.Options{HostPort: s.ready.TemporalAddr, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		return false
	}
	defer c.Close()
	d, err := c.DescribeWorkflowExecution(context.Background(), workflowID, "")
	return err == nil && d.GetWorkflowExecutionInfo().GetStatus() != enums.WORKFLOW_EXECUTION_STATUS_RUNNING
}

func (s *stack) awaitEnd(workflowID string) {
	s.tb.Helper()
	s.eventually(workflowID+" to end", func() bool { return s.closed(workflowID) })
}

// noSlots waits until no slot of the nodes is held.
func (s *stack) noSlots(ids ...string) {
	s.tb.Helper()
	scripts := lua.New(s.redis(), lua.Keys{})
	s.eventually("all slots to be given back", func() bool {
		nodes, err := scripts.ReadNodes(context.Background(), ids...)
		if err != nil {
			return false
		}
		for _, n := range nodes {
			if n.Leases > 0 {
				return false
			}
		}
		return true
	})
}

func problem(t *testing.T, err error) *client.Problem {
	t.Helper()
	var p *client.Problem
	require.ErrorAs(t, err, &p)
	return p
}

// A1-A8, A10 over HTTP, with real processes and two nodes.
func TestTurn_TwoNodes_FollowsNodeAndKeepsOrder(t *testing.T) {
	t.Parallel()
	s := newStack(t, with("TURN_TIMEOUT_MS=30000"))
	a, b := s.desk("a", 8), s.desk("b", 8)
	desks := map[string]*desk{"a": a, "b": b}

	t.Run("an utterance follows its node and comes back in order", func(t *testing.T) { // A1-A4, A6, A7, A10
		c := s.converse("alice", "s1")
		for _, d := range desks {
			d.held.Store(true)
		}
		first := c.speak("", 0, berth.FinalizeNone)
		require.Equal(t, berth.AffinityFirst, first.Affinity)
		again, err := c.trySpeak("", 0, berth.FinalizeNone)
		require.NoError(t, err)
		require.True(t, again.Replay)
		again.Replay = false
		require.Equal(t, first, again, "asking again meets the same turn and job")
		for i := 1; i < 5; i++ {
			next := c.speak(first.TurnID, i, berth.FinalizeMaxDuration)
			require.Equal(t, first.NodeID, next.NodeID)
			require.Equal(t, berth.AffinityHit, next.Affinity)
		}
		last := c.speak(first.TurnID, 5, berth.FinalizeManual)
		require.Equal(t, first.NodeID, last.NodeID, "the segment that ends the turn follows, too")
		turn := c.turn(first.TurnID)
		require.Equal(t, berth.TurnFinalized, turn.Status)
		require.Empty(t, turn.AffinityNodeID)
		_, err = c.trySpeak(first.TurnID, 6, berth.FinalizeNone)
		require.Equal(t, berth.CodeTurnFinalized, problem(t, err).Code)

		jobs := make([]deskJob, 6)
		for range jobs {
			job := desks[first.NodeID].next(s)
			jobs[job.in.Index] = job
		}
		for i := range jobs { // the last comes first
			jobs[len(jobs)-1-i].answer <- nil
		}
		require.Equal(t, "turn, 0:text 0, 1:text 1, 2:text 2, 3:text 3, 4:text 4, 5:text 5, done(manual 0/6)", c.until(first.TurnID, berth.EventDone))
		for _, d := range desks {
			d.held.Store(false)
		}
		s.awaitEnd(workflows.TurnWorkflowID(first.TurnID))
		stored, err := c.trySpeak("", 0, berth.FinalizeNone)
		require.NoError(t, err)
		require.Equal(t, first.JobID, stored.JobID, "also when the turn is over")
		_, err = c.trySpeak(first.TurnID, 7, berth.FinalizeNone)
		require.Equal(t, berth.CodeTurnFinalized, problem(t, err).Code)
		require.Equal(t, http.StatusConflict, problem(t, c.FinalizeTurn(t.Context(), first.TurnID)).Status)
		s.noSlots("a", "b")
		s.keepWorkflow("turn-in-order", workflows.TurnWorkflowID(first.TurnID))
	})

	t.Run("two people in one session are two turns", func(t *testing.T) { // A8
		c := s.converse("alice", "s2")
		one := c.speak("", 0, "")
		two, err := c.Dispatch(t.Context(), c.id, client.JobSpec{RequestID: "other", SpeakerID: "eve", Segment: client.Segment{Text: "hello"}})
		require.NoError(t, err)
		require.NotEqual(t, one.TurnID, two.TurnID)
		require.Equal(t, berth.AffinityFirst, two.Affinity)
		for i := 1; i < 4; i++ {
			require.Equal(t, one.NodeID, c.speak(one.TurnID, i, "").NodeID)
			require.Equal(t, two.NodeID, c.speak(two.TurnID, i, "").NodeID)
		}
		require.NoError(t, c.FinalizeTurn(t.Context(), one.TurnID))
		require.Equal(t, two.NodeID, c.speak(two.TurnID, 4, berth.FinalizeTimeout).NodeID)
		require.Equal(t, "turn, 0:text 0, 1:text 1, 2:text 2, 3:text 3, done(manual 0/4)", c.until(one.TurnID, berth.EventDone))
		require.Equal(t, "turn, 0:hello, 1:text 1, 2:text 2, 3:text 3, 4:text 4, done(timeout 0/5)", c.until(two.TurnID, berth.EventDone))
	})

	t.Run("a node that fails is followed by another", func(t *testing.T) { // A11
		c := s.converse("alice", "s3")
		for _, d := range desks {
			d.held.Store(true)
		}
		first := c.speak("", 0, "")
		job := desks[first.NodeID].next(s)
		job.answer <- berth.Errorf(berth.CodeNodeFailed, "out of memory")
		other := map[string]*desk{"a": b, "b": a}[first.NodeID]
		redone := other.next(s)
		require.Equal(t, 2, redone.in.Dispatch)
		redone.answer <- nil
		c.speak(first.TurnID, 1, berth.FinalizeManual)
		desks[first.NodeID].next(s).answer <- berth.Invalid("text", "is no language")
		for _, d := range desks {
			d.held.Store(false)
		}
		require.Equal(t, "turn, 0:text 0, 1:invalid, done(manual 1/2)", c.until(first.TurnID, berth.EventDone))
		s.awaitEnd(workflows.TurnWorkflowID(first.TurnID))
		s.noSlots("a", "b")
		s.keepWorkflow("turn-node-failed", workflows.TurnWorkflowID(first.TurnID))
	})

	t.Run("nodes that failed try again, and at the end it is told why", func(t *testing.T) { // A11
		c := s.converse("alice", "s3b")
		for _, d := range desks {
			d.held.Store(true)
		}
		first := c.speak("", 0, berth.FinalizeManual)
		var last string
		for dispatch, reason := range []string{"out of memory", "no such model", "still no memory", "exit status 3:\n broken"} {
			var job deskJob
			select {
			case job = <-a.jobs:
				last = "a"
			case job = <-b.jobs:
				last = "b"
			case <-time.After(patience):
				t.Fatal("no node tries again")
			}
			require.Equal(t, dispatch+1, job.in.Dispatch)
			job.answer <- berth.Errorf(berth.CodeNodeFailed, "%s", reason)
		}
		require.Equal(t, "turn, 0:node_failed, done(manual 1/1)", c.until(first.TurnID, berth.EventDone))
		for _, d := range desks {
			d.held.Store(false)
		}
		s.awaitEnd(workflows.TurnWorkflowID(first.TurnID))
		turn, err := c.Turn(t.Context(), first.TurnID)
		require.NoError(t, err)
		require.Equal(t, "attempt 4 failed, on "+last+": exit status 3: broken", turn.Jobs[0].Message)
		s.noSlots("a", "b")
		s.keepWorkflow("turn-nodes-failed", workflows.TurnWorkflowID(first.TurnID))
	})

	t.Run("a run that is cancelled says what became of its turn", func(t *testing.T) {
		c := s.converse("alice", "s4")
		for _, d := range desks {
			d.held.Store(true)
		}
		first := c.speak("", 0, "")
		desks[first.NodeID].next(s)
		require.NoError(t, s.temporal().CancelWorkflow(t.Context(), workflows.TurnWorkflowID(first.TurnID), ""))
		require.Equal(t, "turn, 0:cancelled, done(manual 1/1)", c.until(first.TurnID, berth.EventDone))
		for _, d := range desks {
			d.held.Store(false)
		}
		s.noSlots("a", "b")
		s.awaitEnd(workflows.TurnWorkflowID(first.TurnID))
		s.keepWorkflow("turn-cancelled", workflows.TurnWorkflowID(first.TurnID))
	})

	t.Run("a long job keeps its slot", func(t *testing.T) { // L7
		c := s.converse("alice", "s5")
		for _, d := range desks {
			d.held.Store(true)
		}
		first := c.speak("", 0, berth.FinalizeManual)
		job := desks[first.NodeID].next(s)
		slots := lua.New(s.redis(), lua.Keys{})
		s.eventually("the slot to be confirmed", func() bool {
			until, err := s.redis().ZScore(t.Context(), slots.Keys().NodeSlots(first.NodeID), first.JobID+":1").Result()
			return err == nil && until > float64(time.Now().Add(10*time.Second).UnixMilli())
		})
		// L12: told that Redis may have lost data, the turn puts the slot back.
		scripts := s.redis()
		require.NoError(t, scripts.ZRem(t.Context(), slots.Keys().NodeSlots(first.NodeID), first.JobID+":1").Err())
		require.NoError(t, scripts.HSet(t.Context(), slots.Keys().Guard(), "grace", time.Now().Add(time.Second).UnixMilli()).Err())
		require.NoError(t, s.temporal().SignalWorkflow(t.Context(), workflows.TurnWorkflowID(first.TurnID), "", workflows.SignalReassert, nil))
		s.eventually("the slot to be put back", func() bool {
			return scripts.ZScore(t.Context(), slots.Keys().NodeSlots(first.NodeID), first.JobID+":1").Err() == nil
		})
		for _, d := range desks {
			d.held.Store(false)
		}
		job.answer <- nil
		require.Equal(t, "turn, 0:text 0, done(manual 0/1)", c.until(first.TurnID, berth.EventDone))
		s.awaitEnd(workflows.TurnWorkflowID(first.TurnID))
		s.noSlots("a", "b")
		s.keepWorkflow("turn-long-job", workflows.TurnWorkflowID(first.TurnID))
	})

	t.Run("a drain's deadline cuts nothing", func(t *testing.T) { // S11
		c := s.converse("alice", "s7")
		for _, d := range desks {
			d.held.Store(true)
		}
		first := c.speak("", 0, "")
		other := map[string]*desk{"a": b, "b": a}[first.NodeID]
		job := desks[first.NodeID].next(s)
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
		require.Equal(t, berth.ExcludeDraining, n.Excluded, "it stays out")
		require.Equal(t, 1, n.Leases)
		require.Equal(t, other.id, c.speak(first.TurnID, 1, berth.FinalizeManual).NodeID)
		other.next(s).answer <- nil
		job.answer <- nil
		require.Equal(t, "turn, 0:text 0, 1:text 1, done(manual 0/2)", c.until(first.TurnID, berth.EventDone))
		turn, err := c.Turn(t.Context(), first.TurnID)
		require.NoError(t, err)
		require.Equal(t, first.NodeID, turn.Jobs[0].NodeID)
		require.Equal(t, 1, turn.Jobs[0].Dispatches)
		for _, d := range desks {
			d.held.Store(false)
		}
		order("undrain")
	})

	t.Run("what is not there and what is not yours", func(t *testing.T) {
		c, mallory := s.converse("alice", "s6"), s.user("mallory")
		mine := c.speak("", 0, "")
		_, err := c.trySpeak("t-none", 1, "")
		require.Equal(t, http.StatusNotFound, problem(t, err).Status)
		_, err = mallory.Turn(t.Context(), mine.TurnID)
		require.Equal(t, http.StatusNotFound, problem(t, err).Status)
		require.Equal(t, http.StatusNotFound, problem(t, mallory.FinalizeTurn(t.Context(), mine.TurnID)).Status)
		_, err = c.trySpeak(mine.TurnID, 0, "") // another request, the same place
		require.Equal(t, berth.CodeConflict, problem(t, err).Code)
		require.NoError(t, c.FinalizeTurn(t.Context(), mine.TurnID))
		c.until(mine.TurnID, berth.EventDone)
	})
}

// A turn whose first job finds no node never was; the same request begins it later.
func TestTurn_NoNode_SameRequestStartsItLater(t *testing.T) {
	t.Parallel()
	s := newStack(t, with("TURN_TIMEOUT_MS=1500"))
	a := s.desk("a", 1)
	c := s.converse("alice", "s1")
	a.held.Store(true)
	busy := c.speak("", 0, berth.FinalizeManual)
	job := a.next(s)
	refused := client.JobSpec{RequestID: "r1", Segment: client.Segment{Text: "text 0"}}
	for range 2 {
		_, err := c.Dispatch(t.Context(), c.id, refused)
		require.Equal(t, berth.CodeNodeFull, problem(t, err).Code)
	}
	never := sha256.Sum256([]byte(c.id + "\x00" + refused.RequestID)) // nobody is told of a turn that never was
	run := workflows.TurnWorkflowID("t-" + hex.EncodeToString(never[:])[:26])
	s.awaitEnd(run)
	s.keepWorkflow("turn-refused", run)
	a.held.Store(false)
	job.answer <- nil
	c.until(busy.TurnID, berth.EventDone)
	s.noSlots("a")
	begun, err := c.Dispatch(t.Context(), c.id, refused)
	require.NoError(t, err)
	require.False(t, begun.Replay)

	// A1: nothing more is said, so the turn's timer ends it.
	require.Equal(t, "turn, 0:text 0, done(timeout 0/1)", c.until(begun.TurnID, berth.EventDone))
	s.awaitEnd(workflows.TurnWorkflowID(begun.TurnID))
	s.keepWorkflow("turn-timeout-heard", workflows.TurnWorkflowID(begun.TurnID))
}
