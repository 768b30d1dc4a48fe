package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"berth/client"
)

func TestModel_EachCommand_SendsTheChange(t *testing.T) { // T4
	t.Parallel()
	requests := make(chan string, 1)
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var body json.RawMessage
		_ = json.NewDecoder(r.Body).Decode(&body)
		requests <- fmt.Sprintf("%s %s %s", r.Method, r.URL.EscapedPath(), body)
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprint(w, `{"name":"a/b","cap":5,"paused":true,"pausedBy":"operator","reason":"maintenance"}`)
	}))
	defer srv.Close()
	api := client.New(srv.URL, "t")
	name := modelName{Name: "a/b"}
	for want, run := range map[string]func() error{
		`PATCH /v1/models/a%2Fb {"paused":true,"reason":"maintenance"}`: func() error {
			return (&modelPause{modelName: name, Reason: "maintenance"}).Run(t.Context(), api)
		},
		`PATCH /v1/models/a%2Fb {"paused":false}`: func() error { return (&modelResume{modelName: name}).Run(t.Context(), api) },
		`PATCH /v1/models/a%2Fb {"cap":3}`:        func() error { return (&modelCap{modelName: name, Cap: 3}).Run(t.Context(), api) },
		`PATCH /v1/models/a%2Fb {"cap":null}`:     func() error { return (&modelCap{modelName: name, Reset: true}).Run(t.Context(), api) },
		`PATCH /v1/models/a%2Fb/upstreams/eu {"cap":3}`: func() error {
			return (&modelCap{modelName: modelName{Name: "a/b", Upstream: "eu"}, Cap: 3}).Run(t.Context(), api)
		},
		`GET /v1/models `: func() error { return (&modelList{}).Run(t.Context(), api) },
		`GET /v1/queues `: func() error { return (&queueList{}).Run(t.Context(), api) },
	} {
		require.NoError(t, run(), want)
		require.Equal(t, want, <-requests)
	}
	for _, c := range []modelCap{{}, {Cap: -1}, {Cap: 10_001}, {Cap: 1, Reset: true}} {
		c.modelName = name
		require.EqualError(t, c.Run(t.Context(), api), "state either a cap from 1 to 10000 or --reset")
	}
	require.Equal(t, "paused by operator: maintenance", modelState(client.ModelPause{
		Paused: true, PausedBy: "operator", Reason: "maintenance",
	}, client.ModelService{}))
	require.Equal(t, "open, no worker polls it", modelState(client.ModelPause{}, client.ModelService{Unpolled: true}))
	require.Equal(t, "removed from the routing", modelState(client.ModelPause{}, client.ModelService{Missing: client.ModelRemoved}))
	require.Equal(t, "in no revision of the routing, no worker polls it", modelState(client.ModelPause{}, client.ModelService{Missing: client.ModelUnknown, Unpolled: true}))
}

func TestModelList_Upstreams_HaveUseAndStateOfTheirOwn(t *testing.T) { // G12
	t.Parallel()
	var out bytes.Buffer
	require.NoError(t, printModels(&out, client.Model{
		Name: "two", ModelLimits: client.ModelLimits{Cap: 7}, InUse: 3, UnknownUpstreams: []string{"old\x1b[31m"},
		Upstreams: []client.Upstream{
			{Name: "a", ModelLimits: client.ModelLimits{Cap: 5}, InUse: 3, ProviderCap: 9, ProviderInUse: 4},
			{Name: "b", ModelLimits: client.ModelLimits{Cap: 2}, Auto: true, Min: 1, Configured: client.ModelLimits{Cap: 8}},
			{Name: "c", ModelLimits: client.ModelLimits{Cap: 1}, NoKey: true},
		},
	}, client.Model{
		Name: "one", ModelLimits: client.ModelLimits{Cap: 1}, UnknownUpstreams: []string{"gone"},
		Upstreams: []client.Upstream{{Name: "p", ModelLimits: client.ModelLimits{Cap: 1}, ProviderCap: 2}},
	}))
	var rows []string
	for line := range strings.Lines(out.String()) {
		rows = append(rows, strings.Join(strings.Fields(line), " "))
	}
	require.Equal(t, []string{
		"MODEL UPSTREAM IN USE CAP PROVIDER WAITING WAIT STATE",
		"two 3 7 0 ? open", "a 3 5 4 of 9 open", "b 0 2 (1-8) open", "c 0 1 open, no worker has the API key", `old[31m not in the routing: its settings have no effect`,
		"one p 0 1 0 of 2 0 ? open", "gone not in the routing: its settings have no effect",
	}, rows)
}
