package workflows_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/mock"
	"github.com/stretchr/testify/require"
	"go.temporal.io/api/enums/v1"
	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/testsuite"

	"berth"
	"berth/activities"
	"berth/internal/payload"
	"berth/workflows"
)

// turnTest is one run of the Turn workflow against recorded activities and nodes n1, n2, …
type turnTest struct {
	t   *testing.T
	env *testsuite.TestWorkflowEnvironment
	in  workflows.TurnInput
	// Simulated scripts and nodes; a test may replace each before the run.
	decide     func(workflows.DispatchInput) (berth.Assignment, error)
	translate  func(node string, in berth.JobInput) (berth.JobOutput, error)
	confirm    func(workflows.HeldSlots) (workflows.ConfirmedSlots, error)
	publish    func(workflows.TurnEvents) error
	unbind     func(workflows.TurnRef) error
	available  func() (workflows.Availability, error)
	calls      chan any // arguments of the activities, in their order
	timers     chan string
	slow       map[int]time.Duration // duration of a job by segment
	reached    time.Duration         // for how long the worker has reached Temporal
	confirming time.Duration         // duration of a confirmation
	hard       string                // request whose decision takes half a second
}

func newTurnTest(t *testing.T) *turnTest {
	t.Helper()
	var suite testsuite.WorkflowTestSuite
	u := &turnTest{
		t: t, env: suite.NewTestWorkflowEnvironment(), calls: make(chan any, 10_000), timers: make(chan string, 10_000),
		slow: map[int]time.Duration{}, reached: time.Hour,
		in: workflows.TurnInput{
			TurnID: "t1", SessionID: "s1", UserID: "alice", SrcLang: "en", TgtLang: "es", Timeout: 30 * time.Second, JobTimeout: time.Minute,
		},
		decide: firstOf("n1", "n2", "n3", "n4"),
		translate: func(node string, in berth.JobInput) (berth.JobOutput, error) {
			return berth.JobOutput{Text: in.Text + " by " + node}, nil
		},
		confirm: func(in workflows.HeldSlots) (workflows.ConfirmedSlots, error) {
			var out workflows.ConfirmedSlots
			for _, s := range in.Slots {
				out.Slots = append(out.Slots, workflows.ConfirmedSlot{Held: true, Generation: s.Generation})
			}
			return out, nil
		},
		publish:   func(workflows.TurnEvents) error { return nil },
		unbind:    func(workflows.TurnRef) error { return nil },
		available: func() (workflows.Availability, error) { return workflows.Availability{For: time.Hour}, nil },
	}
	register := func(name string, fn any) {
		u.env.RegisterActivityWithOptions(fn, activity.RegisterOptions{Name: name})
	}
	register(workflows.DispatchJobActivity, (*activities.Turns)(nil).DispatchJob) // mocked, as the nodes are: see schedule
	register(berth.ActivityTranslate, func(context.Context, berth.JobInput) (berth.JobOutput, error) { return berth.JobOutput{}, nil })
	register(workflows.ConfirmSlotsActivity, (*activities.NodeSlots)(nil).ConfirmSlots)
	register(workflows.ReleaseSlotsActivity, func(_ context.Context, in workflows.HeldSlots) error { u.calls <- released(in); return nil })
	register(workflows.LeaveWaitingActivity, func(_ context.Context, in workflows.NodeWait) error { u.calls <- in; return nil })
	register(workflows.CheckAvailabilityActivity, func(context.Context) (workflows.Availability, error) { return u.available() })
	register(workflows.CheckTemporalActivity, func(context.Context) (workflows.Availability, error) {
		return workflows.Availability{For: u.reached}, nil
	})
	register(workflows.FinalizeTurnActivity, func(_ context.Context, in workflows.TurnRef) error { u.calls <- in; return u.unbind(in) })
	register(workflows.PublishTurnActivity, func(_ context.Context, in workflows.TurnEvents) error {
		u.calls <- in
		return u.publish(in)
	})
	u.env.RegisterWorkflow(workflows.Turn)
	u.env.SetOnTimerScheduledListener(func(id string, _ time.Duration) { u.timers <- id })
	return u
}

type (
	confirmed workflows.HeldSlots
	released  workflows.HeldSlots
)

