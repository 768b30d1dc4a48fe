package workflows_test

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/api/enums/v1"
	"go.temporal.io/sdk/temporal"

	"berth"
	"berth/internal/payload"
	"berth/workflows"
)

func TestTurn_NodeFails_ContinuesWithoutIt(t *testing.T) { // A4, A11
	t.Parallel()
	for name, failure := range map[string]error{
		"it reports an error":    errors.New("no such model"),
		"it is no such node":     temporal.NewNonRetryableApplicationError("no such activity", "ActivityNotRegisteredError", nil),
		"it does not take it":    temporal.NewTimeoutError(enums.TIMEOUT_TYPE_SCHEDULE_TO_START, nil),
		"it misses heartbeats":   temporal.NewTimeoutError(enums.TIMEOUT_TYPE_HEARTBEAT, nil),
		"it takes too long":      temporal.NewTimeoutError(enums.TIMEOUT_TYPE_START_TO_CLOSE, nil),
		"it is being stopped":    temporal.NewCanceledError(),
		"it fails after the end": errors.New("no such model"),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			u := newTurnTest(t)
			u.translate = func(node string, in berth.JobInput) (berth.JobOutput, error) {
				if node == "n1" && in.Index == 1 {
					return berth.JobOutput{}, failure
				}
				return berth.JobOutput{Text: fmt.Sprint(in.Index, node)}, nil
			}
			u.submit(0, 0)
			broken := u.submit(sec, 1)
			if name == "it fails after the end" {
				u.takes(1, 10*time.Second)
			}
			u.submit(2*sec, 2)
			u.finalize(5*sec, berth.FinalizeManual)
			r := u.run()
			require.NoError(t, r.err)
			var timeout *temporal.TimeoutError
			silent := errors.As(failure, &timeout) && timeout.TimeoutType() != enums.TIMEOUT_TYPE_START_TO_CLOSE
			after := "n1"
			if silent {
				after = "n2"
			}
			require.Equal(t, "turn, 0:0n1, 1:1n2, 2:2"+after+", done(manual 0/3)", r.stream())
			require.Equal(t, "n1", broken.job(t).NodeID, "the reply of the update is unchanged")
			last := r.dispatches[len(r.dispatches)-1]
			if name != "it fails after the end" {
				last = r.dispatches[2]
				require.Equal(t, "n1", last.AffinityNodeID, "the turn's node stays")
				require.False(t, last.EndsTurn)
			} else {
				require.Empty(t, last.AffinityNodeID)
				require.True(t, last.EndsTurn, "it binds nothing any more")
			}
			require.Equal(t, "t1-1", last.JobID)
			require.Equal(t, 2, last.Dispatch)
			require.Equal(t, []berth.NodeRef{{NodeID: "n1", Generation: 7}}, last.Excluded)
			require.Equal(t, silent, len(last.Avoided) > 0, "what was unresponsive is avoided by all jobs of the turn")
			require.Equal(t, 2, r.turn.Jobs[1].Dispatches)
			require.Equal(t, "n2", r.turn.Jobs[1].NodeID)
			require.Empty(t, r.turn.Jobs[1].Affinity, "the first dispatch's is not this node's")
			require.Equal(t, berth.AffinityFirst, r.turn.Jobs[0].Affinity)
			require.ElementsMatch(t, []string{"t1-0:1", "t1-1:1", "t1-1:2", "t1-2:1"}, r.released)
			if silent {
				require.Equal(t, []string{"t1-1:1"}, r.unresponsive, "reported once")
			} else {
				require.Empty(t, r.unresponsive)
			}
		})
	}
}

