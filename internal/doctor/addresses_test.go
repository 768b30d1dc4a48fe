package doctor_test

import (
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"berth/internal/doctor"
	"berth/internal/health"
)

// An address that a process cannot serve is named, unless berth itself serves it.
func TestRun_AddressOfAProcess_IsTried(t *testing.T) { // B7
	t.Parallel()
	serve := func(h http.Handler) string {
		server := httptest.NewServer(h)
		t.Cleanup(server.Close)
		return server.Listener.Addr().String()
	}
	text := func(status int, body string) string {
		return serve(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(status)
			_, _ = io.WriteString(w, body)
		}))
	}
	raw := func(answer string) string {
		l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
		require.NoError(t, err)
		t.Cleanup(func() { _ = l.Close() })
		go func() {
			for c, err := l.Accept(); err == nil; c, err = l.Accept() {
				_, _ = fmt.Fprint(c, answer)
				_ = c.Close()
			}
		}()
		return l.Addr().String()
	}
	const inUse, advice = "address already in use by a program that is not berth: an API process does not start", "stop what uses the address, or set another one"
	for name, c := range map[string]struct {
		addr         string
		level        doctor.Level
		text, advice string
	}{
		"a port":                 {"127.31.7.8:18321", doctor.OK, "is free", ""},
		"any port":               {"127.0.0.1:0", doctor.OK, "is free", ""},
		"all addresses":          {":0", doctor.OK, "is free", ""},
		"berth":                  {serve(health.New("1.2.3", slog.New(slog.DiscardHandler)).Handler()), doctor.OK, "berth 1.2.3 runs at 127.0.0.1:", ""},
		"berth that is ready":    {text(200, `{"status":"ok","version":"1.0","dependencies":{"redis":{"status":"ok","since":"2026-01-01T00:00:00Z"}}}`), doctor.OK, "with the status ok", ""},
		"berth that stops":       {text(503, `{"status":"stopping","version":"1.0","dependencies":{}}`), doctor.OK, "with the status stopping", ""},
		"another program":        {text(404, "not found"), doctor.Error, inUse, advice},
		"its health, as JSON":    {text(200, `{"status":"ok"}`), doctor.Error, inUse, advice},
		"its health, as text":    {text(200, "ok"), doctor.Error, inUse, advice},
		"another protocol":       {raw("SSH-2.0-OpenSSH_9.2\r\n"), doctor.Error, inUse, advice},
		"a program that closes":  {raw(""), doctor.Error, inUse, advice},
		"address of another":     {"203.0.113.1:8080", doctor.Error, "cannot assign requested address: an API process does not start", "set an address of this host"},
		"a host that is unknown": {"nowhere.invalid:8080", doctor.Error, "nowhere.invalid", "set an address of this host"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			found := run(t, "addresses", time.Now, "--redis-addr=127.0.0.1:1", "--metrics-addr=off", "--http-addr="+c.addr)
			require.Len(t, found, 1)
			has(t, found, c.level, "BERTH_HTTP_ADDR: ", "")
			has(t, found, c.level, c.text, c.advice)

			level, metrics := c.level, c.text
			if level == doctor.Error { // a process works without
				level, metrics = doctor.Warning, "a process serves no metrics and no health"
			}
			found = run(t, "addresses", time.Now, "--redis-addr=127.0.0.1:1", "--http-addr=127.0.0.1:0", "--metrics-addr="+c.addr)
			require.Len(t, found, 2)
			has(t, found, level, "BERTH_METRICS_ADDR: ", "")
			has(t, found, level, metrics, c.advice)
		})
	}
	const same = "127.31.7.9:18321" // other tests use 127.0.0.1
	has(t, run(t, "addresses", time.Now, "--redis-addr=127.0.0.1:1", "--http-addr="+same, "--metrics-addr="+same), doctor.Error,
		"BERTH_METRICS_ADDR: "+same+" is the address of BERTH_HTTP_ADDR", "set another address")
}