// firstOf decides as the activity does: the turn's node, otherwise the first one that is not excluded, preferring
// nodes that are not avoided.
func firstOf(nodes ...string) func(in workflows.DispatchInput) (berth.Assignment, error) {
	decide := toFirstNotExcluded(nodes...)
	return func(in workflows.DispatchInput) (berth.Assignment, error) {
		others := in
		others.Excluded = slices.Concat(in.Excluded, in.Avoided)
		if a, err := decide(others); err == nil || len(in.Avoided) == 0 {
			return a, err
		}
		return decide(in)
	}
}

func toFirstNotExcluded(nodes ...string) func(in workflows.DispatchInput) (berth.Assignment, error) {
	return func(in workflows.DispatchInput) (berth.Assignment, error) {
		a := berth.Assignment{
			LeaseID: in.JobID + ":" + strconv.Itoa(in.Dispatch), JobID: in.JobID, PoolID: in.PoolID, NodeRef: berth.NodeRef{Generation: 7},
			Affinity: berth.AffinityFirst,
		}
		excluded := func(node string) bool {
			for _, e := range in.Excluded {
				if e.NodeID == node {
					return true
				}
			}
			return false
		}
		if in.AffinityNodeID != "" {
			a.Affinity = berth.AffinityHit
			if !excluded(in.AffinityNodeID) {
				a.NodeID = in.AffinityNodeID
				return a, nil
			}
			a.Affinity, a.Missed = berth.AffinityMiss, berth.ExcludeByCaller
		}
		for _, node := range nodes {
			if !excluded(node) {
				a.NodeID = node
				return a, nil
			}
		}
		return a, refusedWith(berth.CodeNoNode)
	}
}

func refusedWith(code berth.Code) error {
	return temporal.NewNonRetryableApplicationError("no room", string(code), nil,
		berth.Refusal{Reasons: map[berth.ExcludeReason]int{berth.ExcludeFull: 2}, Missing: []string{"gpu"}})
}

// jobResult collects the outcome of an update.
type jobResult struct {
	rejected error
	reply    any
	err      error
	done     bool
	then     func() // called with the outcome, unless nil
}

func (a *jobResult) Accept() {}

func (a *jobResult) Reject(err error) {
	a.rejected = err
	a.next()
}

func (a *jobResult) Complete(v any, err error) {
	a.reply, a.err, a.done = v, err, true
	a.next()
}

func (a *jobResult) next() {
	if a.then != nil {
		a.then()
	}
}

func (a *jobResult) code() berth.Code {
	err := a.err
	if a.rejected != nil {
		err = a.rejected
	}
	var app *temporal.ApplicationError
	if errors.As(err, &app) {
		return berth.Code(app.Type())
	}
	return ""
}

func (a *jobResult) job(t *testing.T) workflows.DispatchReply {
	t.Helper()
	require.NoError(t, a.rejected)
	require.NoError(t, a.err)
	require.True(t, a.done)
	return a.reply.(workflows.DispatchReply)
}

type change func(*workflows.DispatchRequest)

func cut(f berth.Finalize) change { return func(r *workflows.DispatchRequest) { r.Finalize = f } }

func under(request string) change {
	return func(r *workflows.DispatchRequest) { r.RequestID, r.SubmissionID = request, "again" }
}

// speak submits a segment at a time, with an update id of its own.
func (u *turnTest) submit(at time.Duration, index int, changes ...change) *jobResult {
	req := workflows.DispatchRequest{
		JobRequest: berth.JobRequest{
			Job:    berth.Job{SessionID: u.in.SessionID, Index: index, SpeakerID: "bob", SrcLang: u.in.SrcLang, TgtLang: u.in.TgtLang},
			UserID: u.in.UserID, RequestID: fmt.Sprintf("r%d", index), PoolID: "translate:en-es",
		},
		SubmissionID: fmt.Sprintf("sub%d", index), RequestHash: fmt.Sprintf("h%d", index), SessionSrcLang: u.in.SrcLang, SessionTgtLang: u.in.TgtLang,
		Text: workflows.PackedText(fmt.Sprintf("text %d", index)),
	}
	for _, c := range changes {
		c(&req)
	}
	a := &jobResult{}
	u.env.RegisterDelayedCallback(func() {
		u.env.SetCurrentHistoryLength(int(at / time.Millisecond)) // another time is another workflow task
		u.env.UpdateWorkflow(workflows.UpdateDispatch, "", a, req)
	}, at)
	return a
}

