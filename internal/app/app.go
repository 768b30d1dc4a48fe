// Package app wires berth's packages into the processes that an operator starts: API, worker and model simulator. It
// contains no logic of its own.
package app

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"

	"go.temporal.io/sdk/client"
	"golang.org/x/sync/errgroup"

	"berth/internal/config"
	"berth/internal/health"
	"berth/internal/ledger"
	"berth/internal/llm"
	"berth/internal/redisconn"
	"berth/internal/starter"
	"berth/internal/temporalconn"
	"berth/lua"
)

// base holds the connections that both API and worker need.
type base struct {
	redis     io.Closer
	pingRedis pinger
	scripts   *lua.Scripts
	ledger    *ledger.Ledger
	catalog   *llm.Catalog
	temporal  client.Client
}

// connect opens the connections of a process. Redis and Temporal may be unavailable: they are contacted at first use.
func connect(ctx context.Context, cfg config.Config, logger *slog.Logger) (*base, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	b := &base{}
	var err error
	if b.catalog, err = catalog(cfg.Model); err != nil {
		return nil, err
	}
	redisClient, err := redisconn.Open(cfg.Redis.Addr, cfg.Redis.Password)
	if err != nil {
		return nil, err
	}
	b.redis, b.pingRedis = redisClient, func(ctx context.Context) error { return redisClient.Ping(ctx).Err() }
	redisconn.LogTo(logger.With("part", "redis"))
	b.scripts = lua.New(redisClient, lua.Keys{Cell: cfg.Redis.Cell})
	if b.ledger, err = openLedger(ctx, cfg.Database, logger); err != nil {
		b.close(logger)
		return nil, err
	}
	options, err := cfg.Temporal.Options(logger)
	if err == nil {
		b.temporal, err = temporalconn.Open(options)
	}
	if err != nil {
		b.close(logger)
		return nil, err
	}
	return b, nil
}

// checks returns what an API or a worker needs: a script that runs, a transaction, and Temporal.
func (b *base) checks() map[string]health.Check {
	return map[string]health.Check{
		"redis": func(ctx context.Context) error {
			_, err := b.scripts.CheckGuard(ctx)
			return err
		},
		"database": b.ledger.Ping,
		"temporal": (&starter.Starter{Client: b.temporal}).Ping,
	}
}

// close closes the connections opened by connect.
func (b *base) close(logger *slog.Logger) {
	if b.temporal != nil {
		b.temporal.Close()
	}
	var errs []error
	if b.ledger != nil {
		errs = append(errs, b.ledger.Close())
	}
	if b.redis != nil {
		errs = append(errs, b.redis.Close())
	}
	if err := errors.Join(errs...); err != nil {
		logger.Warn("closing connections failed", "error", err)
	}
}

func catalog(m config.Model) (*llm.Catalog, error) {
	routing, err := llm.LoadConfig(m.RoutingFile)
	if err != nil {
		return nil, err
	}
	keys := map[string]string{"DEEPSEEK_API_KEY": m.DeepSeekKey, "ZHIPUAI_API_KEY": m.ZhipuKey}
	maps.Copy(keys, m.ProviderKeys)
	return llm.NewCatalog(routing, llm.Settings{Keys: keys, LocalURL: m.LocalURL})
}

func openLedger(ctx context.Context, dsn string, logger *slog.Logger) (*ledger.Ledger, error) {
	if file, ok := strings.CutPrefix(dsn, "sqlite:"); ok {
		if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
			return nil, fmt.Errorf("create the database directory: %w", err)
		}
	}
	return ledger.Open(ctx, dsn, logger)
}

// serve runs an HTTP server until ctx ends, then gives open requests up to grace to finish.
func serve(ctx context.Context, srv *http.Server, grace time.Duration, logger *slog.Logger) error {
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", srv.Addr)
	if err != nil {
		return fmt.Errorf("listen on %s: %w", srv.Addr, err)
	}
	logger.Info("serving", "addr", l.Addr().String())
	var g errgroup.Group
	g.Go(func() error {
		if err := srv.Serve(l); !errors.Is(err, http.ErrServerClosed) {
			return err
		}
		return nil
	})
	g.Go(func() error {
		<-ctx.Done()
		stopping, cancel := context.WithTimeout(context.WithoutCancel(ctx), grace)
		defer cancel()
		if err := srv.Shutdown(stopping); err != nil {
			return srv.Close()
		}
		return nil
	})
	return g.Wait()
}

type pinger func(context.Context) error

// Ping returns an error if the dependency is unavailable.
func (p pinger) Ping(ctx context.Context) error { return p(ctx) }
