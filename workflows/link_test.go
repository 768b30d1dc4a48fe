package workflows_test

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/mock"
	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/testsuite"
	"go.temporal.io/sdk/workflow"

	"berth"
	"berth/workflows"
)

// linkTest is the environment of one link: a simulated unit, and a record of the steps in their order.
type linkTest struct {
	t          *testing.T
	env        *testsuite.TestWorkflowEnvironment
	mu         chan struct{} // guards the rest: activities run concurrently
	steps      []string
	generation int64 // of the unit, in Redis
	rows       []workflows.UnitRow
	list       berth.UnitList
	unknown    []berth.UnitRelease
	reconciled workflows.ReconcileInput
	reply      func(command string) error
}

func newLinkTest(t *testing.T) *linkTest {
	t.Helper()
	var suite testsuite.WorkflowTestSuite
	w := &linkTest{t: t, env: suite.NewTestWorkflowEnvironment(), mu: make(chan struct{}, 1), generation: 3}
	w.env.SetTestTimeout(20 * time.Second)
	register := func(name string, fn any) {
		w.env.RegisterActivityWithOptions(fn, activity.RegisterOptions{Name: name})
	}
	register(workflows.LoseUnitActivity, func(_ context.Context, n berth.NodeNotice) error {
		defer w.lock()()
		w.steps = append(w.steps, "lose "+string(n.Reason))
		return nil
	})
	register(workflows.ReadUnitActivity, func(context.Context, berth.NodeRef) (workflows.UnitRows, error) {
		defer w.lock()()
		w.steps = append(w.steps, "read")
		return workflows.UnitRows{Rows: w.rows}, nil
	})
	register(workflows.ReconcileUnitActivity, func(_ context.Context, in workflows.ReconcileInput) (workflows.ReconcileReply, error) {
		defer w.lock()()
		w.steps, w.reconciled = append(w.steps, "reconcile"), in
		return workflows.ReconcileReply{Withdraw: w.unknown}, nil
	})
	register(workflows.WakeWaitingActivity, func(context.Context, berth.NodeRef) error {
		defer w.lock()()
		w.steps = append(w.steps, "wake")
		return nil
	})
	register(workflows.ReadUnitStateActivity, func(context.Context, berth.NodeRef) (workflows.UnitState, error) {
		defer w.lock()()
		return workflows.UnitState{Generation: w.generation}, nil
	})
	register(berth.ActivityListConferences, func(ctx context.Context) (berth.UnitList, error) {
		return w.list, w.command(ctx, "list")
	})
	register(berth.ActivityReportConferences, func(ctx context.Context, in berth.UnitReport) error {
		require.Empty(t, in.E164, "all of them")
		return w.command(ctx, "report")
	})
	register(berth.ActivityReleaseConference, func(ctx context.Context, in berth.UnitRelease) error {
		return w.command(ctx, fmt.Sprintf("release %s %d", in.E164, in.Epoch))
	})
	w.env.RegisterWorkflowWithOptions(workflows.Link, workflow.RegisterOptions{Name: workflows.LinkWorkflow})
	return w
}

// lock locks the environment and returns the function that unlocks it.
func (w *linkTest) lock() (unlock func()) {
	w.mu <- struct{}{}
	return func() { <-w.mu }
}

// command records a command and returns the unit's reply.
func (w *linkTest) command(ctx context.Context, what string) error {
	defer w.lock()()
	info := activity.GetInfo(ctx)
	require.Equal(w.t, "node.u1.3", info.TaskQueue)
	if w.reply != nil {
		if err := w.reply(what); err != nil {
			return err
		}
	}
	w.steps = append(w.steps, what)
	return nil
}

func (w *linkTest) at(d time.Duration, signal string, arg any) {
	w.env.RegisterDelayedCallback(func() { w.env.SignalWorkflow(signal, arg) }, d)
}

func (w *linkTest) notice(d time.Duration, reason berth.Departure) {
	w.at(d, workflows.SignalNotice, berth.NodeNotice{NodeID: "u1", Generation: 3, Kind: berth.NodeMedia, Reason: reason})
}

func (w *linkTest) run() {
	w.t.Helper()
	w.env.ExecuteWorkflow(workflows.LinkWorkflow, workflows.LinkInput{NodeID: "u1", Generation: 3})
	require.True(w.t, w.env.IsWorkflowCompleted())
	require.NoError(w.t, w.env.GetWorkflowError())
}

func busy(string) error { return temporal.NewApplicationError("not now", "busy") }