func (u *turnTest) finalize(at time.Duration, reason berth.Finalize) *jobResult {
	a := &jobResult{}
	u.env.RegisterDelayedCallback(func() {
		u.env.UpdateWorkflow(workflows.UpdateFinalize, "", a, workflows.FinalizeRequest{UserID: u.in.UserID, Reason: reason})
	}, at)
	return a
}

// takes sets the duration of a segment's job on every node.
func (u *turnTest) takes(index int, d time.Duration) { u.slow[index] = d }

// schedule makes the environment's clock wait for slow jobs and decisions.
func (u *turnTest) schedule() {
	translate := func(ctx context.Context, in berth.JobInput) (berth.JobOutput, error) {
		u.calls <- in
		return u.translate(strings.Split(activity.GetInfo(ctx).TaskQueue, ".")[1], in)
	}
	for index, d := range u.slow {
		u.env.OnActivity(berth.ActivityTranslate, mock.Anything, mock.MatchedBy(func(in berth.JobInput) bool { return in.Index == index })).
			After(d).Return(translate)
	}
	u.env.OnActivity(berth.ActivityTranslate, mock.Anything, mock.Anything).Return(translate).Maybe()
	u.env.OnActivity(workflows.ConfirmSlotsActivity, mock.Anything, mock.Anything).After(u.confirming).
		Return(func(_ context.Context, in workflows.HeldSlots) (workflows.ConfirmedSlots, error) {
			u.calls <- confirmed(in)
			return u.confirm(in)
		}).Maybe()
	decide := func(_ context.Context, in workflows.DispatchInput) (berth.Assignment, error) {
		u.calls <- in
		return u.decide(in)
	}
	if u.hard != "" {
		u.env.OnActivity(workflows.DispatchJobActivity, mock.Anything, mock.MatchedBy(func(in workflows.DispatchInput) bool { return in.RequestID == u.hard })).
			After(500 * time.Millisecond).Return(decide)
	}
	u.env.OnActivity(workflows.DispatchJobActivity, mock.Anything, mock.Anything).Return(decide).Maybe()
}

// turnEffects is all that a run did.
type turnEffects struct {
	turn         berth.Turn
	err          error
	calls        []any
	dispatches   []workflows.DispatchInput
	events       []berth.SessionEvent
	finalized    []workflows.TurnRef
	confirmed    []workflows.HeldSlots
	released     []string
	left         []workflows.NodeWait
	unresponsive []string // those of released whose node was unresponsive
	timers       int
}

func (u *turnTest) run() turnEffects {
	u.t.Helper()
	u.schedule()
	u.env.ExecuteWorkflow(workflows.Turn, u.in)
	require.True(u.t, u.env.IsWorkflowCompleted())
	out := turnEffects{err: u.env.GetWorkflowError(), timers: len(u.timers)}
	if out.err == nil {
		require.NoError(u.t, u.env.GetWorkflowResult(&out.turn))
	}
	taken, before := map[string]bool{}, 0
	if u.in.Resumed != nil {
		before = u.in.Resumed.Published
	}
	for len(u.calls) > 0 {
		call := <-u.calls
		out.calls = append(out.calls, call)
		switch c := call.(type) {
		case workflows.DispatchInput:
			out.dispatches = append(out.dispatches, c)
		case berth.JobInput:
			taken[fmt.Sprintf("%s:%d", c.JobID, c.Dispatch)] = true
		case workflows.TurnEvents:
			for i, ev := range c.Events {
				if c.First+i > before+len(out.events) { // appended before: the script ignores it
					require.Equal(u.t, before+len(out.events)+1, c.First+i, "events are numbered without holes")
					out.events = append(out.events, ev)
				}
			}
		case workflows.NodeWait:
			out.left = append(out.left, c)
		case workflows.TurnRef:
			out.finalized = append(out.finalized, c)
		case confirmed:
			out.confirmed = append(out.confirmed, workflows.HeldSlots(c))
		case released:
			for _, s := range c.Slots {
				out.released = append(out.released, s.LeaseID)
				if s.Unresponsive {
					out.unresponsive = append(out.unresponsive, s.LeaseID)
				}
				delete(taken, s.LeaseID)
			}
		}
	}
	require.Empty(u.t, taken, "every slot is released")
	return out
}

