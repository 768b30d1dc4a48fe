package workflows

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	"berth"
)

const (
	// maxJobRetries bounds how often a job is dispatched again after a node failed it or died.
	maxJobRetries = 3
	// maxJobWait bounds how long, from its submission, a job that has to be dispatched again waits for capacity.
	maxJobWait = 2 * time.Minute
	// preferOthersFor is how long a job waits for another node before one that failed it is eligible again: it may be the
	// only one.
	preferOthersFor = 2 * time.Second
	// acceptTimeout is how long a node may take to accept a job, heartbeatTimeout how long its heartbeats may be missing
	// while it runs the job.
	acceptTimeout    = 5 * time.Second
	heartbeatTimeout = 5 * time.Second
	// maxExpiredDecisions bounds how many expired decisions one call skips.
	maxExpiredDecisions = 3
)

// job is the state of one segment.
type job struct {
	berth.TurnJob
	request     berth.JobRequest // of the last dispatch
	text        string
	submittedAt time.Time

	failed   []berth.NodeRef // generations that failed it, one entry for each attempt
	outages  int             // number of attempts that were lost in outages of Temporal
	busy     busyNodes       // that have returned it
	failure  string          // of the last attempt, in plain words
	excluded []berth.NodeRef // those of failed that are not eligible now
	avoided  []berth.NodeRef // those of failed that are eligible only if no other node is

	// The outcome of the update that submitted it.
	decided  bool
	accepted bool
	reply    DispatchReply
	refusal  error

	slot    *heldSlot // of the last dispatch
	waiting nodeWait  // for the node of the next one
}

func (j *job) finished() bool { return j.accepted && !j.Status.CanBecome(berth.JobDone) }

func compareIndex(j *job, index int) int { return j.Index - index }

// begun reports whether a job was accepted.
func (t *turn) begun() bool {
	return slices.ContainsFunc(t.jobs, func(j *job) bool { return j.accepted })
}

// jobOf returns the job of a request; nil if there is none.
func (t *turn) jobOf(requestID string) *job {
	if i := slices.IndexFunc(t.jobs, func(j *job) bool { return j.RequestID == requestID }); i >= 0 {
		return t.jobs[i]
	}
	return nil
}

// validateDispatch is the validator of the dispatch update. A known request is accepted: it has its outcome already.
func (t *turn) validateDispatch(ctx workflow.Context, req DispatchRequest) error {
	switch {
	case req.UserID != t.in.UserID || req.SessionID != t.in.SessionID:
		return refuse(berth.CodeNotFound, TurnNotFound)
	case req.RequestID == "" || req.Index < 0 || len(req.Text) > berth.MaxSegmentBytes:
		return refuse(berth.CodeInvalid, "the request has no id, or its segment is out of bounds")
	case t.jobOf(req.RequestID) != nil:
		return nil
	case t.status != berth.TurnOpen:
		return t.finalizedError()
	case req.SessionSrcLang != t.in.SrcLang || req.SessionTgtLang != t.in.TgtLang:
		return refuse(berth.CodeConflict, "the session's languages have changed since the turn began; start a new turn")
	case req.Index >= berth.MaxSegments:
		return refuse(berth.CodeConflict, fmt.Sprintf("a turn has at most %d segments; start a new turn", berth.MaxSegments))
	case t.refused >= maxRefusals:
		return refuse(berth.CodeUnavailable, "the turn had too many refused segments; retry in a few seconds")
	case t.textSize+len(req.Text) > maxTurnText:
		return refuse(berth.CodeConflict, fmt.Sprintf("the turn's segments exceed the limit of %d bytes; start a new turn", maxTurnText))
	case !t.size.fits(ctx, requestSize(string(req.Text))+jobSize(string(req.Text))):
		return refuse(berth.CodeUnavailable, "the turn has too much text in progress; retry in a few seconds")
	}
	if _, used := slices.BinarySearchFunc(t.jobs, req.Index, compareIndex); used {
		return refuse(berth.CodeConflict, fmt.Sprintf("the turn already has a segment %d", req.Index))
	}
	return nil
}

