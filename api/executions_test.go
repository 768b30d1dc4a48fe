package api_test

import (
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"berth"
	"berth/api"
	"berth/lua"
)

func TestExecution_Lifecycle_IsVisible(t *testing.T) { // S8
	t.Parallel()
	h := withSession(t)
	alice := h.token("alice")
	submit := func(body doc) answer { return h.call(http.MethodPost, "/v1/executions", alice, body) }
	a := submit(doc{"executor": "render", "input": doc{"pages": []int{1, 2}}})
	require.Equal(t, http.StatusAccepted, a.status, string(a.body))
	id, _ := a.json(t)["executionId"].(string)
	require.True(t, strings.HasPrefix(id, "e-"), id)
	require.Equal(t, "executions/"+id, a.header.Get("Location"))
	require.Equal(t, "waiting", a.json(t)["status"])
	require.Equal(t, false, a.json(t)["replay"])

	stored := func(id string) *storedExecution {
		b, unlock := h.starter.open()
		defer unlock()
		return b.executions["alice:"+id]
	}
	in := stored(id).in
	require.JSONEq(t, `{"pages": [1, 2]}`, string(in.Input))
	require.Equal(t, "render", in.Where.PoolID, "by default the capability of the executor")
	require.Equal(t, []string{"render"}, in.Where.Capabilities)
	require.Equal(t, 5*time.Minute, in.Timeout)
	require.Equal(t, 15*time.Minute, in.Deadline)

	gpu := submit(doc{"executor": "render", "requiredCapabilities": []string{"gpu"}})
	require.Equal(t, http.StatusAccepted, gpu.status, string(gpu.body))
	in = stored(gpu.json(t)["executionId"].(string)).in
	require.Equal(t, "gpu+render", in.Where.PoolID, "the executor is always needed")
	require.Equal(t, []string{"gpu", "render"}, in.Where.Capabilities)
	require.Equal(t, http.StatusAccepted, submit(doc{"executionId": "e0", "executor": "render", "poolId": "farm"}).status)
	require.Equal(t, "farm", stored("e0").in.Where.PoolID)

	full := doc{
		"executionId": "e1", "executor": "render", "requiredCapabilities": []string{"render", "gpu"}, "strategy": "locality",
		"timeoutMs": 1000, "deadlineMs": 5000, "instanceId": "n1", "host": "h", "zone": "z",
	}
	require.Equal(t, http.StatusAccepted, submit(full).status)
	in = stored("e1").in
	require.Equal(t, "gpu+render", in.Where.PoolID)
	require.Equal(t, berth.StrategyLocality, in.Where.Strategy)
	require.Equal(t, []string{"n1", "h", "z"}, []string{in.Where.Own, in.Where.OwnHost, in.Where.OwnZone})
	require.Equal(t, time.Second, in.Timeout)
	again := submit(full)
	require.Equal(t, http.StatusAccepted, again.status)
	require.Equal(t, true, again.json(t)["replay"])
	full["timeoutMs"] = 2000
	require.Equal(t, http.StatusUnprocessableEntity, submit(full).status)

	got := h.call(http.MethodGet, "/v1/executions/e1", alice, nil)
	require.Equal(t, http.StatusOK, got.status)
	require.Equal(t, "gpu+render", got.json(t)["poolId"])
	require.Equal(t, []any{}, got.json(t)["attempts"])
	require.Contains(t, got.json(t)["links"].(doc)["temporal"], "execution:alice:e1")
	require.Equal(t, http.StatusOK, h.call(http.MethodGet, "/v1/executions/e1?userId=alice", h.token("root", "operator"), nil).status)
	for _, method := range []string{http.MethodGet, http.MethodDelete} {
		require.Equal(t, http.StatusNotFound, h.call(method, "/v1/executions/e1", h.token("bob"), nil).status)
		require.Equal(t, http.StatusNotFound, h.call(method, "/v1/executions/e9", alice, nil).status)
		require.Equal(t, http.StatusBadRequest, h.call(method, "/v1/executions/a%20b", alice, nil).status)
	}
	require.Equal(t, http.StatusAccepted, h.call(http.MethodDelete, "/v1/executions/e1", alice, nil).status)
	require.Equal(t, berth.ExecutionCancelled, stored("e1").Status)
	require.Equal(t, http.StatusConflict, h.call(http.MethodDelete, "/v1/executions/e1", alice, nil).status)

	full["timeoutMs"] = 1000
	for _, end := range []berth.ExecutionStatus{berth.ExecutionCancelled, berth.ExecutionCompleted} {
		b, unlock := h.starter.open()
		b.executions["alice:e1"].Status, b.executions["alice:e1"].NodeID = end, "n7"
		unlock()
		again = submit(full)
		require.Equal(t, http.StatusAccepted, again.status, string(again.body))
		require.Equal(t, doc{"executionId": "e1", "status": string(end), "nodeId": "n7", "replay": true}, again.json(t), "the current status")
	}
}

