package redisconn

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"berth/internal/clienttls"
	"berth/internal/setting"
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
		"unknown master":                {Options{Addr: sentinel.Addr(), SentinelMaster: "other"}, `no Sentinel knows a master named "other": BERTH_REDIS_SENTINEL_MASTER`},
		"no client certificate":         {Options{Addr: tlsServer.Addr(), TLS: clienttls.Files{CA: files.CA}}, "BERTH_REDIS_TLS_CERT"},
		"missing database":              {Options{Addr: "redis://" + single.Addr() + "/99"}, "DB index is out of range: BERTH_REDIS_ADDR"},
		"several single servers":        {Options{Addr: single.Addr() + "," + sentinel.Master().Addr()}, "several"},
		"wrong password":                {Options{Addr: single.Addr(), User: "limited", Password: "wrong"}, "BERTH_REDIS_PASSWORD"},
		"INFO not permitted":            {Options{Addr: single.Addr(), User: "limited", Password: "secret"}, "BERTH_REDIS_USER: the user lacks a permission"},
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
			var wrong *setting.WrongError
			require.ErrorAs(t, err, &wrong)
			require.ErrorContains(t, err, c.reason)
		})
	}
}

// FI3: a server that refuses the certificate may reset the connection before its reason is read.
func TestOpen_ServerResetsAfterHandshake_CertificateIsNamed(t *testing.T) { // B7
	t.Parallel()
	ca, foreign := testcert.New(t), testcert.New(t)
	own, other := ca.Issue(t, "redis.test"), foreign.Issue(t, "client")
	pair, err := tls.LoadX509KeyPair(own.Cert, own.Key)
	require.NoError(t, err)
	for name, c := range map[string]struct {
		asks    tls.ClientAuthType
		files   clienttls.Files
		setting string
		setup   bool
	}{
		"no certificate":           {tls.RequestClientCert, clienttls.Files{CA: ca.File}, "BERTH_REDIS_TLS_CERT", true},
		"certificate of another":   {tls.RequestClientCert, clienttls.Files{CA: ca.File, Cert: other.Cert, Key: other.Key}, "BERTH_REDIS_TLS_CERT", false},
		"no certificate requested": {tls.NoClientCert, clienttls.Files{CA: ca.File}, "BERTH_REDIS_ADDR", false},
	} {
		t.Run(name, func(t *testing.T) {
			l, err := net.Listen("tcp", "127.0.0.1:0") //nolint:noctx // loopback
			require.NoError(t, err)
			t.Cleanup(func() { _ = l.Close() })
			go func() {
				for {
					raw, err := l.Accept()
					if err != nil {
						return
					}
					_ = tls.Server(raw, &tls.Config{MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{pair}, ClientAuth: c.asks}).Handshake()
					_ = raw.(*net.TCPConn).SetLinger(0)
					_ = raw.Close()
				}
			}()
			client, err := Open(t.Context(), Options{Addr: l.Addr().String(), TLS: c.files})
			if err == nil {
				t.Cleanup(func() { _ = client.Close() })
				err = client.Check(t.Context(), "{c}")
			}
			var wrong *setting.WrongError
			require.ErrorContains(t, err, c.setting)
			require.Equal(t, c.setup, errors.As(err, &wrong), err)
		})
	}
}

// FI3: an address at which no Redis replies as it should is unavailable, with the setting that may be wrong. A name that no Sentinel knows is
// never a key that does not exist.
func TestClient_NoUsableServer_SettingIsNamed(t *testing.T) { // B7
	t.Parallel()
	sentinel := testredis.StartSentinel(t)
	dead := testredis.Start(t)
	dead.Kill()
	hangs := testredis.Start(t)
	hangs.Pause()
	t.Cleanup(hangs.Resume)
	protected, err := net.Listen("tcp", "127.0.0.1:0") //nolint:noctx // loopback
	require.NoError(t, err)
	t.Cleanup(func() { _ = protected.Close() })
	go func() { // as a server in protected mode does with other hosts
		for {
			c, err := protected.Accept()
			if err != nil {
				return
			}
			_, _ = c.Write([]byte("-DENIED Redis is running in protected mode\r\n"))
			_ = c.Close()
		}
	}()
	for name, c := range map[string]struct {
		opt           Options
		code, setting string
	}{
		"refused":                    {Options{Addr: dead.Addr()}, "unreachable", "BERTH_REDIS_ADDR"},
		"no such host":               {Options{Addr: "redis.invalid:6379"}, "unreachable", "BERTH_REDIS_ADDR"},
		"hanging":                    {Options{Addr: hangs.Addr()}, "no_reply", "BERTH_REDIS_ADDR"},
		"protected mode":             {Options{Addr: protected.Addr().String()}, "protected", "protected-mode"},
		"no Sentinel":                {Options{Addr: dead.Addr(), SentinelMaster: testredis.MasterName}, "no_sentinel", "BERTH_REDIS_ADDR"},
		"unknown master":             {Options{Addr: sentinel.Addr(), SentinelMaster: "other"}, "unknown_master", "BERTH_REDIS_SENTINEL_MASTER"},
		"unknown master, dead other": {Options{Addr: sentinel.Addr() + "," + dead.Addr(), SentinelMaster: "other"}, "no_sentinel", "BERTH_REDIS_ADDR"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c.opt.Mode = ModeSingle
			if c.opt.SentinelMaster != "" {
				c.opt.Mode = ModeSentinel
			}
			client := open(t, c.opt)
			err := client.Get(t.Context(), "x").Err()
			require.NotErrorIs(t, err, redis.Nil)
			p := Explain(err)
			require.NotNil(t, p, "%v", err)
			require.Equal(t, c.code, p.Code, "%v", err)
			require.Equal(t, c.setting, p.Setting)
			require.Contains(t, p.Advice, c.setting)
			require.NotContains(t, p.Text, "127.0.0.1")
		})
	}
}

