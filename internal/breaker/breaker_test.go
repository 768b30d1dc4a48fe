package breaker

import (
	"context"
	"errors"
	"log/slog"
	"strconv"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"berth"
	"berth/internal/llm"
	"berth/internal/testredis"
	"berth/lua"
)

// task returns one of two tasks.
func task(n int) berth.TaskRef { return berth.TaskRef{UserID: "u", TaskID: strconv.Itoa(n % 2)} }

// call returns a call of an upstream by one of two tasks.
func call(n int) Call { return Call{Model: "m", Upstream: llm.Upstream{Name: "up"}, Task: task(n)} }

func process(t *testing.T, addr string, keys lua.Keys) (*Breaker, *redis.Client) {
	t.Helper()
	rdb := redis.NewClient(&redis.Options{Addr: addr, MaxRetries: -1})
	t.Cleanup(func() { _ = rdb.Close() })
	return New(lua.New(rdb, keys), slog.New(slog.NewTextHandler(t.Output(), nil))), rdb
}

var (
	failed  = &llm.CallError{Code: berth.CodeProviderUnavailable, Cause: llm.CauseServer, Scope: llm.ScopeUpstream, Retryable: true, Status: 500, Message: "failed with status 500"}
	limited = &llm.CallError{Code: berth.CodeProviderUnavailable, Cause: llm.CauseLimit, Scope: llm.ScopeUpstream, Retryable: true, Status: 429, RetryAfter: time.Minute, Message: "too many requests"}
)

func TestReport_Errors_OutcomeOfTheProvider(t *testing.T) { // T21
	t.Parallel()
	busy := *limited
	busy.RetryAfter = 0
	for name, c := range map[string]struct {
		err  error
		want lua.CallOutcome
	}{
		"a success":                {nil, lua.CallOK},
		"an unusable answer":       {&llm.CallError{Code: berth.CodeInvalidOutput, Unusable: true}, lua.CallOK},
		"an error of the provider": {failed, lua.CallFailed},
		"no answer in time":        {ErrNoAnswer, lua.CallFailed},
		"a limit with a time":      {limited, lua.CallLimited},
		"a limit without a time":   {&busy, lua.CallLimited},
		"an overload":              {&llm.CallError{Cause: llm.CauseOverload, Scope: llm.ScopeUpstream, Retryable: true}, lua.CallLimited},
		"a wrong key":              {&llm.CallError{Cause: llm.CauseKey, Scope: llm.ScopeOperator}, lua.CallBroken},
		"the page of a proxy":      {&llm.CallError{Cause: llm.CauseBlocked, Scope: llm.ScopeUpstream}, ""},
		"texts too long":           {&llm.CallError{Cause: llm.CauseContext, Scope: llm.ScopeSize}, ""},
		"a refused text":           {&llm.CallError{Cause: llm.CauseRefused, Scope: llm.ScopeRequest}, ""},
		"a cancelled call":         {context.Canceled, ""},
		"a reader's error":         {errors.New("fenced"), ""},
	} {
		got, ok := reportOf(call(0), c.err)
		require.Equal(t, c.want != "", ok, name)
		if ok {
			require.Equal(t, c.want, got.Outcome, name)
		}
	}
}

// Two processes: the failures of both count, and the success of one ends those of both.
func TestReport_SeveralProcesses_CountTogether(t *testing.T) { // B2, T21
	t.Parallel()
	server, keys := testredis.Start(t), lua.Keys{Cell: testredis.Cell(t)}
	a, rdb := process(t, server.Addr(), keys)
	b, _ := process(t, server.Addr(), keys)
	paused := func() bool { return rdb.HExists(t.Context(), keys.ModelLimits("m"), "probe:up").Val() }
	for i := range lua.BreakerFailures - 1 {
		a.Report(t.Context(), call(i), failed)
	}
	b.Report(t.Context(), call(0), nil)
	a.Report(t.Context(), call(0), failed)
	require.False(t, paused(), "the success of another process ended the failures")
	for i := range lua.BreakerFailures - 2 {
		b.Report(t.Context(), call(i), failed)
	}
	require.False(t, paused())
	a.Report(t.Context(), call(1), failed)
	require.True(t, paused())
	require.Equal(t, failed.Message, rdb.HGet(t.Context(), keys.ModelLimits("m"), "cause:up").Val())

	require.NoError(t, rdb.HSet(t.Context(), keys.ModelLimits("m"), "until:up", 1).Err()) // the pause has ended
	b.Begun(t.Context(), call(1))
	require.False(t, paused(), "the probe is answered")
	b.Report(t.Context(), call(1), failed)
	require.True(t, paused(), "its answer failed")
	require.NoError(t, rdb.HSet(t.Context(), keys.ModelLimits("m"), "until:up", 1).Err())
	b.Report(t.Context(), call(1), nil)
	require.False(t, paused(), "the probe succeeded")
}

// A success costs no call to Redis, unless it follows a failure or the last report was long ago.
func TestReport_Successes_SentRarely(t *testing.T) {
	t.Parallel()
	b, rdb := process(t, testredis.Start(t).Addr(), lua.Keys{})
	u := b.of(call(0))
	require.True(t, b.due(u, call(0), lua.CallOK))
	require.False(t, b.due(u, call(0), lua.CallOK))
	learned := call(0)
	learned.Upstream.Auto = true
	require.True(t, b.due(u, learned, lua.CallOK), "each success counts where the cap is learned")
	require.True(t, b.due(u, call(0), lua.CallFailed))
	b.Report(t.Context(), call(0), failed)
	require.True(t, b.due(u, call(0), lua.CallOK), "it ends the failure")
	b.Report(t.Context(), call(0), nil)
	require.False(t, b.due(u, call(0), lua.CallOK))
	b.began = b.began.Add(-successEvery)
	require.True(t, b.due(u, call(0), lua.CallOK))
	require.Zero(t, rdb.Exists(t.Context(), lua.Keys{}.ModelBreaker("m", "up")).Val())
}

// Without Redis a report is lost, and no call waits for it longer than its timeout.
func TestReport_RedisUnavailable_NextSuccessIsSent(t *testing.T) {
	t.Parallel()
	b, _ := process(t, "127.0.0.1:1", lua.Keys{})
	b.Report(t.Context(), call(0), nil)
	require.True(t, b.due(b.of(call(0)), call(0), lua.CallOK))
}
