package api

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	"go.temporal.io/api/enums/v1"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/temporal"

	"berth"
	"berth/workflows"
)

// ConferenceStarter starts, ends and asks the workflows of conferences. Errors carry a berth.Code, or are a *RefusedError
// where no unit has room.
type ConferenceStarter interface {
	// CreateConference starts a conference and returns once it is open, or was refused and everything taken back (C16).
	// replay says that the number has this very request's conference already, which is answered; CodeConflict that it has
	// another one, CodeUnitRefused that the unit did not want it. Asking again is safe.
	CreateConference(ctx context.Context, in workflows.ConferenceInput) (c berth.Conference, replay bool, err error)
	// ReleaseConference ends a number's conference, whatever it is doing (C10, C17); CodeConflict when it does not run. done is false when its unit takes its time: it ends without anybody's doing.
	ReleaseConference(ctx context.Context, e164 string, req workflows.ReleaseRequest) (done bool, err error)
	// TellConference tells a number's conference what a unit says of it; nothing happens where none runs.
	TellConference(ctx context.Context, e164 string, news workflows.UnitNotice) error
	// ReportUnits has units tell the data proxy everything they run (C18). It returns once that is certain to be asked.
	ReportUnits(ctx context.Context, units []workflows.NodeRef) error
}

const (
	// createTimeout is how long somebody waits for a conference: longer than a unit may take to acknowledge it.
	createTimeout = 18 * time.Second
	// releaseTimeout is how long somebody waits for the release.
	releaseTimeout = 8 * time.Second
	// releaseAgain is the pause before a release that was lost is asked for again, releaseTries how often it is asked for.
	releaseAgain = 200 * time.Millisecond
	releaseTries = 3
	// createMost bounds how many conferences of a number that are over are passed by, one of them ending while the next is
	// being asked for.
	createMost = 5
)

// CreateConference asks the number's workflow, which it starts where none runs. The update's id is the request's hash, so
// that equal requests share one outcome. What was said of a conference that is over, or was refused, says nothing of now:
// the request is then asked for under an id that belongs to that run, and shared by all who find the same.
func (s *TemporalStarter) CreateConference(
	ctx context.Context, in workflows.ConferenceInput,
) (berth.Conference, bool, error) {
	ctx, cancel := context.WithTimeout(ctx, createTimeout)
	defer cancel()
	req := workflows.CreateRequest{SubmissionID: uuid.NewString(), RequestHash: in.RequestHash, UserID: in.UserID}
	id := in.RequestHash
	for range createMost {
		reply, err := s.create(ctx, in, req, id)
		c := reply.Conference
		switch {
		case err == nil && c.ID == in.ConferenceID:
			return c, reply.SubmissionID != req.SubmissionID, nil
		case err != nil && !oldRefusal(err, req.SubmissionID):
			return berth.Conference{}, false, numberTaken(err)
		}
		running, run, derr := s.lastRun(ctx, workflows.ConferenceWorkflowID(in.Spec.E164))
		if derr != nil {
			return berth.Conference{}, false, derr
		}
		if !running {
			id, in.ConferenceID = in.RequestHash+"~"+run, newConferenceID() // the run may have had the other
			continue
		}
		if err != nil { // what was refused is still being taken back
			return berth.Conference{}, false, berth.Errorf(berth.CodeUnavailable, awayConference).With(err)
		}
		now, err := s.queryConference(ctx, in.Spec.E164)
		if err != nil {
			return berth.Conference{}, false, err
		}
		if now.ID == c.ID && !now.Status.Final() {
			return now, true, nil
		}
	}
	return berth.Conference{}, false, berth.Errorf(berth.CodeUnavailable, awayConference)
}

func (s *TemporalStarter) create(
	ctx context.Context, in workflows.ConferenceInput, req workflows.CreateRequest, updateID string,
) (workflows.CreateReply, error) {
	start := s.Client.NewWithStartWorkflowOperation(client.StartWorkflowOptions{
		ID:                       workflows.ConferenceWorkflowID(in.Spec.E164),
		TaskQueue:                workflows.TaskQueueConferences,
		WorkflowIDConflictPolicy: enums.WORKFLOW_ID_CONFLICT_POLICY_USE_EXISTING,
		WorkflowIDReusePolicy:    enums.WORKFLOW_ID_REUSE_POLICY_ALLOW_DUPLICATE, // numbers are used again
		WorkflowTaskTimeout:      2 * time.Second,
		StaticSummary:            fmt.Sprintf("conference %s of %s", in.Spec.E164, in.UserID),
		TypedSearchAttributes: temporal.NewSearchAttributes(
			temporal.NewSearchAttributeKeyKeyword(workflows.SearchUser).ValueSet(in.UserID),
			temporal.NewSearchAttributeKeyKeyword(workflows.SearchConference).ValueSet(in.ConferenceID),
		),
	}, workflows.ConferenceWorkflow, in)
	handle, err := s.Client.UpdateWithStartWorkflow(ctx, client.UpdateWithStartWorkflowOptions{
		StartWorkflowOperation: start,
		UpdateOptions: client.UpdateWorkflowOptions{
			UpdateID: updateID, UpdateName: workflows.UpdateCreate,
			Args: []any{req}, WaitForStage: client.WorkflowUpdateStageCompleted,
		},
	})
	var reply workflows.CreateReply
	if err == nil {
		err = handle.Get(ctx, &reply)
	}
	if err = asked(err, awayConference); errors.Is(err, errNotRunning) { // it ended between the two
		err = berth.Errorf(berth.CodeUnavailable, awayConference).With(err)
	}
	return reply, err
}