// C15: the link reads what the unit should run, requests its list, releases unknown copies there, makes it report everything,
// and offers its capacity to waiting conferences.
func TestLink_UnitRegisters_IsReconciled(t *testing.T) {
	t.Parallel()
	w := newLinkTest(t)
	w.rows = []workflows.UnitRow{{E164: "1001", Epoch: 4}}
	w.list = berth.UnitList{Incarnation: incarnation("u1", 1), Conferences: []berth.UnitCopy{{E164: "1002", Epoch: 7}}}
	w.unknown = []berth.UnitRelease{{E164: "1002", Epoch: 7}}
	for range 5 { // a hundred conferences may request it concurrently
		w.notice(0, berth.ArrivalRegistered)
	}
	w.run()
	require.Equal(t, workflows.ReconcileInput{Unit: berth.NodeRef{NodeID: "u1", Generation: 3}, Rows: w.rows, List: w.list}, w.reconciled)
	require.Equal(t, []string{"read", "list", "reconcile"}, w.steps[:3])
	require.ElementsMatch(t, []string{"release 1002 7", "report", "wake"}, w.steps[3:])
	require.Less(t, slices.Index(w.steps, "report"), slices.Index(w.steps, "wake"))
}

// C17: a release is retried until it is acknowledged, without a deadline; the same release is sent once.
func TestLink_ReleaseFails_RetriedUntilAcknowledged(t *testing.T) {
	t.Parallel()
	w := newLinkTest(t)
	tries := 0
	w.reply = func(what string) error {
		if tries++; tries < 40 {
			return busy(what)
		}
		return nil
	}
	for range 2 {
		w.at(0, workflows.SignalWithdraw, berth.UnitRelease{E164: "1001", Epoch: 4})
	}
	w.run()
	require.Equal(t, []string{"release 1001 4"}, w.steps)
}

// C1: the conferences of a lost unit are notified immediately, also while a command to the unit is in flight.
func TestLink_UnitGone_ConferencesAreNotified(t *testing.T) {
	t.Parallel()
	for _, reason := range []berth.Departure{berth.DepartureUnresponsive, berth.DepartureSuperseded, berth.DepartureWithdrawn} {
		w := newLinkTest(t)
		w.reply = busy
		w.at(0, workflows.SignalWithdraw, berth.UnitRelease{E164: "1001", Epoch: 4})
		w.notice(0, berth.ArrivalRegistered)
		w.notice(3*time.Second, reason)
		w.run()
		require.Equal(t, []string{"read", "lose " + string(reason)}, w.steps)
	}
	w := newLinkTest(t)
	w.notice(0, berth.DepartureDrained)
	w.notice(0, berth.ArrivalRegistered)
	w.run()
	require.Equal(t, []string{"lose drained", "read", "list", "reconcile", "report", "wake"}, w.steps, "a drained unit lives")
}

// FC11: the conferences of a drained unit are moved while its list is missing, and a registration meanwhile is not lost.
func TestLink_DrainedWhileListIsMissing_ConferencesAreNotified(t *testing.T) {
	t.Parallel()
	w := newLinkTest(t)
	w.reply = func(what string) error {
		if !slices.Contains(w.steps, "lose drained") {
			return busy(what)
		}
		return nil
	}
	w.notice(0, berth.ArrivalRegistered)
	w.notice(2*time.Second, berth.ArrivalRegistered)
	w.notice(3*time.Second, berth.DepartureDrained)
	w.run()
	require.Equal(t, []string{
		"read", "lose drained", "list", "reconcile", "report", "wake", "read", "list", "reconcile", "report", "wake",
	}, w.steps)
}

// A unit that Redis lost is never declared dead; its commands are not retried indefinitely.
func TestLink_UnitNotRegistered_Ends(t *testing.T) {
	t.Parallel()
	w := newLinkTest(t)
	w.reply, w.generation = busy, 0
	w.at(0, workflows.SignalWithdraw, berth.UnitRelease{E164: "1001", Epoch: 4})
	w.notice(0, berth.ArrivalRegistered)
	w.run()
	require.Equal(t, []string{"read"}, w.steps)
}

// C21: the units that reply are counted; a refusal is a reply.
func TestProbe_UnitsReply_AreCounted(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		answers map[string]func() error
		want    int
	}{
		"none":    {map[string]func() error{}, 0},
		"one":     {map[string]func() error{"node.u2.1": func() error { return nil }}, 1},
		"refuses": {map[string]func() error{"node.u3.1": func() error { return nack("") }}, 1},
	} {
		var suite testsuite.WorkflowTestSuite
		env := suite.NewTestWorkflowEnvironment()
		env.RegisterActivityWithOptions(func(context.Context) (berth.UnitList, error) { return berth.UnitList{}, nil },
			activity.RegisterOptions{Name: berth.ActivityListConferences})
		env.OnActivity(berth.ActivityListConferences, mock.Anything).Return(func(ctx context.Context) (berth.UnitList, error) {
			if answer := c.answers[activity.GetInfo(ctx).TaskQueue]; answer != nil {
				return berth.UnitList{}, answer()
			}
			return berth.UnitList{}, temporal.NewTimeoutError(1, nil)
		})
		env.ExecuteWorkflow(workflows.Probe, workflows.ProbeInput{Units: []berth.NodeRef{
			{NodeID: "u1", Generation: 1}, {NodeID: "u2", Generation: 1}, {NodeID: "u3", Generation: 1},
		}})
		require.NoError(t, env.GetWorkflowError())
		var answered int
		require.NoError(t, env.GetWorkflowResult(&answered))
		require.Equal(t, c.want, answered, name)
	}
}
