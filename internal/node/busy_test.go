package node

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/temporal"

	"berth"
)

// FR6: each driver returns work that its program cannot take at present as busy, with the time after which to retry.
func TestDrivers_Busy_ReturnTheWork(t *testing.T) { // A11
	t.Parallel()
	later := func(d time.Duration) string { return time.Now().Add(d).UTC().Format(http.TimeFormat) }
	answer := func(status int, headers ...string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			for i := 0; i+1 < len(headers); i += 2 {
				w.Header().Set(headers[i], headers[i+1])
			}
			http.Error(w, "too many requests", status)
		}
	}
	year := 365 * 24 * time.Hour
	for name, c := range map[string]struct {
		h       http.HandlerFunc
		isBusy  bool
		min, to time.Duration
	}{
		"429":                            {answer(429), true, 0, 0},
		"429 in seconds":                 {answer(429, "Retry-After", "7"), true, 7 * time.Second, 7 * time.Second},
		"429 with a fraction":            {answer(429, "Retry-After", "0.5"), true, 500 * time.Millisecond, 500 * time.Millisecond},
		"429 with a date":                {answer(429, "Retry-After", later(time.Minute)), true, 50 * time.Second, time.Minute},
		"429 with a past date":           {answer(429, "Retry-After", later(-time.Minute)), true, 0, 0},
		"429, centuries":                 {answer(429, "Retry-After", "99999999999999999999"), true, year, year},
		"429, negative":                  {answer(429, "Retry-After", "-5"), true, 0, 0},
		"429, not a number":              {answer(429, "Retry-After", "NaN"), true, 0, 0},
		"429, nonsense":                  {answer(429, "Retry-After", "soon"), true, 0, 0},
		"429, two forms":                 {answer(429, "Retry-After-Ms", "1500", "Retry-After", "2"), true, 1500 * time.Millisecond, 1500 * time.Millisecond},
		"503 with a time":                {answer(503, "Retry-After", "3"), true, 3 * time.Second, 3 * time.Second},
		"503 without one is a failure":   {answer(503), false, 0, 0},
		"503 with nonsense is a failure": {answer(503, "Retry-After", "soon"), false, 0, 0},
		"500 is a failure":               {answer(500, "Retry-After", "3"), false, 0, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := endpoint(t, "", c.h).Translate(t.Context(), segment)
			var full *busy
			require.Equal(t, c.isBusy, errors.As(err, &full), "%v", err)
			if c.isBusy {
				require.GreaterOrEqual(t, full.after, c.min)
				require.LessOrEqual(t, full.after, c.to)
				require.Contains(t, full.message, "too many requests")
			}
		})
	}
	t.Run("a command", func(t *testing.T) {
		t.Parallel()
		_, err := command(t, `echo 'the GPU is in use' >&2; exit 75`).Translate(t.Context(), segment)
		require.Equal(t, &busy{message: "the GPU is in use"}, err)
	})
	t.Run("a chat model", func(t *testing.T) {
		t.Parallel()
		srv := httptest.NewServer(answer(429, "Retry-After", "7"))
		t.Cleanup(srv.Close)
		d, err := NewOpenAI(OpenAIOptions{BaseURL: srv.URL, Model: "m", MaxTokensField: "max_tokens", Slots: 1, Logger: slog.New(slog.DiscardHandler)})
		require.NoError(t, err)
		t.Cleanup(d.Close)
		_, err = d.Translate(t.Context(), segment)
		var full *busy
		require.ErrorAs(t, err, &full)
		require.Equal(t, 7*time.Second, full.after)
	})
}

func TestOutcome_BusyOrTooLarge_TypeForTheWorkflow(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	var app *temporal.ApplicationError
	require.ErrorAs(t, outcome(ctx, ctx, &busy{"status 429", time.Second}), &app)
	require.Equal(t, berth.ErrorBusy, app.Type())
	require.Equal(t, time.Second, app.NextRetryDelay())
	require.False(t, app.NonRetryable())
	require.ErrorAs(t, outcome(ctx, ctx, checkLength(5, 4)), &app)
	require.Equal(t, string(berth.CodeTooLarge), app.Type())
	require.True(t, app.NonRetryable())
}
