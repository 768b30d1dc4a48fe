package main

import (
	"net"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestHealth_Process_IsCheckedAtItsMetricsAddress(t *testing.T) {
	t.Parallel()
	mux := http.NewServeMux()
	mux.HandleFunc("GET /readyz", func(http.ResponseWriter, *http.Request) {})
	mux.HandleFunc("GET /broken", func(w http.ResponseWriter, _ *http.Request) {
		http.Error(w, "redis: unavailable", http.StatusServiceUnavailable)
	})
	srv := httptest.NewServer(mux)
	defer srv.Close()
	addr := srv.Listener.Addr().String()

	require.NoError(t, (&healthCommand{MetricsAddr: addr}).Run(t.Context()))
	_, port, err := net.SplitHostPort(addr)
	require.NoError(t, err)
	require.NoError(t, (&healthCommand{MetricsAddr: "0.0.0.0:" + port}).Run(t.Context()))
	require.ErrorContains(t, (&healthCommand{URL: srv.URL + "/broken"}).Run(t.Context()), "503 Service Unavailable: redis: unavailable")
	require.ErrorContains(t, (&healthCommand{MetricsAddr: "9464"}).Run(t.Context()), "BERTH_METRICS_ADDR")
	srv.Close()
	require.ErrorContains(t, (&healthCommand{MetricsAddr: addr}).Run(t.Context()), "connection refused")
}
