package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"

	"berth/internal/bench"
)

type benchCommand struct {
	settings
	Names     []string       `arg:"" optional:"" name:"benchmark" help:"Benchmarks to run: ${enum}. None: print the report of --json." enum:"all,${benchmarks}"`
	Scale     float64        `help:"Multiply the number of repetitions by this: 0.1 for a quick look." default:"1"`
	JSON      string         `help:"Add the figures to the report in this file, which is created if it does not exist." name:"json" type:"path" placeholder:"FILE"`
	Docs      string         `help:"Write measurements.md and sizing.md, with the figures of the report, into this directory." type:"existingdir" placeholder:"DIR"`
	Commit    string         `help:"Name this commit in the report. Default: the one that the binary contains, if any."`
	Processes map[string]int `help:"Also measure the processor time of processes of this machine, by their ids: temporal=123." name:"process" placeholder:"NAME=PID"`
}

// Help describes what has to run.
func (c *benchCommand) Help() string {
	return "Each benchmark starts its own API, workers and model provider, on the Redis and Temporal of the settings, where no other " +
		"workers may run. 'make bench' starts separate servers for them. docs/measurements.md describes what each benchmark measures."
}

// Run measures on the Redis and Temporal of the settings. A benchmark that fails does not keep the others from running.
func (c *benchCommand) Run(ctx context.Context) error {
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
	var failed []error
	for i, name := range c.Names {
		if ctx.Err() != nil {
			break
		}
		if len(c.Names) > 1 {
			fmt.Fprintf(os.Stderr, "benchmark %d of %d: %s\n", i+1, len(c.Names), name)
		}
		part, err := bench.Measure(ctx, name, bench.Options{
			Config: c.Config, Version: version, Commit: c.Commit, Scale: c.Scale, Processes: c.Processes, Progress: os.Stderr,
		})
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

type benchEchoCommand struct {
	Addr string `arg:"" help:"Address to listen on, host:port."`
}

// Run serves until the context ends.
func (c *benchEchoCommand) Run(ctx context.Context) error { return bench.ServeEcho(ctx, c.Addr) }
