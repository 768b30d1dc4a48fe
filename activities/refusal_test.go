package activities

import (
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/temporal"

	"berth"
	"berth/lua"
)

func TestRefusalsSayWhy(t *testing.T) { // S4, L9, L12
	t.Parallel()
	given := berth.Assignment{PoolID: "gpu+ocr"}
	for name, c := range map[string]struct {
		err     error
		code    berth.Code
		message string
		detail  berth.Refusal
	}{
		"full": {
			refusal(lua.Decision{Code: lua.AssignFull, Assignment: given, Passed: map[berth.ExcludeReason]int{"full": 2, "suspect": 1}}),
			berth.CodeNodeFull, "every node of pool gpu+ocr that could take it is full: 1 suspect; 2 full",
			berth.Refusal{Reasons: map[berth.ExcludeReason]int{"full": 2, "suspect": 1}},
		},
		"nobody can": {
			refusal(lua.Decision{Code: lua.AssignNone, Assignment: given, Passed: map[berth.ExcludeReason]int{"capability_missing": 1}, Missing: []string{"ocr"}}),
			berth.CodeNoNode, "no node of pool gpu+ocr can take it: no node has ocr",
			berth.Refusal{Reasons: map[berth.ExcludeReason]int{"capability_missing": 1}, Missing: []string{"ocr"}},
		},
		"an empty pool": {
			refusal(lua.Decision{Code: lua.AssignNone, Assignment: given}),
			berth.CodeNoNode, "no node of pool gpu+ocr can take it",
			berth.Refusal{},
		},
		"grace": {
			refusal(lua.Decision{Code: lua.GuardGrace, Wait: 1234 * time.Millisecond}),
			berth.CodeUnavailable, "Redis may have lost data: nothing is assigned for another 1.2s",
			berth.Refusal{},
		},
		"a turn that is over": {refusal(lua.Decision{Code: lua.JobTurnEnded}), berth.CodeTurnFinalized, "the turn is finalized", berth.Refusal{}},
		"a code of a later version": {
			refusal(lua.Decision{Code: "LATER"}), berth.CodeInternal, "the decision was not understood", berth.Refusal{},
		},
		"Redis is away": {
			undecided(errors.New("connection refused")), berth.CodeUnavailable,
			"the fleet's state cannot be reached; try again in a few seconds",
			berth.Refusal{},
		},
	} {
		var app *temporal.ApplicationError
		require.ErrorAs(t, c.err, &app, name)
		require.Equal(t, string(c.code), app.Type(), name)
		require.Equal(t, c.message, app.Message(), name)
		require.True(t, app.NonRetryable(), name)
		var detail berth.Refusal
		require.NoError(t, app.Details(&detail), name)
		require.Equal(t, c.detail, detail, name)
	}
	for _, code := range []string{lua.AssignOK, lua.AssignExists} {
		require.NoError(t, refusal(lua.Decision{Code: code}))
	}
}