// Replies that no server of the tests sends.
func TestExplain_Replies_AreClassified(t *testing.T) { // B7
	t.Parallel()
	for reply, code := range map[string]string{
		"LOADING Redis is loading the dataset in memory":                                                  "loading",
		"BUSY Redis is busy running a script. You can only call SCRIPT KILL or SHUTDOWN NOSAVE.":          "busy",
		"CLUSTERDOWN Hash slot not served":                                                                "cluster_down",
		"MOVED 3999 127.0.0.1:6381":                                                                       "cluster_moves",
		"ERR unknown command 'evalsha', with args beginning with: ":                                       "version",
		"ERR unknown command 'AUTH', with args beginning with: 'app' 's3cret' ":                           "version",
		"WRONGPASS invalid username-password pair or user is disabled.":                                   "credentials",
		"MISCONF Errors writing to the AOF file: No space left on device":                                 "disk",
		"ERR Error running script: user_script:7: the keys of this Redis have format 2, and this version": "format",
		"WRONGTYPE Operation against a key holding the wrong kind of value":                               "rejected",
	} {
		p := Explain(fmt.Errorf("script x: %w", errorReply(reply)))
		require.NotNil(t, p, reply)
		require.Equal(t, code, p.Code, reply)
		require.Equal(t, code != "rejected", Unavailable(errorReply(reply)), reply)
		cause, _, _ := strings.Cut(strings.TrimPrefix(reply, "ERR "), ", with args")
		require.True(t, strings.HasPrefix(p.Error(), strings.TrimRight(cause, ". ")), p.Error())
		require.NotContains(t, p.Error(), "s3cret")
	}
	require.Nil(t, Explain(redis.Nil))
	require.Nil(t, Explain(context.Canceled))
	require.ErrorContains(t, checkVersion(map[string]string{"redis_version": "6.2.14"}), "Redis 6.2.14 is too old")
	require.NoError(t, checkVersion(map[string]string{"redis_version": "7.2.4", "valkey_version": "8.0.1"}))
	require.NoError(t, checkVersion(nil), "the embedded server")
}

// errorReply is an error reply of Redis.
type errorReply string

func (r errorReply) Error() string { return string(r) }
func (errorReply) RedisError()     {}

// FI3: when a server has become a replica, connections for commands are dropped, so that new ones reach the server that the address now leads
// to. D9: subscriptions are kept while the commands reach the same server, and nothing is reported about them.
func TestClient_ServerDemoted_ConnectionsAreDropped(t *testing.T) { // L11
	t.Parallel()
	server := testredis.Start(t)
	client := open(t, Options{Addr: server.Addr()})
	l := listenEvery(t, timeout, cellSubscriber{client}, "{c}:a")
	require.Equal(t, Up{}, next(t, l, true))
	server.Do("REPLICAOF", "127.0.0.1", "1")
	for range 2 {
		first := client.ClientID(t.Context()).Val()
		require.Positive(t, first)
		require.Eventually(t, func() bool { // connections younger than a second are kept
			require.ErrorContains(t, client.Set(t.Context(), "x", 1, 0).Err(), "READONLY")
			return client.ClientID(t.Context()).Val() > first
		}, timeout, 50*time.Millisecond)
	}
	require.NoError(t, client.Publish(t.Context(), "{c}:a", "m").Err())
	require.Equal(t, Message{"{c}:a", "m"}, next(t, l, false), "no connection was lost")
	server.Do("REPLICAOF", "NO", "ONE")
	require.NoError(t, client.Set(t.Context(), "x", 1, 0).Err())
}

// A process that starts before Redis assumes a mode, and learns from Check that it was wrong.
func TestOpen_RedisUnavailable_CheckReportsWrongMode(t *testing.T) {
	t.Parallel()
	cluster := testredis.StartCluster(t, false)
	master := cluster.Master(t, "{c}")
	master.Kill()
	c := open(t, Options{Addr: master.Addr(), Cell: "c"})
	require.Equal(t, ModeSingle, c.Mode())
	var wrong *setting.WrongError
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
