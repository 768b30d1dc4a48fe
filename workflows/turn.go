package workflows

import (
	"fmt"
	"time"

	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	"berth"
)

// TurnInput starts a turn. The workflow is the truth of what the turn has; Redis is what others decide by.
type TurnInput struct {
	TurnID    string `json:"turnId"`
	SessionID string `json:"sessionId"`
	UserID    string `json:"userId"`
	SrcLang   string `json:"srcLang"`
	TgtLang   string `json:"tgtLang"`
	// Timeout finalises a turn that long after its last segment (A1); JobTimeout is how long one node may take for one
	// job.
	Timeout    time.Duration `json:"timeout"`
	JobTimeout time.Duration `json:"jobTimeout"`
}

// DispatchRequest is the argument of the dispatch update.
type DispatchRequest struct {
	// SubmissionID is unique per HTTP request. Outcome and Refusal give it back, so that the API sees whether the
	// outcome is its own or an earlier one's of the same update id.
	SubmissionID string `json:"submissionId"`
	// UserID and SessionID have to be the turn's; the validator refuses others as not_found.
	UserID    string `json:"userId"`
	SessionID string `json:"sessionId"`
	// SrcLang and TgtLang are the session's as the API read it, and PoolID goes with them: where they are no longer the
	// turn's, the validator refuses with conflict, for the pool's nodes speak other languages.
	SrcLang string `json:"srcLang"`
	TgtLang string `json:"tgtLang"`
	// RequestID is one job's, whatever the update's id: that is the request id, or after a stored refusal that and a
	// number. A request of which the turn has a job, or is dispatching one, gets the same outcome as the first time, and
	// none of its fields counts any more.
	RequestID string `json:"requestId"`
	// RequestHash tells another body under the same request id; the API compares it with the outcome's.
	RequestHash string         `json:"requestHash"`
	Index       int            `json:"index"`
	SpeakerID   string         `json:"speakerId,omitempty"`
	Text        string         `json:"text"`
	Finalize    berth.Finalize `json:"finalize,omitempty"`
	// PoolID is the session's preferred pool as the API read it (L5).
	PoolID string `json:"poolId"`
}

// DispatchReply is the outcome of the dispatch update: the first dispatch of the job.
type DispatchReply struct {
	SubmissionID string `json:"submissionId"`
	RequestHash  string `json:"requestHash"`
	TurnID       string `json:"turnId"`
	berth.Assignment
}

// FinalizeRequest is the argument of the finalize update.
type FinalizeRequest struct {
	// UserID has to be the turn's; the validator refuses others as not_found.
	UserID string         `json:"userId"`
	Reason berth.Finalize `json:"reason"`
}

// FinalizeReply is the outcome of the finalize update.
type FinalizeReply struct {
	Status berth.TurnStatus `json:"status"`
	Reason berth.Finalize   `json:"reason"`
	Jobs   int              `json:"jobs"`
}

// DispatchInput is the argument of DispatchJob.
type DispatchInput struct {
	SessionID string `json:"sessionId"`
	TurnID    string `json:"turnId"`
	JobID     string `json:"jobId"`
	RequestID string `json:"requestId"`
	Dispatch  int    `json:"dispatch"`
	// EndsTurn tells that the job binds no node: it ends its turn, or the turn has ended already.
	EndsTurn bool   `json:"endsTurn,omitempty"`
	PoolID   string `json:"poolId"`
	// AffinityNodeID is the turn's node as the workflow knows it: where Redis has lost it, it is put back (L12).
	AffinityNodeID string `json:"affinityNodeId,omitempty"`
	// Excluded are the generations that failed the job already. A node that has registered again since may have it.
	Excluded []NodeRef `json:"excluded,omitempty"`
	// Avoided are the generations that fell silent on another job of the turn, or failed this one a while ago: only where
	// no other node has room.
	Avoided []NodeRef `json:"avoided,omitempty"`
}

// NodeRef is one generation of a node.
type NodeRef struct {
	NodeID     string `json:"nodeId"`
	Generation int64  `json:"generation"`
}

// HeldSlot is a slot that a workflow holds. ConfirmSlots holds it for Left from now.
type HeldSlot struct {
	berth.Assignment
	Left time.Duration `json:"left,omitempty"`
	// Unresponsive tells whoever gives it back that the generation did not take the work, or was not heard of while it had it.
	Unresponsive bool `json:"silent,omitempty"`
}

// HeldSlots is the argument of ConfirmSlots and ReleaseSlots.
type HeldSlots struct {
	Slots []HeldSlot `json:"slots"`
}

// ConfirmedSlots is the result of ConfirmSlots, in the order of its argument.
type ConfirmedSlots struct {
	Slots []ConfirmedSlot `json:"slots"`
}

// ConfirmedSlot tells whether a slot is held, and the node's generation now.
type ConfirmedSlot struct {
	Held       bool  `json:"held,omitempty"`
	Generation int64 `json:"generation,omitempty"`
}

