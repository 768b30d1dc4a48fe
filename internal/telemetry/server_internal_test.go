package telemetry

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
)

// lines is a log that is read while it is written.
type lines struct {
	text chan []byte
}

func (l *lines) Write(b []byte) (int, error) { l.text <- bytes.Clone(b); return len(b), nil }

// A process beside a development server, which has the default address, serves its metrics elsewhere.
func TestServe_DefaultAddressInUse_FreePortIsServed(t *testing.T) { // FP9
	t.Parallel()
	own, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0") // another process may have the default, and end
	require.NoError(t, err)
	defer func() { _ = own.Close() }()
	taken := own.Addr().String()
	log := &lines{text: make(chan []byte, 10)}
	logger := slog.New(slog.NewTextHandler(log, nil))
	tel, err := Start(t.Context(), Options{Role: "node", Version: "test", Logger: logger})
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	served := make(chan struct{})
	go func() { defer close(served); tel.serve(ctx, taken, true, health.New("test", logger), logger) }()
	line := string(<-log.text)
	require.Contains(t, line, "level=INFO")
	addr := regexp.MustCompile(`addr=(\S+)`).FindStringSubmatch(line)
	require.NotNil(t, addr, line)
	require.NotEqual(t, taken, addr[1])
	res, err := (&http.Client{Timeout: 10 * time.Second}).Get("http://" + addr[1] + "/healthz")
	require.NoError(t, err)
	require.NoError(t, res.Body.Close())
	require.Equal(t, http.StatusOK, res.StatusCode)
	cancel()
	<-served

	// An address that was set is not replaced.
	tel.Serve(t.Context(), taken, health.New("test", logger), logger)
	require.Contains(t, string(<-log.text), "metrics not served; set BERTH_METRICS_ADDR")
	require.NoError(t, tel.Shutdown(context.WithoutCancel(t.Context())))
}
