// Package redisconn opens the Redis client of a process, and holds Pub/Sub connections: every subscriber of berth is a
// Listener, with one policy for detecting a lost connection and for reconnecting.
package redisconn

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

// Timeouts and retries of the client. An unavailable Redis fails a call soon: the callers know whether and when to retry.
const (
	dialTimeout = 2 * time.Second
	ioTimeout   = 3 * time.Second
	maxRetries  = 1
)

// Open returns a client of the Redis at addr, which is host:port or a redis:// URL. A password that is not empty replaces
// that of the URL. The client connects at its first use.
func Open(addr, password string) (redis.UniversalClient, error) {
	opts := &redis.Options{Addr: addr}
	if strings.Contains(addr, "://") {
		var err error
		if opts, err = redis.ParseURL(addr); err != nil {
			return nil, fmt.Errorf("--redis-addr (BERTH_REDIS_ADDR): %w", err)
		}
	}
	if password != "" {
		opts.Password = password
	}
	opts.DialTimeout, opts.ReadTimeout, opts.WriteTimeout = dialTimeout, ioTimeout, ioTimeout
	opts.MaxRetries, opts.DialerRetries = maxRetries, maxRetries
	opts.ContextTimeoutEnabled = true
	return redis.NewClient(opts), nil
}

// LogTo sends the messages of all Redis clients of this process to the logger, at level debug: they are about single
// connections, and the callers log what follows from them.
func LogTo(logger *slog.Logger) { redis.SetLogger(clientLog{logger}) }

type clientLog struct{ logger *slog.Logger }

// Printf logs one line.
func (l clientLog) Printf(ctx context.Context, format string, v ...any) {
	l.logger.DebugContext(ctx, "redis client", "message", fmt.Sprintf(format, v...))
}
