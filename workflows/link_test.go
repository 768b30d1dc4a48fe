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

// wire is a world for one link: what it does, in order, and a unit at its other end.
type wire struct {
	t          *testing.T
	env        *testsuite.TestWorkflowEnvironment
	one        chan struct{} // taken by whoever looks at the rest: activities run side by side
	did        []string
	generation int64 // of the unit, as Redis has it
	rows       []workflows.UnitRow
	list       berth.UnitList
	unknown    []berth.UnitRelease
	reconciled workflows.ReconcileInput
	answer     func(command string) error
}

func newWire(t *testing.T) *wire {
	t.Helper()
	var suite testsuite.WorkflowTestSuite
	w := &wire{t: t, env: suite.NewTestWorkflowEnvironment(), one: make(chan struct{}, 1), generation: 3}
	w.env.SetTestTimeout(20 * time.Second)
	register := func(name string, fn any) {
		w.env.RegisterActivityWithOptions(fn, activity.RegisterOptions{Name: name})
	}
	register(workflows.LoseUnitActivity, func(_ context.Context, n berth.NodeNotice) error {
		defer w.alone()()
		w.did = append(w.did, "lose "+string(n.Reason))
		return nil
	})
	register(workflows.ReadUnitActivity, func(context.Context, workflows.NodeRef) (workflows.UnitRows, error) {
		defer w.alone()()
		w.did = append(w.did, "read")
		return workflows.UnitRows{Rows: w.rows}, nil
	})
	register(workflows.ReconcileUnitActivity, func(_ context.Context, in workflows.ReconcileInput) (workflows.ReconcileReply, error) {
		defer w.alone()()
		w.did, w.reconciled = append(w.did, "reconcile"), in
		return workflows.ReconcileReply{Withdraw: w.unknown}, nil
	})
	register(workflows.WakeWaitingActivity, func(context.Context, workflows.NodeRef) error {
		defer w.alone()()
		w.did = append(w.did, "wake")
		return nil
	})
	register(workflows.ReadUnitStateActivity, func(context.Context, workflows.NodeRef) (workflows.UnitState, error) {
		defer w.alone()()
		return workflows.UnitState{Generation: w.generation}, nil
	})
	register(berth.ActivityListConferences, func(ctx context.Context) (berth.UnitList, error) {
		return w.list, w.told(ctx, "list")
	})
	register(berth.ActivityReportConferences, func(ctx context.Context, in berth.UnitReport) error {
		require.Empty(t, in.E164, "all of them")
		return w.told(ctx, "report")
	})
	register(berth.ActivityReleaseConference, func(ctx context.Context, in berth.UnitRelease) error {
		return w.told(ctx, fmt.Sprintf("release %s %d", in.E164, in.Epoch))
	})
	w.env.RegisterWorkflowWithOptions(workflows.Link, workflow.RegisterOptions{Name: workflows.LinkWorkflow})
	return w
}

// alone waits until nobody else looks at the wire, and keeps others out until leave.
func (w *wire) alone() (leave func()) {
	w.one <- struct{}{}
	return func() { <-w.one }
}

// told is what the unit says to a command.
func (w *wire) told(ctx context.Context, what string) error {
	defer w.alone()()
	info := activity.GetInfo(ctx)
	require.Equal(w.t, "node.u1.3", info.TaskQueue)
	if w.answer != nil {
		if err := w.answer(what); err != nil {
			return err
		}
	}
	w.did = append(w.did, what)
	return nil
}

func (w *wire) at(d time.Duration, signal string, arg any) {
	w.env.RegisterDelayedCallback(func() { w.env.SignalWorkflow(signal, arg) }, d)
}

func (w *wire) notice(d time.Duration, reason berth.Departure) {
	w.at(d, workflows.SignalNotice, berth.NodeNotice{NodeID: "u1", Generation: 3, Kind: berth.NodeMedia, Reason: reason})
}

func (w *wire) run() {
	w.t.Helper()
	w.env.ExecuteWorkflow(workflows.LinkWorkflow, workflows.LinkInput{NodeID: "u1", Generation: 3})
	require.True(w.t, w.env.IsWorkflowCompleted())
	require.NoError(w.t, w.env.GetWorkflowError())
}

