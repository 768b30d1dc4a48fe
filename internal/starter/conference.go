package starter

import (
	"context"
	"errors"
	"fmt"
	"time"

	"go.temporal.io/api/enums/v1"
	"go.temporal.io/sdk/client"
	"golang.org/x/sync/errgroup"

	"berth"
	"berth/internal/pause"
	"berth/workflows"
)

const (
	// createTimeout is longer than a unit may take to acknowledge a conference.
	createTimeout  = 18 * time.Second
	releaseTimeout = 8 * time.Second
	// A release that Temporal lost is sent releaseTries times, releasePause apart.
	releaseTries = 3
	releasePause = 200 * time.Millisecond
	// maxCreateTries bounds how many ended conferences of a number are skipped, each of which ended during the call.
	maxCreateTries = 5
)

// CreateConference starts a conference and returns once it is open, or was refused and everything was undone; a
// *berth.Refusal when no unit takes it. replay reports that the number already has this request's conference;
// CodeConflict that it has another one, CodeUnitRefused that the unit refused it. Calls with the same request are
// idempotent.
//
// The outcome of a conference that has ended or was refused does not decide a later request: that is sent under an id
// that belongs to the ended run, which equal requests share.
func (s *Starter) CreateConference(
	ctx context.Context, in workflows.ConferenceInput,
) (c berth.Conference, replay bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, createTimeout)
	defer cancel()
	req := workflows.CreateRequest{SubmissionID: berth.NewID(""), RequestHash: in.RequestHash, UserID: in.UserID}
	id := in.RequestHash
	for range maxCreateTries {
		reply, err := send[workflows.CreateReply](ctx, s, update{
			workflowID: workflows.ConferenceWorkflowID(in.Spec.E164), name: workflows.UpdateCreate, id: id, arg: req,
			start: startConference(in),
		}, 0)
		c := reply.Conference
		switch {
		case err == nil && c.ID == in.ConferenceID:
			return c, reply.SubmissionID != req.SubmissionID, nil
		case err != nil && !refusedEarlier(err, req.SubmissionID):
			return berth.Conference{}, false, conferenceError(err)
		}
		running, run, derr := s.lastRun(ctx, workflows.ConferenceWorkflowID(in.Spec.E164))
		if derr != nil {
			return berth.Conference{}, false, conferenceError(derr)
		}
		if !running {
			id, in.ConferenceID = in.RequestHash+"~"+run, berth.NewID("c-") // the run may have had the other id
			continue
		}
		if err != nil { // the refused conference is still being undone
			return berth.Conference{}, false, unavailable(err)
		}
		current, _, err := query[berth.Conference](ctx, s, workflows.ConferenceWorkflowID(in.Spec.E164),
			workflows.QueryConference, enums.QUERY_REJECT_CONDITION_NONE)
		if err != nil {
			return berth.Conference{}, false, conferenceError(err)
		}
		if current.ID == c.ID && !current.Status.Final() {
			return current, true, nil
		}
	}
	return berth.Conference{}, false, unavailable(nil)
}

func startConference(in workflows.ConferenceInput) *start {
	return &start{
		id: workflows.ConferenceWorkflowID(in.Spec.E164), queue: workflows.TaskQueueConferences,
		name: workflows.ConferenceWorkflow, input: in, summary: fmt.Sprintf("conference %s of %s", in.Spec.E164, in.UserID),
		reuse:       enums.WORKFLOW_ID_REUSE_POLICY_ALLOW_DUPLICATE, // numbers are reused
		taskTimeout: 2 * time.Second,
		search:      map[string]string{workflows.SearchUser: in.UserID, workflows.SearchConference: in.ConferenceID},
	}
}

// conferenceError makes one error of a number that another conference has, whichever user's it is. A workflow that ended
// during the call can be started again.
func conferenceError(err error) error {
	switch berth.CodeOf(err) {
	case berth.CodeIdempotencyMismatch, berth.CodeConflict, berth.CodeNotFound:
		return &berth.Error{Code: berth.CodeConflict, Field: "e164", Message: "the number has another conference", Err: err}
	}
	if isNotRunning(err) {
		return unavailable(err)
	}
	return err
}

// lastRun returns the id of the workflow's last run, and whether that is running.
func (s *Starter) lastRun(ctx context.Context, workflowID string) (running bool, runID string, err error) {
	d, err := s.Client.DescribeWorkflowExecution(ctx, workflowID, "")
	if err != nil {
		return false, "", outcome(err)
	}
	info := d.GetWorkflowExecutionInfo()
	return info.GetStatus() == enums.WORKFLOW_EXECUTION_STATUS_RUNNING, info.GetExecution().GetRunId(), nil
}

