// Command berth-dev runs everything in one process: a Temporal server with its Web UI, Redis, the database, the
// simulated model, workers, the API and a demo fleet. Its data stays in one directory across restarts.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"runtime/debug"
	"slices"
	"syscall"
	"time"

	"github.com/alecthomas/kong"

	"berth/internal/app"
	"berth/internal/config"
	"berth/internal/devserver"
	"berth/internal/telemetry"
)

const (
	// stopTimeout bounds a graceful stop.
	stopTimeout = 10 * time.Second
	// startTimeout bounds the start of one part.
	startTimeout = 30 * time.Second
	// gcPercent saves a sixth of Temporal's processor time under load, for 90 MB of memory then and 5 MB when idle, compared with 50.
	gcPercent = 200
)

func main() {
	var o options
	k := parser(&o)
	_, err := k.Parse(os.Args[1:])
	k.FatalIfErrorf(config.Explain(err, os.Args[1:]))
	if err := run(&o); err != nil {
		fmt.Fprintln(os.Stderr, "berth-dev:", err)
		os.Exit(1)
	}
}

// parser returns what reads the settings.
func parser(o *options) *kong.Kong {
	k, err := kong.New(o,
		kong.Name("berth-dev"),
		kong.Description("Run everything that berth needs in one process, for development. Port 0 means a free port."),
		kong.ShortUsageOnError(),
		kong.ConfigureHelp(kong.HelpOptions{Compact: true}),
		config.Clean(),
		withDefaults(),
	)
	if err != nil {
		panic(err) // a flag of this program is declared wrongly
	}
	return k
}

// run serves until the first signal. A second signal ends the process immediately.
func run(o *options) (err error) {
	began := time.Now()
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(gcPercent)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	context.AfterFunc(ctx, stop)

	if err := o.validate(); err != nil {
		return err
	}
	logger, err := telemetry.Logger(os.Stderr, o.LogLevel, o.LogFormat)
	if err != nil {
		return err
	}

	release, err := devserver.Claim(o.DataDir)
	if err != nil {
		return err
	}
	defer release()
	if err := errors.Join(devserver.RemoveReady(o.DataDir), choosePorts(o)); err != nil {
		return err
	}
	o.connect()
	if err := errors.Join(o.secret(), o.migrate(ctx, logger)); err != nil {
		return err
	}
	if o.servers, err = liveKitServers(o); err != nil {
		return err
	}
	temporalLog, err := os.OpenFile(filepath.Join(o.DataDir, "temporal.log"), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return fmt.Errorf("temporal's log: %w", err)
	}
	defer func() { err = errors.Join(err, temporalLog.Close()) }()

	o.Telemetry.TrustTraceparent = true // every caller is this machine's user
	probe, stopTelemetry, err := app.Observe(ctx, "dev", version, o.Telemetry, logger)
	if err != nil {
		return err
	}
	defer stopTelemetry()
	failed := make(chan error, 1)
	parts := append(infrastructure(o, logger, temporalLog), services(o, logger, probe, failed)...)
	parts = slices.DeleteFunc(parts, func(p part) bool { return !o.runs(p.name) })
	running, err := start(ctx, parts, logger)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, running.stop(stopTimeout)) }()
	if err := announce(os.Stdout, o, time.Since(began)); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, devserver.RemoveReady(o.DataDir)) }()
	if err := invite(os.Stdout, o); err != nil {
		return err
	}
	select {
	case <-ctx.Done():
		fmt.Fprintln(os.Stderr, "stopping; press Ctrl-C again to end immediately")
		return nil
	case err := <-failed:
		return err
	}
}