// dispatch is the dispatch update. It returns once the job's node is chosen. A decision in progress is completed even when
// the run is cancelled, because it may hold a slot.
func (t *turn) dispatch(ctx workflow.Context, req DispatchRequest) (DispatchReply, error) {
	ctx, cancel := workflow.NewDisconnectedContext(ctx)
	defer cancel()
	if known := t.jobOf(req.RequestID); known != nil {
		if err := workflow.Await(ctx, func() bool { return known.decided }); err != nil {
			return DispatchReply{}, err
		}
		return known.reply, known.refusal
	}
	j := t.addJob(ctx, req)
	err := t.decide(ctx, j, req.Finalize.Ends())
	t.deciding--
	j.decided = true
	if err != nil {
		j.refusal = t.removeJob(j, req.SubmissionID, err)
		t.extendForRefusal(j)
		return DispatchReply{}, j.refusal
	}
	t.accept(ctx, j, req.Finalize)
	j.reply = DispatchReply{
		SubmissionID: req.SubmissionID, RequestHash: req.RequestHash, TurnID: t.in.TurnID, Assignment: j.slot.Assignment,
	}
	return j.reply, nil
}

// addJob reserves the segment's index while its node is chosen.
func (t *turn) addJob(ctx workflow.Context, req DispatchRequest) *job {
	req.TurnID, req.JobID = t.in.TurnID, fmt.Sprintf("%s-%d", t.in.TurnID, req.Index)
	j := &job{TurnJob: berth.TurnJob{
		JobID: req.JobID, RequestID: req.RequestID, Index: req.Index,
		SpeakerID: req.SpeakerID, Finalize: req.Finalize, Status: berth.JobRunning, PoolID: req.PoolID,
	}, request: req.JobRequest, text: string(req.Text), submittedAt: workflow.Now(ctx)}
	at, _ := slices.BinarySearchFunc(t.jobs, req.Index, compareIndex)
	t.jobs = slices.Insert(t.jobs, at, j)
	t.deciding++
	t.textSize += len(req.Text)
	t.size.add(ctx, requestSize(j.text))
	t.size.reserved += jobSize(j.text)
	t.refusal = nil
	return j
}

// extendForRefusal restarts the timeout of a turn that has begun, so that the client can submit a refused segment again.
func (t *turn) extendForRefusal(refused *job) {
	if t.begun() && refused.submittedAt.After(t.lastSegment) {
		t.lastSegment = refused.submittedAt
	}
}

// removeJob removes a refused job and returns the error for its submission.
func (t *turn) removeJob(j *job, submissionID string, err error) error {
	t.jobs = slices.DeleteFunc(t.jobs, func(o *job) bool { return o == j })
	t.refused++
	t.textSize -= len(j.text)
	t.size.reserved -= jobSize(j.text)
	code, message := berth.CodeUnavailable, "no reply from the node assignment in time; retry"
	if app, ok := errors.AsType[*temporal.ApplicationError](err); ok {
		code, message = berth.Code(app.Type()), app.Message()
		if app.Type() == ErrorExpired {
			code = berth.CodeUnavailable
		}
	}
	refusal := refuseFor(submissionID, code, message, refusalDetail(err))
	if len(t.jobs) == 0 {
		t.refusal, t.undecided = refusal, t.undecided || code != berth.CodeNodeFull && code != berth.CodeNoNode
	}
	return refusal
}

// accept adds the job to the turn, publishes the beginning of a turn, and starts the job.
func (t *turn) accept(ctx workflow.Context, j *job, finalize berth.Finalize) {
	first := !t.begun()
	j.accepted = true
	if j.submittedAt.After(t.lastSegment) {
		t.lastSegment = j.submittedAt
	}
	if first {
		t.publish(berth.SessionEvent{Type: berth.EventTurn, SpeakerID: j.SpeakerID})
	}
	if t.affinity == "" && j.Affinity == berth.AffinityFirst && t.status == berth.TurnOpen && !finalize.Ends() {
		t.affinity = j.NodeID
	}
	// The job runs until the turn ends, and belongs to the trace of its own segment.
	workflow.Go(workflow.WithValue(t.running, berth.SpanKey{}, ctx.Value(berth.SpanKey{})), func(ctx workflow.Context) { t.runJob(ctx, j) })
	if finalize.Ends() {
		t.finalize(ctx, finalize)
	}
}