// ReleaseConference ends a number's conference in whatever state it is; CodeConflict when none is running. done is false
// when its unit has not confirmed the release in time: the conference ends without another call.
func (s *Starter) ReleaseConference(
	ctx context.Context, e164 string, req workflows.ReleaseRequest,
) (done bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, releaseTimeout)
	defer cancel()
	u := update{workflowID: workflows.ConferenceWorkflowID(e164), name: workflows.UpdateRelease, id: berth.NewID(""), arg: req}
	for try := 1; ; try++ {
		handle, err := s.Client.UpdateWorkflow(ctx, u.options(0, client.WorkflowUpdateStageAccepted))
		if err == nil {
			// The server stops waiting slightly before ctx does. The update was accepted: it will be done.
			var late *client.WorkflowUpdateServiceTimeoutOrCanceledError
			if err = handle.Get(ctx, nil); errors.As(err, &late) || err != nil && ctx.Err() != nil {
				return false, nil
			}
		}
		if err = outcome(err); isNotRunning(err) {
			err = berth.Errorf(berth.CodeConflict, "the conference has ended").With(err)
		}
		if berth.CodeOf(err) != berth.CodeUnavailable || try == releaseTries || !pause.For(ctx, releasePause) {
			return err == nil, err
		}
	}
}

// MoveConference moves a number's conference to another unit and returns once it runs there; a *berth.Refusal when no unit
// takes it, CodeConflict when it is not open.
func (s *Starter) MoveConference(ctx context.Context, e164 string, req workflows.MoveRequest) (berth.Conference, error) {
	reply, err := change[workflows.MoveReply](ctx, s, e164, workflows.UpdateMove, req)
	return reply.Conference, err
}

// ExtendConference sets a later end time of a number's conference; CodeConflict when it has ended, or the time is earlier than
// its end time.
func (s *Starter) ExtendConference(ctx context.Context, e164 string, req workflows.ExtendRequest) (berth.Conference, error) {
	reply, err := change[workflows.ExtendReply](ctx, s, e164, workflows.UpdateExtend, req)
	return reply.Conference, err
}

// change sends an update to a number's running conference, and waits for its result.
func change[R any](ctx context.Context, s *Starter, e164, name string, arg any) (R, error) {
	ctx, cancel := context.WithTimeout(ctx, createTimeout)
	defer cancel()
	reply, err := send[R](ctx, s, update{workflowID: workflows.ConferenceWorkflowID(e164), name: name, id: berth.NewID(""), arg: arg}, 0)
	if isNotRunning(err) {
		err = berth.Errorf(berth.CodeConflict, "the conference has ended").With(err)
	}
	return reply, err
}

// SignalConference signals a number's conference, and reports whether one is running.
func (s *Starter) SignalConference(ctx context.Context, e164, signal string, arg any) (running bool, err error) {
	return s.signal(ctx, workflows.ConferenceWorkflowID(e164), signal, arg)
}

const (
	// maxSignals is how many workflows are signalled at the same time.
	maxSignals = 32
	// SequentialSignals is how many of the signals of SignalConferences are sent one after the other: where many
	// conferences recover, the first have found a unit before the rest compete for one.
	SequentialSignals = 32
)

// SignalConferences signals the conferences of many numbers; those without a running one are skipped.
func (s *Starter) SignalConferences(ctx context.Context, numbers []string, signal string, arg any) error {
	var g errgroup.Group
	g.SetLimit(maxSignals)
	for i, e164 := range numbers {
		send := func() error {
			_, err := s.SignalConference(ctx, e164, signal, arg)
			return err
		}
		if i >= SequentialSignals {
			g.Go(send)
		} else if err := send(); err != nil {
			return err
		}
	}
	return g.Wait()
}

// ReportUnits starts one workflow that has the units report everything they run to the data proxy.
func (s *Starter) ReportUnits(ctx context.Context, units []berth.NodeRef) error {
	_, err := s.Client.ExecuteWorkflow(ctx, client.StartWorkflowOptions{
		ID: workflows.ReportWorkflowID(berth.NewID("")), TaskQueue: workflows.TaskQueueLinks,
		StaticSummary: fmt.Sprintf("%d units report their conferences", len(units)),
	}, workflows.ReportWorkflow, workflows.ReportInput{Units: units})
	return outcome(err)
}
