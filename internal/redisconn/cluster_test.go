package redisconn

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"berth/internal/clienttls"
	"berth/internal/testcert"
	"berth/internal/testredis"
)

// open opens a client that is closed when the test ends.
func open(t *testing.T, o Options) *Client {
	t.Helper()
	c, err := Open(t.Context(), o)
	require.NoError(t, err)
	t.Cleanup(func() { _ = c.Close() })
	return c
}

func TestOpen_EmptyMode_IsDetected(t *testing.T) {
	t.Parallel()
	single, cluster, sentinel := testredis.Start(t), testredis.StartCluster(t, false), testredis.StartSentinel(t)
	tlsServer, tlsFiles := testredis.StartTLS(t)
	for name, c := range map[string]struct {
		opt  Options
		mode Mode
	}{
		"single":                {Options{Addr: single.Addr()}, ModeSingle},
		"URL":                   {Options{Addr: "redis://" + single.Addr() + "/3"}, ModeSingle},
		"cluster":               {Options{Addr: cluster.Addr(), Cell: "c"}, ModeCluster},
		"one server of cluster": {Options{Addr: cluster.Master(t, "{c}").Addr(), Cell: "c"}, ModeCluster},
		"sentinel":              {Options{Addr: sentinel.Addr(), SentinelMaster: testredis.MasterName}, ModeSentinel},
		"TLS":                   {Options{Addr: tlsServer.Addr(), TLS: tlsFiles}, ModeSingle},
		"TLS URL":               {Options{Addr: "rediss://" + tlsServer.Addr(), TLS: tlsFiles}, ModeSingle},
	} {
		t.Run(name, func(t *testing.T) {
			client := open(t, c.opt)
			require.Equal(t, c.mode, client.Mode())
			require.NoError(t, client.Check(t.Context(), "{c}"))
			require.NoError(t, client.Set(t.Context(), "{c}x", 1, 0).Err())
			s, err := client.Inspect(t.Context(), "{c}")
			require.NoError(t, err)
			require.Equal(t, "redis", s.Name)
			require.NotEmpty(t, s.Version)
			require.Equal(t, "noeviction", s.EvictionPolicy)
			require.Equal(t, "master", s.Role)
		})
	}
}

func TestOpen_WrongSetup_IsRefusedWithReason(t *testing.T) {
	t.Parallel()
	single, cluster, sentinel := testredis.Start(t), testredis.StartCluster(t, false), testredis.StartSentinel(t)
	tlsServer, files := testredis.StartTLS(t)
	other := testcert.New(t)
	single.Do("ACL", "SETUSER", "limited", "on", ">secret", "~*", "&*", "+@all", "-info")
	for name, c := range map[string]struct {
		opt    Options
		reason string
	}{
		"cluster without cell":          {Options{Addr: cluster.Addr()}, "BERTH_CELL is not set"},
		"one of cluster without cell":   {Options{Addr: cluster.Master(t, "{c}").Addr()}, "BERTH_CELL is not set"},
		"mode cluster without cell":     {Options{Mode: ModeCluster, Addr: cluster.Addr()}, "BERTH_CELL is not set"},
		"mode single on cluster":        {Options{Mode: ModeSingle, Addr: cluster.Master(t, "{c}").Addr(), Cell: "c"}, "BERTH_REDIS_MODE=cluster"},
		"mode cluster on single server": {Options{Mode: ModeCluster, Addr: single.Addr(), Cell: "c"}, "BERTH_REDIS_MODE"},
		"sentinel without master":       {Options{Addr: sentinel.Addr()}, "BERTH_REDIS_SENTINEL_MASTER"},
		"mode single on sentinel":       {Options{Mode: ModeSingle, Addr: strings.Split(sentinel.Addr(), ",")[0]}, "BERTH_REDIS_SENTINEL_MASTER"},
		"several single servers":        {Options{Addr: single.Addr() + "," + sentinel.Master().Addr()}, "several"},
		"wrong password":                {Options{Addr: single.Addr(), User: "limited", Password: "wrong"}, "BERTH_REDIS_PASSWORD"},
		"INFO not permitted":            {Options{Addr: single.Addr(), User: "limited", Password: "secret"}, "permissions of BERTH_REDIS_USER"},
		"unknown authority": {
			Options{Addr: tlsServer.Addr(), TLS: clienttls.Files{CA: other.File, Cert: files.Cert, Key: files.Key}}, "BERTH_REDIS_TLS_CA",
		},
		"wrong name": {
			Options{Addr: tlsServer.Addr(), TLS: clienttls.Files{CA: files.CA, Cert: files.Cert, Key: files.Key, ServerName: "other"}},
			"BERTH_REDIS_TLS_SERVER_NAME",
		},
		"missing file":         {Options{Addr: tlsServer.Addr(), TLS: clienttls.Files{CA: "/none"}}, "BERTH_REDIS_TLS_CA"},
		"not an address":       {Options{Addr: "redis"}, "host:port"},
		"database of cluster":  {Options{Mode: ModeCluster, Addr: "redis://" + cluster.Master(t, "{c}").Addr() + "/1", Cell: "c"}, "database 0"},
		"unsupported protocol": {Options{Addr: "http://" + single.Addr()}, "BERTH_REDIS_ADDR"},
	} {
		t.Run(name, func(t *testing.T) {
			client, err := Open(t.Context(), c.opt)
			if err == nil {
				t.Cleanup(func() { _ = client.Close() })
				err = client.Check(t.Context(), "{c}")
			}
			var wrong SetupError
			require.ErrorAs(t, err, &wrong)
			require.ErrorContains(t, err, c.reason)
		})
	}
}

