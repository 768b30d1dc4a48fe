package ledger

import (
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"berth"
	"berth/internal/testredis"
	"berth/lua"
)

// eachFleet runs f against an empty ledger of both kinds, each with a part of one Redis for itself.
func eachFleet(t *testing.T, f func(t *testing.T, l *Ledger, s *lua.Scripts)) {
	t.Helper()
	server := testredis.Start(t)
	each(t, func(t *testing.T, l *Ledger) {
		rdb := redis.NewClient(&redis.Options{Addr: server.Addr(), MaxRetries: -1})
		t.Cleanup(func() { require.NoError(t, rdb.Close()) })
		f(t, l, lua.New(rdb, lua.Keys{Cell: testredis.Cell(t)}))
	})
}

// set keeps a setting; a nil value deletes it.
func set(t *testing.T, l *Ledger, kind SettingKind, id string, v any) Setting {
	t.Helper()
	s := Setting{Kind: kind, ID: id, By: "olga"}
	if v != nil {
		b, err := json.Marshal(v)
		require.NoError(t, err)
		s.Body = b
	}
	require.NoError(t, l.PutSetting(t.Context(), s))
	s, err := l.setting(t.Context(), kind, id)
	require.NoError(t, err)
	return s
}

func fast() berth.Pool {
	return berth.Pool{ID: "fast", Capabilities: []string{"gpu", "translate:en-es"}, Strategy: berth.StrategyRoundRobin}
}

// wipe forgets everything of the scripts' cell.
func wipe(t *testing.T, s *lua.Scripts) {
	t.Helper()
	keys, err := s.Redis().Keys(t.Context(), "{"+s.Keys().Cell+"}*").Result()
	require.NoError(t, err)
	require.NoError(t, s.Redis().Del(t.Context(), keys...).Err())
}

// L8, L12: every kind of setting reaches Redis, and comes back after a wipe, with the nodes in their pools.
func TestSettingsReachRedisAndComeBack(t *testing.T) {
	eachFleet(t, func(t *testing.T, l *Ledger, s *lua.Scripts) {
		ctx := t.Context()
		config := berth.DefaultFleetConfig()
		config.MaxRetries = 7
		set(t, l, SettingPool, "fast", fast())
		set(t, l, SettingTenant, "acme", "fast")
		set(t, l, SettingStrategy, "", config)
		before := set(t, l, SettingServices, "", map[string]int{"asr": 1})
		require.False(t, before.Applied)
		require.Equal(t, "olga", before.By)
		for _, kind := range []SettingKind{SettingPool, SettingTenant, SettingStrategy, SettingServices} {
			id := map[SettingKind]string{SettingPool: "fast", SettingTenant: "acme"}[kind]
			require.NoError(t, l.ApplySetting(ctx, s, kind, id))
			now, err := l.setting(ctx, kind, id)
			require.NoError(t, err)
			require.True(t, now.Applied, kind)
		}
		all := func() {
			t.Helper()
			pools, err := s.Pools(ctx)
			require.NoError(t, err)
			require.Equal(t, map[string]berth.Pool{"fast": fast()}, pools)
			tenants, err := s.Tenants(ctx)
			require.NoError(t, err)
			require.Equal(t, map[string]string{"acme": "fast"}, tenants)
			c, err := s.FleetConfig(ctx)
			require.NoError(t, err)
			require.Equal(t, config, c)
			services, err := s.Services(ctx)
			require.NoError(t, err)
			require.JSONEq(t, `{"asr":1}`, string(services))
		}
		all()
		written, err := l.RestoreFleet(ctx, s)
		require.NoError(t, err)
		require.Zero(t, written, "nothing is missing")

		wipe(t, s)
		_, err = s.RegisterNode(ctx, berth.NodeSpec{
			ID: "n1", Kind: berth.NodeTranslate, Incarnation: berth.Incarnation{Host: "h", PID: 1, StartedAt: 1},
			Capabilities: fast().Capabilities,
		}, lua.Registration{})
		require.NoError(t, err)
		written, err = l.RestoreFleet(ctx, s)
		require.NoError(t, err)
		require.Equal(t, 4, written)
		all()
		counts, err := s.CountPool(ctx, "fast")
		require.NoError(t, err)
		require.Equal(t, 1, counts.Free, "who registered meanwhile is in its pool")
	})
}

// S11, L12: an operator's orders for a node change one by one, reach Redis, and come back after a wipe, before the node does or
// after it.
func TestOrdersReachRedisAndComeBack(t *testing.T) {
	eachFleet(t, func(t *testing.T, l *Ledger, s *lua.Scripts) {
		ctx := t.Context()
		incarnation := berth.Incarnation{Host: "h", PID: 1, StartedAt: 1}
		register := func(id string) {
			t.Helper()
			_, err := s.RegisterNode(ctx, berth.NodeSpec{
				ID: id, Kind: berth.NodeTranslate, Incarnation: incarnation, Capabilities: fast().Capabilities,
			}, lua.Registration{})
			require.NoError(t, err)
		}
		order := func(id string, change func(*berth.NodeOrders)) {
			t.Helper()
			_, err := l.OrderNode(ctx, id, "olga", func(o berth.NodeOrders) berth.NodeOrders { change(&o); return o })
			require.NoError(t, err)
			require.NoError(t, l.ApplySetting(ctx, s, SettingNode, id))
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
			order(id, func(o *berth.NodeOrders) { o.Cordoned = true })
		}
		order("late", func(o *berth.NodeOrders) { o.DrainUntil = until })
		order("free", func(o *berth.NodeOrders) { o.Cordoned = false })
		stands := func() {
			t.Helper()
			require.Equal(t, berth.ExcludeCordoned, read("early").Excluded)
			late := read("late")
			require.True(t, late.Cordoned)
			require.Equal(t, berth.ExcludeDraining, late.Excluded)
			require.WithinDuration(t, until, late.DrainUntil, time.Minute)
			require.Empty(t, read("free").Excluded)
		}
		stands()
		_, ordered, err := l.Orders(ctx, "free")
		require.NoError(t, err)
		require.False(t, ordered, "none are none")
		written, err := l.RestoreFleet(ctx, s)
		require.NoError(t, err)
		require.Zero(t, written, "nothing is missing")

		wipe(t, s)
		register("early")
		register("free")
		written, err = l.RestoreFleet(ctx, s)
		require.NoError(t, err)
		require.Equal(t, 2, written)
		register("late")
		stands()
	})
}