// stream returns the published events in short form.
func (r turnEffects) stream() string {
	var out []string
	for _, ev := range r.events {
		switch ev.Type {
		case berth.EventTurn:
			out = append(out, "turn")
		case berth.EventDone:
			out = append(out, fmt.Sprintf("done(%s %d/%d)", ev.Reason, ev.Failed, ev.Jobs))
		case berth.EventTranslationFailed:
			out = append(out, fmt.Sprintf("%d:%s", *ev.Index, ev.Code))
		default:
			out = append(out, fmt.Sprintf("%d:%s", *ev.Index, ev.Text))
		}
	}
	return strings.Join(out, ", ")
}

const sec = time.Second

func TestTurn_JobsFollowAffinity_UntilFinalized(t *testing.T) { // A1, A3, A6, A7
	t.Parallel()
	u := newTurnTest(t)
	first := u.submit(0, 0)
	second := u.submit(sec, 1, cut(berth.FinalizeMaxDuration))
	last := u.submit(2*sec, 2, cut(berth.FinalizeManual))
	u.takes(2, sec)
	after := u.submit(2*sec+time.Millisecond, 3)
	r := u.run()
	require.NoError(t, r.err)
	require.Equal(t, "turn, 0:text 0 by n1, 1:text 1 by n1, 2:text 2 by n1, done(manual 0/3)", r.stream())
	for _, ev := range r.events {
		require.Equal(t, "s1", ev.SessionID)
		require.Equal(t, "t1", ev.TurnID)
	}
	require.Equal(t, "bob", r.events[0].SpeakerID)

	require.Equal(t, workflows.DispatchReply{
		SubmissionID: "sub0", RequestHash: "h0", TurnID: "t1", Assignment: berth.Assignment{
			LeaseID: "t1-0:1", JobID: "t1-0", NodeRef: berth.NodeRef{NodeID: "n1", Generation: 7}, PoolID: "translate:en-es", Affinity: berth.AffinityFirst,
		},
	}, first.job(t))
	require.Equal(t, berth.AffinityHit, second.job(t).Affinity)
	require.Equal(t, "t1-2", last.job(t).JobID)
	require.Equal(t, berth.CodeTurnFinalized, after.code())
	require.Error(t, after.rejected, "refused by the validator: nothing of it is kept")

	require.Len(t, r.dispatches, 3)
	require.Equal(t, workflows.DispatchInput{JobRequest: berth.JobRequest{
		Job:    berth.Job{SessionID: "s1", TurnID: "t1", JobID: "t1-2", Dispatch: 1, Index: 2, SpeakerID: "bob", SrcLang: "en", TgtLang: "es"},
		UserID: "alice", RequestID: "r2", PoolID: "translate:en-es", EndsTurn: true, AffinityNodeID: "n1",
	}}, r.dispatches[2], "the finalising segment follows the affinity")
	require.Contains(t, r.calls, berth.JobInput{Job: r.dispatches[2].Job, Text: "text 2"}, "the node gets the job that was dispatched")
	require.Empty(t, r.dispatches[0].AffinityNodeID)
	require.Equal(t, []workflows.TurnRef{{UserID: "alice", SessionID: "s1", TurnID: "t1"}}, r.finalized)

	require.Equal(t, berth.TurnFinalized, r.turn.Status)
	require.Equal(t, berth.FinalizeManual, r.turn.Reason)
	require.Empty(t, r.turn.AffinityNodeID)
	require.Equal(t, 2*time.Second, r.turn.FinalizedAt.Sub(r.turn.StartedAt).Round(time.Second))
	require.Equal(t, berth.TurnJob{
		JobID: "t1-1", RequestID: "r1", Index: 1, SpeakerID: "bob", Finalize: berth.FinalizeMaxDuration, Status: berth.JobDone,
		NodeID: "n1", PoolID: "translate:en-es", Affinity: berth.AffinityHit, Dispatches: 1, Text: "text 1 by n1",
	}, r.turn.Jobs[1])
	require.Empty(t, r.confirmed, "short jobs cost no confirmation")
}

