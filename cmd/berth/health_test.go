package main

import (
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
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
	for _, bare := range []string{addr, "localhost", "localhost:9464/readyz", "ftp://localhost"} {
		require.ErrorContains(t, (&healthCommand{URL: bare}).Run(t.Context()), "must start with http:// or https://, such as http://127.0.0.1:9464/readyz", bare)
	}
	require.ErrorContains(t, (&healthCommand{MetricsAddr: "off"}).Run(t.Context()), "BERTH_METRICS_ADDR")
	srv.Close()
	err = (&healthCommand{MetricsAddr: addr}).Run(t.Context())
	require.ErrorContains(t, err, "health check of http://"+addr+"/readyz: ")
	require.ErrorContains(t, err, "connection refused; check that the process runs and that --metrics-addr (BERTH_METRICS_ADDR) is its address")
	call := new(url.Error)
	require.False(t, errors.As(err, &call), "main would advise to set BERTH_URL")
}
