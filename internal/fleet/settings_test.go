package fleet_test

import (
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"berth"
	"berth/internal/fleet"
	"berth/internal/ledger"
	"berth/internal/testledger"
	"berth/internal/testredis"
	"berth/lua"
)

// eachLedger runs f with an empty ledger on each database, each with its own keys in one Redis.
func eachLedger(t *testing.T, f func(t *testing.T, l *ledger.Ledger, s *lua.Scripts, rdb *redis.Client)) {
	t.Helper()
	t.Parallel()
	server := testredis.Start(t)
	testledger.Migrated.Each(t, func(t *testing.T, dsn string) {
		rdb := redis.NewClient(&redis.Options{Addr: server.Addr(), MaxRetries: -1})
		t.Cleanup(func() { require.NoError(t, rdb.Close()) })
		f(t, testledger.Open(t, dsn), lua.New(rdb, lua.Keys{Cell: testredis.Cell(t)}), rdb)
	})
}

// set puts a setting into the ledger; a nil value deletes it.
func set(t *testing.T, l *ledger.Ledger, kind ledger.SettingKind, id string, v any) ledger.Setting {
	t.Helper()
	s := ledger.Setting{Kind: kind, ID: id, By: "olga"}
	if v != nil {
		b, err := json.Marshal(v)
		require.NoError(t, err)
		s.Body = b
	}
	require.NoError(t, l.PutSetting(t.Context(), s))
	s, err := l.Setting(t.Context(), kind, id)
	require.NoError(t, err)
	return s
}

func fastPool() berth.Pool {
	return berth.Pool{ID: "fast", Capabilities: []string{"gpu", "translate:en-es"}, Strategy: berth.StrategyRoundRobin}
}

// wipe deletes all keys of the scripts' cell.
func wipe(t *testing.T, rdb *redis.Client, s *lua.Scripts) {
	t.Helper()
	keys, err := rdb.Keys(t.Context(), "{"+s.Keys().Cell+"}*").Result()
	require.NoError(t, err)
	require.NoError(t, rdb.Del(t.Context(), keys...).Err())
}

// L8, L12: every kind of setting is written to Redis, and restored after a loss of data, with the nodes in their pools.
func TestRestoreSettings_RedisLostData_EveryKindRestored(t *testing.T) {
	eachLedger(t, func(t *testing.T, l *ledger.Ledger, s *lua.Scripts, rdb *redis.Client) {
		ctx := t.Context()
		config := berth.DefaultFleetConfig()
		config.MaxRetries = 7
		set(t, l, ledger.SettingPool, "fast", fastPool())
		set(t, l, ledger.SettingTenant, "acme", "fast")
		set(t, l, ledger.SettingStrategy, "", config)
		before := set(t, l, ledger.SettingServices, "", berth.RequiredServices{"asr": {"whisper"}})
		require.False(t, before.Applied)
		require.Equal(t, "olga", before.By)
		set(t, l, ledger.SettingModel, "m", berth.ModelSettings{LimitSettings: berth.LimitSettings{Cap: new(3), Paused: true, Reason: "maintenance"}})
		for _, kind := range []ledger.SettingKind{
			ledger.SettingPool, ledger.SettingTenant, ledger.SettingStrategy, ledger.SettingServices, ledger.SettingModel,
		} {
			id := map[ledger.SettingKind]string{ledger.SettingPool: "fast", ledger.SettingTenant: "acme", ledger.SettingModel: "m"}[kind]
			require.NoError(t, fleet.ApplySetting(ctx, l, s, kind, id))
			now, err := l.Setting(ctx, kind, id)
			require.NoError(t, err)
			require.True(t, now.Applied, kind)
		}
		all := func() {
			t.Helper()
			pools, err := s.Pools(ctx)
			require.NoError(t, err)
			require.Equal(t, map[string]berth.Pool{"fast": fastPool()}, pools)
			tenants, err := s.Tenants(ctx)
			require.NoError(t, err)
			require.Equal(t, map[string]string{"acme": "fast"}, tenants)
			c, err := s.FleetConfig(ctx)
			require.NoError(t, err)
			require.Equal(t, config, c)
			services, err := s.Services(ctx)
			require.NoError(t, err)
			require.Equal(t, berth.RequiredServices{"asr": {"whisper"}}, services)
			room, err := s.ReadRoom(ctx, "m", lua.OneUpstream(9), 0)
			require.NoError(t, err)
			require.Equal(t, []any{3, true, "maintenance"}, []any{room.Upstreams[0].Cap, room.Paused, room.Reason})
		}
		all()
		written, err := fleet.RestoreSettings(ctx, l, s)
		require.NoError(t, err)
		require.Zero(t, written, "nothing is missing")

		wipe(t, rdb, s)
		_, err = s.RegisterNode(ctx, berth.NodeSpec{
			ID: "n1", Kind: berth.NodeTranslate, Incarnation: berth.Incarnation{Host: "h", PID: 1, StartedAt: 1},
			Capabilities: fastPool().Capabilities,
		}, lua.Registration{})
		require.NoError(t, err)
		written, err = fleet.RestoreSettings(ctx, l, s)
		require.NoError(t, err)
		require.Equal(t, 5, written)
		all()
		counts, err := s.CountPool(ctx, "fast")
		require.NoError(t, err)
		require.Equal(t, 1, counts.Free, "a node that registered before is in the restored pool")
	})
}

