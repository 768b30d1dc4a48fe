package tests

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"berth"
	"berth/client"
	"berth/internal/testredis"
)

// FA12, L10, L12: a job that needs a service goes to a node that declares it: also after a mark, a restart of all processes and a loss of
// Redis. Otherwise the job is refused, and the refusal names the service.
func TestServices_MarkRestartAndRedisLoss_JobGoesToNodeThatHasIt(t *testing.T) {
	t.Parallel()
	redis := testredis.Start(t)
	s := newStack(t, with("BERTH_REDIS_ADDR="+redis.Addr()))
	s.setTimes(berth.NodeTranslate, 200, 3000, 6000)
	op := s.token("op", "operator")
	put := func(path string, body any) {
		t.Helper()
		status, out := s.send(http.MethodPut, path, op, body)
		require.Equal(t, http.StatusOK, status, "%v", out)
	}
	s.translator("plain")
	s.translator("other", "--services", "glossary")
	s.translator("able-1", "--services", "nmt,glossary")
	able2 := s.translator("able-2", "--services", "nmt")
	put("/v1/config/services", map[string]any{"translate": []string{"nmt"}})
	c, jobs := s.session("alice", "s1"), 0
	dispatch := func() (client.Dispatch, *client.Problem) {
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		defer cancel()
		out, err := c.Dispatch(ctx, "s1", jobSpec(fmt.Sprint("r", jobs), berth.FinalizeManual))
		p := new(client.Problem)
		if errors.As(err, &p) {
			require.Equal(t, http.StatusServiceUnavailable, p.Status, "%v", err)
			return out, p
		}
		require.NoError(t, err)
		return out, nil
	}
	goTo := func(step string, want ...string) {
		t.Helper()
		for range 8 {
			jobs++
			var out client.Dispatch
			s.eventually(step+": a job to be accepted", func() bool {
				var refused *client.Problem
				out, refused = dispatch()
				return refused == nil
			})
			require.Contains(t, want, out.NodeID, step)
		}
	}
	goTo("configured", "able-1", "able-2")

	put("/v1/nodes/able-1/services/nmt/unavailable", map[string]any{"ttlMs": 600_000})
	goTo("marked", "able-2")

	s.api.kill()
	s.worker.kill()
	able2.kill()
	s.startAPI()
	s.worker = s.startWorker()
	able2 = s.translator("able-2", "--services", "nmt")
	goTo("restarted", "able-2")

	for step, lose := range map[string]func(){
		"Redis wiped": func() { require.NoError(t, redis.Client().FlushAll(t.Context()).Err()) },
		"Redis restarted without data": func() {
			redis.Kill()
			redis.Restart()
		},
	} {
		lose()
		goTo(step, "able-1", "able-2") // marks last for a time, and are lost
		for _, id := range []string{"plain", "other", "able-1", "able-2"} {
			s.awaitNode(id)
		}
		goTo(step+", all nodes registered", "able-1", "able-2")
		_, out := s.send(http.MethodGet, "/v1/config/services", op, nil)
		require.Equal(t, map[string]any{"translate": []any{"nmt"}}, out, step)
	}

	put("/v1/nodes/able-1/services/nmt/unavailable", map[string]any{"ttlMs": 600_000})
	require.True(t, able2.stop(maxWait))
	jobs++
	_, refused := dispatch()
	require.NotNil(t, refused)
	require.Equal(t, berth.CodeNoNode, refused.Code)
	require.Contains(t, refused.Detail, "service missing (needs nmt)")
	_, stats := s.send(http.MethodGet, "/v1/stats/excludes", op, nil)
	require.Positive(t, stats["pools"].(map[string]any)[enES].(map[string]any)["service_missing"])
}

// FA12, S2: a pool that weighs GPU usage prefers the node whose GPU is idle, by what the agents measure; a node that measures none is not
// treated as idle.
func TestPool_GPUWeighted_IdleGPUPreferred(t *testing.T) {
	t.Parallel()
	s := newStack(t)
	s.setTimes(berth.NodeTranslate, 200, 3000, 6000)
	op := s.user("op", "operator")
	for id, usage := range map[string]string{"idle": "2", "busy": "97", "none": ""} {
		dir := filepath.Join(s.dir, id)
		require.NoError(t, os.Mkdir(dir, 0o700))
		if usage != "" {
			tool := "#!/bin/sh\necho " + usage + "\n"
			require.NoError(t, os.WriteFile(filepath.Join(dir, "nvidia-smi"), []byte(tool), 0o700)) //nolint:gosec // a program
		}
		s.start("berth-sim", []string{"node", "--id", id, "--capabilities", enES, "--slots", "50"}, append([]string{
			"BERTH_URL=http://" + s.httpAddr, "BERTH_TOKEN=" + s.token("nodes", "node"), "PATH=" + dir + ":/usr/bin:/bin",
		}, s.settings...))
		s.awaitNode(id)
	}
	status, out := s.send(http.MethodPut, "/v1/pools/speech", s.token("op", "operator"), map[string]any{
		"capabilities": []string{enES}, "strategy": "load-balanced", "gpuWeight": 3,
	})
	require.Equal(t, http.StatusOK, status, "%v", out)
	require.EqualValues(t, 3, out["gpuWeight"])
	weighed := time.Now().Add(time.Second) // every process has the definition by then
	node := func(id string) berth.Node {
		n, err := op.Node(t.Context(), id)
		require.NoError(t, err)
		return n
	}
	for id, want := range map[string]*float64{"idle": new(2.0), "busy": new(97.0), "none": nil} {
		s.eventually("a report of "+id, func() bool {
			n := node(id)
			return n.HeartbeatAt.After(weighed) && (want == nil || n.Load.GPUUsage != nil)
		})
		require.Equal(t, want, node(id).Load.GPUUsage, id)
	}
	for i := range 10 {
		status, out := s.send(http.MethodPost, "/v1/assignments", s.token("nodes", "node"), map[string]any{"poolId": "speech", "leaseId": fmt.Sprint("l", i)})
		require.Equal(t, http.StatusOK, status, "%v", out)
		require.Equal(t, "idle", out["nodeId"])
		status, out = s.send(http.MethodDelete, "/v1/assignments/"+fmt.Sprint("l", i), s.token("nodes", "node"), nil)
		require.Equal(t, http.StatusNoContent, status, "%v", out)
	}
}