// S11: orders given at once are all kept.
func TestOrdersAtOnce(t *testing.T) {
	each(t, func(t *testing.T, l *Ledger) {
		var g errgroup.Group
		until := time.Now().Add(time.Hour).Truncate(time.Millisecond).UTC()
		for i := range 20 {
			g.Go(func() error {
				_, err := l.OrderNode(t.Context(), "n1", "olga", func(o berth.NodeOrders) berth.NodeOrders {
					if i%2 == 0 {
						o.Cordoned = true
					} else {
						o.DrainUntil = until
					}
					return o
				})
				return err
			})
		}
		require.NoError(t, g.Wait())
		orders, _, err := l.Orders(t.Context(), "n1")
		require.NoError(t, err)
		require.Equal(t, berth.NodeOrders{Cordoned: true, DrainUntil: until}, orders)
	})
}

// What is in Redis stays, whatever the ledger has.
func TestRestoreKeepsWhatIsThere(t *testing.T) {
	eachFleet(t, func(t *testing.T, l *Ledger, s *lua.Scripts) {
		set(t, l, SettingTenant, "acme", "fast")
		set(t, l, SettingTenant, "umbrella", "fast")
		for _, id := range []string{"acme", "umbrella"} {
			require.NoError(t, l.ApplySetting(t.Context(), s, SettingTenant, id))
		}
		require.NoError(t, s.BindTenant(t.Context(), "acme", "other"))
		require.NoError(t, s.BindTenant(t.Context(), "umbrella", ""))
		written, err := l.RestoreFleet(t.Context(), s)
		require.NoError(t, err)
		require.Equal(t, 1, written)
		tenants, err := s.Tenants(t.Context())
		require.NoError(t, err)
		require.Equal(t, map[string]string{"acme": "other", "umbrella": "fast"}, tenants)
	})
}

// A change that did not reach Redis is made up for, a deletion too.
func TestRestoreMakesUpForLostWrites(t *testing.T) {
	eachFleet(t, func(t *testing.T, l *Ledger, s *lua.Scripts) {
		ctx := t.Context()
		set(t, l, SettingPool, "fast", fast())
		set(t, l, SettingTenant, "acme", "fast")
		written, err := l.RestoreFleet(ctx, s)
		require.NoError(t, err)
		require.Equal(t, 2, written)

		changed := fast()
		changed.Strategy = berth.StrategyPowerOfTwo
		first := set(t, l, SettingPool, "fast", changed)
		second := set(t, l, SettingTenant, "acme", nil)
		require.Empty(t, second.Body)
		written, err = l.RestoreFleet(ctx, s)
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
		require.Len(t, left, 1, "what is deleted is deleted here too")
		require.Equal(t, first.Version, left[0].Version)
		require.Greater(t, set(t, l, SettingTenant, "acme", "fast").Version, second.Version-1, "versions rise over a deletion")
	})
}

// Whoever changes one pool at the same time: in the end Redis has what the ledger has.
func TestChangesAtOnceEndAlike(t *testing.T) {
	eachFleet(t, func(t *testing.T, l *Ledger, s *lua.Scripts) {
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
					if err := l.PutSetting(ctx, Setting{Kind: SettingPool, ID: "fast", Body: body}); err != nil {
						return err
					}
					return l.ApplySetting(ctx, s, SettingPool, "fast")
				})
			}
			require.NoError(t, g.Wait())
			kept, err := l.setting(ctx, SettingPool, "fast")
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

func TestSettingsAreOfAKind(t *testing.T) {
	each(t, func(t *testing.T, l *Ledger) {
		for _, s := range []Setting{
			{Kind: "poem", ID: "x"},
			{Kind: SettingPool},
			{Kind: SettingTenant},
			{Kind: SettingStrategy, ID: "x"},
			{Kind: SettingServices, ID: "x"},
			{Kind: SettingPool, ID: "a\x00b"},
		} {
			requireCode(t, berth.CodeInvalid, l.PutSetting(t.Context(), s))
		}
		all, err := l.Settings(t.Context())
		require.NoError(t, err)
		require.Empty(t, all)
	})
}

// L11: a Redis that is away is an error, and nothing is lost by it.
func TestRestoreWhileRedisIsAway(t *testing.T) {
	t.Parallel()
	server := testredis.Start(t)
	s := lua.New(server.Client(), lua.Keys{Cell: testredis.Cell(t)})
	l := open(t, "sqlite:"+t.TempDir()+"/berth.db")
	set(t, l, SettingTenant, "acme", "fast")
	server.Kill()
	_, err := l.RestoreFleet(t.Context(), s)
	require.Error(t, err)
	require.Error(t, l.ApplySetting(t.Context(), s, SettingTenant, "acme"))
	server.Restart()
	written, err := l.RestoreFleet(t.Context(), s)
	require.NoError(t, err)
	require.Equal(t, 1, written)
}
