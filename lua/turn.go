package lua

import "context"

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