func TestTurn_ResultsOutOfOrder_ArePublishedInOrder(t *testing.T) { // A10
	t.Parallel()
	u := newTurnTest(t)
	for i, d := range []time.Duration{9 * time.Second, 7 * time.Second, 5 * time.Second, time.Second} {
		u.submit(time.Duration(i)*100*time.Millisecond, i)
		u.takes(i, d)
	}
	u.submit(10*sec, 5) // there is no segment 4: waited for until the end, then skipped
	u.finalize(20*sec, berth.FinalizeManual)
	var halfway berth.Turn
	published := 0
	u.env.RegisterDelayedCallback(func() {
		v, err := u.env.QueryWorkflow(workflows.QueryTurn)
		require.NoError(t, err)
		require.NoError(t, v.Get(&halfway))
		published = len(u.calls)
	}, 15*sec)
	r := u.run()
	require.NoError(t, r.err)
	require.Equal(t, "turn, 0:text 0 by n1, 1:text 1 by n1, 2:text 2 by n1, 3:text 3 by n1, 5:text 5 by n1, done(manual 0/5)", r.stream())
	require.Equal(t, "n1", halfway.AffinityNodeID)
	require.Equal(t, berth.TurnOpen, halfway.Status)
	require.Len(t, halfway.Jobs, 5)
	for _, call := range r.calls[:published] {
		if c, ok := call.(workflows.TurnEvents); ok {
			require.NotContains(t, fmt.Sprint(c.Events), "text 5", "what is behind a missing segment waits")
		}
	}
}

// After the end a missing segment is not waited for, and results of running jobs follow in order.
func TestTurn_SegmentMissing_LaterResultsFollowTheEnd(t *testing.T) { // A10
	t.Parallel()
	u := newTurnTest(t)
	u.submit(0, 1)
	u.submit(0, 4)
	u.takes(4, 20*time.Second)
	u.finalize(5*sec, berth.FinalizeManual)
	early := false
	u.env.RegisterDelayedCallback(func() {
		v, err := u.env.QueryWorkflow(workflows.QueryTurn)
		require.NoError(t, err)
		var now berth.Turn
		require.NoError(t, v.Get(&now))
		require.Equal(t, berth.TurnFinalized, now.Status)
		require.Equal(t, berth.JobRunning, now.Jobs[1].Status)
		early = true
	}, 10*sec)
	r := u.run()
	require.True(t, early)
	require.Equal(t, "turn, 1:text 1 by n1, 4:text 4 by n1, done(manual 0/2)", r.stream())
	batches := 0
	for _, call := range r.calls {
		if _, ok := call.(workflows.TurnEvents); ok {
			batches++
		}
	}
	require.Equal(t, 3, batches, "the first translation does not wait for the second")
}

func TestTurn_FirstJobRefused_RunFails(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		err  error
		code berth.Code
		refs []workflows.TurnRef
	}{
		"full":    {refusedWith(berth.CodeNodeFull), berth.CodeNodeFull, nil},
		"no node": {refusedWith(berth.CodeNoNode), berth.CodeNoNode, nil},
		// The script may have decided and bound the turn.
		"reply lost": {refusedWith(berth.CodeUnavailable), berth.CodeUnavailable, []workflows.TurnRef{{UserID: "alice", SessionID: "s1", TurnID: "t1", Withdraw: true}}},
		"too late": {
			temporal.NewTimeoutError(enums.TIMEOUT_TYPE_START_TO_CLOSE, nil), berth.CodeUnavailable,
			[]workflows.TurnRef{{UserID: "alice", SessionID: "s1", TurnID: "t1", Withdraw: true}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			u := newTurnTest(t)
			u.decide = func(workflows.DispatchInput) (berth.Assignment, error) { return berth.Assignment{}, c.err }
			first := u.submit(0, 0)
			r := u.run()
			var app *temporal.ApplicationError
			require.ErrorAs(t, r.err, &app)
			require.Equal(t, string(c.code), app.Type())
			require.Equal(t, c.code, first.code())
			require.ErrorAs(t, first.err, &app)
			var detail berth.Refusal
			require.NoError(t, app.Details(&detail))
			require.Equal(t, "sub0", detail.SubmissionID)
			if name == "full" {
				require.Equal(t, berth.Refusal{
					SubmissionID: "sub0", Reasons: map[berth.ExcludeReason]int{berth.ExcludeFull: 2}, Missing: []string{"gpu"},
				}, detail)
			}
			require.Equal(t, c.refs, r.finalized)
			require.Empty(t, r.events)
			require.Empty(t, r.released)
		})
	}
}

