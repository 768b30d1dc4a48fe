package placement

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"berth"
	"berth/internal/fleet"
	"berth/lua"
)

func TestRefusal_EachDecision_CodeAndMessage(t *testing.T) { // S4, L9, L12
	t.Parallel()
	given := berth.Assignment{PoolID: "gpu+ocr"}
	for name, c := range map[string]struct {
		decision lua.Decision
		want     error
	}{
		"full": {
			lua.Decision{Code: lua.AssignFull, Assignment: given, Reasons: map[berth.ExcludeReason]int{"full": 2, "suspect": 1}},
			&berth.Refusal{Code: berth.CodeNodeFull, PoolID: "gpu+ocr", Reasons: map[berth.ExcludeReason]int{"full": 2, "suspect": 1}},
		},
		"capability missing": {
			lua.Decision{Code: lua.AssignNone, Assignment: given, Reasons: map[berth.ExcludeReason]int{"capability_missing": 1}, Missing: []string{"ocr"}},
			&berth.Refusal{
				Code: berth.CodeNoNode, PoolID: "gpu+ocr", Missing: []string{"ocr"},
				Reasons: map[berth.ExcludeReason]int{"capability_missing": 1},
			},
		},
		"empty pool": {lua.Decision{Code: lua.AssignNone, Assignment: given}, &berth.Refusal{Code: berth.CodeNoNode, PoolID: "gpu+ocr"}},
		"grace": {
			lua.Decision{Code: lua.GuardGrace, Wait: 1234 * time.Millisecond},
			&berth.Refusal{Code: berth.CodeUnavailable, RetryAfter: 1234 * time.Millisecond},
		},
		"finalized turn": {lua.Decision{Code: lua.JobTurnEnded}, berth.Errorf(berth.CodeTurnFinalized, "the turn is finalized")},
	} {
		require.Equal(t, c.want, refusal(c.decision, lua.Choice{}, &fleet.Snapshot{}), name)
	}
	for _, code := range []string{lua.AssignOK, lua.AssignExists} {
		require.NoError(t, refusal(lua.Decision{Code: code}, lua.Choice{}, &fleet.Snapshot{}))
	}
	require.Equal(t, berth.CodeInternal, berth.CodeOf(refusal(lua.Decision{Code: "LATER"}, lua.Choice{}, &fleet.Snapshot{})))
}
