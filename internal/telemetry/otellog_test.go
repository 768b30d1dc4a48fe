package telemetry

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"os"
	"strings"
	"testing"

	"github.com/go-logr/logr"
	"github.com/stretchr/testify/require"
)

// FI1: OpenTelemetry passes the values of its variables to its logger. They may be credentials.
func TestOtelLog_ValuesOfVariables_AreNotLogged(t *testing.T) {
	t.Parallel()
	_, invalid := url.Parse(fmt.Sprint("http://app:hidden@host/", "%zz"))
	_, missing := os.ReadFile("/none.pem")
	var log bytes.Buffer
	l := logr.New(otelLog{slog.New(slog.NewTextHandler(&log, nil))})
	l.Error(invalid, "parse url", "input", "http://app:hidden@host/%zz")
	l.WithName("a").WithValues("b", "hidden").Error(errors.New("missing '='"), "parse headers", "input", "hidden")
	l.Error(missing, "read tls ca cert file", "file", "/none.pem")
	l.V(1).Info("hidden")
	require.NotContains(t, log.String(), "hidden")
	require.Equal(t, 3, strings.Count(log.String(), "check the OTEL_ variables"))
	for _, problem := range []string{`problem="parse url"`, `problem="parse headers"`, `error="open /none.pem: no such file or directory"`} {
		require.Contains(t, log.String(), problem)
	}
}