// S11, L12: the operator settings of a node change one by one, are written to Redis, and are restored after a loss of data,
// whether the node registers before or after.
func TestRestoreSettings_RedisLostData_NodeSettingsRestored(t *testing.T) {
	eachLedger(t, func(t *testing.T, l *ledger.Ledger, s *lua.Scripts, rdb *redis.Client) {
		ctx := t.Context()
		incarnation := berth.Incarnation{Host: "h", PID: 1, StartedAt: 1}
		register := func(id string) {
			t.Helper()
			_, err := s.RegisterNode(ctx, berth.NodeSpec{
				ID: id, Kind: berth.NodeTranslate, Incarnation: incarnation, Capabilities: fastPool().Capabilities,
			}, lua.Registration{})
			require.NoError(t, err)
		}
		change := func(id string, f func(*berth.NodeSettings)) {
			t.Helper()
			_, err := l.ChangeNodeSettings(ctx, id, "olga", func(o berth.NodeSettings) berth.NodeSettings { f(&o); return o })
			require.NoError(t, err)
			require.NoError(t, fleet.ApplySetting(ctx, l, s, ledger.SettingNode, id))
		}
		read := func(id string) berth.Node {
			t.Helper()
			nodes, err := s.ReadNodes(ctx, id)
			require.NoError(t, err)
			return nodes[id]
		}
		until := time.Now().Add(time.Hour).Truncate(time.Millisecond)
		for _, id := range []string{"early", "late", "free"} {
			register(id)
			change(id, func(o *berth.NodeSettings) { o.Cordoned = true })
		}
		change("late", func(o *berth.NodeSettings) { o.DrainUntil = until })
		change("free", func(o *berth.NodeSettings) { o.Cordoned = false })
		check := func() {
			t.Helper()
			require.Equal(t, berth.ExcludeCordoned, read("early").Excluded)
			late := read("late")
			require.True(t, late.Cordoned)
			require.Equal(t, berth.ExcludeDraining, late.Excluded)
			require.WithinDuration(t, until, late.DrainUntil, time.Minute)
			require.Empty(t, read("free").Excluded)
		}
		check()
		_, found, err := l.NodeSettings(ctx, "free")
		require.NoError(t, err)
		require.False(t, found, "settings with zero values are the same as none")
		written, err := fleet.RestoreSettings(ctx, l, s)
		require.NoError(t, err)
		require.Zero(t, written, "nothing is missing")

		wipe(t, rdb, s)
		register("early")
		register("free")
		written, err = fleet.RestoreSettings(ctx, l, s)
		require.NoError(t, err)
		require.Equal(t, 2, written)
		register("late")
		check()
	})
}

// A setting in Redis is not overwritten by another one in the ledger.
func TestRestoreSettings_RedisHasSetting_NotOverwritten(t *testing.T) {
	eachLedger(t, func(t *testing.T, l *ledger.Ledger, s *lua.Scripts, rdb *redis.Client) {
		set(t, l, ledger.SettingTenant, "acme", "fast")
		set(t, l, ledger.SettingTenant, "umbrella", "fast")
		for _, id := range []string{"acme", "umbrella"} {
			require.NoError(t, fleet.ApplySetting(t.Context(), l, s, ledger.SettingTenant, id))
		}
		require.NoError(t, s.BindTenant(t.Context(), "acme", "other"))
		require.NoError(t, s.BindTenant(t.Context(), "umbrella", ""))
		written, err := fleet.RestoreSettings(t.Context(), l, s)
		require.NoError(t, err)
		require.Equal(t, 1, written)
		tenants, err := s.Tenants(t.Context())
		require.NoError(t, err)
		require.Equal(t, map[string]string{"acme": "other", "umbrella": "fast"}, tenants)
	})
}

