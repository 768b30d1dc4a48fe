package telemetry_test

import (
	"bytes"
	"context"
	"log/slog"
	"net"
	"net/http"
	"regexp"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"berth/internal/health"
	"berth/internal/telemetry"
)

// lines is a log that is read while it is written.
type lines struct {
	text chan []byte
}

func (l *lines) Write(b []byte) (int, error) { l.text <- bytes.Clone(b); return len(b), nil }

// A process beside a development server, which has the default address, serves its metrics elsewhere.
func TestServe_DefaultAddressInUse_FreePortIsServed(t *testing.T) { // FP9
	t.Parallel()
	if other, err := new(net.ListenConfig).Listen(t.Context(), "tcp", telemetry.DefaultAddr); err == nil { // else another process has it
		t.Cleanup(func() { _ = other.Close() })
	}
	log := &lines{text: make(chan []byte, 10)}
	logger := slog.New(slog.NewTextHandler(log, nil))
	tel, err := telemetry.Start(t.Context(), telemetry.Options{Role: "node", Version: "test", Logger: logger})
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	served := make(chan struct{})
	go func() { defer close(served); tel.Serve(ctx, telemetry.DefaultAddr, health.New("test", logger), logger) }()
	line := string(<-log.text)
	require.Contains(t, line, "level=INFO")
	addr := regexp.MustCompile(`addr=(\S+)`).FindStringSubmatch(line)
	require.NotNil(t, addr, line)
	require.NotEqual(t, telemetry.DefaultAddr, addr[1])
	res, err := (&http.Client{Timeout: 10 * time.Second}).Get("http://" + addr[1] + "/healthz")
	require.NoError(t, err)
	require.NoError(t, res.Body.Close())
	require.Equal(t, http.StatusOK, res.StatusCode)
	cancel()
	<-served

	// An address that was set is not replaced.
	own, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer func() { _ = own.Close() }()
	tel.Serve(t.Context(), own.Addr().String(), health.New("test", logger), logger)
	require.Contains(t, string(<-log.text), "metrics not served; set BERTH_METRICS_ADDR")
	require.NoError(t, tel.Shutdown(context.WithoutCancel(t.Context())))
}
