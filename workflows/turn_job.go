package workflows

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"go.temporal.io/api/enums/v1"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	"berth"
)

const (
	// jobRetries is how often a job is dispatched again after a node failed it or died.
	jobRetries = 3
	// jobPatience is how long, from its first dispatch, a job that has to be dispatched again waits for room.
	jobPatience = 2 * time.Minute
	// otherFirst is how long a job waits for another node before one that failed it may have it again: that may be the
	// only one there is.
	otherFirst = 2 * time.Second
	// While it waits it asks in these intervals.
	askFirst, askMost = 200 * time.Millisecond, 2 * time.Second
	// A node that does not take a job, or falls silent on it, is given up after these.
	takeWithin, beatWithin = 5 * time.Second, 5 * time.Second
)

// job is one segment's way.
type job struct {
	berth.TurnJob
	text   string
	came   time.Time
	failed []NodeRef // generations that failed it, one entry for each try
	why    string    // the last of them did, for people
	// excluded are those of them that may not have it now, forgiven those that may when no other node can.
	excluded, forgiven []NodeRef

	// The outcome of the update that brought it.
	decided  bool
	accepted bool
	reply    DispatchReply
	refusal  error

	slot      berth.Assignment // of the last dispatch
	holds     bool             // the slot is not given back
	until     time.Time        // when the node must have done the job
	confirmAt time.Time        // when the slot is to be confirmed; zero: not, or no more
}

func (j *job) over() bool { return j.accepted && j.Status != berth.JobRunning }

func compareIndex(j *job, index int) int { return j.Index - index }

// begun tells whether a job was accepted.
func (t *turn) begun() bool {
	return slices.ContainsFunc(t.jobs, func(j *job) bool { return j.accepted })
}

func (t *turn) requested(requestID string) *job {
	if i := slices.IndexFunc(t.jobs, func(j *job) bool { return j.RequestID == requestID }); i >= 0 {
		return t.jobs[i]
	}
	return nil
}

// mayDispatch is the validator of the dispatch update. A request that is known has its outcome already.
func (t *turn) mayDispatch(_ workflow.Context, req DispatchRequest) error {
	switch {
	case req.UserID != t.in.UserID || req.SessionID != t.in.SessionID:
		return refuse(berth.CodeNotFound, noSuchTurn)
	case req.RequestID == "" || req.Index < 0 || len(req.Text) > berth.MaxSegmentBytes:
		return refuse(berth.CodeInvalid, "the request has no id, or its segment is out of bounds")
	case t.requested(req.RequestID) != nil:
		return nil
	case t.status != berth.TurnOpen:
		return t.tooLate()
	case req.SrcLang != t.in.SrcLang || req.TgtLang != t.in.TgtLang:
		return refuse(berth.CodeConflict, "the session's languages have changed since the turn began")
	case req.Index >= berth.MaxSegments:
		return refuse(berth.CodeConflict, fmt.Sprintf("a turn takes %d segments", berth.MaxSegments))
	case t.textSize+len(req.Text) > maxTurnText:
		return refuse(berth.CodeConflict, fmt.Sprintf("the segments of a turn take %d bytes together", maxTurnText))
	}
	if _, used := slices.BinarySearchFunc(t.jobs, req.Index, compareIndex); used {
		return refuse(berth.CodeConflict, fmt.Sprintf("the turn has a segment %d", req.Index))
	}
	return nil
}

// dispatch takes a job in and answers once its node is decided. A decision that is under way comes to its end even when
// the run is cancelled, for it may hold a slot.
func (t *turn) dispatch(ctx workflow.Context, req DispatchRequest) (DispatchReply, error) {
	ctx, cancel := workflow.NewDisconnectedContext(ctx)
	defer cancel()
	if known := t.requested(req.RequestID); known != nil {
		if err := workflow.Await(ctx, func() bool { return known.decided }); err != nil {
			return DispatchReply{}, err
		}
		return known.reply, known.refusal
	}
	j := t.enter(req, workflow.Now(ctx))
	err := t.decide(ctx, j, req.Finalize.Ends())
	t.deciding--
	j.decided = true
	if err != nil {
		j.refusal = t.turnAway(j, req.SubmissionID, err)
		t.expect(ctx, j)
		return DispatchReply{}, j.refusal
	}
	t.accept(ctx, j, req.Finalize)
	j.reply = DispatchReply{
		SubmissionID: req.SubmissionID, RequestHash: req.RequestHash, TurnID: t.in.TurnID, Assignment: j.slot,
	}
	return j.reply, nil
}

// enter keeps the segment's place while its node is being decided.
func (t *turn) enter(req DispatchRequest, now time.Time) *job {
	j := &job{TurnJob: berth.TurnJob{
		JobID: fmt.Sprintf("%s-%d", t.in.TurnID, req.Index), RequestID: req.RequestID, Index: req.Index,
		SpeakerID: req.SpeakerID, Finalize: req.Finalize, Status: berth.JobRunning, PoolID: req.PoolID,
	}, text: req.Text, came: now}
	at, _ := slices.BinarySearchFunc(t.jobs, req.Index, compareIndex)
	t.jobs = slices.Insert(t.jobs, at, j)
	t.deciding++
	t.textSize += len(req.Text)
	t.refusal = nil
	return j
}

