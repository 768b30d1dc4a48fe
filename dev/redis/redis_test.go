package redis_test

import (
	"context"
	"fmt"
	"net"
	"os/exec"
	"strconv"
	"syscall"
	"testing"
	"time"

	client "github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"berth/dev/redis"
	"berth/internal/freeport"
)

func TestRedis_Killed_RestartsWithItsData(t *testing.T) {
	if _, err := exec.LookPath("redis-server"); err != nil {
		t.Fatal("redis-server is not installed: apt-get install redis-server")
	}
	addr, dir := freeAddr(t), t.TempDir()
	s, err := redis.Start(t.Context(), redis.Options{Addr: addr, Dir: dir})
	require.NoError(t, err)
	require.False(t, s.Embedded())

	c := connect(t, addr)
	require.NoError(t, c.Set(t.Context(), "kept", "yes", 0).Err())
	before := processID(t, c)
	pid, err := strconv.Atoi(before)
	require.NoError(t, err)
	require.NoError(t, syscall.Kill(pid, syscall.SIGKILL))
	require.Eventually(t, func() bool { return c.Ping(t.Context()).Err() == nil && processID(t, c) != before },
		5*time.Second, 10*time.Millisecond)
	require.Equal(t, "yes", c.Get(t.Context(), "kept").Val())

	s.Stop()
	require.Error(t, c.Ping(t.Context()).Err())

	s, err = redis.Start(t.Context(), redis.Options{Addr: addr, Dir: dir})
	require.NoError(t, err)
	defer s.Stop()
	require.Equal(t, "yes", c.Get(t.Context(), "kept").Val())
}

func TestRedis_CannotStart_ErrorSaysWhy(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer func() { require.NoError(t, l.Close()) }()
	_, err = redis.Start(t.Context(), redis.Options{Addr: l.Addr().String(), Dir: t.TempDir()})
	require.ErrorContains(t, err, "redis.log")
}

func TestRedis_NotInstalled_EmbeddedServerRuns(t *testing.T) {
	t.Setenv("PATH", "")
	addr := freeAddr(t)
	s, err := redis.Start(t.Context(), redis.Options{Addr: addr, Dir: t.TempDir()})
	require.NoError(t, err)
	require.True(t, s.Embedded())
	c := connect(t, addr)
	require.NoError(t, c.Set(t.Context(), "gone", "soon", 20*time.Millisecond).Err())
	require.Eventually(t, func() bool { return c.Exists(t.Context(), "gone").Val() == 0 },
		2*time.Second, 5*time.Millisecond)
	s.Stop()
	require.Error(t, c.Ping(t.Context()).Err())
}

func freeAddr(t *testing.T) string {
	t.Helper()
	ports, err := freeport.Find(1)
	require.NoError(t, err)
	return net.JoinHostPort("127.0.0.1", strconv.Itoa(ports[0]))
}

func connect(t *testing.T, addr string) *client.Client {
	t.Helper()
	c := client.NewClient(&client.Options{Addr: addr, MaxRetries: -1})
	t.Cleanup(func() { require.NoError(t, c.Close()) })
	return c
}

func processID(t *testing.T, c *client.Client) string {
	t.Helper()
	info, err := c.InfoMap(context.Background(), "server").Result()
	if err != nil {
		return ""
	}
	return fmt.Sprint(info["Server"]["process_id"])
}
