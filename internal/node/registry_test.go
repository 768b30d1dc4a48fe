package node

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"berth"
	"berth/client"
)

// registry is a fake of the API that a test controls. One goroutine owns its state.
type registry struct {
	t     *testing.T
	state chan func(*registryState)
	api   *client.Client
}

type registryState struct {
	generation int64
	living     bool
	spec       client.Registration // last registered
	beats      []client.Heartbeat
	registered []client.Registration
	withdrawn  []int64
	calls      int
	away       int // HTTP status of every response if not 0
	refuse     int // HTTP status of registrations if not 0
	intervalMs int64
	reply      client.HeartbeatReply
}

func newRegistry(t *testing.T) *registry {
	t.Helper()
	r := &registry{t: t, state: make(chan func(*registryState))}
	done := make(chan struct{})
	go func() {
		defer close(done)
		s := &registryState{generation: 100, intervalMs: 50}
		for f := range r.state {
			f(s)
		}
	}()
	mux := http.NewServeMux()
	mux.HandleFunc("POST /v1/nodes", r.answer(register))
	mux.HandleFunc("GET /v1/nodes/n1", r.answer(look))
	mux.HandleFunc("DELETE /v1/nodes/n1", r.answer(withdraw))
	mux.HandleFunc("POST /v1/nodes/n1/heartbeat", r.answer(heartbeatOf))
	srv := httptest.NewServer(mux)
	r.api = client.New(srv.URL, "a-token")
	t.Cleanup(func() {
		srv.Close()
		close(r.state)
		<-done
		http.DefaultClient.CloseIdleConnections()
	})
	return r
}

// do runs f with exclusive access to the state.
func (r *registry) do(f func(*registryState)) {
	done := make(chan struct{})
	r.state <- func(s *registryState) { f(s); close(done) }
	<-done
}

// until waits for a condition.
func (r *registry) until(ok func(*registryState) bool) {
	r.t.Helper()
	require.Eventually(r.t, func() (now bool) {
		r.do(func(s *registryState) { now = ok(s) })
		return now
	}, 20*time.Second, 2*time.Millisecond)
}

func (r *registry) answer(h func(*registryState, *http.Request) (int, any)) http.HandlerFunc {
	return func(w http.ResponseWriter, req *http.Request) {
		var status int
		var body any
		r.do(func(s *registryState) {
			s.calls++
			if status = s.away; status == 0 {
				status, body = h(s, req)
			}
		})
		if req.Header.Get("Authorization") != "Bearer a-token" {
			status = http.StatusUnauthorized
		}
		if status >= 400 {
			body = client.Problem{Status: status, Detail: "as the test wants", Code: berth.CodeConflict}
		}
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(status)
		_ = json.NewEncoder(w).Encode(body)
	}
}

func register(s *registryState, req *http.Request) (int, any) {
	var in client.Registration
	if err := json.NewDecoder(req.Body).Decode(&in); err != nil {
		return http.StatusBadRequest, nil
	}
	if s.refuse != 0 {
		return s.refuse, nil
	}
	existing := s.living && s.spec.Incarnation == in.Incarnation
	if !existing {
		s.generation++
	}
	s.spec, s.living, s.registered = in, true, append(s.registered, in)
	return http.StatusOK, client.Registered{
		NodeID: in.ID, Generation: s.generation, TaskQueue: berth.NodeTaskQueue(in.ID, s.generation),
		Pools: []string{"translate:en-es"}, Existing: existing, HeartbeatIntervalMs: s.intervalMs,
	}
}

func heartbeatOf(s *registryState, req *http.Request) (int, any) {
	var in client.Heartbeat
	if err := json.NewDecoder(req.Body).Decode(&in); err != nil {
		return http.StatusBadRequest, nil
	}
	if !s.living || in.Generation != s.generation {
		return http.StatusConflict, nil
	}
	s.beats = append(s.beats, in)
	return http.StatusOK, s.reply
}

func look(s *registryState, _ *http.Request) (int, any) {
	if s.generation == 100 {
		return http.StatusNotFound, nil
	}
	n := berth.Node{NodeSpec: s.spec.NodeSpec, Generation: s.generation, State: berth.NodeReady}
	if !s.living {
		n.State = berth.NodeDead
	}
	return http.StatusOK, n
}

func withdraw(s *registryState, req *http.Request) (int, any) {
	g, err := strconv.ParseInt(req.URL.Query().Get("generation"), 10, 64)
	if err != nil || g != s.generation || !s.living {
		return http.StatusNotFound, nil
	}
	s.living, s.withdrawn = false, append(s.withdrawn, g)
	return http.StatusNoContent, nil
}
