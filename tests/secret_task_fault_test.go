//go:build faults

package tests

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.temporal.io/api/enums/v1"
	"go.temporal.io/api/workflowservice/v1"
	"google.golang.org/protobuf/encoding/protojson"

	"berth"
	"berth/client"
	"berth/internal/testtemplate"
)

// plantedKey is the key of a provider, which sends it back. A part of it is encoded in addresses.
const plantedKey = plantedFirst + "/+" + plantedLast + "=="

// betrayals are responses of a provider that have its key, or an address with it. %s is the header of the call.
var betrayals = []string{
	"HTTP/1.1 401 Unauthorized\r\nContent-Type: application/json\r\nConnection: close\r\n\r\n{\"error\":{\"message\":\"Incorrect API key provided: %s\",\"code\":\"%[1]s\"}}",
	"HTTP/1.1 400 Bad Request\r\nContent-Type: application/json\r\nConnection: close\r\n\r\n{\"error\":\"key=" + plantedFirst + "%%2F%%2B" + plantedLast + "%%3D%%3D of %s\"}",
	"HTTP/1.1 302 Found\r\nLocation: http://app:" + plantedFirst + plantedLast + "@127.0.0.1:1/?token=" + plantedFirst + "\r\nContent-Length: 0\r\nConnection: close\r\n\r\n",
	"HTTP/1.1 500 Internal Server Error\r\nContent-Type: text/html\r\nConnection: close\r\n\r\n<html><pre>Authorization: %s</pre></html>",
	"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\ndata: {\"error\":{\"message\":\"key %s\"}}\n\n",
	"%s\r\n\r\n", // no HTTP
	"HTTP/1.1 200 OK\r\nContent-Length: x%s\r\n\r\n",
	"HTTP/1.1 429 Too Many Requests\r\nRetry-After: %s\r\nConnection: close\r\n\r\n%[1]s",
}

// betrayer answers every call with a response.
func betrayer(t *testing.T, response string) string {
	return (&hostileProvider{}).listen(t, func(c net.Conn) {
		req, err := http.ReadRequest(bufio.NewReader(c))
		if err != nil {
			return
		}
		_, _ = io.Copy(io.Discard, req.Body)
		if strings.Contains(response, "%s") {
			response := fmt.Sprintf(response, req.Header.Get("Authorization"))
			_, _ = io.WriteString(c, response)
			return
		}
		_, _ = io.WriteString(c, response)
	})
}