func TestTurn_FourNodesFail_JobIsGivenUp(t *testing.T) {
	t.Parallel()
	u := newTurnTest(t)
	u.decide = firstOf("n1", "n2", "n3", "n4", "n5")
	u.translate = func(node string, in berth.JobInput) (berth.JobOutput, error) {
		if in.Index == 1 {
			return berth.JobOutput{}, errors.New("no such model")
		}
		return berth.JobOutput{Text: fmt.Sprint(in.Index, node)}, nil
	}
	for i := range 3 {
		u.submit(time.Duration(i)*sec, i)
	}
	u.finalize(10*sec, berth.FinalizeManual)
	r := u.run()
	require.NoError(t, r.err)
	require.Equal(t, "turn, 0:0n1, 1:node_failed, 2:2n1, done(manual 1/3)", r.stream())
	require.Equal(t, "attempt 4 failed, on n4: no such model", r.events[2].Message)
	require.Equal(t, r.events[2].Message, r.turn.Jobs[1].Message)
	require.Equal(t, "n4", r.events[2].NodeID)
	require.Equal(t, berth.JobFailed, r.turn.Jobs[1].Status)
	require.Equal(t, 4, r.turn.Jobs[1].Dispatches)
	require.Equal(t, berth.CodeNodeFailed, r.turn.Jobs[1].Code)
}

// The only node may run a job again that it failed; other nodes are preferred for about two seconds each time.
func TestTurn_NoOtherNode_JobReturnsToTheNodeThatFailed(t *testing.T) { // A11
	t.Parallel()
	for name, c := range map[string]struct {
		failure        error
		failures       int
		stream, reason string
	}{
		"and it does it":         {errors.New("simulated fault"), 3, "turn, 0:text 0 by n1, done(manual 0/1)", ""},
		"and it was only slow":   {temporal.NewTimeoutError(enums.TIMEOUT_TYPE_START_TO_CLOSE, nil), 1, "turn, 0:text 0 by n1, done(manual 0/1)", ""},
		"and it always fails":    {errors.New("exit\x1b[1m status 3:\n broken"), 99, "turn, 0:node_failed, done(manual 1/1)", "attempt 4 failed, on n1: exit [1m status 3: broken"},
		"and it says a lot":      {errors.New(strings.Repeat("word ", 1000)), 99, "turn, 0:node_failed, done(manual 1/1)", "attempt 4 failed, on n1: word"},
		"but not to a dead one":  {temporal.NewTimeoutError(enums.TIMEOUT_TYPE_HEARTBEAT, nil), 99, "turn, 0:no_node, done(manual 1/1)", "attempt 1 had failed, on n1: the node missed heartbeats"},
		"nor to one that is off": {temporal.NewTimeoutError(enums.TIMEOUT_TYPE_SCHEDULE_TO_START, nil), 99, "turn, 0:no_node, done(manual 1/1)", "attempt 1 had failed, on n1: the node did not accept the work in time"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			u := newTurnTest(t)
			u.decide = firstOf("n1")
			tries := 0
			translate := u.translate
			var began time.Time
			took := map[int]time.Duration{}
			u.translate = func(node string, in berth.JobInput) (berth.JobOutput, error) {
				if tries++; tries == 1 {
					began = u.env.Now()
				}
				took[tries] = u.env.Now().Sub(began)
				if tries <= c.failures {
					return berth.JobOutput{}, c.failure
				}
				return translate(node, in)
			}
			u.submit(0, 0, cut(berth.FinalizeManual))
			r := u.run()
			require.NoError(t, r.err)
			require.Equal(t, c.stream, r.stream())
			require.Contains(t, r.events[1].Message, c.reason)
			require.Equal(t, r.turn.Jobs[0].Message, r.events[1].Message)
			require.Less(t, len(r.events[1].Message), 600)
			for i := 2; i <= tries; i++ {
				require.InDelta(t, 2*time.Second, took[i]-took[i-1], float64(200*time.Millisecond), "others first")
			}
			require.LessOrEqual(t, tries, 4)
		})
	}
}

func TestTurn_NodeRejectsSegment_JobIsGivenUpImmediately(t *testing.T) {
	t.Parallel()
	u := newTurnTest(t)
	u.translate = func(string, berth.JobInput) (berth.JobOutput, error) {
		return berth.JobOutput{}, temporal.NewNonRetryableApplicationError("not a language", string(berth.CodeInvalid), nil)
	}
	u.submit(0, 0, cut(berth.FinalizeManual))
	r := u.run()
	require.NoError(t, r.err)
	require.Equal(t, "turn, 0:invalid, done(manual 1/1)", r.stream())
	require.Len(t, r.dispatches, 1)
	require.Equal(t, "this segment cannot be translated, on n1: not a language", r.events[1].Message)
}