func TestSubmitExecution_InvalidBody_NamesField(t *testing.T) { // X6
	t.Parallel()
	h := newHarness(t)
	good := func(change ...func(doc)) doc {
		d := doc{"executor": "render"}
		for _, c := range change {
			c(d)
		}
		return d
	}
	long := make([]string, 64)
	for i := range long {
		long[i] = strings.Repeat(string(rune('a'+i%26)), 100+i%26)
	}
	for name, c := range map[string]struct {
		body   any
		status int
		field  string
	}{
		"empty":                  {``, 400, "body"},
		"no executor":            {doc{}, 400, "executor"},
		"odd executor":           {good(with("executor", "a b")), 400, "executor"},
		"executor of lost pair":  {good(with("executor", "translate:en")), 400, "executor"},
		"odd id":                 {good(with("executionId", "a/b")), 400, "executionId"},
		"odd capability":         {good(with("requiredCapabilities", []string{"gpu", "-"})), 400, "requiredCapabilities[1]"},
		"too many capabilities":  {good(with("requiredCapabilities", make([]string, 65))), 400, "requiredCapabilities"},
		"capabilities too long":  {good(with("requiredCapabilities", long)), 400, "requiredCapabilities"},
		"pool and capabilities":  {good(with("poolId", "p"), with("requiredCapabilities", []string{"gpu"})), 400, "poolId"},
		"odd pool":               {good(with("poolId", "a b")), 400, "poolId"},
		"unknown strategy":       {good(with("strategy", "fair")), 400, "strategy"},
		"no time":                {good(with("timeoutMs", -1)), 400, "timeoutMs"},
		"too much time":          {good(with("deadlineMs", 86400001)), 400, "deadlineMs"},
		"odd instance":           {good(with("instanceId", "a b")), 400, "instanceId"},
		"host with a line break": {good(with("host", "a\nb")), 400, "host"},
		"zone with a line break": {good(with("zone", "a\rb")), 400, "zone"},
		"input too large":        {good(with("input", strings.Repeat("x", berth.MaxExecutionBytes))), 413, "input"},
		"unknown field":          {good(with("priority", 1)), 400, "priority"},
		"invalid JSON input":     {`{"executor": "render", "input": {]}`, 400, "body"},
		"deadline as text":       {good(with("deadlineMs", "soon")), 400, "deadlineMs"},
		"empty id":               {good(with("executionId", "")), 202, ""},
	} {
		t.Run(name, func(t *testing.T) {
			waitFor(t, "the fleet to be read", func() bool { return h.fleet.Writable() == nil })
			a := h.call(http.MethodPost, "/v1/executions", h.token("alice"), c.body)
			require.Equal(t, c.status, a.status, string(a.body))
			require.Equal(t, c.field, a.problem.Field, string(a.body))
		})
	}
}