// A process that starts before Redis assumes a mode, and learns from Check that it was wrong.
func TestOpen_RedisUnavailable_CheckReportsWrongMode(t *testing.T) {
	t.Parallel()
	cluster := testredis.StartCluster(t, false)
	master := cluster.Master(t, "{c}")
	master.Kill()
	c := open(t, Options{Addr: master.Addr(), Cell: "c"})
	require.Equal(t, ModeSingle, c.Mode())
	var wrong SetupError
	err := c.Check(t.Context(), "{c}")
	require.Error(t, err)
	require.NotErrorAs(t, err, &wrong, "unavailable is not a wrong setup")
	master.Restart()
	require.ErrorAs(t, c.Check(t.Context(), "{c}"), &wrong)
	require.ErrorContains(t, wrong, "restart, or set BERTH_REDIS_MODE=cluster")
}

// cellSubscriber publishes and subscribes as *lua.Scripts does.
type cellSubscriber struct{ *Client }

func (cellSubscriber) TickChannel() string { return subscriber{}.TickChannel() + "{c}" }

func (s cellSubscriber) Tick(ctx context.Context, channel string) (int64, error) {
	rdb, err := s.MasterForKey(ctx, channel)
	if err != nil {
		return 0, err
	}
	return rdb.Publish(ctx, channel, "").Result()
}

// A listener is connected to the master of its cell, and moves to the next one when that is killed, or replaced without an
// error on any connection.
func TestListener_MasterReplaced_ConnectsToNext(t *testing.T) {
	t.Parallel()
	cluster := testredis.StartCluster(t, true)
	for _, change := range []struct {
		name    string
		replace func(t *testing.T)
	}{
		{"moved", func(t *testing.T) {
			old := cluster.Master(t, "{c}")
			cluster.Replica(t, "{c}").Do("CLUSTER", "FAILOVER")
			require.Eventually(t, func() bool { return cluster.Master(t, "{c}") != old }, timeout, 10*time.Millisecond)
		}},
		{"killed", func(t *testing.T) { cluster.Master(t, "{c}").Kill() }},
	} {
		t.Run(change.name, func(t *testing.T) {
			c := open(t, Options{Addr: cluster.Addr(), Cell: "c"})
			l := listenOn(t, cellSubscriber{c}, "{c}:a")
			require.Equal(t, Up{}, next(t, l, true))
			change.replace(t)
			require.IsType(t, Down{}, next(t, l, false))
			require.Equal(t, Up{}, next(t, l, true))
			require.Equal(t, []string{"{c}:a"}, cluster.Master(t, "{c}").Client().PubSubChannels(t.Context(), "{c}:a").Val())
		})
	}
}