// A provider whose address or key is wrong, and that sends the key back: it is in nothing that users and operators see of their tasks,
// nothing that Temporal and its UI have of their workflows, nothing that is stored, and no log.
func TestSecrets_OfProviders_AppearInNoTaskOrWorkflow(t *testing.T) { // FI1
	t.Parallel()
	var routing strings.Builder
	routing.WriteString("providers:\n")
	for i, response := range betrayals {
		fmt.Fprintf(&routing, "  p%d: {baseURL: %q, keySetting: PLANTED_API_KEY}\n", i, betrayer(t, response)+"/v1")
	}
	n := len(betrayals)
	fmt.Fprintf(&routing, "  p%d: {baseURL: 'http://127.0.0.1:1/v1', keySetting: PLANTED_API_KEY}\nmodels:\n", n)
	for i := range n + 1 {
		fmt.Fprintf(&routing, "  m%d: {provider: p%[1]d, timeouts: {firstByte: 2s, idle: 2s}}\n", i)
	}
	routing.WriteString("routes:\n")
	fmt.Fprintf(&routing, "  vision: {paid: m%d, free: m%[1]d}\n", n)
	for i, tmpl := range testtemplate.All() {
		fmt.Fprintf(&routing, "  %s: {paid: m%d, free: m%d, credits: 1}\n", tmpl.Name, i%(n+1), (i+len(betrayals)/2+1)%(n+1))
	}
	metrics, work := freeAddr(t), freeAddr(t)
	s := prepareStack(t, t.TempDir(), with("BERTH_TASK_DEADLINE=20s", "BERTH_PROVIDER_KEYS=PLANTED_API_KEY="+plantedKey))
	file := filepath.Join(s.dir, "routing.yaml")
	require.NoError(t, os.WriteFile(file, []byte(routing.String()), 0o600))
	s.settings = append(s.settings, "BERTH_ROUTING_FILE="+file, "BERTH_LOCAL_MODEL_URL=")
	t.Cleanup(s.close)
	s.startInfra()
	s.settings = append(s.settings, "BERTH_METRICS_ADDR="+metrics)
	s.startAPI()
	s.settings = append(s.settings, "BERTH_METRICS_ADDR="+work)
	s.worker = s.startWorker()

	found := &search{t: t}
	paid, free := s.user("paid"), client.New("http://"+s.httpAddr, s.token("free"))
	tasks := 0
	for user, c := range map[string]*client.Client{"paid": paid, "free": free} {
		for _, one := range testtemplate.All() {
			variables, tmpl := map[string]any{}, one.Name
			for _, v := range one.Variables {
				if v.Name == "resume" || v.Name == "jobText" || v.Name == "ticket" || v.Name == "text" {
					variables[v.Name] = "harpooner"
				}
			}
			acc, err := c.Submit(t.Context(), client.Submission{TaskID: string(tmpl), ServiceID: "career", Template: tmpl, Variables: variables}, "")
			require.NoError(t, err, "%s", tmpl)
			tasks++
			require.Equal(t, berth.EventError, watch(t, c, acc.TaskID, nil).last.Type, "%s", tmpl)
			for _, path := range []string{"", "/events"} {
				found.asked(http.MethodGet, "http://"+s.httpAddr+"/v1/tasks/"+acc.TaskID+path, s.token(user), nil)
			}
		}
	}
	operator := s.token("op", "operator")
	for _, path := range []string{"tasks?allUsers=true", "usage", "audit", "models", "overview", "events", "reconciliation"} {
		found.asked(http.MethodGet, "http://"+s.httpAddr+"/v1/"+path, operator, nil)
	}
	for _, addr := range []string{metrics, work, s.httpAddr} {
		for _, path := range []string{"/readyz", "/healthz", "/metrics"} {
			found.asked(http.MethodGet, "http://"+addr+path, "", nil)
		}
	}
	workflows, events := 0, 0
	temporal := s.temporal()
	list, err := temporal.ListWorkflow(t.Context(), &workflowservice.ListWorkflowExecutionsRequest{PageSize: 1000})
	require.NoError(t, err)
	for _, w := range list.GetExecutions() {
		workflows++
		found.examine("visibility", []byte(protojson.Format(w)))
		id, run := w.GetExecution().GetWorkflowId(), w.GetExecution().GetRunId()
		described, err := temporal.DescribeWorkflowExecution(t.Context(), id, run)
		require.NoError(t, err)
		found.examine("the description of "+id, []byte(protojson.Format(described)))
		history := temporal.GetWorkflowHistory(t.Context(), id, run, false, enums.HISTORY_EVENT_FILTER_TYPE_ALL_EVENT)
		for history.HasNext() {
			event, err := history.Next()
			require.NoError(t, err)
			events++
			found.examine("the history of "+id, []byte(protojson.Format(event)))
			found.examine("the payloads of "+id, []byte(event.String()))
		}
	}
	require.GreaterOrEqual(t, workflows, tasks)
	require.NoError(t, s.redis().ConfigSet(t.Context(), "rdbcompression", "no").Err()) // also of DUMP
	keys, err := s.redis().Keys(t.Context(), "*").Result()
	require.NoError(t, err)
	for _, key := range keys {
		text, err := s.redis().Dump(t.Context(), key).Result()
		require.NoError(t, err)
		found.examine("Redis: "+key, []byte(key+text))
	}
	for _, suffix := range []string{"", "-wal"} {
		text, err := os.ReadFile(filepath.Join(s.dir, "berth.db"+suffix))
		require.NoError(t, err)
		found.examine("the database", text)
	}
	for _, p := range s.started {
		found.examine("the log of "+p.name, p.output())
	}
	t.Logf("%d tasks, %d workflows with %d events, %d keys of Redis: %d bytes", tasks, workflows, events, len(keys), found.bytes)
}