// An execution whose run was lost is known by its row, to its user only.
func TestGetExecution_RunLost_RowIsReturned(t *testing.T) { // B4
	t.Parallel()
	h := newHarness(t)
	now := time.Now().Truncate(time.Millisecond).UTC()
	row := berth.Execution{
		ID: "x1", UserID: "alice", Executor: "render", PoolID: "render", Status: berth.ExecutionRunning,
		StartedAt: now, DeadlineAt: now.Add(time.Minute),
	}
	save := func() {
		_, err := h.ledger.SaveExecution(t.Context(), berth.ExecutionRow{Key: "alice:x1", Execution: row})
		require.NoError(t, err)
	}
	get := func() doc {
		a := h.call(http.MethodGet, "/v1/executions/x1", h.token("alice"), nil)
		require.Equal(t, http.StatusOK, a.status, string(a.body))
		return a.json(t)
	}
	save()
	require.Equal(t, "running", get()["status"], "Temporal has lost the run")
	require.Equal(t, now.Add(time.Minute).Format(time.RFC3339Nano), get()["deadlineAt"])
	require.Equal(t, http.StatusNotFound, h.call(http.MethodGet, "/v1/executions/x1", h.token("bob"), nil).status)

	b, unlock := h.starter.open()
	ended := row // as the starter returns a terminated run
	ended.Status, ended.Code, ended.Message = berth.ExecutionFailed, berth.CodeLost, berth.ExecutionLost
	b.executions["alice:x1"] = &storedExecution{Execution: ended}
	unlock()
	require.Equal(t, "failed", get()["status"], "before its row ends")
	require.Nil(t, get()["endedAt"])
	row.Status, row.Code, row.Message, row.EndedAt = berth.ExecutionFailed, berth.CodeLost, berth.ExecutionLost, now.Add(time.Second)
	save()
	require.Equal(t, "lost", get()["code"])
	b, unlock = h.starter.open()
	b.failure = errDown
	unlock()
	require.Equal(t, "lost", get()["code"], "no worker of its version answers")
	require.Equal(t, now.Add(time.Second).Format(time.RFC3339Nano), get()["endedAt"])
	require.Equal(t, http.StatusConflict, h.call(http.MethodDelete, "/v1/executions/x1", h.token("alice"), nil).status)
}

// FA7: two users may choose the same id, neither learns of the other's execution, and operators name the user.
func TestExecutions_SameIDOfUsers_EachHasItsOwn(t *testing.T) { // S8, B8
	t.Parallel()
	h := newHarness(t)
	waitFor(t, "the fleet to be read", func() bool { return h.fleet.Writable() == nil })
	root := h.token("root", "operator")
	of := func(method, user, query string) answer {
		return h.call(method, "/v1/executions/e1"+query, h.token(user), nil)
	}
	for _, user := range []string{"alice", "bob", "https://login.example/u/42"} {
		require.Equal(t, http.StatusNotFound, of(http.MethodGet, user, "").status, user)
		a := h.call(http.MethodPost, "/v1/executions", h.token(user), doc{"executionId": "e1", "executor": "render", "input": user})
		require.Equal(t, http.StatusAccepted, a.status, string(a.body))
		require.Equal(t, false, a.json(t)["replay"], user)
		require.Equal(t, user, of(http.MethodGet, user, "").json(t)["userId"])
	}
	require.Equal(t, http.StatusAccepted, of(http.MethodDelete, "bob", "").status)
	require.Equal(t, "cancelled", of(http.MethodGet, "bob", "").json(t)["status"])
	require.Equal(t, "waiting", of(http.MethodGet, "alice", "").json(t)["status"])
	require.Equal(t, http.StatusForbidden, of(http.MethodGet, "alice", "?userId=bob").status)

	now := time.Now().Truncate(time.Millisecond).UTC()
	row := func(user, key string) {
		_, err := h.ledger.SaveExecution(t.Context(), berth.ExecutionRow{Key: key, Execution: berth.Execution{
			ID: "e1", UserID: user, Executor: "render", PoolID: "render", Status: berth.ExecutionWaiting, StartedAt: now, DeadlineAt: now.Add(time.Hour),
		}})
		require.NoError(t, err)
	}
	operator := func(query string) answer { return h.call(http.MethodGet, "/v1/executions/e1"+query, root, nil) }
	require.Equal(t, http.StatusNotFound, operator("").status, "it has no row yet")
	row("alice", "alice:e1")
	require.Equal(t, "alice", operator("").json(t)["userId"])
	row("bob", "bob:e1")
	require.Equal(t, http.StatusConflict, operator("").status)
	require.Equal(t, "userId", operator("").problem.Field)
	require.Equal(t, "bob", operator("?userId=bob").json(t)["userId"])
}