// decide chooses the node of the job's next dispatch. A decision whose reply was lost, and whose slot has expired since,
// is counted as a dispatch.
func (t *turn) decide(ctx workflow.Context, j *job, ends bool) error {
	in := DispatchInput{
		JobRequest: j.request, Excluded: slices.Concat(j.excluded, j.busy.now(ctx)), Avoided: slices.Concat(t.unresponsive, j.avoided),
	}
	in.EndsTurn, in.AffinityNodeID = ends || t.status != berth.TurnOpen, t.affinity
	for in.Dispatch = j.Dispatches + 1; ; in.Dispatch++ {
		if left := j.submittedAt.Add(maxJobWait).Sub(workflow.Now(ctx)); j.accepted && left > 0 {
			j.waiting.begin(NodeWait{
				PoolID: j.PoolID, UserID: t.in.UserID, WorkflowID: workflow.GetInfo(ctx).WorkflowExecution.ID,
				LeaseID: in.LeaseID(), Since: j.submittedAt, Again: true, Left: left,
			})
			wait := j.waiting.NodeWait // the input of a local activity is not copied
			in.Wait = &wait
		}
		a, err := local[berth.Assignment](once(ctx, time.Second, segment(j.Index, in.Dispatch)), DispatchJobActivity, in)
		if app, ok := errors.AsType[*temporal.ApplicationError](err); ok && app.Type() == ErrorExpired && in.Dispatch <= j.Dispatches+maxExpiredDecisions {
			continue
		}
		if err != nil {
			return err
		}
		if j.Dispatches == 0 {
			j.Affinity, j.Missed = a.Affinity, a.Missed
		}
		j.request, j.Dispatches, j.NodeID, j.slot = in.JobRequest, in.Dispatch, a.NodeID, t.slots.hold(a, t.in.JobTimeout)
		return nil
	}
}

func segment(index, dispatch int) string {
	if dispatch > 1 {
		return fmt.Sprintf("segment %d, dispatch %d", index, dispatch)
	}
	return fmt.Sprintf("segment %d", index)
}

// runJob has the job run by its node and, when that fails or dies, by another one.
func (t *turn) runJob(ctx workflow.Context, j *job) {
	for {
		text, err := t.translate(ctx, j)
		j.slot.unresponsive = unresponsive(err)
		t.slots.release(j.slot)
		if err == nil {
			j.Status, j.Text = berth.JobDone, text
			break
		}
		switch {
		case ctx.Err() == nil && j.busy.returned(ctx, j.slot.NodeRef, err):
			j.failure = fmt.Sprintf("on %s: %s", j.NodeID, attemptError(err))
		case ctx.Err() == nil && j.outages < maxOutages && inOutage(ctx, err, heartbeatTimeout):
			j.outages++
			j.failure = fmt.Sprintf("on %s: %s", j.NodeID, outageError)
		default:
			t.recordFailure(j, err)
		}
		code := permanentCode(err)
		if code == "" {
			if code = t.dispatchAgain(ctx, j); code != "" {
				recordDecisions(ctx) // the next worker may find a node
			}
			j.waiting.leave(ctx, leaveFor)
		}
		if code != "" {
			j.Status, j.Code, j.Message = berth.JobFailed, code, j.failureMessage(code)
			break
		}
	}
	j.text = ""
	t.publishResults()
}

// recordFailure excludes the generation that failed the job. One that was unresponsive is probably dead without having
// been declared dead: the turn's other jobs avoid it.
func (t *turn) recordFailure(j *job, err error) {
	failed := j.slot.NodeRef
	j.failed = append(j.failed, failed)
	j.excluded, j.avoided = slices.Clone(j.failed), nil
	j.failure = fmt.Sprintf("on %s: %s", j.NodeID, attemptError(err))
	if unresponsive(err) && !slices.Contains(t.unresponsive, failed) {
		t.unresponsive = append(t.unresponsive, failed)
	}
}

// readmit makes nodes that failed the job eligible again, unless they were unresponsive.
func (t *turn) readmit(j *job) {
	j.excluded = nil
	for _, n := range j.failed {
		if slices.Contains(t.unresponsive, n) {
			j.excluded = append(j.excluded, n)
		} else {
			j.avoided = append(j.avoided, n)
		}
	}
}