// Availability is the result of CheckAvailability.
type Availability struct {
	// For is how long jobs could be taken without a break; 0 when they cannot now.
	For time.Duration `json:"for"`
}

// TurnRef is the argument of FinalizeTurn.
type TurnRef struct {
	SessionID string `json:"sessionId"`
	TurnID    string `json:"turnId"`
	// Withdraw tells that the turn never began: a decision that was not heard of may have bound it, and its id may be
	// used again.
	Withdraw bool `json:"withdraw,omitempty"`
}

// TurnEvents is the argument of PublishTurn: events numbered from First, each of which is appended once.
type TurnEvents struct {
	UserID    string               `json:"userId"`
	SessionID string               `json:"sessionId"`
	TurnID    string               `json:"turnId"`
	First     int                  `json:"first"`
	Events    []berth.SessionEvent `json:"events"`
}

// Turn runs one utterance: takes its jobs until it is finalised (A1), has each of them done by a node, tells the
// listener in the segments' order (A10), and ends when all that is said. A turn whose very first job is refused fails
// its run, so that its id may be used again; whatever else happens, also a cancellation, ends with the turn as result.
func Turn(ctx workflow.Context, in TurnInput) (berth.Turn, error) {
	steady, cancel := workflow.NewDisconnectedContext(ctx)
	defer cancel()
	t := &turn{in: in, running: ctx, steady: steady}
	if err := t.setup(ctx); err != nil {
		return berth.Turn{}, err
	}
	return t.run(ctx, steady)
}

type turn struct {
	in TurnInput
	// Coroutines are made of these: what is cancelled with the run is its jobs only, everything else has to happen
	// whatever befalls it.
	running, steady workflow.Context

	status      berth.TurnStatus
	reason      berth.Finalize
	affinity    string
	lastSegment time.Time
	startedAt   time.Time
	finalizedAt time.Time

	jobs     []*job // by index, those whose node is being decided included
	deciding int
	textSize int       // of all segments, bytes
	refusal  error     // of the last dispatch, while there is no job
	silent   []NodeRef // fell silent on a job
	unclear  bool      // a decision that was not heard of may have bound the turn

	reasserts    workflow.ReceiveChannel
	reassertTill time.Time
	keeping      bool       // a coroutine confirms slots
	ended        []HeldSlot // slots to give back
	releasing    bool

	closed     bool // no more jobs can come
	unbound    bool // Redis has forgotten its node
	done       bool // done is in outbox or published
	told       int  // jobs whose result is in outbox or published
	outbox     []berth.SessionEvent
	published  int // events
	publishing bool
}

func (t *turn) setup(ctx workflow.Context) error {
	if t.in.TurnID == "" || t.in.SessionID == "" || t.in.UserID == "" || t.in.Timeout <= 0 || t.in.JobTimeout <= 0 {
		return temporal.NewNonRetryableApplicationError("turn input lacks an id or a timeout", string(berth.CodeInternal), nil)
	}
	t.status, t.startedAt = berth.TurnOpen, workflow.Now(ctx)
	t.lastSegment = t.startedAt
	t.reasserts = workflow.GetSignalChannel(ctx, SignalReassert)
	if err := workflow.SetQueryHandler(ctx, QueryTurn, func() (berth.Turn, error) { return t.snapshot(), nil }); err != nil {
		return err
	}
	if err := workflow.SetUpdateHandlerWithOptions(ctx, UpdateFinalize, t.finalizeNow, workflow.UpdateHandlerOptions{
		Validator: t.mayFinalize,
	}); err != nil {
		return err
	}
	return workflow.SetUpdateHandlerWithOptions(ctx, UpdateDispatch, t.dispatch, workflow.UpdateHandlerOptions{
		Validator: t.mayDispatch,
	})
}

// run is the story.
func (t *turn) run(ctx, steady workflow.Context) (berth.Turn, error) {
	if err := t.takeJobs(ctx, steady); err != nil {
		return berth.Turn{}, err
	}
	if err := t.await(steady, t.decided); err != nil {
		return berth.Turn{}, err
	}
	t.closed = true
	t.tell()
	if err := t.unbind(steady, false); err != nil {
		return berth.Turn{}, err
	}
	t.unbound = true
	t.tell()
	if err := t.await(steady, func() bool {
		return t.done && !t.publishing && !t.releasing && !t.keeping && workflow.AllHandlersFinished(steady)
	}); err != nil {
		return berth.Turn{}, err
	}
	return t.snapshot(), nil
}