// FA5: a user has a limited number of unfinished executions. A retried submission is admitted already, and the end of one admits another.
func TestSubmitExecution_TooManyUnfinished_RefusedUntilOneEnds(t *testing.T) { // T5, B11
	t.Parallel()
	h := newHarness(t, admission(api.Admission{Executions: 2}))
	waitFor(t, "the fleet to be read", func() bool { return h.fleet.Writable() == nil })
	submit := func(user, id string) answer {
		return h.call(http.MethodPost, "/v1/executions", h.token(user), doc{"executionId": id, "executor": "render"})
	}
	for range 3 {
		require.Equal(t, http.StatusAccepted, submit("alice", "e1").status)
	}
	require.Equal(t, http.StatusAccepted, submit("alice", "e2").status)
	refused := submit("alice", "e3")
	require.Equal(t, http.StatusTooManyRequests, refused.status, string(refused.body))
	require.Equal(t, berth.CodeQueueFull, refused.problem.Code)
	require.Equal(t, 2, refused.problem.Position)
	require.Contains(t, refused.problem.Detail, "the limit is 2")
	require.Equal(t, strconv.Itoa(refused.problem.RetryAfter), refused.header.Get("Retry-After"))
	require.Positive(t, refused.problem.RetryAfter)
	require.Equal(t, http.StatusNotFound, h.call(http.MethodGet, "/v1/executions/e3", h.token("alice"), nil).status, "no partial effect")
	require.Equal(t, http.StatusAccepted, submit("alice", "e2").status, "a retry of one that was accepted")
	require.Equal(t, http.StatusAccepted, submit("bob", "e1").status, "the limit is for each user")

	require.NoError(t, h.scripts.RemoveExecution(t.Context(), berth.ExecutionRef{UserID: "alice", ExecutionID: "e1"}))
	require.Equal(t, http.StatusAccepted, submit("alice", "e3").status)
	require.Equal(t, http.StatusTooManyRequests, submit("alice", "e4").status)

	now := time.Now()
	_, err := h.ledger.SaveExecution(t.Context(), berth.ExecutionRow{Key: "alice:e1", Execution: berth.Execution{
		ID: "e1", UserID: "alice", Status: berth.ExecutionCompleted, StartedAt: now, DeadlineAt: now, EndedAt: now,
	}})
	require.NoError(t, err)
	require.Equal(t, http.StatusAccepted, submit("alice", "e1").status, "one that has ended needs no admission")
}

// FA5: a submission that is refused for another reason leaves no admission.
func TestSubmitExecution_RefusedByWorkflow_LeavesNoAdmission(t *testing.T) { // T5
	t.Parallel()
	for name, c := range map[string]struct {
		refusal error
		leaves  bool
	}{
		"no node":         {&berth.Refusal{Code: berth.CodeNoNode, PoolID: "render"}, true},
		"unknown outcome": {berth.Errorf(berth.CodeUnavailable, "Temporal is unavailable"), false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := newHarness(t, admission(api.Admission{Executions: 1}), func(d *api.Deps) { d.Starter = refusing{d.Starter, c.refusal} })
			waitFor(t, "the fleet to be read", func() bool { return h.fleet.Writable() == nil })
			a := h.call(http.MethodPost, "/v1/executions", h.token("alice"), doc{"executionId": "e1", "executor": "render"})
			require.Equal(t, http.StatusServiceUnavailable, a.status, string(a.body))
			second, err := h.scripts.AdmitExecution(t.Context(), berth.ExecutionRef{UserID: "alice", ExecutionID: "e2"}, 1)
			require.NoError(t, err)
			require.Equal(t, c.leaves, second.Code == lua.TaskAdmitted, second.Code)
		})
	}
}

