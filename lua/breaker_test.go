package lua_test

import (
	"crypto/rand"
	"strconv"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"berth/lua"
)

// endPause moves the end of a model's pause into the past.
func endPause(t *testing.T, s *lua.Scripts, model string) {
	t.Helper()
	require.NoError(t, s.Redis().HSet(t.Context(), s.Keys().ModelLimits(model), "until:only", strconv.FormatInt(redisMs(t, s)-1, 10)).Err())
}

type reporter struct {
	t *testing.T
	s *lua.Scripts
}

// report reports a call of a task of its own.
func (r reporter) report(outcome lua.CallOutcome, after time.Duration) (code string, left time.Duration) {
	r.t.Helper()
	return r.reportOf(rand.Text(), outcome, after)
}

func (r reporter) reportOf(task string, outcome lua.CallOutcome, after time.Duration) (code string, left time.Duration) {
	r.t.Helper()
	code, left, err := r.s.ReportCall(r.t.Context(), lua.CallReport{
		Model: "m", Upstream: "only", Task: task, Outcome: outcome, RetryAfter: after, Reason: string(outcome) + " reason",
	})
	require.NoError(r.t, err)
	return code, left
}

// fails reports n failures that change nothing.
func (r reporter) fails(n int) {
	r.t.Helper()
	for range n {
		code, left := r.report(lua.CallFailed, 0)
		require.Equal(r.t, lua.CallCounted, code)
		require.Zero(r.t, left)
	}
}

func (r reporter) limits() map[string]string {
	r.t.Helper()
	all, err := r.s.Redis().HGetAll(r.t.Context(), r.s.Keys().ModelLimits("m")).Result()
	require.NoError(r.t, err)
	return all
}

func within(t *testing.T, want, got time.Duration) {
	t.Helper()
	require.LessOrEqual(t, got, want)
	require.Greater(t, got, want-time.Second, "the time between two calls")
}

func TestReportCall_Outcomes_PauseTheModel(t *testing.T) { // B2, T21
	t.Parallel()
	onAll(t, slotServers(t), func(t *testing.T, s *lua.Scripts) {
		r := reporter{t, s}
		// Failures in a row pause the model; a success in between ends the row.
		r.fails(lua.BreakerFailures - 1)
		code, _ := r.report(lua.CallOK, 0)
		require.Equal(t, lua.CallCounted, code)
		r.fails(lua.BreakerFailures - 1)
		code, left := r.report(lua.CallFailed, 0)
		require.Equal(t, lua.BreakerOpened, code)
		within(t, lua.BreakerPause, left)
		require.Equal(t, "failed reason", r.limits()["cause:only"])
		require.Equal(t, "1", r.limits()["probe:only"])

		// The outcomes of calls that began before the pause change nothing.
		for _, outcome := range []lua.CallOutcome{lua.CallFailed, lua.CallOK} {
			code, left = r.report(outcome, 0)
			require.Equal(t, lua.CallCounted, code)
			within(t, lua.BreakerPause, left)
			require.Equal(t, "1", r.limits()["probe:only"])
		}

		// Each probe that fails doubles the pause, up to its maximum.
		for want := 2 * lua.BreakerPause; ; want *= 2 {
			endPause(t, s, "m")
			code, left = r.report(lua.CallFailed, 0)
			require.Equal(t, lua.BreakerOpened, code)
			within(t, min(want, lua.BreakerMaxPause), left)
			if want > 2*lua.BreakerMaxPause {
				break
			}
		}

		// A probe that succeeds closes the breaker, and the count starts again.
		endPause(t, s, "m")
		code, left = r.report(lua.CallOK, 0)
		require.Equal(t, lua.BreakerClosed, code)
		require.Zero(t, left)
		require.NotContains(t, r.limits(), "probe:only")
		r.fails(lua.BreakerFailures - 1)
		code, left = r.report(lua.CallFailed, 0)
		require.Equal(t, lua.BreakerOpened, code)
		within(t, lua.BreakerPause, left)
	})
}

// One task whose calls always fail, for example because of its text, neither pauses the model for the others nor lengthens a pause.
func TestReportCall_OneTaskFails_OthersAreServed(t *testing.T) { // B2, T21
	t.Parallel()
	onAll(t, slotServers(t), func(t *testing.T, s *lua.Scripts) {
		r := reporter{t, s}
		for range 4 * lua.BreakerFailures {
			code, left := r.reportOf("bad", lua.CallFailed, 0)
			require.Equal(t, lua.CallCounted, code)
			require.Zero(t, left)
		}
		code, _ := r.reportOf("other", lua.CallFailed, 0)
		require.Equal(t, lua.BreakerOpened, code)
		probe := func(task string, want time.Duration) {
			endPause(t, s, "m")
			code, left := r.reportOf(task, lua.CallFailed, 0)
			require.Equal(t, lua.BreakerOpened, code)
			within(t, want, left)
		}
		probe("bad", 2*lua.BreakerPause)
		probe("bad", lua.BreakerPause)
		probe("bad", lua.BreakerPause)
		endPause(t, s, "m")
		code, _ = r.reportOf("bad", lua.CallBegun, 0)
		require.Equal(t, lua.BreakerClosed, code)
		code, left := r.reportOf("bad", lua.CallFailed, 0)
		require.Equal(t, lua.BreakerOpened, code)
		within(t, lua.BreakerPause, left) // its answer is cut each time
		probe("other", 4*lua.BreakerPause)
	})
}

