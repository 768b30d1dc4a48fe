package redisconn

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"berth/internal/setting"
	"berth/internal/testredis"
)

// foreign is a kind of server with settings that are those of another kind, and what has to be said about it.
type foreign struct {
	name           string
	server         *testredis.Server
	opt            Options
	reply, setting string
	advice         string
}

// foreigners returns each kind of server with the settings of each other kind.
func foreigners(t *testing.T) []foreign {
	t.Helper()
	single, closedSingle, cluster := testredis.Start(t), testredis.Start(t), testredis.StartCluster(t, false)
	sentinels := testredis.StartSentinel(t).Sentinels()
	sentinel, closedSentinel, node := sentinels[0], sentinels[2], cluster.Master(t, "{c}")
	closedSingle.Do("CONFIG", "SET", "requirepass", "secret")
	closedSentinel.Do("ACL", "SETUSER", "default", "resetpass", ">guarded")
	const isSentinel, isSingle, isCluster = "the server is a Sentinel", "the server is a Redis server", "the server is one of a Redis Cluster"
	const master, addr, mode = "BERTH_REDIS_SENTINEL_MASTER", "BERTH_REDIS_ADDR", "BERTH_REDIS_MODE"
	at := func(s *testredis.Server, change ...func(*Options)) Options {
		o := Options{Addr: s.Addr()}
		for _, c := range change {
			c(&o)
		}
		return o
	}
	in := func(m Mode) func(*Options) { return func(o *Options) { o.Mode = m } }
	cell := func(o *Options) { o.Cell = "c" }
	password := func(o *Options) { o.Password = "secret" }
	named := func(o *Options) { o.SentinelMaster = testredis.MasterName }
	guarded := func(o *Options) { o.SentinelPassword = "guarded" }
	return []foreign{
		{"Sentinel without master", sentinel, at(sentinel), isSentinel, master, "set it to the name of the master"},
		{"Sentinel without master, with a cell", sentinel, at(sentinel, cell), isSentinel, master, "set it to the name of the master"},
		{"Sentinel without master, with the password of Redis", sentinel, at(sentinel, password), isSentinel, master, "set it to the name of the master"},
		{"Sentinel with a password, without master", closedSentinel, at(closedSentinel, password, guarded), isSentinel, master, "set it to the name"},
		{"mode sentinel without master", sentinel, at(sentinel, in(ModeSentinel)), isSentinel, master, "set it to the name of the master"},
		{"mode single on a Sentinel", sentinel, at(sentinel, in(ModeSingle)), isSentinel, mode, "unset it, and set BERTH_REDIS_SENTINEL_MASTER"},
		{"mode cluster on a Sentinel", sentinel, at(sentinel, in(ModeCluster), cell), isSentinel, mode, "unset it, and set BERTH_REDIS_SENTINEL_MASTER"},
		{"mode cluster on a Sentinel without cell", sentinel, at(sentinel, in(ModeCluster)), isSentinel, mode, "unset it, and set BERTH_REDIS_SENTINEL_MASTER"},
		{"master on a single server", single, at(single, named), isSingle, addr, "set the addresses of the Sentinels, whose port is usually 26379, or unset " + master},
		{"master on a single server with a password", closedSingle, at(closedSingle, named, password), isSingle, addr, "or unset " + master},
		{"master on a single server, both with passwords", closedSingle, at(closedSingle, named, password, guarded), isSingle, addr, "or unset " + master},
		{"master and mode on a single server", single, at(single, named, in(ModeSentinel)), isSingle, addr, "or unset " + master + " and " + mode},
		{"mode sentinel on a single server", single, at(single, in(ModeSentinel)), isSingle, addr, "or unset " + mode},
		{"mode cluster on a single server", single, at(single, in(ModeCluster), cell), isSingle, mode, "unset BERTH_REDIS_MODE"},
		{"mode cluster on a single server without cell", single, at(single, in(ModeCluster)), isSingle, mode, "unset BERTH_REDIS_MODE"},
		{"master on a Cluster", node, at(node, named, cell), isCluster, addr, "or unset " + master},
		{"mode sentinel on a Cluster", node, at(node, in(ModeSentinel)), isCluster, addr, "or unset " + mode},
		{"mode single on a Cluster", node, at(node, in(ModeSingle)), isCluster, mode, "set BERTH_REDIS_MODE=cluster, or unset it"},
	}
}

