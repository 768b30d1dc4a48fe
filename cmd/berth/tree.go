package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"time"

	"berth/client"
	"berth/internal/agent"
)

type queueTree struct {
	agent.Server `embed:""`

	Model idArg  `arg:"" help:"Name of the model."`
	Team  string `help:"Show only levels of this team."`
	App   string `help:"Show only levels of this application."`
	Limit int    `help:"Show so many levels below each other one, 1 to 100." default:"10"`
}

// Run prints what runs and waits on each level, and why.
func (c *queueTree) Run(ctx context.Context, api *client.Client) error {
	m, err := api.ModelLevels(ctx, string(c.Model), client.LevelQuery{TeamID: c.Team, AppID: c.App, Limit: c.Limit})
	if err != nil {
		return err
	}
	return printLevels(os.Stdout, m)
}

// printLevels prints the upstreams of a model, its levels, and why what waits does so.
func printLevels(out io.Writer, m client.ModelLevels) error {
	w := newTable(out)
	fmt.Fprintf(w, "%s: %d run, %d wait%s\n", m.Model, m.InUse, m.Waiting, whyModel(m))
	fmt.Fprintln(w, "\nUPSTREAM\tIN USE\tCAP\tSTATE")
	for _, u := range m.Upstreams {
		fmt.Fprintf(w, "%s\t%d\t%d\t%s\n", u.Name, u.InUse, u.Cap, upstreamState(u))
	}
	if len(m.Levels) > 0 {
		fmt.Fprintln(w, "\nLEVEL\tRUN\tWAIT\tWEIGHT\tLIMIT\tWHY IT WAITS")
		writeLevels(w, m.Levels, client.CallLevel{InUse: m.InUse, Waiting: m.Waiting}, "")
	}
	return w.Flush()
}

func writeLevels(w io.Writer, levels []client.CallLevel, above client.CallLevel, indent string) {
	for _, l := range levels {
		limit := "-"
		if l.Limit > 0 {
			limit = fmt.Sprintf("%d/%d", l.LimitUsed, l.Limit)
		}
		fmt.Fprintf(w, "%s%s\t%d\t%d\t%v\t%s\t%s\n", indent, levelTitle(l), l.InUse, l.Waiting, l.Weight, limit, whyLevel(l))
		writeLevels(w, l.Levels, l, indent+"  ")
		above.InUse, above.Waiting = above.InUse-l.InUse, above.Waiting-l.Waiting
	}
	if len(levels) > 0 && above.InUse+above.Waiting > 0 {
		fmt.Fprintf(w, "%sothers\t%d\t%d\n", indent, max(0, above.InUse), max(0, above.Waiting))
	}
}

func levelTitle(l client.CallLevel) string {
	kind := map[string]string{"queue": "queue", "team": "team", "app": "application", "user": "user", "key": "API key", "endUser": "end user"}[l.Kind]
	if l.ID == "" {
		return "no " + kind
	}
	return kind + " " + named(l.ID)
}

func whyModel(m client.ModelLevels) string {
	text := map[string]string{
		client.WhyUnknown:   "no revision of the routing has the model: add it to the routing file",
		client.WhyUnpolled:  "no worker polls its task queue: start one",
		client.WhyGrace:     "Redis may have lost its data and grants nothing for some seconds",
		client.WhyPaused:    "paused by an operator: 'berth model resume' ends it",
		client.WhyUpstreams: "no upstream takes a call now",
		client.WhyLimits:    "what waits is at limits of its own",
		client.WhyStarting:  "the next calls are on their way",
	}[m.Why]
	if text == "" {
		return ""
	}
	if m.Reason != "" {
		text += " (" + named(m.Reason) + ")"
	}
	return "; " + text
}

func upstreamState(u client.UpstreamState) string {
	switch u.State {
	case client.UpstreamPaused:
		return pauseState(u.ModelPause)
	case client.UpstreamProbing:
		return "probed after failures, one call at a time: " + named(u.Reason)
	case client.UpstreamFull:
		return "all slots in use"
	case client.UpstreamProvider:
		return "its provider has no free slot"
	case client.UpstreamPace:
		return "next call in " + (time.Duration(u.NextGrantMs) * time.Millisecond).Round(100*time.Millisecond).String() + ", by its limits per minute"
	default:
		return u.State
	}
}

func whyLevel(l client.CallLevel) string {
	switch l.Why {
	case client.WhyLimit:
		return "at its limit"
	case client.WhyAbove:
		return "a level above is at its limit"
	case client.WhyUpstreams:
		return "only " + strings.Join(l.Upstreams, ", ") + " can serve the call"
	case client.WhyOrder:
		return strconv.Itoa(l.Ahead) + " before it"
	default:
		return l.Why
	}
}