// failureMessage describes for the user why the job failed.
func (j *job) failureMessage(code berth.Code) string {
	switch code {
	case berth.CodeInvalid:
		return "this segment cannot be translated, " + j.failure
	case berth.CodeTooLarge:
		return "the translation of this segment is too long, " + j.failure
	case berth.CodeNodeFull:
		return fmt.Sprintf("every node for this segment was busy; after %d requests the last one was returned %s", j.busy.times, j.failure)
	case berth.CodeNodeFailed:
		return fmt.Sprintf("attempt %d failed, %s", len(j.failed), j.failure)
	case berth.CodeNoNode:
		return fmt.Sprintf("no node had capacity for this segment in time; attempt %d had failed, %s", max(len(j.failed), 1), j.failure)
	default:
		return "the turn was cancelled"
	}
}

// translate is one attempt on one node. Temporal does not retry it, because a retry would go to the same node.
func (t *turn) translate(ctx workflow.Context, j *job) (string, error) {
	t.size.schedule(ctx, jobSize(j.text))
	var out struct {
		Text *string `json:"text"` // of berth.JobOutput
	}
	err := workflow.ExecuteActivity(workflow.WithActivityOptions(ctx, workflow.ActivityOptions{
		TaskQueue:              j.slot.TaskQueue(),
		ScheduleToStartTimeout: acceptTimeout,
		StartToCloseTimeout:    t.in.JobTimeout,
		HeartbeatTimeout:       heartbeatTimeout,
		RetryPolicy:            &temporal.RetryPolicy{MaximumAttempts: 1},
		Summary:                j.NodeID + ": " + segment(j.Index, j.Dispatches),
	}), berth.ActivityTranslate, berth.JobInput{Job: j.request.Job, Text: j.text}).Get(ctx, &out)
	if err != nil {
		return "", err
	}
	return checkOutput(out.Text)
}

// checkOutput returns the translation of a node, or why it is none.
func checkOutput(text *string) (string, error) {
	switch {
	case text == nil:
		return "", refuse(berth.CodeNodeFailed, "the node's response has no text")
	case len(*text) > berth.MaxTranslationBytes:
		return "", refuse(berth.CodeTooLarge, fmt.Sprintf("the output of %d bytes exceeds the limit of %d bytes", len(*text), berth.MaxTranslationBytes))
	default:
		return *text, nil
	}
}

// dispatchAgain dispatches a failed job, which waits in the room of its pool while no node has capacity. Nodes that have not failed it
// take precedence. It returns the code of the failure if the job is given up, and "" otherwise.
func (t *turn) dispatchAgain(ctx workflow.Context, j *job) berth.Code {
	since, onlyOthers := workflow.Now(ctx), true
	for pause, tried := minAssignPause, false; ; {
		now := workflow.Now(ctx)
		others, left := preferOthersFor-now.Sub(since), j.submittedAt.Add(maxJobWait).Sub(now)
		if onlyOthers && others <= 0 {
			onlyOthers = false
			t.readmit(j)
		}
		switch {
		case ctx.Err() != nil:
			return berth.CodeCancelled
		case j.busy.times > maxBusy, j.busy.last && left <= 0:
			return berth.CodeNodeFull
		case len(j.failed) > maxJobRetries, onlyOthers && left <= 0 && tried:
			return berth.CodeNodeFailed
		case left <= 0 && tried:
			return berth.CodeNoNode
		}
		waits := false
		if t.size.fits(ctx, jobSize(j.text)) { // where a node dies, all of its jobs are dispatched again
			err := t.decideAgain(ctx, j)
			tried = true
			if waits = j.waiting.ended(err, true); err == nil {
				return ""
			}
		} else {
			j.waiting.woken = false // the next attempt follows in another workflow task
		}
		if onlyOthers {
			left = min(left, others)
		}
		if busy := j.busy.left(ctx); busy > 0 {
			left = min(left, busy)
		}
		if waits {
			pause = minAssignPause
		} else {
			if left <= 0 || pause < left {
				left = pause
			}
			pause = min(2*pause, maxAssignPause)
		}
		// An error is the cancellation, which the next iteration handles.
		_ = j.waiting.wait(ctx, left)
	}
}

func (t *turn) decideAgain(ctx workflow.Context, j *job) error {
	ctx, cancel := workflow.NewDisconnectedContext(ctx)
	defer cancel()
	t.deciding++
	defer func() { t.deciding-- }()
	t.size.reserved += jobSize(j.text)
	err := t.decide(ctx, j, j.Finalize.Ends())
	if err != nil {
		t.size.reserved -= jobSize(j.text)
	}
	return err
}
