package api

import (
	"cmp"
	"context"
	"fmt"

	"berth"
	"berth/client"
	"berth/internal/starter"
	"berth/workflows"
)

type jobInput struct {
	ID   string `path:"id" maxLength:"128" doc:"The session"`
	Body jobBody
}

type finalizeInput struct {
	ID   string `path:"id" maxLength:"128"`
	Body *struct {
		Reason berth.Finalize `json:"reason,omitempty" enum:"manual,timeout" default:"manual"`
	}
}

type finalizeOutputBody struct {
	TurnID string           `json:"turnId"`
	Status berth.TurnStatus `json:"status" enum:"open,finalized"`
	Reason berth.Finalize   `json:"reason"`
	Jobs   int              `json:"jobs" doc:"Number of the turn's jobs; running ones continue"`
}

// idInput is the input of a call about one session, turn or execution.
type idInput struct {
	ID string `path:"id" maxLength:"128"`
}

type turnView struct {
	berth.Turn
	Links client.WorkflowLinks `json:"links"`
}

func (s *server) turnRoutes() {
	register(s, "POST /v1/sessions/{id}/jobs", forUser, s.dispatchJob, op("dispatch-job", "sessions",
		"Submit a segment and return the node that translates it",
		"Without `turnId` a new turn starts. The session's events deliver the translations in the order of the "+
			"segments. 503 `node_full` and `no_node` state why no node is available; retries with the same `requestId` are idempotent. "+
			"404: session or turn not found; 409 `turn_finalized`: the turn accepts no more jobs, `conflict`: the index is taken."))
	register(s, "POST /v1/turns/{id}/finalize", forUser, s.finalizeTurn, op("finalize-turn", "sessions", "End a turn",
		"Running jobs continue. 409 `turn_finalized` when the turn has already ended, also by an earlier call whose response was lost; `detail` states what ended it."))
	register(s, "GET /v1/turns/{id}", forUsers, s.getTurn, op("get-turn", "sessions", "Get a turn and its jobs"))
}

// dispatchJob makes one read of Redis and one update of the turn's workflow. Speakers wait for it: add no more.
func (s *server) dispatchJob(ctx context.Context, in *jobInput) (*jobView, error) {
	user := callOf(ctx).user.UserID
	if err := cmp.Or(checkJob(&in.Body), s.Fleet.Writable()); err != nil {
		return nil, err
	}
	sn, err := s.liveSession(ctx, user, in.ID)
	if err != nil {
		return nil, err
	}
	if in.Body.Segment.AssetID != "" {
		if in.Body.Segment.Text, err = s.segmentText(ctx, user, in.Body.Segment.AssetID); err != nil {
			return nil, err
		}
	}
	call, err := s.jobCall(sn, in.Body)
	if err != nil {
		return nil, err
	}
	reply, replay, err := s.Starter.Dispatch(ctx, call)
	if err != nil {
		return nil, fmt.Errorf("dispatch request %s of turn %s: %w", in.Body.RequestID, call.Turn.TurnID, err)
	}
	return &jobView{
		TurnID: reply.TurnID, JobID: reply.JobID, NodeID: reply.NodeID, Generation: reply.Generation, PoolID: reply.PoolID,
		Strategy: reply.Strategy, Affinity: reply.Affinity, Missed: reply.Missed, Replay: replay,
	}, nil
}