func TestTurn_NextJobAfterRefusal_BeginsTheTurn(t *testing.T) {
	t.Parallel()
	u := newTurnTest(t)
	asked := 0
	decide := u.decide
	u.decide = func(in workflows.DispatchInput) (berth.Assignment, error) {
		if asked++; asked == 1 {
			return berth.Assignment{}, refusedWith(berth.CodeUnavailable)
		}
		return decide(in)
	}
	tries := 0
	u.unbind = func(ref workflows.TurnRef) error {
		if tries++; ref.Withdraw && tries < 4 { // Redis is unavailable for a moment
			return errors.New("away")
		}
		return nil
	}
	first := u.submit(0, 0)
	again := u.submit(300*time.Millisecond, 0, under("r0"))
	u.finalize(2*sec, berth.FinalizeManual)
	r := u.run()
	require.NoError(t, r.err)
	require.Equal(t, berth.CodeUnavailable, first.code())
	require.Equal(t, "again", again.job(t).SubmissionID)
	require.Equal(t, "turn, 0:text 0 by n1, done(manual 0/1)", r.stream())
}

func TestTurn_NoJobSubmitted_RunFails(t *testing.T) {
	t.Parallel()
	u := newTurnTest(t)
	early := u.finalize(sec, berth.FinalizeManual)
	r := u.run()
	require.ErrorContains(t, r.err, "no job was submitted")
	require.Equal(t, berth.CodeNotFound, early.code())
	require.Empty(t, r.calls)
}

func TestTurn_RepeatedRequest_HasTheFirstOutcome(t *testing.T) { // L6
	t.Parallel()
	u := newTurnTest(t)
	u.hard = "r1"
	first := u.submit(0, 0)
	again := u.submit(sec, 7, under("r0"))
	slow := u.submit(2*sec, 1)
	meanwhile := u.submit(2*sec+100*time.Millisecond, 8, under("r1"), func(r *workflows.DispatchRequest) { r.SessionSrcLang = "fr" })
	taken := u.submit(2*sec+200*time.Millisecond, 1, under("r9"))
	u.takes(0, 10*time.Second)
	u.finalize(5*sec, berth.FinalizeTimeout)
	late := u.submit(6*sec, 0, under("r0"))
	r := u.run()
	require.NoError(t, r.err)
	require.Equal(t, first.job(t), again.job(t))
	require.Equal(t, first.job(t), late.job(t), "also when the turn is finalised")
	require.Equal(t, slow.job(t), meanwhile.job(t))
	require.Equal(t, "sub1", meanwhile.job(t).SubmissionID)
	require.Equal(t, berth.CodeConflict, taken.code(), "the place is kept while its node is decided")
	require.Len(t, r.dispatches, 2)
	require.Len(t, r.turn.Jobs, 2)
}

// A refused request leaves nothing: its index and id are free, and the turn continues.
func TestTurn_JobRefused_CanBeSubmittedAgain(t *testing.T) {
	t.Parallel()
	u := newTurnTest(t)
	asked := 0
	decide := u.decide
	u.decide = func(in workflows.DispatchInput) (berth.Assignment, error) {
		if asked++; asked == 2 {
			return berth.Assignment{}, refusedWith(berth.CodeNodeFull)
		}
		return decide(in)
	}
	u.submit(0, 0)
	refused := u.submit(sec, 1, cut(berth.FinalizeManual))
	again := u.submit(2*sec, 1, cut(berth.FinalizeManual), under("r1"))
	r := u.run()
	require.NoError(t, r.err)
	require.Equal(t, berth.CodeNodeFull, refused.code())
	require.Equal(t, "again", again.job(t).SubmissionID)
	require.Equal(t, "turn, 0:text 0 by n1, 1:text 1 by n1, done(manual 0/2)", r.stream())
	require.Equal(t, 1, r.dispatches[2].Dispatch)
}

