package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"strconv"
	"strings"
	"time"

	"berth/internal/app"
	"berth/internal/config"
	"berth/internal/pause"
	"berth/internal/starter"
)

type rolloutCommands struct {
	Set    rolloutSet    `cmd:"" help:"Let new runs begin on a version, and open conferences continue on it."`
	Status rolloutStatus `cmd:"" help:"List the versions with their open runs, and whether their workers may be stopped."`
}

// rollout has the settings of the commands.
type rollout struct {
	Temporal config.Temporal `embed:"" group:"Temporal"`
	Rollout  config.Rollout  `embed:""`
}

func (r rollout) run(f func(*starter.Starter) error) error {
	if r.Rollout.Deployment == "" {
		return errors.New("state the worker deployment with --deployment or BERTH_DEPLOYMENT")
	}
	if err := r.Rollout.Validate(); err != nil {
		return err
	}
	return app.Rollout(r.Temporal, slog.New(slog.DiscardHandler), f) // errors are returned
}

type rolloutSet struct {
	rollout `embed:""`
	Version string        `arg:"" optional:"" help:"Build id of the version; without it, BERTH_BUILD_ID or the version of this binary."`
	Wait    time.Duration `help:"Maximum time to wait for the version's workers to start, and then for conferences to continue on it." default:"1m"`
}

const (
	upgradePause = time.Second
	// upgradePasses is how many passes in a row have to find no conference elsewhere: the visibility store is a little late.
	upgradePasses = 2
)

// Run makes the version current and waits for the conferences.
func (c *rolloutSet) Run(ctx context.Context) error {
	if c.Version != "" {
		c.Rollout.BuildID = c.Version
	}
	if c.Wait <= 0 {
		return errors.New("--wait: must be above 0")
	}
	deployment, build := c.Rollout.Deployment, c.Rollout.Build(version)
	return c.run(func(s *starter.Starter) error {
		setting, cancel := context.WithTimeout(ctx, c.Wait)
		defer cancel()
		if err := s.SetCurrentVersion(setting, deployment, build); err != nil {
			return err
		}
		fmt.Printf("%s %s is current: new runs begin on it\n", deployment, build)
		waiting, cancel := context.WithTimeout(ctx, c.Wait)
		defer cancel()
		for passes := 0; ; {
			left, err := s.UpgradeConferences(ctx, deployment, build)
			if err != nil {
				return err
			}
			if passes++; left > 0 {
				passes = 0
			}
			switch {
			case passes == upgradePasses:
				fmt.Println("all open conferences run on it")
				return nil
			case !pause.For(waiting, upgradePause):
				return cmp.Or(ctx.Err(), fmt.Errorf("%d conferences do not run on it yet; run this command again to wait for them", left))
			}
		}
	})
}

type rolloutStatus struct {
	rollout `embed:""`
}

// Run prints the versions as a table.
func (c *rolloutStatus) Run(ctx context.Context) error {
	return c.run(func(s *starter.Starter) error {
		state, err := s.Rollout(ctx, c.Rollout.Deployment)
		if err != nil {
			return err
		}
		return printRollout(os.Stdout, state)
	})
}

func printRollout(out io.Writer, state starter.Rollout) error {
	types := starter.PinnedWorkflows()
	w := newTable(out)
	fmt.Fprintf(w, "VERSION\tSTATUS\t%s\tWORKERS\n", strings.ToUpper(strings.Join(types, "S\t")+"S"))
	row := func(version, status string, runs map[string]int64, workers string) {
		cells := []string{version, status}
		for _, name := range types {
			cells = append(cells, strconv.FormatInt(runs[name], 10))
		}
		fmt.Fprintln(w, strings.Join(append(cells, workers), "\t"))
	}
	for _, v := range state.Versions {
		row(v.BuildID, string(v.Status), v.Runs, workersOf(v))
	}
	switch {
	case state.Current == "":
		row("(none)", string(starter.VersionCurrent), state.Unversioned, "keep")
	case len(state.Unversioned) > 0:
		row("(none)", string(starter.VersionDraining), state.Unversioned, "may be stopped: their runs continue on the current version")
	}
	return w.Flush()
}

// workersOf states what to do with the workers of a version.
func workersOf(v starter.RolloutVersion) string {
	switch {
	case v.Status == starter.VersionInactive:
		return "get no work until the version is current"
	case v.Stoppable():
		return "may be stopped"
	case v.Status == starter.VersionDraining, v.Status == starter.VersionDrained:
		return "keep until the version is drained"
	default:
		return "keep"
	}
}
