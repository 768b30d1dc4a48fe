package redisconn

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"berth/internal/secret"
	"berth/internal/setting"
	"berth/internal/testredis"
)

// passwordFile returns a function that writes a password to a file, as an operator or Kubernetes does.
func passwordFile(t *testing.T) (path string, write func(text string)) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "password")
	write = func(text string) {
		draft := path + ".new"
		require.NoError(t, os.WriteFile(draft, []byte(text), 0o600))
		require.NoError(t, os.Rename(draft, path))
	}
	write("one\n")
	return path, write
}

// A password is replaced while connections are open: those that are made afterwards use the new one, in every mode.
func TestOpen_PasswordFileChanges_NewConnectionsUseIt(t *testing.T) { // FM6
	t.Parallel()
	single, cluster, sentinel := testredis.Start(t), testredis.StartCluster(t, false), testredis.StartSentinel(t)
	for name, c := range map[string]struct {
		opt     Options
		servers func(ctx context.Context, f func(context.Context, *redis.Client) error) error
	}{
		"single": {Options{Addr: single.Addr()}, func(ctx context.Context, f func(context.Context, *redis.Client) error) error {
			return f(ctx, single.Client())
		}},
		"URL": {Options{Addr: "redis://ignored:ignored@" + single.Addr()}, func(ctx context.Context, f func(context.Context, *redis.Client) error) error {
			return f(ctx, single.Client())
		}},
		"cluster": {Options{Addr: cluster.Addr(), Cell: "c"}, func(ctx context.Context, f func(context.Context, *redis.Client) error) error {
			return cluster.Client(t).ForEachMaster(ctx, f)
		}},
		"sentinel": {Options{Addr: sentinel.Addr(), SentinelMaster: testredis.MasterName}, func(ctx context.Context, f func(context.Context, *redis.Client) error) error {
			return f(ctx, sentinel.Master().Client())
		}},
	} {
		t.Run(name, func(t *testing.T) {
			user := "user-" + name
			acl := func(rules ...any) {
				require.NoError(t, c.servers(t.Context(), func(ctx context.Context, rdb *redis.Client) error {
					return rdb.Do(ctx, append([]any{"ACL", "SETUSER", user}, rules...)...).Err()
				}))
			}
			replace := func() { // every connection of the user
				require.NoError(t, c.servers(t.Context(), func(ctx context.Context, rdb *redis.Client) error {
					return rdb.ClientKillByFilter(ctx, "USER", user).Err()
				}))
			}
			file, write := passwordFile(t)
			acl("on", ">one", "~*", "&*", "+@all")
			c.opt.User, c.opt.PasswordFile = user, file
			client := open(t, c.opt)
			works := func() bool { return client.Set(t.Context(), "{c}x", 1, 0).Err() == nil }
			require.True(t, works())

			acl(">two")
			write("two\r\n")
			replace()
			require.Eventually(t, works, timeout, 10*time.Millisecond)
			acl("<one")
			require.True(t, works(), "existing connections stay")
			replace()
			require.Eventually(t, works, timeout, 10*time.Millisecond)

			for _, wrong := range []struct{ text, problem string }{{"three", "WRONGPASS"}, {"", "the file is empty"}} {
				write(wrong.text)
				replace()
				var err error
				require.Eventually(t, func() bool {
					err = client.Set(t.Context(), "{c}x", 1, 0).Err()
					return err != nil && strings.Contains(err.Error(), wrong.problem)
				}, timeout, 10*time.Millisecond)
				require.ErrorContains(t, err, "BERTH_REDIS_PASSWORD_FILE")
				require.NotContains(t, err.Error(), "three")
				require.True(t, Unavailable(err), "a retry can succeed")
				_, err = client.Subscribe(t.Context(), "{c}:a").Receive(t.Context())
				require.ErrorContains(t, err, "BERTH_REDIS_PASSWORD_FILE", "of a connection that receives messages")
			}
			write("two")
			require.Eventually(t, works, timeout, 10*time.Millisecond)
		})
	}
}

