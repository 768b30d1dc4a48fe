package workflows_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
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

const number = "8613800000001"

// hall is a world for one conference: units with room, and everything it is told or writes.
type hall struct {
	t     *testing.T
	env   *testsuite.TestWorkflowEnvironment
	one   chan struct{} // held by whoever looks at the rest: activities run beside the callbacks
	units []*cmu
	epoch int64
	held  map[string]string // lease -> unit

	places    []workflows.PlaceInput
	saves     []workflows.SaveInput
	words     []workflows.LinkRequest
	adoptions []workflows.AdoptionInput
	commands  []unitCall
	reports   []string
	statuses  []berth.ConferenceStatus // each new one, as its stream tells
	events    int                      // the number of the last one
	cut       bool                     // what is placed is written and told, and the reply is lost

	created  answersOf[workflows.CreateReply]
	released answersOf[any]
}

// cmu is a unit: answer is what it says to a command; nil is an acknowledgement.
type cmu struct {
	id         string
	generation int64
	room       int
	full       berth.Code // what it is passed over with while there is no room; node_full
	answer     func(command string) error
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

// silent is a unit that never answers.
func silent(string) error { return context.DeadlineExceeded }

// newHall is a hall with units that have room for ten each.
func newHall(t *testing.T, units ...string) *hall {
	t.Helper()
	var suite testsuite.WorkflowTestSuite
	h := &hall{t: t, env: suite.NewTestWorkflowEnvironment(), one: make(chan struct{}, 1), held: map[string]string{}}
	h.env.SetTestTimeout(20 * time.Second)
	for _, id := range units {
		h.units = append(h.units, &cmu{id: id, generation: 1, room: 10})
	}
	register := func(name string, fn any) {
		h.env.RegisterActivityWithOptions(fn, activity.RegisterOptions{Name: name})
	}
	register(workflows.PlaceConferenceActivity, h.place)
	register(workflows.SaveConferenceActivity, h.save)
	register(workflows.PrepareAdoptionActivity, h.prepare)
	register(workflows.NotifyLinkActivity, func(_ context.Context, in workflows.LinkRequest) error {
		defer h.alone()()
		h.words = append(h.words, in)
		return nil
	})
	register(workflows.ReadUnitStateActivity, func(_ context.Context, in workflows.NodeRef) (workflows.UnitState, error) {
		defer h.alone()()
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
		defer h.alone()()
		h.reports = append(h.reports, activity.GetInfo(ctx).TaskQueue+" "+strings.Join(in.E164, " "))
		return nil
	})
	h.env.RegisterWorkflowWithOptions(workflows.Conference, workflow.RegisterOptions{Name: workflows.ConferenceWorkflow})
	h.at(0, func() { h.submit("h1", "r1", &h.created) })
	return h
}

func (h *hall) unit(id string) *cmu {
	for _, u := range h.units {
		if u.id == id {
			return u
		}
	}
	return nil
}

func (h *hall) at(d time.Duration, f func()) {
	h.env.RegisterDelayedCallback(func() {
		defer h.alone()()
		f()
	}, d)
}

// alone waits until nobody else looks at the hall, and keeps others out until leave.
func (h *hall) alone() (leave func()) {
	h.one <- struct{}{}
	return func() { <-h.one }
}

func (h *hall) submit(hash, id string, a *answersOf[workflows.CreateReply]) {
	h.env.UpdateWorkflow(workflows.UpdateCreate, "u-"+id, a, workflows.CreateRequest{SubmissionID: id, RequestHash: hash, UserID: "alice"})
}

// release has somebody end it.
func (h *hall) release() {
	h.env.UpdateWorkflow(workflows.UpdateRelease, "release", &h.released, workflows.ReleaseRequest{By: "olga"})
}

func (h *hall) news(n workflows.UnitNotice) { h.env.SignalWorkflow(workflows.SignalUnit, n) }

// dies has a generation declared dead, and its unit vanish.
func (h *hall) dies(id string) {
	u := h.unit(id)
	h.units = slices.DeleteFunc(h.units, func(o *cmu) bool { return o == u })
	h.news(workflows.UnitNotice{NodeID: id, Generation: u.generation, Incarnation: incarnation(id, 1), Gone: berth.DepartureUnresponsive})
}

// lists has a unit's list name the copy.
func (h *hall) lists(id string, generation, epoch int64, startedAt time.Time) {
	h.news(workflows.UnitNotice{NodeID: id, Generation: generation, Incarnation: incarnation(id, 1), Copy: &berth.UnitCopy{
		E164: number, ConferenceID: "c1", Epoch: epoch, StartedAt: startedAt,
	}})
}

func (h *hall) place(_ context.Context, in workflows.PlaceInput) (workflows.PlaceReply, error) {
	defer h.alone()()
	h.places = append(h.places, in)
	for _, slot := range in.Release {
		delete(h.held, slot.LeaseID)
	}
	h.tell(in.FirstEvent, in.Events)
	for _, u := range h.units {
		if u.room == 0 || slices.Contains(in.Failed, workflows.NodeRef{NodeID: u.id, Generation: u.generation}) {
			continue
		}
		h.epoch++
		slot := berth.Assignment{LeaseID: fmt.Sprintf("conference:c1:%d", h.epoch), NodeID: u.id, Generation: u.generation, PoolID: "conference"}
		h.held[slot.LeaseID] = u.id
		owner := berth.ConferenceOwner{NodeID: u.id, Generation: u.generation, Incarnation: incarnation(u.id, 1), Epoch: h.epoch}
		h.tell(in.FirstEvent+len(in.Events), []berth.ConferenceEvent{workflows.Placed(in.Conference, owner, in.At).Event(in.At)})
		if h.cut {
			delete(h.held, slot.LeaseID)
			return workflows.PlaceReply{}, errors.New("the reply is cut off")
		}
		return workflows.PlaceReply{Owner: owner, Slot: slot, Events: len(in.Events) + 1}, nil
	}
	code := berth.CodeNodeFull
	for _, u := range h.units {
		if u.full != "" {
			code = u.full
		}
	}
	return workflows.PlaceReply{Code: code, Message: "no room", Events: len(in.Events)}, nil
}

func (h *hall) save(_ context.Context, in workflows.SaveInput) error {
	defer h.alone()()
	h.saves = append(h.saves, in)
	for _, slot := range in.Release {
		delete(h.held, slot.LeaseID)
	}
	if in.Hold != nil {
		h.held[in.Hold.LeaseID] = in.Hold.NodeID
	}
	h.tell(in.FirstEvent, in.Events)
	return nil
}

// tell is the stream: it leaves out numbers that it has had, and each new status has to be one that C13 knows.
func (h *hall) tell(first int, events []berth.ConferenceEvent) {
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

func (h *hall) prepare(_ context.Context, in workflows.AdoptionInput) (workflows.AdoptionReply, error) {
	defer h.alone()()
	h.adoptions = append(h.adoptions, in)
	u := h.unit(in.Unit.NodeID)
	h.epoch++
	slot := berth.Assignment{
		LeaseID: fmt.Sprintf("conference:c1:%d", h.epoch), NodeID: in.Unit.NodeID, Generation: in.Unit.Generation, PoolID: "conference",
	}
	if u == nil || u.generation != in.Unit.Generation {
		return workflows.AdoptionReply{Epoch: h.epoch, Gone: true}, nil
	}
	h.held[slot.LeaseID] = u.id
	return workflows.AdoptionReply{Epoch: h.epoch, Slot: slot}, nil
}

func (h *hall) command(ctx context.Context, command string, in berth.UnitConference) error {
	defer h.alone()()
	queue := activity.GetInfo(ctx).TaskQueue
	h.commands = append(h.commands, unitCall{command, queue, in})
	for _, u := range h.units {
		if queue != berth.NodeTaskQueue(u.id, u.generation) {
			continue
		}
		if u.answer != nil {
			if err := u.answer(command); err != nil {
				return h.say(err)
			}
		}
		return nil
	}
	return h.say(context.DeadlineExceeded) // nobody is there
}

// say is how a unit's answer reaches its caller; silence is a timeout.
func (h *hall) say(err error) error {
	if err == context.DeadlineExceeded { //nolint:errorlint // it is ours
		return temporal.NewTimeoutError(1, nil) // start to close
	}
	return err
}

func (h *hall) names() (out []string) {
	for _, c := range h.commands {
		out = append(out, fmt.Sprintf("%s %s %d", strings.TrimSuffix(c.command, "Conference"), strings.TrimPrefix(c.queue, "node."), c.in.Epoch))
	}
	return out
}

// withdrawn is what links were told to release.
func (h *hall) withdrawn() (out []string) {
	for _, w := range h.words {
		if w.Withdraw != nil {
			out = append(out, fmt.Sprintf("%s.%d %d", w.Unit.NodeID, w.Unit.Generation, w.Withdraw.Epoch))
		}
	}
	return out
}

func rules() workflows.ConferenceRules {
	return workflows.ConferenceRules{Retry: 5 * time.Minute, GiveUp: 30 * time.Minute, Command: 10 * time.Second}
}

func (h *hall) input(set ...func(*workflows.ConferenceInput)) workflows.ConferenceInput {
	in := workflows.ConferenceInput{
		ConferenceID: "c1", UserID: "alice", RequestHash: "h1", Rules: rules(),
		Spec: berth.ConferenceSpec{E164: number, Title: "stand-up", EndAt: h.env.Now().Add(4 * time.Hour), Recoverable: true},
	}
	for _, f := range set {
		f(&in)
	}
	return in
}

// now is the conference as it stands.
func (h *hall) now() berth.Conference {
	h.t.Helper()
	var is berth.Conference
	v, err := h.env.QueryWorkflow(workflows.QueryConference)
	require.NoError(h.t, err)
	require.NoError(h.t, v.Get(&is))
	return is
}

// run runs it to its end and answers its record, which the ledger has too.
func (h *hall) run(set ...func(*workflows.ConferenceInput)) berth.Conference {
	h.t.Helper()
	h.env.ExecuteWorkflow(workflows.ConferenceWorkflow, h.input(set...))
	require.True(h.t, h.env.IsWorkflowCompleted())
	require.NoError(h.t, h.env.GetWorkflowError())
	var is berth.Conference
	require.NoError(h.t, h.env.GetWorkflowResult(&is))
	require.True(h.t, is.Status.Final())
	last := h.saves[len(h.saves)-1]
	require.Equal(h.t, is, last.Conference, "C22: the ledger has the record")
	require.Empty(h.t, h.held, "every slot is given back")
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

// slow has units take their time over a command.
func (h *hall) slow(command string, d time.Duration) {
	h.env.OnActivity(command, mock.Anything, mock.Anything).Return(
		func(ctx context.Context, in berth.UnitConference) error { return h.command(ctx, command, in) },
	).After(d)
}