// expect gives the speaker of a turn that runs the time to ask again for a segment that was refused (A1).
func (t *turn) expect(ctx workflow.Context, refused *job) {
	if t.begun() && refused.came.After(t.lastSegment) && workflow.GetVersion(ctx, versionAvailability, workflow.DefaultVersion, 1) == 1 {
		t.lastSegment = refused.came
	}
}

// turnAway forgets a job that was refused and tells its submission why.
func (t *turn) turnAway(j *job, submissionID string, err error) error {
	t.jobs = slices.DeleteFunc(t.jobs, func(o *job) bool { return o == j })
	t.textSize -= len(j.text)
	var app *temporal.ApplicationError
	code, message, detail := berth.CodeUnavailable, "the decision was not heard of in time; try again", berth.Refusal{}
	if errors.As(err, &app) {
		code, message = berth.Code(app.Type()), app.Message()
		if app.Type() == ErrorExpired {
			code = berth.CodeUnavailable
		}
		if app.HasDetails() {
			_ = app.Details(&detail) // without the reasons the refusal is as good
		}
	}
	detail.SubmissionID = submissionID
	refusal := temporal.NewNonRetryableApplicationError(message, string(code), nil, detail)
	if len(t.jobs) == 0 {
		t.refusal, t.unclear = refusal, t.unclear || code != berth.CodeNodeFull && code != berth.CodeNoNode
	}
	return refusal
}

// accept makes the job one of the turn's, tells the listener of a turn that begins, and has the job done.
func (t *turn) accept(ctx workflow.Context, j *job, cut berth.Finalize) {
	first := !t.begun()
	j.accepted = true
	if j.came.After(t.lastSegment) {
		t.lastSegment = j.came
	}
	if first {
		t.publish(berth.SessionEvent{Type: berth.EventTurn, SpeakerID: j.SpeakerID})
	}
	if t.affinity == "" && j.Affinity == berth.AffinityFirst && t.status == berth.TurnOpen && !cut.Ends() {
		t.affinity = j.NodeID
	}
	t.holdSlot(ctx, j)
	workflow.Go(t.running, func(ctx workflow.Context) { t.work(ctx, j) })
	if cut.Ends() {
		t.finalize(ctx, cut)
	}
}

// decide has the job's next dispatch decided: its node and slot. What was decided in a call whose answer was lost, and
// has lapsed since, is counted as a dispatch.
func (t *turn) decide(ctx workflow.Context, j *job, ends bool) error {
	in := DispatchInput{
		SessionID: t.in.SessionID, TurnID: t.in.TurnID, JobID: j.JobID, RequestID: j.RequestID,
		EndsTurn: ends || t.status != berth.TurnOpen, PoolID: j.PoolID, AffinityNodeID: t.affinity, Excluded: j.excluded, Avoided: slices.Concat(t.silent, j.forgiven),
	}
	for in.Dispatch = j.Dispatches + 1; ; in.Dispatch++ {
		var a berth.Assignment
		err := workflow.ExecuteLocalActivity(workflow.WithLocalActivityOptions(ctx, workflow.LocalActivityOptions{
			ScheduleToCloseTimeout: time.Second,
			RetryPolicy:            &temporal.RetryPolicy{MaximumAttempts: 1},
			Summary:                segment(j.Index, in.Dispatch),
		}), DispatchJobActivity, in).Get(ctx, &a)
		var app *temporal.ApplicationError
		if errors.As(err, &app) && app.Type() == ErrorExpired && in.Dispatch <= j.Dispatches+lapsedMost {
			continue
		}
		if err != nil {
			return err
		}
		if j.Dispatches == 0 {
			j.Affinity, j.Missed = a.Affinity, a.Missed
		}
		j.Dispatches, j.NodeID, j.slot = in.Dispatch, a.NodeID, a
		return nil
	}
}

// lapsedMost bounds how many lapsed decisions one call passes over.
const lapsedMost = 3

func segment(index, dispatch int) string {
	if dispatch > 1 {
		return fmt.Sprintf("segment %d, dispatch %d", index, dispatch)
	}
	return fmt.Sprintf("segment %d", index)
}

// work has the job done: by its node, and when that fails or dies by another (A11).
func (t *turn) work(ctx workflow.Context, j *job) {
	for {
		text, err := t.translate(ctx, j)
		t.giveBack(j, missedHeartbeats(err))
		if err == nil {
			j.Status, j.Text = berth.JobDone, text
			break
		}
		t.blame(j, err)
		code := berth.CodeInvalid
		if !hopeless(err) {
			code = t.again(ctx, j)
		}
		if code != "" {
			j.Status, j.Code, j.Message = berth.JobFailed, code, j.gaveUp(code)
			break
		}
		t.holdSlot(ctx, j)
	}
	j.text = ""
	t.tell()
}

