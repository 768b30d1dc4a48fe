package health_test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"berth/internal/health"
	"berth/internal/setting"
)

// Logs and the doctor state the server's words first, then what to change; /readyz only what has no address.
func TestProblem_Error_WordsOfTheServerThenAdvice(t *testing.T) {
	t.Parallel()
	eof := errors.New("EOF")
	for name, c := range map[string]struct {
		problem *health.Problem
		want    string
	}{
		"with a setting":      {health.NewProblem(health.Reason{Code: "c", Setting: "BERTH_X", Text: "set it"}, "10.1.2.3: EOF", eof), "10.1.2.3: EOF: BERTH_X: set it"},
		"without a setting":   {health.NewProblem(health.Reason{Code: "c", Text: "wait"}, "10.1.2.3: EOF", eof), "10.1.2.3: EOF: wait"},
		"named in the text":   {&health.Problem{Reason: health.Reason{Code: "c", Setting: "BERTH_X", Text: "set BERTH_X"}, Said: "EOF", Advice: "set BERTH_X", Err: eof}, "EOF: set BERTH_X"},
		"text with a detail":  {&health.Problem{Reason: health.Reason{Code: "c", Setting: "BERTH_X", Text: "no keys"}, Said: "no keys: EOF", Advice: "no keys", Err: eof}, "no keys: EOF"},
		"text and no details": {&health.Problem{Reason: health.Reason{Code: "c", Text: "no keys"}, Said: "no keys", Advice: "no keys", Err: eof}, "no keys"},
	} {
		require.EqualError(t, c.problem, c.want, name)
		require.ErrorIs(t, c.problem, eof, name)
		reason, ok := health.ReasonOf(fmt.Errorf("check: %w", c.problem))
		require.True(t, ok, name)
		require.Equal(t, c.problem.Reason, reason, name)
	}
	_, ok := health.ReasonOf(eof)
	require.False(t, ok)
}

// A process does not start with a problem that lasts, whichever dependency has it.
func TestProblem_Lasting_IsWrongSetting(t *testing.T) {
	t.Parallel()
	for _, lasting := range []bool{true, false} {
		p := health.NewProblem(health.Reason{Code: "c", Setting: "BERTH_X", Text: "set it", Lasting: lasting}, "EOF", errors.New("EOF"))
		wrong, ok := errors.AsType[*setting.WrongError](fmt.Errorf("open: %w", p))
		require.Equal(t, lasting, ok)
		if lasting {
			require.EqualError(t, wrong, "EOF: BERTH_X: set it")
			require.ErrorIs(t, wrong, p)
		}
	}
}
