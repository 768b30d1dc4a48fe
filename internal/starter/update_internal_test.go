package starter

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"
	"go.temporal.io/api/serviceerror"
	"go.temporal.io/sdk/temporal"

	"berth"
)

func TestOutcome_TemporalError_BecomesCodeWithCause(t *testing.T) {
	t.Parallel()
	refused := func(code berth.Code, message string, cause error) error {
		return fmt.Errorf("update: %w", temporal.NewApplicationErrorWithOptions(message, string(code), temporal.ApplicationErrorOptions{
			NonRetryable: true, Cause: cause, Details: []any{berth.Refusal{SubmissionID: "s"}},
		}))
	}
	for name, c := range map[string]struct {
		err  error
		code berth.Code
		text string
	}{
		"grace":          {refused("unavailable", "Redis may have lost data", nil), "unavailable", "unavailable: Redis may have lost data"},
		"Redis failed":   {refused("unavailable", "no state", errors.New("EOF")), "unavailable", "unavailable: no state: EOF"},
		"full":           {refused("node_full", "every node is full", nil), "node_full", "every node is full"},
		"not found":      {refused("not_found", "turn not found", nil), "not_found", "not_found: turn not found"},
		"unit's refusal": {refused(berth.ErrorRefused, "no licence", nil), "unit_refused", "unit_refused: no licence"},
		"unknown code": {
			refused("surprise", "what now", nil), "internal", "internal: what now: update: what now (type: surprise, retryable: false)",
		},
		"Temporal unreachable": {
			errors.New("connection refused"), "unavailable",
			"unavailable: Temporal did not confirm the request; retry the same request: connection refused",
		},
		"namespace missing": { // FI8
			serviceerror.NewNamespaceNotFound("x"), "unavailable",
			"unavailable: Temporal refuses the requests of this server: an operator has to correct it (berth doctor): Namespace x is not found.",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			err := outcome(c.err)
			require.Equal(t, c.code, berth.CodeOf(err))
			require.EqualError(t, err, c.text)
		})
	}
	require.NoError(t, outcome(nil))
	require.ErrorIs(t, outcome(serviceerror.NewNotFound("gone")), errNotRunning)
	require.True(t, refusedEarlier(outcome(refused("node_full", "full", nil)), "another"))
	require.False(t, refusedEarlier(outcome(refused("node_full", "full", nil)), "s"))
}

func TestShorten_LongUserIDs_FitTemporalsLimit(t *testing.T) {
	t.Parallel()
	require.Equal(t, "job_match for auth0|42", shorten("job_match for auth0|42"))
	require.Equal(t, "a for "+strings.Repeat("u", maxSummary-8), shorten("a for "+strings.Repeat("u", berth.MaxUserID)))
	for _, id := range []string{strings.Repeat("<", berth.MaxUserID), strings.Repeat("系", berth.MaxUserID/3)} {
		short := shorten("a for " + id)
		encoded, err := json.Marshal(short)
		require.NoError(t, err)
		require.LessOrEqual(t, len(encoded), maxSummary)
		require.Greater(t, len(encoded), maxSummary-8)
		require.True(t, utf8.ValidString(short))
	}
}