// A failed job waits in the room of its pool, without polling: it is dispatched when a node is reserved for it, and is tried again when nodes
// that failed it are eligible again or Redis has lost its data. It leaves the room when it is given up.
func TestTurn_NoCapacity_FailedJobWaits(t *testing.T) { // A11, B1
	t.Parallel()
	signal := func(name string, arg any) func(*turnTest) {
		return func(u *turnTest) { u.env.SignalWorkflow(name, arg) }
	}
	reserve := signal(workflows.SignalPromoted, "t1-0:2")
	lost := temporal.NewTimeoutError(enums.TIMEOUT_TYPE_SCHEDULE_TO_CLOSE, nil)
	type event struct {
		at time.Duration
		do func(*turnTest)
	}
	for name, c := range map[string]struct {
		err    error
		events []event
		free   time.Duration   // when a node has capacity; 0: never
		asked  []time.Duration // when the job asks for a node, after its failure
		code   berth.Code
		left   bool // it leaves the room
	}{
		"until a node is reserved":        {refusedWith(berth.CodeNodeFull), []event{{30 * sec, reserve}}, 30 * sec, []time.Duration{0, 2 * sec, 30 * sec}, "", false},
		"while no node is eligible":       {refusedWith(berth.CodeNoNode), []event{{sec, reserve}}, sec, []time.Duration{0, sec}, "", false},
		"through a reservation that ends": {refusedWith(berth.CodeNodeFull), []event{{20 * sec, reserve}, {50 * sec, reserve}}, 50 * sec, []time.Duration{0, 2 * sec, 20 * sec, 50 * sec}, "", false},
		"through another job's":           {refusedWith(berth.CodeNodeFull), []event{{20 * sec, signal(workflows.SignalPromoted, "t1-1:2")}, {50 * sec, reserve}}, 50 * sec, []time.Duration{0, 2 * sec, 50 * sec}, "", false},
		"through a loss of data":          {refusedWith(berth.CodeNodeFull), []event{{20 * sec, signal(workflows.SignalRestore, nil)}, {50 * sec, reserve}}, 50 * sec, []time.Duration{0, 2 * sec, 20 * sec, 50 * sec}, "", false},
		"until its deadline":              {refusedWith(berth.CodeNodeFull), nil, 0, []time.Duration{0, 2 * sec}, berth.CodeNoNode, true},
		"until it is cancelled":           {refusedWith(berth.CodeNodeFull), []event{{50 * sec, func(u *turnTest) { u.env.CancelWorkflow() }}}, 0, []time.Duration{0, 2 * sec}, berth.CodeCancelled, true},
		"while Redis is unavailable":      {refusedWith(berth.CodeUnavailable), nil, 4 * sec, []time.Duration{0, sec / 5, 3 * sec / 5, 7 * sec / 5, 2 * sec, 26 * sec / 5}, "", false},
		"after lost replies":              {lost, []event{{9 * sec / 10, func(u *turnTest) { u.env.CancelWorkflow() }}}, 0, []time.Duration{0, sec / 5, 3 * sec / 5}, berth.CodeCancelled, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			u := newTurnTest(t)
			u.in.Timeout = 10 * time.Minute
			var failed time.Time
			var asked []time.Duration
			decide := u.decide
			u.decide = func(in workflows.DispatchInput) (berth.Assignment, error) {
				if in.Dispatch == 1 {
					require.Nil(t, in.Wait, "a submitted segment is refused")
					return decide(in)
				}
				at := u.env.Now().Sub(failed).Round(100 * time.Millisecond)
				asked = append(asked, at)
				require.Equal(t, &workflows.NodeWait{
					PoolID: in.PoolID, UserID: "alice", WorkflowID: "default-test-workflow-id", LeaseID: "t1-0:2", Again: true,
					Since: in.Wait.Since, Left: in.Wait.Left,
				}, in.Wait)
				require.InDelta(t, 2*time.Minute-at, in.Wait.Left, float64(200*time.Millisecond))
				if c.free == 0 || at < c.free {
					return berth.Assignment{}, c.err
				}
				return decide(in)
			}
			translate := u.translate
			u.translate = func(node string, in berth.JobInput) (berth.JobOutput, error) {
				if in.JobID == "t1-0" && in.Dispatch == 1 {
					failed = u.env.Now()
					for _, e := range c.events {
						u.env.RegisterDelayedCallback(func() { e.do(u) }, e.at)
					}
					return berth.JobOutput{}, errors.New("gone")
				}
				return translate(node, in)
			}
			u.submit(0, 0)
			u.submit(sec/2, 1)
			u.finalize(sec, berth.FinalizeManual)
			r := u.run()
			require.NoError(t, r.err)
			require.Equal(t, c.asked, asked)
			require.Equal(t, c.left, len(r.left) == 1, "%v", r.left)
			if c.code == "" {
				require.Contains(t, r.stream(), "turn, 0:text 0 by n")
				require.Empty(t, r.left)
				return
			}
			require.Equal(t, fmt.Sprintf("turn, 0:%s, 1:text 1 by n1, done(manual 1/2)", c.code), r.stream())
			require.Equal(t, "t1-0:2", r.left[0].LeaseID)
			if c.code == berth.CodeNoNode {
				require.Equal(t, "no node had capacity for this segment in time; attempt 1 had failed, on n1: gone", r.events[1].Message)
			}
		})
	}
}