// blame notes the generation that failed a job, and why. What fell silent is probably dead, and nobody has seen it yet: the
// turn's other jobs need not find out one by one.
func (t *turn) blame(j *job, err error) {
	failed := NodeRef{NodeID: j.NodeID, Generation: j.slot.Generation}
	j.failed = append(j.failed, failed)
	j.excluded, j.forgiven = slices.Clone(j.failed), nil
	j.why = fmt.Sprintf("on %s: %s", j.NodeID, attemptError(err))
	if missedHeartbeats(err) && !slices.Contains(t.silent, failed) {
		t.silent = append(t.silent, failed)
	}
}

// forgive lets nodes that failed the job try again, unless they fell silent.
func (t *turn) forgive(j *job) {
	j.excluded = nil
	for _, n := range j.failed {
		if slices.Contains(t.silent, n) {
			j.excluded = append(j.excluded, n)
		} else {
			j.forgiven = append(j.forgiven, n)
		}
	}
}

// missedHeartbeats tells that a node did not take its work, or was not heard of while it had it.
func missedHeartbeats(err error) bool {
	var timeout *temporal.TimeoutError
	return errors.As(err, &timeout) && timeout.TimeoutType() != enums.TIMEOUT_TYPE_START_TO_CLOSE
}

// hopeless tells that the node said so of this segment, whatever node it is given to.
func hopeless(err error) bool {
	var app *temporal.ApplicationError
	return errors.As(err, &app) && app.NonRetryable() && app.Type() == string(berth.CodeInvalid)
}

// gaveUp tells why the job was given up.
func (j *job) gaveUp(code berth.Code) string {
	switch code {
	case berth.CodeInvalid:
		return "this segment cannot be translated, " + j.why
	case berth.CodeNodeFailed:
		return fmt.Sprintf("attempt %d failed, %s", len(j.failed), j.why)
	case berth.CodeNoNode:
		return fmt.Sprintf("no node had room for this segment in time; attempt %d had failed, %s", len(j.failed), j.why)
	default:
		return "the turn was cancelled"
	}
}

// translate is one node's try. Temporal does not repeat it: that would go to the same node's queue.
func (t *turn) translate(ctx workflow.Context, j *job) (string, error) {
	var out berth.JobOutput
	err := workflow.ExecuteActivity(workflow.WithActivityOptions(ctx, workflow.ActivityOptions{
		TaskQueue:              j.slot.TaskQueue(),
		ScheduleToStartTimeout: takeWithin,
		StartToCloseTimeout:    t.in.JobTimeout,
		HeartbeatTimeout:       beatWithin,
		RetryPolicy:            &temporal.RetryPolicy{MaximumAttempts: 1},
		Summary:                j.NodeID + ": " + segment(j.Index, j.Dispatches),
	}), berth.ActivityTranslate, berth.JobInput{
		SessionID: t.in.SessionID, TurnID: t.in.TurnID, JobID: j.JobID, Dispatch: j.Dispatches, Index: j.Index,
		SpeakerID: j.SpeakerID, SrcLang: t.in.SrcLang, TgtLang: t.in.TgtLang, Text: j.text,
	}).Get(ctx, &out)
	if err == nil && len(out.Text) > berth.MaxSegmentBytes {
		err = refuse(berth.CodeTooLarge, "the translation is too long")
	}
	return out.Text, err
}

// again dispatches the job once more, waiting while no node has room. Others have precedence over those that failed it. It
// answers why the job is given up, if it is.
func (t *turn) again(ctx workflow.Context, j *job) berth.Code {
	since, withheld := workflow.Now(ctx), true
	for pause := askFirst; ; pause = min(2*pause, askMost) {
		left := otherFirst - workflow.Now(ctx).Sub(since)
		if withheld && left <= 0 {
			withheld = false
			t.forgive(j)
		}
		switch {
		case ctx.Err() != nil:
			return berth.CodeCancelled
		case len(j.failed) > jobRetries:
			return berth.CodeNodeFailed
		case workflow.Now(ctx).Sub(j.came) > jobPatience && pause > askFirst:
			if withheld {
				return berth.CodeNodeFailed
			}
			return berth.CodeNoNode
		}
		if err := t.decideAgain(ctx, j); err == nil {
			return ""
		}
		wait := pause
		if withheld {
			wait = min(wait, left)
		}
		// An error is the cancellation, which the next round sees.
		_ = workflow.NewTimerWithOptions(ctx, wait, workflow.TimerOptions{Summary: "room for " + segment(j.Index, j.Dispatches+1)}).Get(ctx, nil)
	}
}

func (t *turn) decideAgain(ctx workflow.Context, j *job) error {
	ctx, cancel := workflow.NewDisconnectedContext(ctx)
	defer cancel()
	t.deciding++
	defer func() { t.deciding-- }()
	return t.decide(ctx, j, j.Finalize.Ends())
}