// numberTaken words the refusal of a number that another conference has, whoever's it is.
func numberTaken(err error) error {
	switch berth.CodeOf(err) {
	case berth.CodeIdempotencyMismatch, berth.CodeConflict, berth.CodeNotFound:
		return &berth.Error{Code: berth.CodeConflict, Field: "e164", Message: "the number has another conference", Err: err}
	default:
		return err
	}
}

// lastRun tells whether a workflow runs, and its last run.
func (s *TemporalStarter) lastRun(ctx context.Context, workflowID string) (running bool, runID string, err error) {
	d, err := s.Client.DescribeWorkflowExecution(ctx, workflowID, "")
	if err = asked(err, awayConference); err != nil {
		if errors.Is(err, errNotRunning) { // no longer kept, or not there yet
			err = berth.Errorf(berth.CodeUnavailable, awayConference).With(err)
		}
		return false, "", err
	}
	info := d.GetWorkflowExecutionInfo()
	return info.GetStatus() == enums.WORKFLOW_EXECUTION_STATUS_RUNNING, info.GetExecution().GetRunId(), nil
}

// queryConference asks the number's last run.
func (s *TemporalStarter) queryConference(ctx context.Context, e164 string) (c berth.Conference, err error) {
	value, err := s.Client.QueryWorkflow(ctx, workflows.ConferenceWorkflowID(e164), "", workflows.QueryConference)
	if err == nil {
		err = value.Get(&c)
	}
	if err = asked(err, awayConference); errors.Is(err, errNotRunning) {
		err = berth.Errorf(berth.CodeUnavailable, awayConference).With(err)
	}
	return c, err
}

// ReleaseConference asks the number's workflow to end the conference. Each call is an update of its own: the second is
// told that it came too late. Where Temporal has lost the update, with all that the workflow did about it, it is asked for
// again.
func (s *TemporalStarter) ReleaseConference(
	ctx context.Context, e164 string, req workflows.ReleaseRequest,
) (done bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, releaseTimeout)
	defer cancel()
	update := client.UpdateWorkflowOptions{
		WorkflowID: workflows.ConferenceWorkflowID(e164), UpdateID: uuid.NewString(), UpdateName: workflows.UpdateRelease,
		Args: []any{req}, WaitForStage: client.WorkflowUpdateStageAccepted,
	}
	for try := 1; ; try++ {
		handle, err := s.Client.UpdateWorkflow(ctx, update)
		if err == nil {
			var late *client.WorkflowUpdateServiceTimeoutOrCanceledError                             // the server's patience ends a moment before ours
			if err = handle.Get(ctx, nil); errors.As(err, &late) || err != nil && ctx.Err() != nil { // accepted: it will be done
				return false, nil
			}
		}
		if err = asked(err, awayConference); errors.Is(err, errNotRunning) {
			err = overConference(err)
		}
		if berth.CodeOf(err) != berth.CodeUnavailable || try == releaseTries || hold(ctx, releaseAgain) != nil {
			return err == nil, err
		}
	}
}

// TellConference signals the number's workflow.
func (s *TemporalStarter) TellConference(ctx context.Context, e164 string, news workflows.UnitNotice) error {
	ctx, cancel := context.WithTimeout(ctx, submitTimeout)
	defer cancel()
	err := asked(s.Client.SignalWorkflow(ctx, workflows.ConferenceWorkflowID(e164), "", workflows.SignalUnit, news), awayConference)
	if errors.Is(err, errNotRunning) {
		return nil
	}
	return err
}

// ReportUnits starts one workflow for them all.
func (s *TemporalStarter) ReportUnits(ctx context.Context, units []workflows.NodeRef) error {
	ctx, cancel := context.WithTimeout(ctx, submitTimeout)
	defer cancel()
	_, err := s.Client.ExecuteWorkflow(ctx, client.StartWorkflowOptions{
		ID: workflows.ReportWorkflowID(uuid.NewString()), TaskQueue: workflows.TaskQueueLinks,
		StaticSummary: fmt.Sprintf("%d units report their conferences", len(units)),
	}, workflows.ReportWorkflow, workflows.ReportInput{Units: units})
	if err != nil {
		return unavailable("Temporal", err)
	}
	return nil
}

// awayConference is what is said when a conference cannot be reached.
const awayConference = "the conference cannot be asked now; ask again"

func overConference(err error) error {
	return berth.Errorf(berth.CodeConflict, "the conference is over").With(err)
}
