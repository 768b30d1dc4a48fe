package client

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"reflect"
	"testing"

	"github.com/stretchr/testify/require"

	"berth"
)

func TestClient_AnotherServer_ErrorNamesTheSetting(t *testing.T) {
	t.Parallel()
	for name, handler := range map[string]http.HandlerFunc{
		"a page": func(w http.ResponseWriter, _ *http.Request) {
			_, _ = w.Write([]byte("<!doctype html><p>Welcome"))
		},
		"an error page": func(w http.ResponseWriter, _ *http.Request) {
			http.Error(w, "404 page not found", http.StatusNotFound)
		},
		"an error of another API": func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(http.StatusNotFound)
			_, _ = w.Write([]byte(`{"error":"no such route"}`))
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			srv := httptest.NewServer(handler)
			defer srv.Close()
			c := New(srv.URL, "t")
			_, err := c.Get(t.Context(), "t_1")
			require.ErrorContains(t, err, "the server at "+srv.URL+" is not berth's API: it responded to GET /v1/tasks/t_1 with ")
			require.ErrorContains(t, err, "check BERTH_URL")
			require.NotContains(t, err.Error(), "Welcome")
			for _, err := range c.Follow(t.Context(), "t_1", "") { // once: a retry cannot succeed
				require.ErrorContains(t, err, "check BERTH_URL")
			}
		})
	}
}

func TestPutPool_EveryFieldSet_EachIsSent(t *testing.T) {
	t.Parallel()
	var sent berth.Pool
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if err := json.NewDecoder(r.Body).Decode(&sent); err != nil {
			t.Error(err)
		}
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write([]byte("{}"))
	}))
	defer srv.Close()
	weight := 0.5
	p := berth.Pool{
		Kind: berth.NodeEngine, Capabilities: []string{"gpu"}, Zone: "z", Strategy: berth.StrategyAffinity, GPUWeight: &weight, Tenants: []string{"a"},
	}
	for i := 1; i < reflect.TypeOf(p).NumField(); i++ {
		require.False(t, reflect.ValueOf(p).Field(i).IsZero(), "set %s here", reflect.TypeOf(p).Field(i).Name)
	}
	_, err := New(srv.URL, "t").PutPool(t.Context(), p)
	require.NoError(t, err)
	require.Equal(t, p, sent)
}

// The API responds with 204 where there are no events after the last one.
func TestFollow_NothingFollows_EndsWithoutError(t *testing.T) {
	t.Parallel()
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) }))
	defer srv.Close()
	for ev, err := range New(srv.URL, "t").Follow(t.Context(), "t_1", "9-1") {
		require.Fail(t, "an event", "%v %v", ev, err)
	}
}

func TestClient_OfUser_CallsForOneTaskNameTheUser(t *testing.T) {
	t.Parallel()
	requests := make(chan string, 1)
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		requests <- r.Method + " " + r.URL.RequestURI()
		if r.URL.Path == "/v1/tasks/t_1/events" {
			w.WriteHeader(http.StatusNoContent)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write([]byte("{}"))
	}))
	defer srv.Close()
	for user, query := range map[string]string{"": "", "a&b": "?userId=a%26b"} {
		c := New(srv.URL, "t").OfUser(user)
		for want, call := range map[string]func() error{
			"GET /v1/tasks/t_1":       func() error { _, err := c.Get(t.Context(), "t_1"); return err },
			"DELETE /v1/tasks/t_1":    func() error { return c.Cancel(t.Context(), "t_1") },
			"GET /v1/executions/e":    func() error { _, err := c.Execution(t.Context(), "e"); return err },
			"DELETE /v1/executions/e": func() error { return c.CancelExecution(t.Context(), "e") },
			"GET /v1/tasks/t_1/events": func() error {
				for _, err := range c.Follow(t.Context(), "t_1", "") {
					return err
				}
				return nil
			},
		} {
			require.NoError(t, call(), want)
			require.Equal(t, want+query, <-requests)
		}
	}
}

func TestProblem_RetryAfter_ErrorStatesTheTimeOnce(t *testing.T) {
	t.Parallel()
	for detail, want := range map[string]string{
		"queue q is full with 9 tasks; retry later":        "queue q is full with 9 tasks; retry in 12 s (queue_full, HTTP 429)",
		"the task was not accepted; retry":                 "the task was not accepted; retry in 12 s (queue_full, HTTP 429)",
		"the fleet is unknown; retry in a few seconds":     "the fleet is unknown; retry in 12 s (queue_full, HTTP 429)",
		"every eligible node is full":                      "every eligible node is full; retry in 12 s (queue_full, HTTP 429)",
		"4 tasks are unfinished; retry when one has ended": "4 tasks are unfinished; retry when one has ended, in 12 s (queue_full, HTTP 429)",
	} {
		require.EqualError(t, &Problem{Detail: detail, Code: berth.CodeQueueFull, Status: 429, RetryAfter: 12}, want)
	}
	require.EqualError(t, &Problem{Detail: "not found", Code: berth.CodeNotFound, Status: 404}, "not found (not_found, HTTP 404)")
}

func TestClient_ProblemOfBerth_IsPassedOn(t *testing.T) {
	t.Parallel()
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/problem+json")
		w.WriteHeader(http.StatusBadRequest)
		_, _ = w.Write([]byte(`{"status":400,"code":"invalid_request","detail":"must not be empty","field":"template"}`))
	}))
	defer srv.Close()
	_, err := New(srv.URL, "t").Get(t.Context(), "t_1")
	require.EqualError(t, err, "template: must not be empty (invalid_request, HTTP 400)")
}