func TestOpen_SentinelPasswordFileChanges_NewConnectionsUseIt(t *testing.T) { // FM6
	t.Parallel()
	sentinel := testredis.StartSentinel(t)
	addrs := strings.Split(sentinel.Addr(), ",")
	each := func(args ...any) (replies []string) {
		for _, addr := range addrs {
			rdb := redis.NewClient(&redis.Options{Addr: addr})
			replies = append(replies, rdb.Do(t.Context(), args...).String())
			require.NoError(t, rdb.Close())
		}
		return replies
	}
	each("ACL", "SETUSER", "watcher", "on", ">one", "~*", "&*", "+@all")
	file, write := passwordFile(t)
	opt := Options{Addr: sentinel.Addr(), SentinelMaster: testredis.MasterName, SentinelUser: "watcher", SentinelPasswordFile: file}
	client := open(t, opt)
	require.NoError(t, client.Set(t.Context(), "x", 1, 0).Err())
	authenticated := func() bool { return strings.Contains(strings.Join(each("CLIENT", "LIST"), "\n"), "user=watcher") }
	require.True(t, authenticated())

	each("ACL", "SETUSER", "watcher", ">two", "<one")
	write("two")
	each("CLIENT", "KILL", "USER", "watcher")
	require.Eventually(t, authenticated, timeout, 10*time.Millisecond)
	require.NoError(t, client.Set(t.Context(), "x", 1, 0).Err())

	write("three")
	other := open(t, opt)
	err := other.Set(t.Context(), "x", 1, 0).Err()
	require.ErrorContains(t, err, "BERTH_REDIS_SENTINEL_PASSWORD_FILE")
	require.True(t, secret.Named(err))
	var wrong *setting.WrongError
	require.ErrorAs(t, other.Check(t.Context(), "x"), &wrong, "a process with it does not start")
}

func TestOpen_PasswordNotUsable_ErrorNamesTheSetting(t *testing.T) { // FM6
	t.Parallel()
	server := testredis.Start(t)
	server.Do("ACL", "SETUSER", "default", "on", "resetpass", ">right")
	t.Cleanup(func() {
		rdb := redis.NewClient(&redis.Options{Addr: server.Addr(), Password: "right"})
		_ = rdb.Do(context.Background(), "ACL", "SETUSER", "default", "nopass").Err()
		_ = rdb.Close()
	})
	file, write := passwordFile(t)
	write("wrong")
	missing := filepath.Join(t.TempDir(), "missing")
	for name, c := range map[string]struct {
		opt  Options
		want []string
	}{
		"value":         {Options{Password: "wrong"}, []string{"BERTH_REDIS_PASSWORD:", "WRONGPASS"}},
		"file":          {Options{PasswordFile: file}, []string{"BERTH_REDIS_PASSWORD_FILE:", "WRONGPASS"}},
		"in URL":        {Options{Addr: "redis://:wrong@" + server.Addr()}, []string{"BERTH_REDIS_ADDR:", "WRONGPASS"}},
		"none":          {Options{}, []string{"BERTH_REDIS_PASSWORD:", "not set"}},
		"both":          {Options{Password: "right", PasswordFile: file}, []string{"BERTH_REDIS_PASSWORD and BERTH_REDIS_PASSWORD_FILE, not both"}},
		"missing":       {Options{PasswordFile: missing}, []string{"BERTH_REDIS_PASSWORD_FILE", missing}},
		"of Sentinels":  {Options{SentinelPassword: "a", SentinelPasswordFile: file}, []string{"BERTH_REDIS_SENTINEL_PASSWORD_FILE"}},
		"URL and value": {Options{Addr: "redis://:right@" + server.Addr(), Password: "wrong"}, []string{"BERTH_REDIS_PASSWORD:"}},
	} {
		t.Run(name, func(t *testing.T) {
			if c.opt.Addr == "" {
				c.opt.Addr = server.Addr()
			}
			client, err := Open(t.Context(), c.opt)
			if err == nil {
				t.Cleanup(func() { _ = client.Close() })
				err = client.Check(t.Context(), "{c}")
			}
			var setup *setting.WrongError
			require.ErrorAs(t, err, &setup)
			for _, want := range c.want {
				require.ErrorContains(t, err, want)
			}
		})
	}
}

// An address with a password that cannot be read is described, not repeated.
func TestOpen_AddressWithPassword_IsNeverInTheError(t *testing.T) {
	t.Parallel()
	for _, addr := range []string{
		"redis://:hidden%zz@h:1", "redis://u:hid#hidden@h:1/0", "redis://u:hidden/x@h:1", "redis://u:hidden@h:1/none", "redis://u:hidden@h:port",
		"redis://u:hidden@h:1?unknown=1", "rediss://u:hidden\x01@h:1", "http://u:hidden@h:1", ":hidden@h:1", "u:hidden@h:1,h:2", "u:hidden@h",
	} {
		_, err := Open(t.Context(), Options{Addr: addr})
		var wrong *setting.WrongError
		require.ErrorAs(t, err, &wrong, addr)
		require.ErrorContains(t, err, "BERTH_REDIS_ADDR")
		require.NotContains(t, err.Error(), "hid", addr)
	}
}