// The answer of a probe is long: the others are served once it begins. One that fails after all pauses the model again.
func TestReportCall_ProbeBegins_OthersAreServed(t *testing.T) { // B2
	t.Parallel()
	onAll(t, slotServers(t), func(t *testing.T, s *lua.Scripts) {
		r := reporter{t, s}
		r.fails(lua.BreakerFailures - 1)
		code, _ := r.report(lua.CallBegun, 0)
		require.Equal(t, lua.CallCounted, code)
		code, _ = r.report(lua.CallFailed, 0)
		require.Equal(t, lua.BreakerOpened, code, "an answer that only begins ends no row of failures")
		code, left := r.report(lua.CallBegun, 0)
		require.Equal(t, lua.CallCounted, code, "of a call that began before the pause")
		within(t, lua.BreakerPause, left)

		endPause(t, s, "m")
		code, _ = r.report(lua.CallBegun, 0)
		require.Equal(t, lua.BreakerClosed, code)
		require.NotContains(t, r.limits(), "probe:only")
		code, left = r.report(lua.CallFailed, 0)
		require.Equal(t, lua.BreakerOpened, code)
		within(t, 2*lua.BreakerPause, left)

		endPause(t, s, "m")
		code, _ = r.report(lua.CallBegun, 0)
		require.Equal(t, lua.BreakerClosed, code)
		_, _ = r.report(lua.CallOK, 0)
		r.fails(lua.BreakerFailures - 1)
	})
}

func TestReportCall_RetryAfter_PausesWithoutProbe(t *testing.T) { // T21
	t.Parallel()
	onAll(t, slotServers(t), func(t *testing.T, s *lua.Scripts) {
		r := reporter{t, s}
		for range 2 * lua.BreakerFailures {
			code, left := r.report(lua.CallLimited, 3*time.Second)
			require.Equal(t, lua.CallPaused, code)
			within(t, 3*time.Second, left)
		}
		require.NotContains(t, r.limits(), "probe:only", "the provider works")
		require.Equal(t, "limited reason", r.limits()["cause:only"])
		code, left := r.report(lua.CallLimited, 24*time.Hour)
		require.Equal(t, lua.CallPaused, code)
		within(t, lua.MaxPause, left)
		_, left = r.report(lua.CallLimited, time.Second)
		within(t, lua.MaxPause, left) // a longer pause is not shortened

		endPause(t, s, "m")
		r.fails(lua.BreakerFailures - 1)
		code, left = r.report(lua.CallFailed, 30*time.Second)
		require.Equal(t, lua.BreakerOpened, code)
		within(t, 30*time.Second, left)
	})
}

// T21: an operator resumes a model whose provider works again, so failures count from the first.
func TestReportCall_ModelResumed_FailuresCountAnew(t *testing.T) {
	t.Parallel()
	onAll(t, slotServers(t), func(t *testing.T, s *lua.Scripts) {
		r := reporter{t, s}
		for resumed := range int64(2) {
			r.fails(lua.BreakerFailures - 1)
			code, left := r.report(lua.CallFailed, 0)
			require.Equal(t, lua.BreakerOpened, code)
			within(t, lua.BreakerPause, left)
			_, err := s.SetModelLimits(t.Context(), "m", "", slotTimes, lua.OperatorLimits{Resumed: resumed + 1})
			require.NoError(t, err)
		}
	})
}

func TestReportCall_WrongArguments_ChangeNothing(t *testing.T) {
	t.Parallel()
	onAll(t, slotServers(t), func(t *testing.T, s *lua.Scripts) {
		_, _, err := s.ReportCall(t.Context(), lua.CallReport{Model: "m", Outcome: "late"})
		require.ErrorContains(t, err, "unknown outcome")
		require.Empty(t, reporter{t, s}.limits())
	})
}