// P2: a worker that dies after it has published that no node was found leaves it to the next one, which may find a node.
func TestTurn_NoNodeFound_IsRecordedBeforeItIsPublished(t *testing.T) {
	t.Parallel()
	u := newTurnTest(t)
	u.in.Timeout, u.in.JobTimeout = 10*time.Minute, 10*time.Minute
	u.takes(0, 3*time.Minute) // it is dispatched again once
	u.translate = func(string, berth.JobInput) (berth.JobOutput, error) { return berth.JobOutput{}, errors.New("gone") }
	var asked, published time.Time
	decide := u.decide
	u.decide = func(in workflows.DispatchInput) (berth.Assignment, error) {
		if asked = u.env.Now(); in.Dispatch > 1 {
			return berth.Assignment{}, refusedWith(berth.CodeNodeFull)
		}
		return decide(in)
	}
	u.publish = func(in workflows.TurnEvents) error {
		if in.Events[0].Type == berth.EventTranslationFailed {
			published = u.env.Now()
		}
		return nil
	}
	u.submit(0, 0)
	u.finalize(sec, berth.FinalizeManual)
	r := u.run()
	require.NoError(t, r.err)
	require.Len(t, r.dispatches, 2)
	require.True(t, published.After(asked), "in another workflow task")
}

func TestTurn_DecisionExpired_NextDispatchDecides(t *testing.T) { // L6
	t.Parallel()
	u := newTurnTest(t)
	decide := u.decide
	u.decide = func(in workflows.DispatchInput) (berth.Assignment, error) {
		if in.Dispatch < 3 {
			return berth.Assignment{}, temporal.NewNonRetryableApplicationError("the slot has expired", workflows.ErrorExpired, nil)
		}
		return decide(in)
	}
	first := u.submit(0, 0, cut(berth.FinalizeManual))
	r := u.run()
	require.NoError(t, r.err)
	require.Equal(t, "t1-0:3", first.job(t).LeaseID)
	require.Equal(t, 3, r.turn.Jobs[0].Dispatches)
}