// D6: a server of another kind than the settings expect is named, whatever it replies to the commands that are meant for the other kind, and
// also if it was unavailable when the process started.
func TestOpen_ServerOfAnotherKind_KindAndSettingAreNamed(t *testing.T) { // B7, L11
	t.Parallel()
	for _, f := range foreigners(t) {
		for addrs, more := range map[string]string{"one address": "", "several addresses": ",127.0.0.1:1"} {
			t.Run(f.name+", "+addrs, func(t *testing.T) {
				f.opt.Addr += more
				_, err := Open(t.Context(), f.opt)
				f.isReported(t, err)
				u, err := f.opt.universal()
				require.NoError(t, err)
				c, err := f.opt.open(u, f.opt.assumed(u)) // as Open does while no server replies
				if err != nil {
					return // these settings never fit
				}
				t.Cleanup(func() { _ = c.Close() })
				f.isReported(t, c.Check(t.Context(), "{c}"))
				if err := c.Get(t.Context(), "{c}x").Err(); !errors.Is(err, redis.Nil) { // a server of a Cluster may have the key
					f.isReported(t, c.Diagnose(t.Context(), err))
				}
			})
		}
	}
}

// isReported requires an error that ends a process, with the reason that /readyz shows.
func (f foreign) isReported(t *testing.T, err error) {
	t.Helper()
	var wrong *setting.WrongError
	require.ErrorAs(t, err, &wrong)
	require.True(t, strings.HasPrefix(err.Error(), f.reply+": "+f.setting+": "), err.Error())
	require.ErrorContains(t, err, f.advice)
	p := Explain(err)
	require.NotNil(t, p)
	require.Equal(t, f.setting, p.Setting)
	require.Equal(t, "mode", p.Code)
	require.NotContains(t, p.Text, "127.0.0.1")
}

// D6: while no server of several addresses replies, the error does not state what they are.
func TestOpen_SeveralAddressesUnavailable_BothKindsAreNamed(t *testing.T) { // B7
	t.Parallel()
	_, err := Open(t.Context(), Options{Addr: "127.0.0.1:1,127.0.0.1:2"})
	var wrong *setting.WrongError
	require.ErrorAs(t, err, &wrong)
	require.ErrorContains(t, err, "no server replies")
	require.ErrorContains(t, err, "for Sentinels, set BERTH_REDIS_SENTINEL_MASTER; for a Cluster, set BERTH_CELL")
	require.NotContains(t, err.Error(), "Redis is a Cluster")
}

// D8: a port that uses TLS and a client that does not, or the reverse, are named with certainty, at the start as later.
func TestClient_OneSideUsesTLS_SettingIsNamed(t *testing.T) { // B7, L11
	t.Parallel()
	secured, files := testredis.StartTLS(t)
	plain, closed := testredis.Start(t), testredis.Start(t)
	closed.Do("CONFIG", "SET", "requirepass", "secret")
	for name, c := range map[string]struct {
		opt     Options
		meaning string
	}{
		"TLS to a server without":                 {Options{Addr: plain.Addr(), TLS: files}, "the server does not use TLS"},
		"TLS to a URL without":                    {Options{Addr: "rediss://" + plain.Addr()}, "the server does not use TLS"},
		"TLS to a server without, with password":  {Options{Addr: closed.Addr(), TLS: files, Password: "secret"}, "the server does not use TLS"},
		"TLS to a Sentinel without":               {Options{Addr: plain.Addr(), TLS: files, SentinelMaster: testredis.MasterName}, "the server does not use TLS"},
		"TLS to a server without, mode cluster":   {Options{Addr: plain.Addr(), TLS: files, Mode: ModeCluster, Cell: "c"}, "the server does not use TLS"},
		"no TLS to a server with it":              {Options{Addr: secured.Addr()}, "the server requires TLS"},
		"no TLS to a server with it, by URL":      {Options{Addr: "redis://" + secured.Addr()}, "the server requires TLS"},
		"no TLS to a server with it, by password": {Options{Addr: secured.Addr(), Password: "secret"}, "the server requires TLS"},
		"no TLS to a Sentinel with it":            {Options{Addr: secured.Addr(), SentinelMaster: testredis.MasterName}, "the server requires TLS"},
		"no TLS to a Cluster with it":             {Options{Addr: secured.Addr(), Mode: ModeCluster, Cell: "c"}, "the server requires TLS"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, atStart := Open(t.Context(), c.opt)
			u, err := c.opt.universal()
			require.NoError(t, err)
			client, err := c.opt.open(u, c.opt.assumed(u))
			require.NoError(t, err)
			t.Cleanup(func() { _ = client.Close() })
			for when, err := range map[string]error{"at the start": atStart, "later": client.Check(t.Context(), "{c}")} {
				var wrong *setting.WrongError
				require.ErrorAs(t, err, &wrong, when)
				require.ErrorContains(t, err, ": BERTH_REDIS_TLS: "+c.meaning, when)
				require.NotContains(t, fmt.Sprint(err), "BERTH_REDIS_ADDR: ", when)
				require.Equal(t, "tls", Explain(err).Code, when)
			}
		})
	}
}
