package workflows_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/mock"
	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/log"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/testsuite"
	"go.temporal.io/sdk/workflow"

	"berth"
	"berth/workflows"
)

const number = "8613800000001"

// conferenceTest is the environment of one conference: simulated units, and a record of all it sends and writes.
type conferenceTest struct {
	t     *testing.T
	env   *testsuite.TestWorkflowEnvironment
	mu    chan struct{} // guards the rest: activities run concurrently with callbacks
	units []*fakeUnit
	epoch int64
	held  map[string]string // lease -> unit

	places       []workflows.PlaceInput
	saves        []workflows.SaveInput
	saved        func(workflows.SaveInput) workflows.SaveReply // nil: the owner is registered
	linkRequests []workflows.LinkRequest
	adoptions    []workflows.AdoptionInput
	moves        []workflows.MoveInput
	undrained    bool // PlaceMove finds that the drain was cancelled
	commands     []unitCall
	reports      []string
	decided      time.Time                // of the last reply of a local activity that decides
	statuses     []berth.ConferenceStatus // each new one, as published
	events       int                      // number of the last one
	confirmed    int                      // number of the last event whose publication the workflow knows
	replyLost    bool                     // a placement is written and published, and its reply is lost
	warnings     bytes.Buffer             // that were logged; read it after the run
	requestLost  bool                     // Temporal has started the run, and lost the request to create

	created  updateResult[workflows.CreateReply]
	moved    updateResult[workflows.MoveReply]
	extended updateResult[workflows.ExtendReply]
	released updateResult[any]
}

// fakeUnit is a simulated unit. reply returns its reply to a command; nil acknowledges all.
type fakeUnit struct {
	id         string
	generation int64
	capacity   int
	full       berth.Code // code of the refusal while there is no capacity; node_full by default
	reply      func(command string) error
}

// unitCall is a command that reached a unit.
type unitCall struct {
	command string
	queue   string
	in      berth.UnitConference
}

func incarnation(unit string, n int64) berth.Incarnation {
	return berth.Incarnation{Host: unit, PID: 1, StartedAt: 1000 + n}
}

func nack(string) error { return temporal.NewApplicationError("no licence", berth.ErrorRefused) }

// noReply makes a unit reply to no command.
func noReply(string) error { return context.DeadlineExceeded }

// newConferenceTest returns an environment with units that have capacity for ten conferences each.
func newConferenceTest(t *testing.T, units ...string) *conferenceTest {
	t.Helper()
	h := &conferenceTest{t: t, mu: make(chan struct{}, 1), held: map[string]string{}}
	var suite testsuite.WorkflowTestSuite
	suite.SetLogger(log.NewStructuredLogger(slog.New(slog.NewTextHandler(&h.warnings, &slog.HandlerOptions{Level: slog.LevelWarn}))))
	h.env = suite.NewTestWorkflowEnvironment()
	h.env.SetTestTimeout(20 * time.Second)
	for _, id := range units {
		h.units = append(h.units, &fakeUnit{id: id, generation: 1, capacity: 10})
	}
	register := func(name string, fn any) {
		h.env.RegisterActivityWithOptions(fn, activity.RegisterOptions{Name: name})
	}
	register(workflows.PlaceConferenceActivity, h.place)
	register(workflows.PlaceMoveActivity, h.placeMove)
	register(workflows.SaveConferenceActivity, h.save)
	register(workflows.PrepareAdoptionActivity, h.prepare)
	register(workflows.NotifyLinkActivity, func(_ context.Context, in workflows.LinkRequest) error {
		defer h.lock()()
		h.linkRequests = append(h.linkRequests, in)
		return nil
	})
	register(workflows.ReadUnitStateActivity, func(_ context.Context, in berth.NodeRef) (workflows.UnitState, error) {
		defer h.lock()()
		h.decided = h.env.Now()
		if u := h.unit(in.NodeID); u != nil {
			return workflows.UnitState{Generation: u.generation}, nil
		}
		return workflows.UnitState{}, nil
	})
	for _, command := range []string{
		berth.ActivityCreateConference, berth.ActivityRecoverConference, berth.ActivityAdoptConference, berth.ActivityReleaseConference,
	} {
		register(command, func(ctx context.Context, in berth.UnitConference) error { return h.command(ctx, command, in) })
	}
	register(berth.ActivityReportConferences, func(ctx context.Context, in berth.UnitReport) error {
		defer h.lock()()
		h.reports = append(h.reports, fmt.Sprint(activity.GetInfo(ctx).TaskQueue, " ", strings.Join(in.E164, " "), " ", in.Epoch))
		return nil
	})
	h.env.RegisterWorkflowWithOptions(workflows.Conference, workflow.RegisterOptions{Name: workflows.ConferenceWorkflow})
	h.at(0, func() {
		if !h.requestLost {
			h.submit("h1", "r1", &h.created)
		}
	})
	return h
}

