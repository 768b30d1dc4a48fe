package activities

import (
	"log/slog"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"berth"
	"berth/workflows"
)

// logLines receives the lines of a log.
type logLines chan string

func (l logLines) Write(line []byte) (int, error) {
	l <- string(line)
	return len(line), nil
}

// O9: an attempt that Temporal begins while an earlier one makes its call waits for that call, and uses what it records. When its worker stops, another
// attempt waits.
func TestRunStep_EarlierAttemptMakesCall_NextOneWaits(t *testing.T) {
	t.Parallel()
	free := make(chan struct{})
	h := newStepTest(t, "interview_prep", func(w http.ResponseWriter, r *http.Request) {
		select {
		case <-free:
			chunk(w, "the answer", "stop")
		case <-r.Context().Done():
		}
	})
	log := make(logLines, 1000)
	h.Logger = slog.New(slog.NewTextHandler(log, nil))
	waits := func() {
		for line := range log {
			if strings.Contains(line, "step waits for the call of an earlier attempt") {
				return
			}
		}
	}
	type end struct {
		out workflows.StepOutput
		err error
	}
	attempt := func(stop chan struct{}, heartbeat any) <-chan end {
		ended := make(chan end, 1)
		go func() {
			out, err := h.attemptAfter(stop, heartbeat)
			ended <- end{out, err}
		}()
		return ended
	}
	first := attempt(nil, nil)
	h.eventually("the call", func() bool { return h.calls.Load() == 1 })
	holders, err := h.redis.ZRange(t.Context(), h.Scripts.Keys().ModelHolders(h.plan.Steps[0].Model), 0, -1).Result()
	require.NoError(t, err)
	require.Len(t, holders, 1)

	stop := make(chan struct{})
	stopped := attempt(stop, holders[0])
	waits()
	close(stop)
	app := applicationError(t, (<-stopped).err)
	require.Equal(t, string(berth.CodeUnavailable), app.Type())
	require.False(t, app.NonRetryable())

	next := attempt(nil, holders[0])
	waits()
	close(free)
	one, other := <-first, <-next
	require.NoError(t, one.err)
	require.NoError(t, other.err)
	require.Equal(t, one.out.AssetID, other.out.AssetID)
	require.EqualValues(t, 1, h.calls.Load())
	calls, err := h.Ledger.ModelCalls(t.Context(), h.plan.Ref())
	require.NoError(t, err)
	require.Len(t, calls, 1)
	require.EqualValues(t, 1, calls[0].Fence)

	last := <-attempt(nil, "a lease of no process")
	require.NoError(t, last.err)
	require.Equal(t, one.out.AssetID, last.out.AssetID)
}
