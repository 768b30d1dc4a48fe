// Command berth-bench measures berth beside its baselines on running servers.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"

	"github.com/alecthomas/kong"

	"berth/internal/bench"
	"berth/internal/config"
)

// version is set by the linker at release.
var version = "dev"

const description = "Measure berth beside its baselines. Each benchmark starts its own API, workers and model provider, on the Redis and " +
	"Temporal of the settings, where no other workers may run. The settings are those of berth, such as BERTH_REDIS_ADDR and " +
	"BERTH_TEMPORAL_ADDR; 'berth config' prints them. 'make bench' starts separate servers for each benchmark. docs/measurements.md " +
	"describes what is measured, docs/sizing.md what follows from it."

// command has the flags of this program and those of berth's settings.
type command struct {
	config.Config `embed:""`

	Names     []string         `arg:"" optional:"" name:"benchmark" help:"Benchmarks to run: ${enum}. None: print the report of --json." enum:"all,${benchmarks}"`
	Scale     float64          `help:"Multiply the number of repetitions by this: 0.1 for a quick look." default:"1"`
	JSON      string           `help:"Add the figures to the report in this file, which is created if it does not exist." name:"json" type:"path" placeholder:"FILE"`
	Docs      string           `help:"Write measurements.md and sizing.md, with the figures of the report, into this directory." type:"existingdir" placeholder:"DIR"`
	Commit    string           `help:"Name this commit in the report. Default: the one that the program berth contains, if any."`
	Processes map[string]int   `help:"Also measure the processor time of processes of this machine, by their ids: temporal=123." name:"process" placeholder:"NAME=PID"`
	Version   kong.VersionFlag `help:"Print the version."`
	Peer      string           `help:"Compare direct calls also with @portkey-ai/gateway, which npm has installed in this directory." type:"path" placeholder:"DIR"`
	Echo      string           `help:"Serve the bare handler that readers compares with." hidden:"" placeholder:"HOST:PORT"`
	Proxy     string           `help:"Serve the reverse proxy that direct compares with." hidden:"" placeholder:"HOST:PORT=HOST:PORT"`
}

func main() {
	// The first signal ends the benchmark and its processes, the second ends this process immediately.
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	context.AfterFunc(ctx, stop)

	var c command
	k, err := kong.New(&c,
		kong.Name("berth-bench"),
		kong.Description(description),
		kong.ShortUsageOnError(),
		kong.ConfigureHelp(kong.HelpOptions{Compact: true}),
		kong.Vars{"version": version, "benchmarks": strings.Join(bench.Names(), ",")},
		config.Clean(), hideSettings(),
		kong.Exit(func(status int) {
			if status != 0 {
				status = statusWrong
			}
			os.Exit(status)
		}),
	)
	if err != nil {
		panic(err) // a flag of this program is declared wrongly
	}
	_, err = k.Parse(os.Args[1:])
	k.FatalIfErrorf(config.Explain(err, os.Args[1:]))
	err = c.run(ctx)
	switch {
	case errors.Is(err, context.Canceled) && ctx.Err() != nil:
		os.Exit(statusInterrupted)
	case err != nil:
		fmt.Fprintln(os.Stderr, "berth-bench:", err)
		os.Exit(statusFailed)
	}
}

// The statuses with which this program exits, besides 0: those of berth.
const (
	statusFailed      = 1
	statusWrong       = 2
	statusInterrupted = 130
)

// hideSettings leaves the flags of berth's settings, which have environment variables, out of the help.
func hideSettings() kong.Option {
	return kong.PostBuild(func(k *kong.Kong) error {
		for _, f := range k.Model.Flags {
			f.Hidden = f.Hidden || len(f.Tag.Envs) > 0
		}
		return nil
	})
}

// run measures on the Redis and Temporal of the settings. A benchmark that fails does not keep the others from running.
func (c *command) run(ctx context.Context) error {
	if c.Echo != "" {
		return bench.ServeEcho(ctx, c.Echo)
	}
	if addr, target, ok := strings.Cut(c.Proxy, "="); ok {
		return bench.ServeProxy(ctx, addr, target)
	}
	if len(c.Names) == 0 && c.JSON == "" {
		return errors.New("name a benchmark, or all; or a report with --json")
	}
	if c.Scale <= 0 {
		return errors.New("--scale must be above 0")
	}
	if slices.Contains(c.Names, "all") {
		c.Names = bench.Names()
	}
	var report bench.Report
	if c.JSON != "" {
		var err error
		if report, err = bench.ReadReport(c.JSON); err != nil {
			return err
		}
	}
	show := report
	if len(c.Names) > 0 {
		show = bench.Report{}
	}
	options := bench.Options{Config: c.Config, Commit: c.Commit, Scale: c.Scale, Processes: c.Processes, Peer: c.Peer, Progress: os.Stderr}
	if len(c.Names) > 0 {
		var err error
		if options.Berth, err = bench.FindBerth(ctx, version); err != nil {
			return err
		}
	}
	var failed []error
	for i, name := range c.Names {
		if ctx.Err() != nil {
			break
		}
		if len(c.Names) > 1 {
			fmt.Fprintf(os.Stderr, "benchmark %d of %d: %s\n", i+1, len(c.Names), name)
		}
		part, err := bench.Measure(ctx, name, options)
		if err != nil {
			failed = append(failed, err)
		}
		if len(part.Figures) == 0 {
			continue
		}
		show.Put(part)
		report.Put(part)
		if c.JSON == "" {
			continue
		}
		if err := report.Write(c.JSON); err != nil {
			return err
		}
	}
	if err := show.Print(os.Stdout); err != nil {
		return err
	}
	if c.Docs != "" {
		failed = append(failed, report.WriteDocs(c.Docs))
	}
	return errors.Join(failed...)
}