func TestTurn_LongJob_SlotIsConfirmed(t *testing.T) { // L7
	t.Parallel()
	u := newTurnTest(t)
	u.submit(0, 0) // short
	for i := 1; i <= 3; i++ {
		u.submit(time.Duration(i)*100*time.Millisecond, i)
		u.takes(i, 20*time.Second)
	}
	u.submit(10*sec, 4)
	u.takes(4, 3*time.Second)
	u.finalize(25*sec, berth.FinalizeManual)
	r := u.run()
	require.NoError(t, r.err)
	require.Len(t, r.confirmed, 2, "all running jobs, in one call")
	require.Len(t, r.confirmed[0].Slots, 3)
	for _, s := range r.confirmed[0].Slots {
		require.NotEmpty(t, s.LeaseID)
		require.Greater(t, s.Left, time.Minute)
		require.LessOrEqual(t, s.Left, 70*time.Second)
	}
	require.Len(t, r.confirmed[1].Slots, 1)
	require.Equal(t, "t1-4", r.confirmed[1].Slots[0].JobID)
}

func TestTurn_RedisLosesSlots_AreRestored(t *testing.T) { // L12
	t.Parallel()
	u := newTurnTest(t)
	u.submit(0, 0)
	u.takes(0, 25*time.Second)
	u.submit(sec, 1)
	asked := 0
	u.confirm = func(in workflows.HeldSlots) (workflows.ConfirmedSlots, error) {
		asked++
		switch asked {
		case 2:
			return workflows.ConfirmedSlots{}, errors.New("away")
		case 3, 4: // the node has not registered again yet
			return workflows.ConfirmedSlots{Slots: make([]workflows.ConfirmedSlot, len(in.Slots))}, nil
		default:
			return workflows.ConfirmedSlots{Slots: []workflows.ConfirmedSlot{{Held: true, Generation: int64(asked)}}}, nil
		}
	}
	for _, at := range []time.Duration{10 * time.Second, 15 * time.Second} {
		u.env.RegisterDelayedCallback(func() { u.env.SignalWorkflow(workflows.SignalRestore, nil) }, at)
	}
	u.finalize(12*sec, berth.FinalizeManual)
	r := u.run()
	require.NoError(t, r.err)
	require.Equal(t, "turn, 0:text 0 by n1, 1:text 1 by n1, done(manual 0/2)", r.stream())
	// By the timer at 2 s; by the signal at 10 s with one repetition and two returns; by the signal at 15 s.
	require.Len(t, r.confirmed, 6)
	for _, c := range r.confirmed {
		require.Len(t, c.Slots, 1)
	}
	require.Equal(t, int64(5), r.confirmed[5].Slots[0].Generation, "the generation on which it was restored")
}

// A slot is not released while it is being confirmed: in a grace period the confirmation may restore it.
func TestTurn_JobEndsDuringConfirmation_SlotIsReleasedAfterwards(t *testing.T) { // L12
	t.Parallel()
	u := newTurnTest(t)
	u.submit(0, 0, cut(berth.FinalizeManual))
	u.takes(0, 5*time.Second)
	u.confirming = 10 * time.Second
	r := u.run()
	require.NoError(t, r.err)
	require.Equal(t, []string{"t1-0:1"}, r.released)
	last := r.calls[len(r.calls)-1]
	require.IsType(t, released{}, last, "after the confirmation")
}

func TestTurn_ActivitiesFail_EachEventIsPublishedOnce(t *testing.T) { // A10
	t.Parallel()
	u := newTurnTest(t)
	var calls atomic.Int64
	u.publish = func(in workflows.TurnEvents) error {
		switch calls.Add(1) {
		case 1, 3, 4, 7: // some of them have appended and lost the reply
			return errors.New("away")
		}
		return nil
	}
	unbinds := 0
	u.unbind = func(workflows.TurnRef) error {
		if unbinds++; unbinds < 5 {
			return errors.New("away")
		}
		return nil
	}
	for i := range 5 {
		u.submit(time.Duration(i)*sec, i)
	}
	u.finalize(6*sec, berth.FinalizeManual)
	r := u.run()
	require.NoError(t, r.err)
	require.Equal(t, "turn, 0:text 0 by n1, 1:text 1 by n1, 2:text 2 by n1, 3:text 3 by n1, 4:text 4 by n1, done(manual 0/5)", r.stream())
	firsts := map[int]string{}
	for _, call := range r.calls {
		if c, ok := call.(workflows.TurnEvents); ok {
			if before, again := firsts[c.First]; again {
				require.Equal(t, before, fmt.Sprint(c.Events), "the same numbers, the same events")
			}
			firsts[c.First] = fmt.Sprint(c.Events)
		}
	}
}

