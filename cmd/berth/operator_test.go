package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/alecthomas/kong"
	"github.com/stretchr/testify/require"
)

// Each command about nodes, pools, teams, applications, keys, budgets and executions makes the call that it is named after.
func TestOperatorCommands_EachCommand_MakesItsCall(t *testing.T) { // FP6
	t.Parallel()
	requests := make(chan string, 1)
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var body json.RawMessage
		_ = json.NewDecoder(r.Body).Decode(&body)
		requests <- fmt.Sprintf("%s %s %s", r.Method, r.URL.RequestURI(), body)
		w.Header().Set("Content-Type", "application/json")
		lists := map[string]string{
			"/v1/nodes": `{"nodes":[{"nodeId":"n"}]}`, "/v1/pools": `{"pools":[{"poolId":"p"}]}`, "/v1/executions": `{"executions":[{"executionId":"e"}]}`,
			"/v1/budgets": `{"budgets":[{"kind":"team","id":"t","credits":1,"used":0.5,"period":"day"}]}`, "/v1/keys": `{"keys":[{"keyId":"k","teamId":"t"}]}`, "/v1/teams": `{"teams":[{"teamId":"t","weight":1}]}`, "/v1/apps": `{"apps":[{"appId":"a","weight":1}]}`,
		}
		if list := lists[r.URL.Path]; list != "" && r.Method == http.MethodGet {
			fmt.Fprint(w, list)
			return
		}
		fmt.Fprint(w, `{"executionId":"e","status":"completed","output":1}`)
	}))
	defer srv.Close()
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"node", "list", "--pool", "p", "--state", "ready"}, "GET /v1/nodes?pool=p&state=ready "},
		{[]string{"node", "show", "a"}, "GET /v1/nodes/a "},
		{[]string{"node", "cordon", "a"}, "POST /v1/nodes/a/cordon "},
		{[]string{"node", "uncordon", "a"}, "POST /v1/nodes/a/uncordon "},
		{[]string{"node", "drain", "a", "--within", "2s"}, `POST /v1/nodes/a/drain {"withinMs":2000}`},
		{[]string{"node", "undrain", "a"}, "POST /v1/nodes/a/undrain "},
		{[]string{"pool", "list"}, "GET /v1/pools? "},
		{[]string{"pool", "show", "translate:en-es"}, "GET /v1/pools/translate:en-es "},
		{[]string{"pool", "delete", "a/b"}, "DELETE /v1/pools/a%2Fb "},
		{[]string{"team", "list"}, "GET /v1/teams?limit=200 "},
		{[]string{"team", "show", "t"}, "GET /v1/teams/t "},
		{[]string{"team", "delete", "t"}, "DELETE /v1/teams/t "},
		{[]string{"app", "list", "--team", "t"}, "GET /v1/apps?limit=200&teamId=t "},
		{[]string{"app", "show", "a"}, "GET /v1/apps/a "},
		{[]string{"app", "delete", "a"}, "DELETE /v1/apps/a "},
		{[]string{"key", "create", "--team", "t", "--title", "Nightly", "--rpm", "10"}, `POST /v1/keys {"teamId":"t","title":"Nightly","rpm":10}`},
		{[]string{"key", "create", "--app", "a", "--models", "m,n", "--tpm", "5", "--max-calls", "2", "--service-tiers", "flex", "--end-users", "--replace-responses", "--expires", "2027-01-02T15:04:05Z"}, `POST /v1/keys {"appId":"a","models":["m","n"],"tpm":5,"maxCalls":2,"serviceTiers":["flex"],"replaceResponses":true,"endUsers":true,"expiresAt":"2027-01-02T15:04:05Z"}`},
		{[]string{"key", "list", "--team", "t", "--revoked"}, "GET /v1/keys?limit=200&revoked=true&teamId=t "},
		{[]string{"key", "list"}, "GET /v1/keys?limit=200 "},
		{[]string{"key", "show", "k"}, "GET /v1/keys/k "},
		{[]string{"key", "revoke", "k"}, "DELETE /v1/keys/k "},
		{[]string{"budget", "list"}, "GET /v1/budgets?limit=200 "},
		{[]string{"budget", "list", "--kind", "team"}, "GET /v1/budgets?kind=team&limit=200 "},
		{[]string{"budget", "show", "--key", "k"}, "GET /v1/budgets/key/k "},
		{[]string{"budget", "delete", "--team", "t"}, "DELETE /v1/budgets/team/t "},
		{[]string{"execution", "submit", "echo", "--id", "e", "--input", `{"a":1}`}, `POST /v1/executions {"executionId":"e","executor":"echo","input":{"a":1},"timeoutMs":300000,"deadlineMs":900000}`},
		{[]string{"execution", "list", "--status", "running"}, "GET /v1/executions?status=running "},
		{[]string{"execution", "show", "e"}, "GET /v1/executions/e "},
		{[]string{"execution", "watch", "e"}, "GET /v1/executions/e "},
		{[]string{"execution", "cancel", "e"}, "DELETE /v1/executions/e "},
	} {
		var cmd commands
		k, err := kong.New(&cmd, enums(), kong.BindTo(t.Context(), (*context.Context)(nil)))
		require.NoError(t, err)
		parsed, err := k.Parse(append(c.args, "--url", srv.URL, "--token", "t"))
		require.NoError(t, err, c.args)
		require.NoError(t, parsed.Run(), c.args)
		require.Equal(t, c.want, <-requests)
	}
	require.Equal(t, "-", nodeOrders(false, time.Time{}))
	require.Contains(t, nodeOrders(true, time.Now()), "cordoned, drains until ")
}

// The agent keeps its command: without a subcommand, berth node runs it.
func TestNode_FlagsWithoutSubcommand_RunTheAgent(t *testing.T) { // FP6
	t.Parallel()
	for _, args := range [][]string{
		{"node", "--id", "n", "--capabilities", "translate:en-es", "--driver", "exec"}, {"node", "run", "--id", "n", "--driver", "exec"},
	} {
		var cmd commands
		k, err := kong.New(&cmd, enums())
		require.NoError(t, err)
		parsed, err := k.Parse(args)
		require.NoError(t, err)
		require.Contains(t, parsed.Command(), "node run")
		require.Equal(t, "n", cmd.Node.Run.ID)
	}
}
