package app

import (
	"bytes"
	"log/slog"
	"testing"

	"github.com/stretchr/testify/require"

	"berth/internal/config"
	"berth/internal/testredis"
)

func TestConnectRedis_EvictionPermitted_IsLogged(t *testing.T) { // B7
	t.Parallel()
	server := testredis.Start(t)
	connect := func() string {
		for {
			var log bytes.Buffer
			logger := slog.New(slog.NewTextHandler(&log, nil))
			b := &base{}
			require.NoError(t, b.connectRedis(t.Context(), config.Redis{Addr: server.Addr()}, logger))
			b.close(slog.New(slog.DiscardHandler))
			if !b.unchecked { // else Redis did not respond in time, on a busy machine
				return log.String()
			}
		}
	}
	require.Empty(t, connect())
	server.Do("CONFIG", "SET", "maxmemory-policy", "allkeys-lru")
	require.Contains(t, connect(), `level=WARN msg="Redis may delete leases and streams; set maxmemory-policy to noeviction" maxmemory-policy=allkeys-lru`)
}

func TestWatchRedis_EvictionPermitted_IsLoggedOnceRedisIsAvailable(t *testing.T) { // B7
	t.Parallel()
	server := testredis.Start(t)
	server.Do("CONFIG", "SET", "maxmemory-policy", "allkeys-lru")
	var log bytes.Buffer
	logger := slog.New(slog.NewTextHandler(&log, nil))
	b := &base{}
	defer b.close(logger)
	require.NoError(t, b.connectRedis(t.Context(), config.Redis{Addr: server.Addr()}, slog.New(slog.DiscardHandler)))
	b.unchecked = true // as if Redis had been unavailable at the start
	require.NoError(t, b.watchRedis(t.Context(), logger))
	require.Contains(t, log.String(), "set maxmemory-policy to noeviction")
}
