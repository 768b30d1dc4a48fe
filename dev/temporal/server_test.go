package temporal_test

import (
	"context"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/api/operatorservice/v1"
	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/client"
	sdk "go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"
	"golang.org/x/sync/errgroup"

	"berth/dev/temporal"
	"berth/internal/clienttls"
	"berth/internal/freeport"
	"berth/internal/temporalconn"
	"berth/internal/testcert"
)

// The reconciliation lists pages of 1,000 workflows.
func TestTemporal_ManyWorkflows_AreListed(t *testing.T) {
	ctx := t.Context()
	o := options(t)
	s, err := temporal.Start(ctx, o)
	require.NoError(t, err)
	defer func() { require.NoError(t, s.Stop()) }()
	c := dial(t, o)
	const workflows = 1000
	attribute := sdk.NewSearchAttributeKeyKeyword("berthService").ValueSet("many")
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(20)
	for i := range workflows {
		g.Go(func() error {
			_, err := c.ExecuteWorkflow(ctx, client.StartWorkflowOptions{
				ID: strconv.Itoa(i), TaskQueue: "test", TypedSearchAttributes: sdk.NewSearchAttributes(attribute),
			}, waitForGo)
			return err
		})
	}
	require.NoError(t, g.Wait())
	list := &workflowservice.ListWorkflowExecutionsRequest{Namespace: "default", Query: `berthService = "many"`, PageSize: workflows}
	require.Eventually(t, func() bool {
		found, err := c.ListWorkflow(t.Context(), list)
		return err == nil && len(found.GetExecutions()) == workflows
	}, time.Minute, 50*time.Millisecond)
	for range 3 {
		_, err := c.ListWorkflow(t.Context(), list)
		require.NoError(t, err)
	}
}

func TestTemporal_RestartedOnTheSameFile_WorkflowContinues(t *testing.T) {
	ctx := t.Context()
	o := options(t)
	o.DBFile = filepath.Join(t.TempDir(), "temporal.db")
	s, err := temporal.Start(ctx, o)
	require.NoError(t, err)

	c := dial(t, o)
	status := sdk.NewSearchAttributeKeyKeyword("berthService")
	run, err := c.ExecuteWorkflow(ctx, client.StartWorkflowOptions{
		ID: "kept", TaskQueue: "test", TypedSearchAttributes: sdk.NewSearchAttributes(status.ValueSet("PENDING")),
	}, waitForGo)
	require.NoError(t, err)
	require.NoError(t, s.Stop())

	// Other internal ports, the same database: the workflow continues and can be found by its attribute.
	s, err = temporal.Start(ctx, o)
	require.NoError(t, err)
	defer func() { require.NoError(t, s.Stop()) }()
	c = dial(t, o)
	w := worker.New(c, "test", worker.Options{})
	w.RegisterWorkflow(waitForGo)
	require.NoError(t, w.Start())
	defer w.Stop()
	require.NoError(t, c.SignalWorkflow(ctx, "kept", run.GetRunID(), "go", "on"))
	var got string
	require.NoError(t, c.GetWorkflow(ctx, "kept", run.GetRunID()).Get(ctx, &got))
	require.Equal(t, "on", got)
	require.Eventually(t, func() bool {
		found, err := c.ListWorkflow(ctx, &workflowservice.ListWorkflowExecutionsRequest{
			Namespace: "default", Query: `berthService = "PENDING"`,
		})
		return err == nil && len(found.GetExecutions()) == 1
	}, 10*time.Second, 20*time.Millisecond)
}

func TestTemporal_TwoServers_EachServesItsWebUI(t *testing.T) {
	for _, name := range []string{"first", "second"} {
		o := options(t)
		o.Namespace = name
		o.UIAddr = freeAddr(t)
		s, err := temporal.Start(t.Context(), o)
		require.NoError(t, err)
		defer func() { require.NoError(t, s.Stop()) }()

		known, err := dial(t, o).OperatorService().ListSearchAttributes(t.Context(),
			&operatorservice.ListSearchAttributesRequest{Namespace: name})
		require.NoError(t, err)
		require.Equal(t, temporal.SearchAttributes(), known.GetCustomAttributes())

		page, body := get(t, "http://"+o.UIAddr+"/")
		require.Equal(t, http.StatusOK, page)
		require.Contains(t, body, "<html")
		code, body := get(t, "http://"+o.UIAddr+"/api/v1/namespaces/"+name)
		require.Equal(t, http.StatusOK, code, body)
		require.Contains(t, body, name)
	}
}

