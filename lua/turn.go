package lua

import (
	"context"
	"time"
)

// Codes of finalize_turn.
const (
	TurnFinalized = "OK"
	TurnEnded     = "ENDED" // ended before
)

// FinalizeTurn deletes a turn's affinity and returns TurnFinalized with the node to which it was bound, or TurnEnded.
// Idempotent. Afterwards no job binds the turn again.
func (s *Scripts) FinalizeTurn(ctx context.Context, userID, sessionID, turnID string) (code, nodeID string, err error) {
	return s.finalizeTurn(ctx, userID, sessionID, turnID, false)
}

// WithdrawTurn deletes what a decision with a lost reply may have stored about a turn that never began: its id may be used
// again.
func (s *Scripts) WithdrawTurn(ctx context.Context, userID, sessionID, turnID string) (code, nodeID string, err error) {
	return s.finalizeTurn(ctx, userID, sessionID, turnID, true)
}

func (s *Scripts) finalizeTurn(ctx context.Context, userID, sessionID, turnID string, withdraw bool) (code, nodeID string, err error) {
	r := s.call(ctx, "finalize_turn", []string{s.keys.Turn(turnID), s.keys.Session(userID, sessionID)},
		turnID, s.keys.SessionUpdated(), flag(withdraw))
	return r.text(), r.text(), r.done()
}

// AppendTurnEvents appends events of a turn, numbered from first, to its session's stream, and publishes each in the same
// round trip. It opens the stream if there is none, and leaves out events that were appended before. The stream expires
// after ttl and is trimmed to about trim entries (0: not trimmed). Codes: StreamOK, or StreamEnded when the channel's
// stream is not a session's.
func (s *Scripts) AppendTurnEvents(
	ctx context.Context, ch Channel, turnID string, first int, events []string, ttl time.Duration, trim int64,
) (AppendResult, error) {
	args := []any{s.keys.Channel(ch.UserID, ch.ServiceID, ch.TaskID), turnID, first, millis(ttl), max(trim, 0), s.keys.prefix()}
	for _, ev := range events {
		args = append(args, ev, operatorJSON(ch.unendingEvent(ev)))
	}
	code, last, err := s.streamReply(ctx, "append_turn_events", ch, args...)
	return AppendResult{Code: code, LastID: last}, err
}
