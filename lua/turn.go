package lua

import (
	"context"
	"time"
)

// What finalize_turn answers.
const (
	TurnFinalized = "OK"
	TurnEnded     = "ENDED" // was ended before
)

// FinalizeTurn deletes a turn's affinity (A6) and answers TurnFinalized with the node it was bound to, or TurnEnded.
// Idempotent. From then on no job binds the turn again.
func (s *Scripts) FinalizeTurn(ctx context.Context, sessionID, turnID string) (code, nodeID string, err error) {
	return s.finalizeTurn(ctx, sessionID, turnID, false)
}

// WithdrawTurn deletes what a decision that was not heard of may have left of a turn that never began: its id may be
// used again.
func (s *Scripts) WithdrawTurn(ctx context.Context, sessionID, turnID string) (code, nodeID string, err error) {
	return s.finalizeTurn(ctx, sessionID, turnID, true)
}

func (s *Scripts) finalizeTurn(ctx context.Context, sessionID, turnID string, withdraw bool) (code, nodeID string, err error) {
	const name = "finalize_turn"
	res, err := s.run(ctx, name, []string{s.keys.Turn(turnID), s.keys.Session(sessionID)},
		turnID, s.keys.SessionUpdated(), flag(withdraw))
	if err != nil {
		return "", "", err
	}
	f, ok := texts(res, 2)
	if !ok {
		return "", "", replyError(name, res)
	}
	return f[0], f[1], nil
}

// AppendTurnEvents appends events of a turn, numbered from first, to its session's stream, which it opens when it is not
// there, and publishes each in the same round trip. What was appended before is left out. The stream is kept ttl
// longer and trimmed to about trim entries (0: not at all). Codes: StreamOK, or StreamEnded when the channel's stream
// is not a session's.
func (s *Scripts) AppendTurnEvents(
	ctx context.Context, ch Channel, turnID string, first int, events []string, ttl time.Duration, trim int64,
) (AppendResult, error) {
	args := []any{s.keys.Channel(ch.UserID, ch.ServiceID, ch.TaskID), turnID, first, millis(ttl), max(trim, 0)}
	for _, e := range events {
		args = append(args, e)
	}
	code, last, err := s.streamReply(ctx, "append_turn_events", ch, args...)
	return AppendResult{Code: code, LastID: last}, err
}