func TestTemporal_OlderFile_SearchAttributesAreAdded(t *testing.T) {
	o := options(t)
	o.DBFile = filepath.Join(t.TempDir(), "temporal.db")
	s, err := temporal.Start(t.Context(), o)
	require.NoError(t, err)
	operator := dial(t, o).OperatorService()
	_, err = operator.RemoveSearchAttributes(t.Context(), &operatorservice.RemoveSearchAttributesRequest{
		Namespace: "default", SearchAttributes: []string{"berthUser"},
	})
	require.NoError(t, err)
	require.NoError(t, s.Stop())

	s, err = temporal.Start(t.Context(), o)
	require.NoError(t, err)
	defer func() { require.NoError(t, s.Stop()) }()
	known, err := dial(t, o).OperatorService().ListSearchAttributes(t.Context(),
		&operatorservice.ListSearchAttributesRequest{Namespace: "default"})
	require.NoError(t, err)
	require.Equal(t, enumspb.INDEXED_VALUE_TYPE_KEYWORD, known.GetCustomAttributes()["berthUser"])
}

func waitForGo(ctx workflow.Context) (string, error) {
	var got string
	workflow.GetSignalChannel(ctx, "go").Receive(ctx, &got)
	return got, nil
}

func options(t testing.TB) temporal.Options {
	return temporal.Options{FrontendAddr: freeAddr(t), Namespace: "default"}
}

func dial(t testing.TB, o temporal.Options) client.Client {
	t.Helper()
	c, err := client.DialContext(context.Background(), client.Options{HostPort: o.FrontendAddr, Namespace: o.Namespace})
	require.NoError(t, err)
	t.Cleanup(c.Close)
	return c
}

func freeAddr(t testing.TB) string {
	t.Helper()
	ports, err := freeport.Find(1)
	require.NoError(t, err)
	return net.JoinHostPort("127.0.0.1", strconv.Itoa(ports[0]))
}

func get(t *testing.T, url string) (code int, body string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	require.NoError(t, err)
	res, err := http.DefaultClient.Do(req)
	require.NoError(t, err)
	defer func() { require.NoError(t, res.Body.Close()) }()
	b, err := io.ReadAll(res.Body)
	require.NoError(t, err)
	return res.StatusCode, string(b)
}

func TestTemporal_MutualTLS_ClientsNeedCertificates(t *testing.T) {
	ca, other := testcert.New(t), testcert.New(t)
	server, own, foreign := ca.Issue(t, "temporal.test"), ca.Issue(t, "berth.test"), other.Issue(t, "berth.test")
	o := options(t)
	o.UIAddr = freeAddr(t)
	o.TLS = &temporal.TLS{
		Cert: server.Cert, Key: server.Key,
		Client: clienttls.Files{CA: ca.File, Cert: own.Cert, Key: own.Key, ServerName: "temporal.test"},
	}
	s, err := temporal.Start(t.Context(), o)
	require.NoError(t, err)
	defer func() { require.NoError(t, s.Stop()) }()

	describe := func(security clienttls.Files) error {
		c, err := temporalconn.Open(temporalconn.Options{Addr: o.FrontendAddr, TLS: security})
		require.NoError(t, err)
		defer c.Close()
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		_, err = c.CheckHealth(ctx, nil)
		return err
	}
	require.NoError(t, describe(o.TLS.Client))
	require.Error(t, describe(clienttls.Files{}))
	require.Error(t, describe(clienttls.Files{CA: ca.File}))
	require.Error(t, describe(clienttls.Files{CA: ca.File, Cert: foreign.Cert, Key: foreign.Key}))

	code, body := get(t, "http://"+o.UIAddr+"/api/v1/namespaces/default")
	require.Equal(t, http.StatusOK, code, body)
}
