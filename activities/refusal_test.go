package activities

import (
	"errors"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/temporal"

	"berth"
)

// S4, L9, L12: the workflow, and by it the API, gets the whole refusal.
func TestRefused_EachError_BecomesApplicationErrorWithDetail(t *testing.T) {
	t.Parallel()
	full := berth.Refusal{Code: berth.CodeNodeFull, PoolID: "gpu", Reasons: map[berth.ExcludeReason]int{"full": 2, "suspect": 1}}
	for name, c := range map[string]struct {
		err     error
		message string
		detail  berth.Refusal
	}{
		"refusal": {fmt.Errorf("assign: %w", &full), "every eligible node of pool gpu is full: 2 full, 1 suspect", full},
		"coded error": {
			berth.Errorf(berth.CodeTurnFinalized, "the turn is finalized"), "the turn is finalized",
			berth.Refusal{Code: berth.CodeTurnFinalized},
		},
		"Redis unavailable": {
			errors.New("connection refused"), "the fleet's state is unavailable; retry in a few seconds",
			berth.Refusal{Code: berth.CodeUnavailable},
		},
	} {
		var app *temporal.ApplicationError
		require.ErrorAs(t, refused(c.err), &app, name)
		require.Equal(t, string(c.detail.Code), app.Type(), name)
		require.Equal(t, c.message, app.Message(), name)
		require.True(t, app.NonRetryable(), name)
		var detail berth.Refusal
		require.NoError(t, app.Details(&detail), name)
		require.Equal(t, c.detail, detail, name)
	}
	require.NoError(t, refused(nil))
}