func (h *conferenceTest) unit(id string) *fakeUnit {
	for _, u := range h.units {
		if u.id == id {
			return u
		}
	}
	return nil
}

func (h *conferenceTest) at(d time.Duration, f func()) {
	h.env.RegisterDelayedCallback(func() {
		defer h.lock()()
		f()
	}, d)
}

// lock locks the environment and returns the function that unlocks it.
func (h *conferenceTest) lock() (unlock func()) {
	h.mu <- struct{}{}
	return func() { <-h.mu }
}

func (h *conferenceTest) submit(hash, id string, a *updateResult[workflows.CreateReply]) {
	h.env.UpdateWorkflow(workflows.UpdateCreate, "u-"+id, a, workflows.CreateRequest{SubmissionID: id, RequestHash: hash, UserID: "alice"})
}

// release ends the conference by request of olga.
func (h *conferenceTest) release() {
	h.env.UpdateWorkflow(workflows.UpdateRelease, "release", &h.released, workflows.ReleaseRequest{By: "olga"})
}

func (h *conferenceTest) notify(n workflows.UnitNotice) {
	h.env.SignalWorkflow(workflows.SignalUnit, n)
}

// dies removes a unit and notifies the conference of its death.
func (h *conferenceTest) dies(id string) {
	u := h.unit(id)
	h.units = slices.DeleteFunc(h.units, func(o *fakeUnit) bool { return o == u })
	h.notify(workflows.UnitNotice{NodeID: id, Generation: u.generation, Incarnation: incarnation(id, 1), Gone: berth.DepartureUnresponsive})
}

// lists notifies the conference of a copy on a unit's list.
func (h *conferenceTest) lists(id string, generation, epoch int64, startedAt time.Time) {
	h.notify(workflows.UnitNotice{NodeID: id, Generation: generation, Incarnation: incarnation(id, 1), Copy: &berth.UnitCopy{
		E164: number, ConferenceID: "c1", Epoch: epoch, StartedAt: startedAt,
	}})
}

func (h *conferenceTest) place(_ context.Context, in workflows.PlaceInput) (workflows.PlaceReply, error) {
	defer h.lock()()
	h.decided = h.env.Now()
	h.places = append(h.places, in)
	for _, slot := range in.Release {
		delete(h.held, slot.LeaseID)
	}
	h.requireConfirmed(in.Confirmed, in.FirstEvent)
	h.publish(in.FirstEvent, in.Events)
	for _, u := range h.units {
		if u.capacity == 0 || slices.Contains(in.Failed, berth.NodeRef{NodeID: u.id, Generation: u.generation}) {
			continue
		}
		h.epoch++
		slot := berth.Assignment{LeaseID: fmt.Sprintf("conference:c1:%d", h.epoch), NodeRef: berth.NodeRef{NodeID: u.id, Generation: u.generation}, PoolID: "conference"}
		h.held[slot.LeaseID] = u.id
		owner := berth.ConferenceOwner{NodeID: u.id, Generation: u.generation, Incarnation: incarnation(u.id, 1), Epoch: h.epoch}
		h.publish(in.FirstEvent+len(in.Events), []berth.ConferenceEvent{workflows.Placed(in.Conference, owner, in.At).Event(in.At)})
		if h.replyLost {
			delete(h.held, slot.LeaseID)
			return workflows.PlaceReply{}, errors.New("the reply is lost")
		}
		h.confirmed = in.FirstEvent + len(in.Events)
		return workflows.PlaceReply{Owner: owner, Slot: slot, Events: len(in.Events) + 1}, nil
	}
	code := berth.CodeNodeFull
	for _, u := range h.units {
		if u.full != "" {
			code = u.full
		}
	}
	return workflows.PlaceReply{Code: code, Message: "no capacity", Events: len(in.Events)}, nil
}

