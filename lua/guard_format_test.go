package lua_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"berth"
	"berth/internal/redisconn"
	"berth/internal/setting"
	"berth/lua"
)

// B6: a binary refuses keys whose format it does not know: at its start, whenever its health is checked, and where it would grant
// anything. The error names both formats.
func TestGuardFormat_Unknown_IsRefused(t *testing.T) {
	t.Parallel()
	onAll(t, slotServers(t), func(t *testing.T, s *lua.Scripts) {
		ctx, guard := t.Context(), s.Keys().Guard()
		refused := func(s *lua.Scripts, has, knows string) {
			t.Helper()
			for name, call := range map[string]func(context.Context) error{
				"start and health": func(ctx context.Context) error { _, err := s.ReadServer(ctx); return err },
				"guard":            func(ctx context.Context) error { _, err := s.CheckGuard(ctx); return err },
				"slot": func(ctx context.Context) error {
					_, err := s.AcquireSlot(ctx, lua.SlotCall{Model: "m", Limits: lua.OneUpstream(1), Lease: full("p/a"), Times: slotTimes})
					return err
				},
				"node": func(ctx context.Context) error {
					_, err := s.Assign(ctx, "execution:x", lua.Choice{PoolID: "p", Strategy: berth.StrategyRoundRobin})
					return err
				},
			} {
				err := call(ctx)
				require.True(t, lua.UnknownFormat(err), "%s: %v", name, err)
				require.ErrorContains(t, err, "the keys of this Redis have format "+has+", and this version of berth knows format "+knows, name)
				require.ErrorAs(t, redisconn.Explained(err), new(*setting.WrongError), "%s: a process does not start", name)
			}
		}
		accepted := func(s *lua.Scripts) {
			t.Helper()
			_, err := s.ReadServer(ctx)
			require.NoError(t, err)
			_, err = s.CheckGuard(ctx)
			require.NoError(t, err)
		}
		accepted(s)
		require.Equal(t, "1", s.Redis().HGet(ctx, guard, "format").Val())
		later := lua.New(s.Redis(), s.Keys())
		later.Replace("FORMAT = '1'", "FORMAT = '2'")
		refused(later, "1", "2")

		require.NoError(t, s.Redis().HDel(ctx, guard, "format").Err())
		refused(s, "none", "1")

		require.NoError(t, s.Redis().Del(ctx, guard).Err())
		accepted(later) // an empty Redis gets the format of the first that uses it
		require.Equal(t, "2", s.Redis().HGet(ctx, guard, "format").Val())
		refused(s, "2", "1")
	})
}
