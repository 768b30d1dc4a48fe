package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"time"

	"berth"
	"berth/client"
	"berth/internal/agent"
)

type modelCommands struct {
	List   modelList   `cmd:"" help:"List the models with their limits, slots and waiting calls."`
	Pause  modelPause  `cmd:"" help:"Start no more calls of a model or an upstream."`
	Resume modelResume `cmd:"" help:"End any pause of a model and of all its upstreams, or of one upstream."`
	Cap    modelCap    `cmd:"" help:"Change the maximum number of concurrent calls of a model or an upstream."`
}

type modelList struct {
	agent.Server `embed:""`
}

// Run prints the models as a table.
func (c *modelList) Run(ctx context.Context, api *client.Client) error {
	models, err := api.Models(ctx)
	if err != nil {
		return err
	}
	return printModels(os.Stdout, models...)
}

func printModels(out io.Writer, models ...client.Model) error {
	w := newTable(out)
	fmt.Fprintln(w, "MODEL\tUPSTREAM\tIN USE\tCAP\tPROVIDER\tWAITING\tWAIT\tSTATE")
	for _, m := range models {
		only, slots, provider := "", strconv.Itoa(m.Cap), ""
		if len(m.Upstreams) == 1 {
			only, slots, provider = m.Upstreams[0].Name, upstreamCap(m.Upstreams[0]), providerUse(m.Upstreams[0])
		}
		fmt.Fprintf(w, "%s\t%s\t%d\t%s\t%s\t%d\t%s\t%s\n", m.Name, only, m.InUse, slots, provider, m.Waiting, eta(m.EtaSeconds), modelState(m.ModelPause, m.ModelService)+lacksKey(m.Upstreams))
		upstreams := m.Upstreams
		if only != "" {
			upstreams = nil // its row is that of the model
		}
		for _, u := range upstreams {
			fmt.Fprintf(w, "\t%s\t%d\t%s\t%s\t\t\t%s\n", u.Name, u.InUse, upstreamCap(u), providerUse(u), modelState(u.ModelPause, client.ModelService{})+lacksKey([]client.Upstream{u}))
		}
		for _, name := range m.UnknownUpstreams {
			fmt.Fprintf(w, "\t%s\t\t\t\t\t\tnot in the routing: its settings have no effect\n", named(name))
		}
	}
	return w.Flush()
}

// providerUse formats how many calls the provider of an upstream makes for all models together, empty where it has no cap.
func providerUse(u client.Upstream) string {
	if u.ProviderCap == 0 {
		return ""
	}
	return fmt.Sprintf("%d of %d", u.ProviderInUse, u.ProviderCap)
}

// upstreamCap formats the cap of an upstream; of one that is learned, with its bounds.
func upstreamCap(u client.Upstream) string {
	if !u.Auto {
		return strconv.Itoa(u.Cap)
	}
	return fmt.Sprintf("%d (%d-%d)", u.Cap, u.Min, u.Configured.Cap)
}

// eta formats an estimated wait.
func eta(estimate *int) string {
	if estimate == nil {
		return "?"
	}
	return (time.Duration(*estimate) * time.Second).String()
}

func modelState(m client.ModelPause, s client.ModelService) string {
	state := pauseState(m)
	if s.Missing != "" {
		state = map[string]string{client.ModelRemoved: "removed from the routing", client.ModelUnknown: "in no revision of the routing"}[s.Missing]
	}
	if s.Unpolled {
		state += ", no worker polls it"
	}
	return state
}

// lacksKey adds to a state that no worker has the API key of any of the upstreams.
func lacksKey(upstreams []client.Upstream) string {
	if len(upstreams) == 0 || slices.ContainsFunc(upstreams, func(u client.Upstream) bool { return !u.NoKey }) {
		return ""
	}
	return ", no worker has the API key"
}

func pauseState(m client.ModelPause) string {
	if !m.Paused && !m.Probing {
		return "open"
	}
	state := "paused by " + m.PausedBy
	if m.Probing {
		state = "probed after failures"
	}
	if !m.PausedUntil.IsZero() {
		state += " until " + m.PausedUntil.Local().Format(time.TimeOnly)
	}
	if m.Reason != "" {
		state += ": " + named(m.Reason)
	}
	return state
}

// modelName is what the commands change: a model, or one of its upstreams.
type modelName struct {
	Name     idArg `arg:"" help:"Name of the model in the routing file."`
	Upstream idArg `help:"Change only this upstream of the model."`
}

// patch changes it and prints the model.
func (n modelName) patch(ctx context.Context, api *client.Client, change map[string]any) error {
	patch := func() (client.Model, error) { return api.PatchModel(ctx, string(n.Name), change) }
	if n.Upstream != "" {
		patch = func() (client.Model, error) {
			return api.PatchUpstream(ctx, string(n.Name), string(n.Upstream), change)
		}
	}
	m, err := patch()
	if err != nil {
		return err
	}
	return printModels(os.Stdout, m)
}

type modelPause struct {
	agent.Server `embed:""`
	modelName
	Reason string `help:"State the reason, which 'berth model list' shows."`
}

// Run pauses the model.
func (c *modelPause) Run(ctx context.Context, api *client.Client) error {
	return c.patch(ctx, api, map[string]any{"paused": true, "reason": c.Reason})
}

type modelResume struct {
	agent.Server `embed:""`
	modelName
}

// Run resumes the model.
func (c *modelResume) Run(ctx context.Context, api *client.Client) error {
	return c.patch(ctx, api, map[string]any{"paused": false})
}

type modelCap struct {
	agent.Server `embed:""`
	modelName
	Cap   int  `arg:"" optional:"" help:"Maximum number of concurrent calls, over all processes."`
	Reset bool `help:"Restore the value of the routing file."`
}

// Run changes the cap.
func (c *modelCap) Run(ctx context.Context, api *client.Client) error {
	switch {
	case c.Reset && c.Cap == 0:
		return c.patch(ctx, api, map[string]any{"cap": nil})
	case c.Reset || c.Cap < 1 || c.Cap > berth.MaxModelCap:
		return fmt.Errorf("state either a cap from 1 to %d or --reset", berth.MaxModelCap)
	default:
		return c.patch(ctx, api, map[string]any{"cap": c.Cap})
	}
}
