package tests

import (
	"bytes"
	"net"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/api/workflowservice/v1"
	"google.golang.org/protobuf/types/known/durationpb"
)

// The command succeeds on a working setup, and names what a namespace lacks.
func TestDoctor_SearchAttributesMissing_PrintsCommand(t *testing.T) { // B7
	s := shareStack(t)
	run := func(settings ...string) (bool, string) {
		p := s.start("berth", []string{"doctor"}, append(s.settings, settings...))
		<-p.done
		return p.cmd.ProcessState.Success(), string(p.output())
	}
	ok, out := run()
	require.True(t, ok, out)
	require.Contains(t, out, "namespace default with all search attributes")
	require.NotContains(t, out, secret)

	ok, out = run("BERTH_TEMPORAL_NAMESPACE=doctor")
	require.False(t, ok, out)
	require.Contains(t, out, "temporal operator namespace create --namespace doctor")

	_, err := s.temporal().WorkflowService().RegisterNamespace(t.Context(), &workflowservice.RegisterNamespaceRequest{
		Namespace: "doctor", WorkflowExecutionRetentionPeriod: durationpb.New(24 * time.Hour),
	})
	require.NoError(t, err)
	s.eventually("the server to know the namespace", func() bool {
		ok, out = run("BERTH_TEMPORAL_NAMESPACE=doctor")
		return !ok
	})
	require.Contains(t, out, "temporal operator search-attribute create --namespace doctor --name berthUser --type Keyword --name berthService")
}

// A doctor that is interrupted reports no errors that are none.
func TestDoctor_Interrupted_OnlyFinishedChecksAreReported(t *testing.T) { // B7
	t.Parallel()
	caught := make(chan os.Signal, 1)
	signal.Notify(caught, syscall.SIGHUP) // a program inherits that this process ignores it, as below nohup, but not that it catches it
	t.Cleanup(func() { signal.Stop(caught) })
	for _, sent := range []os.Signal{os.Interrupt, syscall.SIGTERM, syscall.SIGHUP} {
		redis, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0") // it never answers
		require.NoError(t, err)
		cmd := exec.CommandContext(t.Context(), "../bin/berth", "doctor")
		var out bytes.Buffer
		cmd.Stdout, cmd.Stderr = &out, &out
		cmd.Env = []string{
			"BERTH_DATA_DIR=" + t.TempDir(), "BERTH_AUTH_SECRET=" + secret, "BERTH_REDIS_ADDR=" + redis.Addr().String(), "BERTH_TEMPORAL_ADDR=127.0.0.1:1",
			"BERTH_HTTP_ADDR=127.0.0.1:0", "BERTH_DATABASE=sqlite:/proc/none/berth.db",
		}
		require.NoError(t, cmd.Start())
		conn, err := redis.Accept()
		require.NoError(t, err)
		require.NoError(t, cmd.Process.Signal(sent))
		require.Error(t, cmd.Wait())
		require.Equal(t, 130, cmd.ProcessState.ExitCode(), out.String())
		require.Contains(t, out.String(), "berth: interrupted; the remaining checks were not made")
		require.Contains(t, out.String(), "settings")
		require.NotContains(t, out.String(), "error", "%s", sent)
		require.NoError(t, conn.Close())
		require.NoError(t, redis.Close())
	}
}

// Without its namespace, Temporal responds but nothing can run.
func TestAPI_NamespaceMissing_IsNotReady(t *testing.T) { // L11
	s := shareStack(t)
	addr := freeAddr(t)
	p := s.start("berth", []string{"api"}, append(s.settings,
		"BERTH_TEMPORAL_NAMESPACE=absent", "BERTH_HTTP_ADDR="+addr, "BERTH_METRICS_ADDR=off"))
	s.eventually("the check of the namespace", func() bool {
		return strings.Contains(string(p.output()), "Namespace absent is not found.: BERTH_TEMPORAL_NAMESPACE: create the namespace, or set one that exists")
	})
	res, err := http.Get("http://" + addr + "/readyz")
	require.NoError(t, err)
	defer func() { _ = res.Body.Close() }()
	require.Equal(t, http.StatusServiceUnavailable, res.StatusCode)
}