func TestTurn_LongOutage_IsCompleted(t *testing.T) { // A10, L11
	t.Parallel()
	u := newTurnTest(t)
	away := 0
	u.publish = func(workflows.TurnEvents) error {
		if away++; away <= 20 { // more than two minutes
			return errors.New("away")
		}
		return nil
	}
	u.submit(0, 0)
	u.submit(sec, 1)
	u.finalize(2*sec, berth.FinalizeManual)
	r := u.run()
	require.NoError(t, r.err)
	require.Equal(t, "turn, 0:text 0 by n1, 1:text 1 by n1, done(manual 0/2)", r.stream())
}

func TestTurn_RunCancelled_IsCompleted(t *testing.T) {
	t.Parallel()
	u := newTurnTest(t)
	u.submit(0, 0)
	u.submit(sec, 1)
	u.takes(1, time.Minute)
	u.submit(2*sec, 2)
	u.env.RegisterDelayedCallback(u.env.CancelWorkflow, 5*sec)
	late := u.submit(6*sec, 3)
	r := u.run()
	require.NoError(t, r.err)
	require.Equal(t, "turn, 0:text 0 by n1, 1:cancelled, 2:text 2 by n1, done(manual 1/3)", r.stream())
	require.Len(t, r.finalized, 1)
	require.Contains(t, r.released, "t1-1:1")
	require.False(t, late.done)
}

// A decision in progress when the run is cancelled is completed first, because it may hold a slot.
func TestTurn_CancelledDuringDispatch_SlotIsReleased(t *testing.T) {
	t.Parallel()
	for name, refuse := range map[string]bool{"taken": false, "refused": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			u := newTurnTest(t)
			u.hard = "r0"
			decide := u.decide
			u.decide = func(in workflows.DispatchInput) (berth.Assignment, error) {
				if refuse {
					return berth.Assignment{}, refusedWith(berth.CodeNodeFull)
				}
				return decide(in)
			}
			first := u.submit(0, 0)
			u.env.RegisterDelayedCallback(u.env.CancelWorkflow, 100*time.Millisecond)
			r := u.run()
			if refuse {
				require.ErrorContains(t, r.err, "no room")
				require.Equal(t, berth.CodeNodeFull, first.code())
				require.Empty(t, r.events)
				return
			}
			require.NoError(t, r.err)
			require.Equal(t, "n1", first.job(t).NodeID)
			require.Equal(t, "turn, 0:cancelled, done(manual 1/1)", r.stream())
			require.Equal(t, []string{"t1-0:1"}, r.released)
		})
	}
}

func TestTurn_InvalidInput_Fails(t *testing.T) {
	t.Parallel()
	u := newTurnTest(t)
	u.in.Timeout = 0
	require.ErrorContains(t, u.run().err, "lacks")
}

