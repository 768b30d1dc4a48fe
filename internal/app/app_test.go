package app

import (
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"berth/internal/config"
	"berth/internal/health"
	"berth/internal/redisconn"
	"berth/internal/secret"
	"berth/internal/setting"
	"berth/internal/testredis"
)

// connected returns a process that has connected to a Redis.
func connected(t *testing.T, server *testredis.Server) *base {
	t.Helper()
	b := &base{}
	require.NoError(t, b.connectRedis(t.Context(), config.Redis{Addr: secret.Address(server.Addr())}, slog.New(slog.DiscardHandler)))
	t.Cleanup(func() { b.close(slog.New(slog.DiscardHandler)) })
	return b
}

// FI3, FI9: a Redis that responds and cannot be worked with is unavailable: the reason is the server's own, names the setting, and has no
// address. It ends with the state, without a restart. A process does not start with those that only a change of settings ends.
func TestUseRedis_ServerCannotBeWorkedWith_IsUnavailableWhileItLasts(t *testing.T) { // L11
	t.Parallel()
	for _, state := range testredis.States() {
		t.Run(state.Name, func(t *testing.T) {
			t.Parallel()
			server := testredis.Start(t)
			admin, b := server.Admin(), connected(t, server)
			ok := func() bool { return b.useRedis(t.Context()) == nil && b.checkRisks(t.Context()) == nil }
			require.Eventually(t, ok, 10*time.Second, 10*time.Millisecond)

			state.Set(admin)
			var r health.Reason
			var err error
			require.Eventually(t, func() bool {
				err = b.useRedis(t.Context())
				r, _ = health.ReasonOf(err)
				return r.Code == state.Code
			}, 10*time.Second, 10*time.Millisecond, "%s", state.Code)
			require.Equal(t, state.Setting, r.Setting, "%v", err)
			require.True(t, strings.HasPrefix(err.Error(), state.Reply), "%v", err)
			require.Contains(t, err.Error(), state.Setting)
			require.NotContains(t, r.Text, "127.0.0.1")
			require.False(t, r.Risk)
			require.True(t, redisconn.Unavailable(err), "requests are refused with 503")
			var wrong *setting.WrongError
			starts := (&base{}).connectRedis(t.Context(), config.Redis{Addr: secret.Address(server.Addr())}, slog.New(slog.DiscardHandler))
			if state.Setup {
				require.ErrorAs(t, starts, &wrong)
				require.ErrorContains(t, starts, state.Setting)
			} else {
				require.NoError(t, starts, "it may end")
			}

			state.Undo(admin)
			require.Eventually(t, ok, 10*time.Second, 10*time.Millisecond)
		})
	}
}

// A Redis that may delete keys works with a risk.
func TestCheckRisks_EvictionPermitted_IsRisk(t *testing.T) { // B7
	t.Parallel()
	server := testredis.Start(t)
	b := connected(t, server)
	require.NoError(t, b.checkRisks(t.Context()))
	server.Do("CONFIG", "SET", "maxmemory-policy", "allkeys-lru")
	err := b.checkRisks(t.Context())
	require.EqualError(t, err, "maxmemory-policy is allkeys-lru: maxmemory-policy: Redis may delete leases and streams when its memory is full: set it to noeviction")
	r, ok := health.ReasonOf(err)
	require.True(t, ok)
	require.True(t, r.Risk)
	require.Equal(t, "maxmemory-policy", r.Setting)
	require.NoError(t, b.useRedis(t.Context()), "work does not stop")
	server.Do("CONFIG", "SET", "maxmemory-policy", "noeviction")
	require.NoError(t, b.checkRisks(t.Context()))
}
