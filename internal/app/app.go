// Package app wires berth's packages into the processes that an operator starts: API and worker. It
// contains no logic of its own.
package app

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"time"

	"go.temporal.io/sdk/client"
	"golang.org/x/sync/errgroup"

	"berth/internal/config"
	"berth/internal/health"
	"berth/internal/ledger"
	"berth/internal/pause"
	"berth/internal/redisconn"
	"berth/internal/routing"
	"berth/internal/setting"
	"berth/internal/temporalconn"
	"berth/lua"
	"berth/workflows"
)

// base holds the connections that both API and worker need.
type base struct {
	redis *redisconn.Client
	// unchecked is true while Redis was unavailable and not checked since.
	unchecked bool
	scripts   *lua.Scripts
	ledger    *ledger.Ledger
	routing   *routing.Routing
	templates *templates
	temporal  client.Client
	namespace string // of temporal

	checkTemporal health.Check
}

// redisTimeout bounds how long the start waits for Redis.
const redisTimeout = 2 * time.Second

// connect opens the connections of a process. It waits for a database that is unavailable. Redis and Temporal may be unavailable: they are
// contacted at first use. watchRedis has to run then.
func connect(ctx context.Context, cfg config.Config, logger *slog.Logger, probe *health.Probe) (*base, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	b := &base{namespace: cfg.Temporal.Namespace}
	var err error
	if b.routing, err = routing.Read(cfg.Model.RoutingFile, cfg.Model.Settings(), logger); err != nil {
		return nil, err
	}
	redisconn.LogTo(logger.With("part", "redis"))
	if err := b.connectRedis(ctx, cfg.Redis, logger); err != nil {
		b.close(logger)
		return nil, err
	}
	if b.ledger, err = openLedger(ctx, cfg.Database.Source(), logger, probe); err != nil {
		b.close(logger)
		return nil, err
	}
	if err := b.routing.Open(ctx, b.ledger); err != nil {
		b.close(logger)
		return nil, err
	}
	if b.templates, err = openTemplates(ctx, b.ledger, cfg.Model.TemplatesDir, logger); err != nil {
		b.close(logger)
		return nil, err
	}
	if b.temporal, b.checkTemporal, err = OpenTemporal(cfg.Temporal, workflows.SearchAttributes(), logger); err != nil {
		b.close(logger)
		return nil, err
	}
	return b, nil
}

// OpenTemporal returns a client that connects at its first call, and the check of whether berth can work with the server. Processes that
// start workflows name the search attributes.
func OpenTemporal(cfg config.Temporal, searchAttributes []string, logger *slog.Logger) (client.Client, health.Check, error) {
	options, err := cfg.Options(logger)
	if err != nil {
		return nil, nil, setting.Wrong(err)
	}
	c, err := temporalconn.Open(options)
	if err != nil {
		return nil, nil, setting.Wrong(err) // it has not connected
	}
	return c, temporalconn.NewChecker(options, c, searchAttributes).Check, nil
}

// checks returns what an API or a worker needs: a script that writes, a transaction, and Temporal with the namespace.
func (b *base) checks() map[string]health.Check {
	return map[string]health.Check{
		health.Redis:    b.useRedis,
		health.Database: b.ledger.Ping,
		health.Temporal: b.checkTemporal,
	}
}

// reported returns checks, whose results operators see.
func (b *base) reported() map[string]health.Check {
	all := b.checks()
	all[health.Redis] = b.checkRisks
	return all
}

func (b *base) connectRedis(ctx context.Context, cfg config.Redis, logger *slog.Logger) (err error) {
	ctx, cancel := context.WithTimeout(ctx, redisTimeout)
	defer cancel()
	if b.redis, err = redisconn.Open(ctx, cfg.Options()); err != nil {
		return err
	}
	b.scripts = lua.New(b.redis, lua.Keys{Cell: cfg.Cell})
	var wrong *setting.WrongError
	if err = b.checkRedis(ctx); errors.As(err, &wrong) {
		return err
	}
	if b.unchecked = err != nil; b.unchecked {
		logger.Warn("Redis unavailable at start; continuing", "mode", b.redis.Mode(), "error", err)
	}
	return nil
}

// checkRedis returns a setting.WrongError where berth cannot work on this Redis. Other errors mean that it is unavailable.
func (b *base) checkRedis(ctx context.Context) error {
	if err := b.redis.Check(ctx, b.scripts.Keys().Guard()); err != nil {
		return err
	}
	if _, err := b.scripts.CheckServer(ctx); err != nil {
		return b.redis.Diagnose(ctx, err)
	}
	return redisconn.CheckSubscribe(ctx, b.scripts)
}

// watchRedis checks a Redis that was unavailable at the start, until that is possible, and returns what is wrong with it.
func (b *base) watchRedis(ctx context.Context) error {
	for b.unchecked && pause.For(ctx, time.Second) {
		err := b.checkRedis(ctx)
		var wrong *setting.WrongError
		if errors.As(err, &wrong) {
			return err
		}
		b.unchecked = err != nil
	}
	return nil
}

// useRedis returns an error unless scripts of this cell can write.
func (b *base) useRedis(ctx context.Context) error {
	_, err := b.scripts.CheckServer(ctx)
	return redisconn.Explained(err)
}

// checkRisks is useRedis, and returns a risk as well.
func (b *base) checkRisks(ctx context.Context) error {
	if err := b.useRedis(ctx); err != nil {
		return b.redis.Diagnose(ctx, err)
	}
	return b.redis.CheckRisk(ctx, b.scripts.Keys().Guard())
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

// Serve runs an HTTP server, whose address is a named setting, until ctx ends, then gives open requests up to grace to finish.
func Serve(ctx context.Context, name string, srv *http.Server, grace time.Duration, logger *slog.Logger) error {
	l, err := setting.Listen(ctx, name, srv.Addr)
	if err != nil {
		return err
	}
	logger.Info("serving", "addr", l.Addr().String())
	var g errgroup.Group
	g.Go(func() error {
		if err := srv.Serve(&accepting{Listener: l, log: logger}); !errors.Is(err, http.ErrServerClosed) {
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