func busy(string) error { return temporal.NewApplicationError("not now", "busy") }

// C15: the unit is asked for its list, after what it should run was read; what nobody knows is released there; it reports
// everything; and those who wait are told of its room.
func TestC15LinkUp(t *testing.T) {
	t.Parallel()
	w := newWire(t)
	w.rows = []workflows.UnitRow{{E164: "1001", Epoch: 4}}
	w.list = berth.UnitList{Incarnation: incarnation("u1", 1), Conferences: []berth.UnitCopy{{E164: "1002", Epoch: 7}}}
	w.unknown = []berth.UnitRelease{{E164: "1002", Epoch: 7}}
	for range 5 { // a hundred conferences may ask for it at once
		w.notice(0, berth.ArrivalRegistered)
	}
	w.run()
	require.Equal(t, workflows.ReconcileInput{Unit: workflows.NodeRef{NodeID: "u1", Generation: 3}, Rows: w.rows, List: w.list}, w.reconciled)
	require.Equal(t, []string{"read", "list", "reconcile"}, w.did[:3])
	require.ElementsMatch(t, []string{"release 1002 7", "report", "wake"}, w.did[3:])
	require.Less(t, slices.Index(w.did, "report"), slices.Index(w.did, "wake"))
}

// C17: a release is told until it is acknowledged, however long that takes; the same one is told once.
func TestC17ReleaseIsToldUntilAcknowledged(t *testing.T) {
	t.Parallel()
	w := newWire(t)
	tries := 0
	w.answer = func(what string) error {
		if tries++; tries < 40 {
			return busy(what)
		}
		return nil
	}
	for range 2 {
		w.at(0, workflows.SignalWithdraw, berth.UnitRelease{E164: "1001", Epoch: 4})
	}
	w.run()
	require.Equal(t, []string{"release 1001 4"}, w.did)
}

// C1: the conferences of a unit that is gone are told so at once, also while the unit is being asked for something.
func TestC1UnitGone(t *testing.T) {
	t.Parallel()
	for _, reason := range []berth.Departure{berth.DepartureUnresponsive, berth.DepartureSuperseded, berth.DepartureWithdrawn} {
		w := newWire(t)
		w.answer = busy
		w.at(0, workflows.SignalWithdraw, berth.UnitRelease{E164: "1001", Epoch: 4})
		w.notice(0, berth.ArrivalRegistered)
		w.notice(3*time.Second, reason)
		w.run()
		require.Equal(t, []string{"read", "lose " + string(reason)}, w.did)
	}
	w := newWire(t)
	w.notice(0, berth.DepartureDrained)
	w.notice(0, berth.ArrivalRegistered)
	w.run()
	require.Equal(t, []string{"lose drained", "read", "list", "reconcile", "report", "wake"}, w.did, "a drained unit lives")
}

// A unit that Redis has forgotten, and whose end nobody will tell, is not told for ever.
func TestLinkOfAForgottenUnitEnds(t *testing.T) {
	t.Parallel()
	w := newWire(t)
	w.answer, w.generation = busy, 0
	w.at(0, workflows.SignalWithdraw, berth.UnitRelease{E164: "1001", Epoch: 4})
	w.notice(0, berth.ArrivalRegistered)
	w.run()
	require.Equal(t, []string{"read"}, w.did)
}

// C21: one silent unit that answers is enough for us not to believe that all are lost; a refusal is an answer.
func TestC21Probe(t *testing.T) {
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
		env.ExecuteWorkflow(workflows.Probe, workflows.ProbeInput{Units: []workflows.NodeRef{
			{NodeID: "u1", Generation: 1}, {NodeID: "u2", Generation: 1}, {NodeID: "u3", Generation: 1},
		}})
		require.NoError(t, env.GetWorkflowError())
		var answered int
		require.NoError(t, env.GetWorkflowResult(&answered))
		require.Equal(t, c.want, answered, name)
	}
}