// What one workflow task adds to the history stays below Temporal's limit, whatever the texts are: a segment that does not fit is
// refused, and a job that does not fit is dispatched again later. Nothing is lost.
func TestTurn_LongSegmentsAtOnce_WorkflowTasksAreBounded(t *testing.T) { // FA3
	t.Parallel()
	for name, c := range map[string]struct {
		character string
		atOnce    int // of the longest segments; Temporal has no more than ten updates of a workflow at the same time
	}{
		"control characters": {"\x01", 2}, "line separators": {"\u2028", 5}, "quotes": {`"`, 5}, "HTML": {"<", 9}, "Chinese": {"漢", 9}, "emoji": {"😀", 9},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			text := workflows.PackedText(strings.Repeat(c.character, berth.MaxSegmentBytes/len(c.character)))
			u := newTurnTest(t)
			const segments = 10
			var task atomic.Int64 // the current workflow task
			var mu sync.Mutex     // local activities run concurrently
			dispatched := map[int64]int{}
			u.translate = func(node string, in berth.JobInput) (berth.JobOutput, error) {
				if node == "n1" { // it dies with all jobs
					return berth.JobOutput{}, temporal.NewTimeoutError(enums.TIMEOUT_TYPE_HEARTBEAT, nil)
				}
				return berth.JobOutput{Text: fmt.Sprint(in.Index)}, nil
			}
			p, err := payload.NewDataConverter(payload.Keys{}).ToPayload(berth.JobInput{Text: string(text)})
			require.NoError(t, err)
			decide := u.decide
			u.decide = func(in workflows.DispatchInput) (berth.Assignment, error) {
				if in.Dispatch > 1 {
					mu.Lock()
					dispatched[task.Load()] += p.Size()
					mu.Unlock()
				}
				return decide(in)
			}
			first := make([]*jobResult, segments)
			for i := range segments {
				u.takes(i, 20*sec) // all fail at the same time
				first[i] = u.submit(0, i, func(r *workflows.DispatchRequest) { r.Text = text })
				if i >= c.atOnce {
					u.takes(i, time.Duration(20-i)*sec)
					u.submit(time.Duration(i)*sec, i, func(r *workflows.DispatchRequest) { r.Text = text })
				}
			}
			for n := range int64(100) {
				u.env.RegisterDelayedCallback(func() {
					task.Store(n)
					u.env.SetCurrentHistoryLength(int(1000 + n))
				}, 15*sec+time.Duration(n)*500*time.Millisecond)
			}
			u.finalize(35*sec, berth.FinalizeManual)
			r := u.run()
			require.NoError(t, r.err)
			for i, a := range first {
				want := berth.Code("")
				if i >= c.atOnce {
					want = berth.CodeUnavailable
				}
				require.Equal(t, want, a.code(), i)
			}
			require.Equal(t, "turn, 0:0, 1:1, 2:2, 3:3, 4:4, 5:5, 6:6, 7:7, 8:8, 9:9, done(manual 0/10)", r.stream())
			require.NotEmpty(t, dispatched)
			for n, size := range dispatched {
				require.Less(t, size, 5<<18, n)
			}
		})
	}
}

// FA10: a job that is lost because Temporal was unavailable, and not its node, runs again on the turn's node without being counted.
func TestTurn_TemporalUnavailable_JobNotCounted(t *testing.T) { // A4, A11, B5
	t.Parallel()
	silent, idle := temporal.NewHeartbeatTimeoutError(), temporal.NewTimeoutError(enums.TIMEOUT_TYPE_SCHEDULE_TO_START, nil)
	given := temporal.NewApplicationError("the agent stops", string(berth.CodeInterrupted))
	for name, c := range map[string]struct {
		failure error
		reached time.Duration
		times   int
		stream  string
	}{
		"heartbeats missed in an outage": {silent, 2 * sec, 5, "turn, 0:text 0 by n1, done(manual 0/1)"},
		"not accepted in an outage":      {idle, 0, 5, "turn, 0:text 0 by n1, done(manual 0/1)"},
		"reported by the node":           {given, time.Hour, 5, "turn, 0:text 0 by n1, done(manual 0/1)"},
		"an outage long before":          {silent, 20 * sec, 1, "turn, 0:text 0 by n2, done(manual 0/1)"},
		"no outage":                      {silent, time.Hour, 1, "turn, 0:text 0 by n2, done(manual 0/1)"},
		"the node has failed it":         {errors.New("no such model"), 0, 1, "turn, 0:text 0 by n2, done(manual 0/1)"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			u := newTurnTest(t)
			u.reached = c.reached
			fine, tries := u.translate, 0
			u.translate = func(node string, in berth.JobInput) (berth.JobOutput, error) {
				if tries++; tries <= c.times {
					return berth.JobOutput{}, c.failure
				}
				return fine(node, in)
			}
			u.submit(0, 0, cut(berth.FinalizeManual))
			r := u.run()
			require.NoError(t, r.err)
			require.Equal(t, c.stream, r.stream())
			require.Equal(t, c.times+1, r.turn.Jobs[0].Dispatches)
		})
	}
}