func TestTurn_InvalidJob_IsRejected(t *testing.T) { // A1, X6
	t.Parallel()
	longest := workflows.PackedText(strings.Repeat("x", berth.MaxSegmentBytes))
	u := newTurnTest(t)
	u.submit(0, 0)
	for i := range 15 { // almost the limit of a turn
		u.submit(time.Duration(i)*time.Millisecond, 900+i, func(r *workflows.DispatchRequest) { r.Text = longest })
	}
	answers := map[string]*jobResult{}
	wants := map[string]berth.Code{}
	for name, c := range map[string]struct {
		code   berth.Code
		change change
	}{
		"another user":     {berth.CodeNotFound, func(r *workflows.DispatchRequest) { r.UserID = "mallory" }},
		"another session":  {berth.CodeNotFound, func(r *workflows.DispatchRequest) { r.SessionID = "s2" }},
		"a used index":     {berth.CodeConflict, func(r *workflows.DispatchRequest) { r.Index = 0 }},
		"too many":         {berth.CodeConflict, func(r *workflows.DispatchRequest) { r.Index = berth.MaxSegments }},
		"below":            {berth.CodeInvalid, func(r *workflows.DispatchRequest) { r.Index = -1 }},
		"no request id":    {berth.CodeInvalid, func(r *workflows.DispatchRequest) { r.RequestID = "" }},
		"too long":         {berth.CodeInvalid, func(r *workflows.DispatchRequest) { r.Text = longest + "x" }},
		"other languages":  {berth.CodeConflict, func(r *workflows.DispatchRequest) { r.SessionTgtLang = "fr" }},
		"too much in all":  {berth.CodeConflict, func(r *workflows.DispatchRequest) { r.Text = longest }},
		"the last that is": {"", func(r *workflows.DispatchRequest) { r.Index = berth.MaxSegments - 1 }},
	} {
		answers[name], wants[name] = u.submit(sec, 50+len(answers), c.change), c.code
	}
	u.finalize(3*sec, berth.FinalizeManual)
	r := u.run()
	require.NoError(t, r.err)
	for name, a := range answers {
		require.Equal(t, wants[name], a.code(), name)
		require.Equal(t, wants[name] != "", a.rejected != nil, name)
	}
	require.Len(t, r.turn.Jobs, 17)
	kept := 0
	for _, j := range r.turn.Jobs {
		kept += len(j.Text)
	}
	require.LessOrEqual(t, kept, 1<<20)
	require.Positive(t, kept)
}

// The result of a turn stays below Temporal's limit for every text.
func TestTurn_LongTranslations_ResultIsBounded(t *testing.T) {
	t.Parallel()
	u := newTurnTest(t)
	u.translate = func(_ string, in berth.JobInput) (berth.JobOutput, error) {
		return berth.JobOutput{Text: strings.Repeat([]string{"<", "\u2028", "\\", "\x00", "é"}[in.Index%5], berth.MaxSegmentBytes/3)}, nil
	}
	for i := range 40 {
		u.submit(time.Duration(i)*100*time.Millisecond, i)
	}
	u.finalize(10*sec, berth.FinalizeManual)
	r := u.run()
	require.NoError(t, r.err)
	b, err := payload.NewDataConverter(payload.Keys{}).ToPayload(r.turn)
	require.NoError(t, err)
	require.Less(t, b.Size(), 5<<18+1<<10)
	require.Greater(t, b.Size(), 1<<19)
	for _, ev := range r.events[1:41] {
		require.NotEmpty(t, ev.Text, "the listener gets all of them")
	}
}

func TestTurn_Finalize_EndsOnce(t *testing.T) { // A1
	t.Parallel()
	u := newTurnTest(t)
	u.submit(0, 0)
	u.takes(0, 20*time.Second)
	wrong := u.finalize(sec, berth.FinalizeMaxDuration)
	stranger := &jobResult{}
	u.env.RegisterDelayedCallback(func() {
		u.env.UpdateWorkflow(workflows.UpdateFinalize, "", stranger, workflows.FinalizeRequest{UserID: "mallory", Reason: berth.FinalizeManual})
	}, sec)
	once := u.finalize(2*sec, berth.FinalizeTimeout)
	twice := u.finalize(3*sec, berth.FinalizeManual)
	r := u.run()
	require.NoError(t, r.err)
	require.Equal(t, berth.CodeInvalid, wrong.code())
	require.Equal(t, berth.CodeNotFound, stranger.code())
	require.Equal(t, workflows.FinalizeReply{Status: berth.TurnFinalized, Reason: berth.FinalizeTimeout, Jobs: 1}, once.reply)
	require.Equal(t, berth.CodeTurnFinalized, twice.code())
	require.ErrorContains(t, twice.rejected, "finalized (timeout)", "it states how the turn ended")
	require.Equal(t, "turn, 0:text 0 by n1, done(timeout 0/1)", r.stream())
	require.Len(t, r.finalized, 1)
}