// While a model is paused no caller of any process gets a slot; then one does, as the probe; then all of them.
func TestSlots_ModelPaused_OneProbeThenAll(t *testing.T) { // B2, T4, T21
	t.Parallel()
	onAll(t, slotServers(t), func(t *testing.T, s *lua.Scripts) {
		r := reporter{t, s}
		h := &hall{t: t, s: s, limits: limitsOf(3, 0)}
		acquire := func(lease string) lua.SlotReply { return h.acquire("m", lease) }
		release := func(lease string) { h.release("m", lease) }
		first, second, third := lease(paidStream, "u", 1), lease(paidStream, "u", 2), lease(paidStream, "u", 3)
		r.fails(lua.BreakerFailures - 1)
		code, left := r.report(lua.CallFailed, 0)
		require.Equal(t, lua.BreakerOpened, code)
		for _, lease := range []string{first, second, third} {
			reply := acquire(lease)
			require.Equal(t, lua.SlotWaiting, reply.Code)
			require.Positive(t, reply.Next, "waiters return when the pause ends")
			require.LessOrEqual(t, reply.Next, left)
		}
		endPause(t, s, "m")
		require.Equal(t, lua.SlotWaiting, acquire(third).Code, "it is the turn of another")
		require.Equal(t, lua.SlotHeld, acquire(first).Code, "it was granted the probe")
		require.Equal(t, lua.SlotWaiting, acquire(second).Code)

		room, err := s.ReadRoom(t.Context(), "m", h.limits, 0)
		require.NoError(t, err)
		require.True(t, room.Upstreams[0].Probing)
		require.NotEmpty(t, room.Upstreams[0].Cause, "why it is probed")

		// A probe that leaves without an outcome is followed by another.
		release(first)
		require.Equal(t, lua.SlotHeld, acquire(second).Code)
		require.Equal(t, lua.SlotWaiting, acquire(third).Code)
		require.Equal(t, lua.SlotWaiting, acquire(first).Code)

		code, _ = r.report(lua.CallOK, 0)
		require.Equal(t, lua.BreakerClosed, code)
		release(second)
		require.Equal(t, lua.SlotHeld, acquire(third).Code)
		require.Eventually(t, func() bool { return acquire(first).Code == lua.SlotHeld }, time.Minute, time.Millisecond, "slots double after a pause")
		room, err = s.ReadRoom(t.Context(), "m", h.limits, 0)
		require.NoError(t, err)
		require.False(t, room.Upstreams[0].Probing)
	})
}

func TestCheckPollers_QueuesPolledOrNot_MissingNamed(t *testing.T) { // T23, T27
	t.Parallel()
	onAll(t, slotServers(t), func(t *testing.T, s *lua.Scripts) {
		check := func() []string {
			missing, err := s.CheckPollers(t.Context(), []string{"q_paid_vision.glm", "q_paid_batch.m"})
			require.NoError(t, err)
			return missing
		}
		require.Equal(t, []string{"q_paid_vision.glm", "q_paid_batch.m"}, check())
		require.NoError(t, s.MarkPollers(t.Context(), []string{"q_paid_batch.m", "q_paid_stream.m"}))
		require.Equal(t, []string{"q_paid_vision.glm"}, check())
		require.NoError(t, s.MarkPollers(t.Context(), []string{"q_paid_vision.glm"}))
		require.Empty(t, check())
		require.NoError(t, s.Redis().ZAdd(t.Context(), s.Keys().Pollers(), redis.Z{Member: "q_paid_batch.m", Score: 1}).Err())
		require.Equal(t, []string{"q_paid_batch.m"}, check(), "its last poller is gone")
		// A Redis that lost its data knows no pollers, which proves nothing.
		require.NoError(t, s.Redis().Del(t.Context(), s.Keys().Pollers(), s.Keys().Guard()).Err())
		require.Empty(t, check())
		_, err := s.CheckGuard(t.Context())
		require.NoError(t, err)
		require.Empty(t, check(), "the grace has begun")
	})
}

func TestClaimSampler_TwoProcesses_OneSamplesUntilItReleases(t *testing.T) { // X3
	t.Parallel()
	onAll(t, slotServers(t), func(t *testing.T, s *lua.Scripts) {
		claim := func(process string, ttl time.Duration) bool {
			claimed, err := s.ClaimSampler(t.Context(), process, ttl)
			require.NoError(t, err)
			return claimed
		}
		require.True(t, claim("a", time.Hour))
		require.False(t, claim("b", time.Hour))
		require.False(t, claim("b", 0), "another process cannot end it")
		require.True(t, claim("a", time.Hour), "renewed")
		left, err := s.Redis().PTTL(t.Context(), s.Keys().Sampler()).Result()
		require.NoError(t, err)
		require.Greater(t, left, time.Minute)
		require.True(t, claim("a", 0))
		require.Eventually(t, func() bool { return claim("b", time.Hour) }, time.Minute, time.Millisecond)
	})
}
