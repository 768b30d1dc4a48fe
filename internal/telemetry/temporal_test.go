package telemetry_test

import (
	"bytes"
	"log/slog"
	"testing"

	"github.com/stretchr/testify/require"

	"berth/internal/telemetry"
)

func TestTemporal_SDKMessages_OnlyWarningsAndErrorsAreLogged(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	log := telemetry.Temporal(slog.New(slog.NewTextHandler(&out, nil)))
	log.Info("Started Worker")
	log.Error("Activity error.", "Error", "cancelled")
	require.Empty(t, out.String())
	log.Warn("Failed to poll for task.", "TaskQueue", "turns")
	log.Error("Workflow panic")
	require.Contains(t, out.String(), `level=WARN msg="Failed to poll for task." part=temporal TaskQueue=turns`)
	require.Contains(t, out.String(), `level=ERROR msg="Workflow panic"`)
}