func (s *server) jobCall(sn berth.Session, b jobBody) (starter.JobCall, error) {
	src, tgt := s.Fleet.Snapshot().Pair(sn.PreferredPool, sn.SrcLang, sn.TgtLang)
	call := starter.JobCall{
		Running: b.TurnID != "",
		Turn: workflows.TurnInput{
			TurnID: b.TurnID, SessionID: sn.ID, UserID: sn.UserID, SrcLang: sn.SrcLang, TgtLang: sn.TgtLang,
			Timeout: s.Config.TurnTimeout, JobTimeout: s.Config.JobTimeout,
		},
		Request: workflows.DispatchRequest{
			JobRequest: berth.JobRequest{
				Job:    berth.Job{SessionID: sn.ID, Index: b.Segment.Index, SpeakerID: b.SpeakerID, SrcLang: src, TgtLang: tgt},
				UserID: sn.UserID, RequestID: b.RequestID, PoolID: sn.PreferredPool,
			},
			SessionSrcLang: sn.SrcLang, SessionTgtLang: sn.TgtLang, Text: workflows.PackedText(b.Segment.Text), Finalize: b.Finalize,
		},
	}
	if b.TurnID == "" { // a retry after a lost response finds the same turn
		call.Turn.TurnID = berth.DerivedID("t-", sn.Key, b.RequestID)
	}
	var err error
	// An uploaded text equals the text itself, and the turn that a request started equals none.
	r := call.Request
	call.Request.RequestHash, err = hashRequest(r.UserID, r.SessionID, call.Turn.TurnID, r.Index, r.SpeakerID, r.Text, r.Finalize)
	return call, err
}

// checkJob makes the checks that the schema cannot express, and brings the name of the speaker into its stored form; errors name the field.
func checkJob(b *jobBody) error {
	if err := cmp.Or(berth.ValidID("requestId", b.RequestID), optionalID("turnId", b.TurnID)); err != nil {
		return err
	}
	if err := normalize("speakerId", &b.SpeakerID, berth.MaxParticipantName); err != nil {
		return err
	}
	switch sg := b.Segment; {
	case sg.AssetID != "" && sg.Text != "":
		return berth.Invalid("segment", "give text or assetId, not both")
	case sg.AssetID != "":
		return berth.ValidID("segment.assetId", sg.AssetID)
	case sg.Text == "":
		return berth.Invalid("segment.text", "is missing")
	default:
		return checkSegment("segment.text", sg.Text)
	}
}

// checkSegment rejects long and invalid texts.
func checkSegment(field, text string) error {
	if len(text) > berth.MaxSegmentBytes {
		return exceeds(field, berth.MaxSegmentBytes)
	}
	return checkText(field, text)
}

// segmentText reads a text that the user uploaded.
func (s *server) segmentText(ctx context.Context, userID, assetID string) (string, error) {
	const field = "segment.assetId"
	a, err := s.namedAsset(ctx, userID, field, assetID)
	if err != nil {
		return "", err
	}
	if a.Kind != berth.AssetText {
		return "", errorIn(field, berth.CodeUnsupportedMedia, "the asset is not a text")
	}
	return string(a.Content), checkSegment(field, string(a.Content))
}

func (s *server) finalizeTurn(ctx context.Context, in *finalizeInput) (*finalizeOutputBody, error) {
	if err := berth.ValidID("id", in.ID); err != nil {
		return nil, err
	}
	req := workflows.FinalizeRequest{UserID: callOf(ctx).user.UserID, Reason: berth.FinalizeManual}
	if in.Body != nil && in.Body.Reason != "" {
		req.Reason = in.Body.Reason
	}
	reply, err := s.Starter.FinalizeTurn(ctx, in.ID, req)
	if err != nil {
		return nil, fmt.Errorf("finalize turn %s: %w", in.ID, err)
	}
	return &finalizeOutputBody{TurnID: in.ID, Status: reply.Status, Reason: reply.Reason, Jobs: reply.Jobs}, nil
}

func (s *server) getTurn(ctx context.Context, in *idInput) (*turnView, error) {
	if err := berth.ValidID("id", in.ID); err != nil {
		return nil, err
	}
	t, err := s.Starter.GetTurn(ctx, in.ID)
	if err != nil {
		return nil, fmt.Errorf("get turn %s: %w", in.ID, err)
	}
	if user := callOf(ctx).user; t.UserID != user.UserID && !user.Operator() {
		return nil, berth.Errorf(berth.CodeNotFound, workflows.TurnNotFound)
	}
	return &turnView{Turn: t, Links: s.links(workflows.TurnWorkflowID(t.ID))}, nil
}