// placeMove is place for a move: the owner's unit is excluded, and nothing is published.
func (h *conferenceTest) placeMove(_ context.Context, in workflows.MoveInput) (workflows.MovePlan, error) {
	defer h.lock()()
	h.decided = h.env.Now()
	h.moves = append(h.moves, in)
	for _, slot := range in.Release {
		delete(h.held, slot.LeaseID)
	}
	if h.replyLost {
		return workflows.MovePlan{}, errors.New("the reply is lost")
	}
	if h.undrained && in.Drain {
		return workflows.MovePlan{Undone: true}, nil
	}
	for _, u := range h.units {
		failed := slices.Contains(in.Failed, berth.NodeRef{NodeID: u.id, Generation: u.generation})
		if u.capacity == 0 || failed || u.id == in.Conference.Owner.NodeID || in.Unit != "" && in.Unit != u.id {
			continue
		}
		h.epoch++
		slot := berth.Assignment{LeaseID: fmt.Sprintf("conference:c1:%d", h.epoch), NodeRef: berth.NodeRef{NodeID: u.id, Generation: u.generation}, PoolID: "conference"}
		h.held[slot.LeaseID] = u.id
		return workflows.MovePlan{Slot: slot, Owner: berth.ConferenceOwner{
			NodeID: u.id, Generation: u.generation, Incarnation: incarnation(u.id, 1), Epoch: h.epoch,
		}}, nil
	}
	return workflows.MovePlan{Code: berth.CodeNodeFull, Message: "no capacity"}, nil
}

func (h *conferenceTest) save(_ context.Context, in workflows.SaveInput) (reply workflows.SaveReply, err error) {
	defer h.lock()()
	h.saves = append(h.saves, in)
	if owner := in.Conference.Owner; owner.NodeID != "" {
		require.Equal(h.t, owner.Epoch, in.Conference.Epoch, "its unit's reports are of this epoch")
	}
	if in.Conference.Status.Final() {
		require.True(h.t, h.env.Now().After(h.decided), "the end is in the history before it is published")
	}
	if h.saved != nil {
		reply = h.saved(in)
	}
	for _, slot := range in.Release {
		delete(h.held, slot.LeaseID)
	}
	if in.Hold != nil {
		h.held[in.Hold.LeaseID] = in.Hold.NodeID
	}
	h.requireConfirmed(in.Confirmed, in.FirstEvent)
	h.publish(in.FirstEvent, in.Events)
	if len(in.Events) > 0 {
		h.confirmed = in.FirstEvent + len(in.Events) - 1
	}
	return reply, nil
}

// requireConfirmed requires that the workflow names the last event that an activity has confirmed, and none that may be lost.
func (h *conferenceTest) requireConfirmed(confirmed, first int) {
	require.GreaterOrEqual(h.t, confirmed, h.confirmed)
	require.Less(h.t, confirmed, first)
	if h.confirmed > 0 {
		require.LessOrEqual(h.t, confirmed, h.events, "an event that was not published")
	}
}

// publish is the stream. It ignores events whose number it has received, and requires each new status to be a transition of
// C13.
func (h *conferenceTest) publish(first int, events []berth.ConferenceEvent) {
	for i, ev := range events {
		if first+i <= h.events {
			continue
		}
		h.events = first + i
		last := berth.ConferenceStatus("")
		if n := len(h.statuses); n > 0 {
			last = h.statuses[n-1]
		}
		if ev.Status != last {
			require.True(h.t, last.CanBecome(ev.Status), "%s cannot become %s", last, ev.Status)
			h.statuses = append(h.statuses, ev.Status)
		}
	}
}

func (h *conferenceTest) prepare(_ context.Context, in workflows.AdoptionInput) (workflows.AdoptionReply, error) {
	defer h.lock()()
	h.decided = h.env.Now()
	h.adoptions = append(h.adoptions, in)
	u := h.unit(in.Unit.NodeID)
	h.epoch++
	slot := berth.Assignment{
		LeaseID: fmt.Sprintf("conference:c1:%d", h.epoch), NodeRef: berth.NodeRef{NodeID: in.Unit.NodeID, Generation: in.Unit.Generation}, PoolID: "conference",
	}
	if u == nil || u.generation != in.Unit.Generation {
		return workflows.AdoptionReply{Epoch: h.epoch, Gone: true}, nil
	}
	h.held[slot.LeaseID] = u.id
	return workflows.AdoptionReply{Epoch: h.epoch, Slot: slot}, nil
}