// FP6: a name that no node has offered is an error of the request, which a retry would not change. One whose nodes are offline, or may not
// have registered again after a loss of data, is worth a retry.
func TestSubmit_UnknownCapability_NamesField(t *testing.T) { // X6
	t.Parallel()
	missing := func(pool string, capabilities ...string) error {
		return &berth.Refusal{Code: berth.CodeNoNode, PoolID: pool, Missing: capabilities, Reasons: map[berth.ExcludeReason]int{berth.ExcludeCapabilityMissing: 1}}
	}
	for name, c := range map[string]struct {
		body    doc
		refusal error
		status  int
		field   string
	}{
		"executor":           {doc{"executor": "rendr"}, missing("rendr", "rendr"), 400, "executor"},
		"capability":         {doc{"executor": "render", "requiredCapabilities": []string{"a4", "gpuu"}}, missing("a4+gpuu+render", "gpuu"), 400, "requiredCapabilities[1]"},
		"known and unknown":  {doc{"executor": "render", "requiredCapabilities": []string{"gone", "x"}}, missing("gone+render+x", "gone", "x"), 400, "requiredCapabilities[1]"},
		"pool":               {doc{"executor": "render", "poolId": "frm"}, missing("frm", "frm"), 400, "poolId"},
		"nodes are offline":  {doc{"executor": "gone"}, missing("gone", "gone"), 503, ""},
		"defined pool":       {doc{"executor": "render", "poolId": "farm"}, missing("farm", "never"), 503, ""},
		"name of a pool":     {doc{"executor": "farm"}, missing("farm", "farm"), 503, ""},
		"hidden by a tenant": {doc{"executor": "render", "poolId": "secret"}, nil, 400, "poolId"},
		"no node has all":    {doc{"executor": "render"}, missing("render"), 503, ""},
		"full":               {doc{"executor": "rendr"}, &berth.Refusal{Code: berth.CodeNodeFull, Missing: []string{"rendr"}}, 503, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := newHarness(t, func(d *api.Deps) {
				if c.refusal != nil {
					d.Starter = refusing{d.Starter, c.refusal}
				}
			})
			ctx := t.Context()
			for _, p := range []berth.Pool{{ID: "farm", Capabilities: []string{"never"}}, {ID: "secret", Tenants: []string{"acme"}}} {
				_, err := h.scripts.DefinePool(ctx, p, false)
				require.NoError(t, err)
			}
			r, err := h.scripts.RegisterNode(ctx, berth.NodeSpec{
				ID: "n1", Kind: berth.NodeEngine, MaxConcurrentJobs: 1, Capabilities: []string{"gone", "render"},
				Incarnation: berth.Incarnation{Host: "n1", PID: 1, StartedAt: 1},
			}, lua.Registration{})
			require.NoError(t, err)
			_, err = h.scripts.WithdrawNode(ctx, "n1", r.Generation, berth.DepartureWithdrawn)
			require.NoError(t, err)
			waitFor(t, "the pools to be read", func() bool { return h.fleet.Writable() == nil && len(h.fleet.Snapshot().Pools) == 2 })
			a := h.call(http.MethodPost, "/v1/executions", h.token("alice"), c.body)
			require.Equal(t, c.status, a.status, string(a.body))
			require.Equal(t, c.field, a.problem.Field, string(a.body))
			if c.status != 400 {
				require.NotEmpty(t, a.header.Get("Retry-After"))
				return
			}
			require.Empty(t, a.header.Get("Retry-After"))
			require.NoError(t, h.client.HSet(ctx, h.scripts.Keys().Guard(), "grace", time.Now().UnixMilli()).Err())
			require.Equal(t, 503, h.call(http.MethodPost, "/v1/executions", h.token("alice"), c.body).status, "its nodes may not have registered again")
		})
	}
}
