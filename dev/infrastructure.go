package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"

	goredis "github.com/redis/go-redis/v9"

	"berth/dev/redis"
	"berth/dev/temporal"
	"berth/lua"
)

// infrastructure returns the servers that berth needs, in starting order.
func infrastructure(o *options, logger *slog.Logger, temporalLog io.Writer) []part {
	return []part{
		{name: partRedis, start: func(ctx context.Context) (func(context.Context) error, error) {
			dir := filepath.Join(o.DataDir, "redis")
			_, statErr := os.Stat(dir)
			s, err := redis.Start(ctx, redis.Options{Addr: string(o.Redis.Addr), Dir: dir, Logger: logger})
			if err != nil {
				return nil, err
			}
			if s.Embedded() || errors.Is(statErr, fs.ErrNotExist) {
				if err := markNew(ctx, o); err != nil {
					s.Stop()
					return nil, err
				}
			}
			if s.Embedded() {
				fmt.Fprintln(os.Stderr, "NOTICE: redis-server is not installed; using an embedded server, which is slower and loses its data on restart. "+
					"Install it: apt-get install redis-server, or brew install redis")
			}
			return func(context.Context) error { s.Stop(); return nil }, nil
		}},
		{name: partTemporal, start: func(ctx context.Context) (func(context.Context) error, error) {
			opts := temporal.Options{
				FrontendAddr: o.Temporal.Addr,
				DBFile:       filepath.Join(o.DataDir, "temporal.db"),
				Postgres:     string(o.TemporalDB),
				Namespace:    o.Temporal.Namespace,
				Logger:       slog.New(slog.NewTextHandler(temporalLog, &slog.HandlerOptions{Level: slog.LevelWarn})),
			}
			if o.TemporalCert != "" {
				client, err := o.Temporal.Options(nil)
				if err != nil {
					return nil, err
				}
				opts.TLS = &temporal.TLS{Cert: o.TemporalCert, Key: o.TemporalKey, Client: client.TLS}
			}
			if o.runs(partUI) {
				opts.UIAddr = o.TemporalUIAddr
			}
			opts.DynamicConfig = map[string]any{}
			if o.RunEvents > 0 {
				opts.DynamicConfig["limit.historyCount.suggestContinueAsNew"] = o.RunEvents
			}
			if o.Drainage > 0 {
				opts.DynamicConfig["matching.wv.VersionDrainageStatusRefreshInterval"] = o.Drainage
				opts.DynamicConfig["matching.wv.VersionDrainageStatusVisibilityGracePeriod"] = o.Drainage
			}
			s, err := temporal.Start(ctx, opts)
			if err != nil {
				return nil, err
			}
			return within(s.Stop), nil
		}},
	}
}

// markNew marks this Redis as new, so that workers do not wait for leases of an earlier one to expire.
func markNew(ctx context.Context, o *options) (err error) {
	c := goredis.NewClient(&goredis.Options{Addr: string(o.Redis.Addr)})
	defer func() { err = errors.Join(err, c.Close()) }()
	_, err = lua.New(c, lua.Keys{Cell: o.Redis.Cell}).MarkNew(ctx)
	return err
}

// within returns a stop function that returns at the latest when its context ends, for one without a deadline.
func within(stop func() error) func(context.Context) error {
	return func(ctx context.Context) error {
		ended := make(chan error, 1)
		go func() { ended <- stop() }()
		select {
		case err := <-ended:
			return err
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}