func (h *conferenceTest) command(ctx context.Context, command string, in berth.UnitConference) error {
	defer h.lock()()
	queue := activity.GetInfo(ctx).TaskQueue
	h.commands = append(h.commands, unitCall{command, queue, in})
	for _, u := range h.units {
		if queue != berth.NodeTaskQueue(u.id, u.generation) {
			continue
		}
		if u.reply != nil {
			if err := u.reply(command); err != nil {
				return h.response(err)
			}
		}
		return nil
	}
	return h.response(context.DeadlineExceeded) // unit not found
}

// response returns a unit's error as its caller receives it; no reply is a timeout.
func (h *conferenceTest) response(err error) error {
	if err == context.DeadlineExceeded { //nolint:errorlint // never wrapped
		return temporal.NewTimeoutError(1, nil) // start to close
	}
	return err
}

func (h *conferenceTest) commandNames() (out []string) {
	for _, c := range h.commands {
		out = append(out, fmt.Sprintf("%s %s %d", strings.TrimSuffix(c.command, "Conference"), strings.TrimPrefix(c.queue, "node."), c.in.Epoch))
	}
	return out
}

// withdrawn returns the copies that links were asked to release.
func (h *conferenceTest) withdrawn() (out []string) {
	for _, w := range h.linkRequests {
		if w.Withdraw != nil {
			out = append(out, fmt.Sprintf("%s.%d %d", w.Unit.NodeID, w.Unit.Generation, w.Withdraw.Epoch))
		}
	}
	return out
}

func rules() workflows.ConferenceRules {
	return workflows.ConferenceRules{Retry: 5 * time.Minute, GiveUp: 30 * time.Minute, Command: 10 * time.Second}
}

func (h *conferenceTest) input(set ...func(*workflows.ConferenceInput)) workflows.ConferenceInput {
	in := workflows.ConferenceInput{
		ConferenceID: "c1", UserID: "alice", RequestHash: "h1", Rules: rules(),
		Spec: berth.ConferenceSpec{E164: number, Title: "stand-up", EndAt: h.env.Now().Add(4 * time.Hour), Recoverable: true},
	}
	for _, f := range set {
		f(&in)
	}
	return in
}

// conference returns the current record.
func (h *conferenceTest) conference() berth.Conference {
	h.t.Helper()
	var is berth.Conference
	v, err := h.env.QueryWorkflow(workflows.QueryConference)
	require.NoError(h.t, err)
	require.NoError(h.t, v.Get(&is))
	return is
}

// run runs the conference to its end and returns its record, which must equal the saved one.
func (h *conferenceTest) run(set ...func(*workflows.ConferenceInput)) berth.Conference {
	h.t.Helper()
	h.env.ExecuteWorkflow(workflows.ConferenceWorkflow, h.input(set...))
	require.True(h.t, h.env.IsWorkflowCompleted())
	require.NoError(h.t, h.env.GetWorkflowError())
	var is berth.Conference
	require.NoError(h.t, h.env.GetWorkflowResult(&is))
	require.True(h.t, is.Status.Final())
	last := h.saves[len(h.saves)-1]
	require.Equal(h.t, is, last.Conference, "C22: the ledger has the record")
	require.Empty(h.t, h.held, "every slot is released")
	require.Zero(h.t, is.Owner)
	revisions := int64(0)
	for _, s := range h.saves {
		require.Greater(h.t, s.Conference.Revision, revisions)
		revisions = s.Conference.Revision
	}
	return is
}

var (
	untilTheEnd = []berth.ConferenceStatus{berth.ConferenceCreating, berth.ConferenceOpen, berth.ConferenceEnded}
	recovered   = []berth.ConferenceStatus{
		berth.ConferenceCreating, berth.ConferenceOpen, berth.ConferenceAwaitingRecovery, berth.ConferenceCreating, berth.ConferenceOpen,
		berth.ConferenceEnded,
	}
)

// slow delays the reply of all units to a command.
func (h *conferenceTest) slow(command string, d time.Duration) {
	h.env.OnActivity(command, mock.Anything, mock.Anything).Return(
		func(ctx context.Context, in berth.UnitConference) error { return h.command(ctx, command, in) },
	).After(d)
}