func TestTurn_Segment_RestartsTheTimeout(t *testing.T) { // A1
	t.Parallel()
	u := newTurnTest(t)
	u.submit(0, 0)
	for i := 1; i <= 20; i++ {
		u.submit(time.Duration(i)*2*sec, i)
	}
	r := u.run()
	require.NoError(t, r.err)
	require.Equal(t, berth.FinalizeTimeout, r.turn.Reason)
	require.Equal(t, 70*time.Second, r.turn.FinalizedAt.Sub(r.turn.StartedAt).Round(time.Second), "30 s after the last segment, at 40 s")
	require.Len(t, r.turn.Jobs, 21)
	require.Empty(t, r.confirmed)
	// Timers of 30 s each, and one for the slots of each job, which is cancelled because the job ends immediately.
	require.LessOrEqual(t, r.timers, 3+21+21+20, "no timer per segment for the turn's timeout")
}

// A1, L11: the timeout restarts after an outage during which no segment could be submitted.
func TestTurn_OutageDuringTimeout_IsExtended(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		available func() func() (workflows.Availability, error)
		ends      time.Duration
	}{
		"a grace ended in between": {func() func() (workflows.Availability, error) {
			since := []time.Duration{10 * time.Second, 40 * time.Second}
			return func() (workflows.Availability, error) {
				next := since[0]
				since = since[1:]
				return workflows.Availability{For: next}, nil
			}
		}, 50 * time.Second},
		"Redis is unavailable when it fires": {func() func() (workflows.Availability, error) {
			calls := 0
			return func() (workflows.Availability, error) {
				if calls++; calls < 6 { // 3.1 s
					return workflows.Availability{}, errors.New("away")
				}
				return workflows.Availability{For: time.Hour}, nil
			}
		}, 63 * time.Second},
		"nothing was amiss": {func() func() (workflows.Availability, error) {
			return func() (workflows.Availability, error) { return workflows.Availability{For: time.Hour}, nil }
		}, 30 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			u := newTurnTest(t)
			u.available = c.available()
			u.submit(0, 0)
			r := u.run()
			require.NoError(t, r.err)
			require.Equal(t, berth.FinalizeTimeout, r.turn.Reason)
			require.InDelta(t, c.ends.Seconds(), r.turn.FinalizedAt.Sub(r.turn.StartedAt).Seconds(), 1)
		})
	}
}

// A1: a refused segment may be submitted again; the turn waits for it as for the next one.
func TestTurn_SegmentRefused_RestartsTheTimeout(t *testing.T) {
	t.Parallel()
	u := newTurnTest(t)
	decide := u.decide
	u.decide = func(in workflows.DispatchInput) (berth.Assignment, error) {
		if in.JobID == "t1-1" {
			return berth.Assignment{}, temporal.NewNonRetryableApplicationError("all are full", string(berth.CodeNodeFull), nil)
		}
		return decide(in)
	}
	u.submit(0, 0)
	u.submit(20*sec, 1)
	r := u.run()
	require.NoError(t, r.err)
	require.Equal(t, berth.FinalizeTimeout, r.turn.Reason)
	require.Len(t, r.turn.Jobs, 1)
	require.InDelta(t, 50, r.turn.FinalizedAt.Sub(r.turn.StartedAt).Seconds(), 1)
}

func TestTurn_TimeoutSegment_FinalizesTheTurn(t *testing.T) { // A7
	t.Parallel()
	u := newTurnTest(t)
	only := u.submit(0, 0, cut(berth.FinalizeTimeout))
	r := u.run()
	require.NoError(t, r.err)
	require.Equal(t, berth.AffinityFirst, only.job(t).Affinity)
	require.True(t, r.dispatches[0].EndsTurn, "it binds nothing")
	require.Equal(t, "turn, 0:text 0 by n1, done(timeout 0/1)", r.stream())
}