// A change or deletion that did not reach Redis is written by the next restore.
func TestRestoreSettings_WriteFailedBefore_Written(t *testing.T) {
	eachLedger(t, func(t *testing.T, l *ledger.Ledger, s *lua.Scripts, rdb *redis.Client) {
		ctx := t.Context()
		set(t, l, ledger.SettingPool, "fast", fastPool())
		set(t, l, ledger.SettingTenant, "acme", "fast")
		written, err := fleet.RestoreSettings(ctx, l, s)
		require.NoError(t, err)
		require.Equal(t, 2, written)

		changed := fastPool()
		changed.Strategy = berth.StrategyPowerOfTwo
		first := set(t, l, ledger.SettingPool, "fast", changed)
		second := set(t, l, ledger.SettingTenant, "acme", nil)
		require.Empty(t, second.Body)
		written, err = fleet.RestoreSettings(ctx, l, s)
		require.NoError(t, err)
		require.Equal(t, 2, written)
		pools, err := s.Pools(ctx)
		require.NoError(t, err)
		require.Equal(t, changed, pools["fast"])
		tenants, err := s.Tenants(ctx)
		require.NoError(t, err)
		require.Empty(t, tenants)
		left, err := l.Settings(ctx)
		require.NoError(t, err)
		require.Len(t, left, 1, "the row of a deleted setting is removed")
		require.Equal(t, first.Version, left[0].Version)
		require.Greater(t, set(t, l, ledger.SettingTenant, "acme", "fast").Version, second.Version-1, "versions rise across a deletion")
	})
}

// After concurrent changes of one pool, Redis has the pool that the ledger has.
func TestApplySetting_ConcurrentChanges_RedisMatchesStore(t *testing.T) {
	eachLedger(t, func(t *testing.T, l *ledger.Ledger, s *lua.Scripts, rdb *redis.Client) {
		ctx := t.Context()
		for round := range 5 {
			var g errgroup.Group
			for i := range 8 {
				g.Go(func() error {
					p := berth.Pool{ID: "fast", Capabilities: []string{fmt.Sprintf("c%d-%d", round, i)}}
					body, err := json.Marshal(p)
					if err != nil {
						return err
					}
					if i == 5 {
						body = nil
					}
					if err := l.PutSetting(ctx, ledger.Setting{Kind: ledger.SettingPool, ID: "fast", Body: body}); err != nil {
						return err
					}
					return fleet.ApplySetting(ctx, l, s, ledger.SettingPool, "fast")
				})
			}
			require.NoError(t, g.Wait())
			kept, err := l.Setting(ctx, ledger.SettingPool, "fast")
			require.NoError(t, err)
			pools, err := s.Pools(ctx)
			require.NoError(t, err)
			if len(kept.Body) == 0 {
				require.Empty(t, pools)
				continue
			}
			require.True(t, kept.Applied)
			b, err := json.Marshal(pools["fast"])
			require.NoError(t, err)
			require.JSONEq(t, string(kept.Body), string(b))
		}
	})
}

// L11: an unreachable Redis is an error, and the setting is written later.
func TestRestoreSettings_RedisUnavailable_Fails(t *testing.T) {
	t.Parallel()
	server := testredis.Start(t)
	s := lua.New(server.Client(), lua.Keys{Cell: testredis.Cell(t)})
	l := testledger.Open(t, testledger.Migrated.SQLite(t))
	set(t, l, ledger.SettingTenant, "acme", "fast")
	server.Kill()
	_, err := fleet.RestoreSettings(t.Context(), l, s)
	require.Error(t, err)
	require.Error(t, fleet.ApplySetting(t.Context(), l, s, ledger.SettingTenant, "acme"))
	server.Restart()
	written, err := fleet.RestoreSettings(t.Context(), l, s)
	require.NoError(t, err)
	require.Equal(t, 1, written)
}