// takeJobs lets jobs come in until something finalises the turn. Its timer is set anew only when it fires (A1).
func (t *turn) takeJobs(ctx, steady workflow.Context) error {
	heard := false
	for t.status == berth.TurnOpen {
		left := t.lastSegment.Add(t.in.Timeout).Sub(workflow.Now(ctx))
		switch {
		case len(t.jobs) == 0 && (t.refusal != nil || left <= 0 || ctx.Err() != nil):
			if over, err := t.neverBegan(ctx, steady); over {
				return err
			}
		case t.deciding > 0 && (left <= 0 || ctx.Err() != nil):
			if err := t.await(steady, t.decided); err != nil {
				return err
			}
		case ctx.Err() != nil:
			t.finalize(steady, berth.FinalizeManual)
		case left <= 0 && !heard:
			heard = true
			t.excuse(steady)
		case left <= 0:
			t.finalize(steady, berth.FinalizeTimeout)
		default:
			heard = false
			// An error is the cancellation, which the next round sees.
			_ = waitAtMost(ctx, left, "no further segment", func() bool {
				return t.status != berth.TurnOpen || t.reasserts.Len() > 0 || len(t.jobs) == 0 && t.refusal != nil
			})
			t.reassert(steady)
		}
	}
	return nil
}

// deaf is how long it takes at least to be told by Redis, when it is away.
const deaf = time.Second

// excuse has the turn's time begin anew where its speaker could not be heard: while Redis was away or may have lost data, no
// API was there, or no worker (L11).
func (t *turn) excuse(ctx workflow.Context) {
	if workflow.GetVersion(ctx, versionAvailability, workflow.DefaultVersion, 1) == workflow.DefaultVersion {
		return
	}
	asked := workflow.Now(ctx)
	var is Availability
	if err := workflow.ExecuteLocalActivity(untilDone(ctx), CheckAvailabilityActivity).Get(ctx, &is); err != nil {
		return // never: it is tried until it succeeds
	}
	since := workflow.Now(ctx)
	if since.Sub(asked) < deaf {
		since = since.Add(-is.For)
	}
	if since.After(t.lastSegment) {
		t.lastSegment = since
	}
}

func (t *turn) decided() bool { return t.deciding == 0 }

// neverBegan ends a run that has no job, and answers true with the reason why, unless a job comes in meanwhile.
func (t *turn) neverBegan(ctx, steady workflow.Context) (bool, error) {
	if t.unclear {
		t.unclear = false
		if err := t.unbind(steady, true); err != nil {
			return true, err
		}
	}
	if err := t.await(steady, func() bool { return workflow.AllHandlersFinished(steady) }); err != nil {
		return true, err
	}
	switch {
	case len(t.jobs) > 0 || t.unclear:
		return false, nil
	case t.refusal != nil:
		return true, t.refusal
	case ctx.Err() != nil:
		return true, ctx.Err()
	default:
		return true, temporal.NewNonRetryableApplicationError("no job came", string(berth.CodeDeadlineExceeded), nil)
	}
}

// await waits, and meanwhile puts back what Redis has lost.
func (t *turn) await(ctx workflow.Context, done func() bool) error {
	for !done() {
		if err := workflow.Await(ctx, func() bool { return done() || t.reasserts.Len() > 0 }); err != nil {
			return err
		}
		t.reassert(ctx)
	}
	return nil
}

// unbind has Redis forget the turn's node (A6).
func (t *turn) unbind(ctx workflow.Context, withdraw bool) error {
	ref := TurnRef{SessionID: t.in.SessionID, TurnID: t.in.TurnID, Withdraw: withdraw}
	return workflow.ExecuteLocalActivity(untilDone(ctx), FinalizeTurnActivity, ref).Get(ctx, nil)
}

// mayFinalize is the validator of the finalize update.
func (t *turn) mayFinalize(_ workflow.Context, req FinalizeRequest) error {
	switch {
	case req.UserID != t.in.UserID || !t.begun():
		return refuse(berth.CodeNotFound, noSuchTurn)
	case !req.Reason.Ends():
		return refuse(berth.CodeInvalid, "the reason must be manual or timeout")
	case t.status != berth.TurnOpen:
		return t.tooLate()
	}
	return nil
}

// tooLate refuses what comes behind the turn's end, and tells how it ended: whoever lost the reply to their finalize sees
// that it is done.
func (t *turn) tooLate() error {
	return refuse(berth.CodeTurnFinalized, fmt.Sprintf("the turn is finalized (%s) and takes no more jobs", t.reason))
}

func (t *turn) finalizeNow(ctx workflow.Context, req FinalizeRequest) (FinalizeReply, error) {
	t.finalize(ctx, req.Reason)
	return FinalizeReply{Status: t.status, Reason: t.reason, Jobs: len(t.jobs)}, nil
}

func (t *turn) finalize(ctx workflow.Context, reason berth.Finalize) {
	if t.status == berth.TurnOpen {
		t.status, t.reason, t.finalizedAt, t.affinity = berth.TurnFinalized, reason, workflow.Now(ctx), ""
	}
}

// noSuchTurn is what is said of another's turn: word for word what the API says of one that never was (X5).
const noSuchTurn = "there is no such turn"

// refuse is a validator's answer.
func refuse(code berth.Code, message string) error {
	return temporal.NewNonRetryableApplicationError(message, string(code), nil)
}
