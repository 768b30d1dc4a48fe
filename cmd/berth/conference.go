package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"time"

	"golang.org/x/sync/errgroup"

	"berth"
	"berth/client"
	"berth/internal/agent"
)

type conferenceCommands struct {
	Create conferenceCreate `cmd:"" help:"Open a conference."`
	List   conferenceList   `cmd:"" help:"List conferences, newest first."`
	Get    conferenceGet    `cmd:"" help:"Print a conference as JSON."`
	End    conferenceEnd    `cmd:"" help:"End a conference."`
	Watch  conferenceWatch  `cmd:"" help:"Follow a conference: its unit, why it waits, the commands that were sent."`
}

type conferenceCreate struct {
	agent.Server `embed:""`
	Number       string        `arg:"" optional:"" help:"Use this number, in international form without the plus. Default: a free number."`
	For          time.Duration `help:"End it after this time." default:"30m"`
	Until        timeFlag      `help:"End it at this time instead of after --for: 2006-01-02T15:04:05Z." placeholder:"TIME"`
	Title        string        `help:"Set the title."`
	Max          int           `help:"Limit the number of participants; 0 means no limit."`
	Zone         string        `help:"Use only units of this zone."`
	Recoverable  bool          `help:"Recover it after its unit is lost." default:"true" negatable:""`
	Metadata     jsonFlag      `help:"Store this JSON with it." placeholder:"JSON"`
	Watch        bool          `help:"Follow it after it was created."`
}

// Run opens the conference and prints its number.
func (c *conferenceCreate) Run(ctx context.Context, api *client.Client) error {
	spec := client.ConferenceSpec{
		E164: c.Number, Title: c.Title, MaxParticipants: c.Max, EndAt: c.Until.Time, Recoverable: &c.Recoverable, Zone: c.Zone,
		Metadata: json.RawMessage(c.Metadata),
	}
	if c.Until.IsZero() {
		spec.DurationMs = c.For.Milliseconds()
	}
	made, err := api.CreateConference(ctx, spec)
	if err != nil {
		return err
	}
	fmt.Println(made.E164)
	fmt.Fprintf(os.Stderr, "· %s; ends %s\n", formatStatus(made.Status, made.Ending, made.Owner, made.Waiting), clock(made.EndAt))
	if !c.Watch {
		return nil
	}
	return watchConference(ctx, api, made.E164, os.Stdout)
}

type conferenceList struct {
	agent.Server `embed:""`
	Status       berth.ConferenceStatus `help:"List only conferences of this status: ${conference_statuses}." enum:",${conference_statuses}" default:""`
	Unit         string                 `help:"List only conferences on this unit."`
	Limit        int                    `help:"Maximum number of results." default:"50"`
}

// Run prints the caller's conferences, or those of all users with a token of scope operator.
func (c *conferenceList) Run(ctx context.Context, api *client.Client) error {
	out := newTable(os.Stdout)
	fmt.Fprintln(out, "NUMBER\tSTATUS\tUNIT\tEPOCH\tENDS\tTITLE")
	n := 0
	for one, err := range api.Conferences(ctx, c.Status, c.Unit) {
		if err != nil {
			return out.fail(err)
		}
		if n++; n > c.Limit {
			break
		}
		unit, ends := cmp.Or(one.Owner.NodeID, "-"), one.EndAt
		if one.Status.Final() {
			ends = one.EndedAt
		}
		status := string(one.Status)
		if one.Ending != "" && !one.Status.Final() {
			status += ", ending"
		}
		fmt.Fprintf(out, "%s\t%s\t%s\t%d\t%s\t%s\n", one.E164, status, unit, one.Epoch, clock(ends), named(one.Title))
	}
	return out.Flush()
}

type conferenceGet struct {
	agent.Server `embed:""`
	Number       idArg  `arg:"" help:"Number of the conference."`
	ID           string `help:"Print an earlier conference of this number." name:"id"`
}

// Run prints the conference as JSON.
func (c *conferenceGet) Run(ctx context.Context, api *client.Client) error {
	one, err := api.Conference(ctx, string(c.Number), c.ID)
	if err != nil {
		return err
	}
	b, err := json.MarshalIndent(one, "", "  ")
	if err != nil {
		return fmt.Errorf("format conference: %w", err)
	}
	fmt.Println(string(b))
	return nil
}

type conferenceEnd struct {
	agent.Server `embed:""`
	Number       idArg `arg:"" help:"Number of the conference."`
}

// Run ends the conference in any state.
func (c *conferenceEnd) Run(ctx context.Context, api *client.Client) error {
	one, err := api.EndConference(ctx, string(c.Number))
	if err != nil {
		return err
	}
	if !one.Status.Final() {
		fmt.Fprintln(os.Stderr, "· ending; its unit has not acknowledged the release yet")
	}
	return nil
}

type conferenceWatch struct {
	agent.Server `embed:""`
	Number       idArg `arg:"" help:"Number of the conference."`
}

// Run follows the conference to its end.
func (c *conferenceWatch) Run(ctx context.Context, api *client.Client) error {
	return watchConference(ctx, api, string(c.Number), os.Stdout)
}

// pollInterval is the time between two reads of the conference: not every command and acknowledgement is an event.
const pollInterval = 2 * time.Second

// watchConference prints the events and commands of the number's last conference until it has ended.
func watchConference(ctx context.Context, api *client.Client, e164 string, out io.Writer) error {
	now, err := api.Conference(ctx, e164, "")
	if err != nil {
		return err
	}
	w := conferenceWatcher{out: out, shown: map[orderKey]string{}}
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	var g errgroup.Group
	events := receive(ctx, &g, api.FollowConference(ctx, e164, now.ID))
	look := time.NewTicker(pollInterval)
	defer look.Stop()
	for {
		select {
		case ev, more := <-events:
			if !more {
				return cmp.Or(g.Wait(), ctx.Err())
			}
			if ev.ConferenceID != now.ID && ev.Type != berth.EventGap {
				continue // an earlier conference of this number
			}
			if now, err = reread(ctx, api, now); err != nil {
				return err
			}
			w.event(ev)
			if ev.Type == berth.EventDone {
				w.orders(now.Orders, time.Time{})
				w.record(now.Conference.Conference)
				return nil
			}
			w.orders(now.Orders, time.UnixMilli(ev.TS))
		case <-look.C:
			if now, err = reread(ctx, api, now); err != nil {
				return err
			}
			w.orders(now.Orders, time.Time{})
		}
	}
}

// reread returns the conference, or previous while the API is unavailable.
func reread(ctx context.Context, api *client.Client, previous client.ConferenceState) (client.ConferenceState, error) {
	now, err := api.Conference(ctx, previous.E164, previous.ID)
	if err == nil {
		return now, nil
	}
	if p, ok := errors.AsType[*client.Problem](err); ctx.Err() != nil || ok && p.Status < http.StatusInternalServerError {
		return previous, err
	}
	return previous, nil
}

// conferenceWatcher prints events and commands once.
type conferenceWatcher struct {
	out io.Writer
	// shown holds the outcome that was last printed for each command, empty while it had none.
	shown map[orderKey]string
}

type orderKey struct {
	at            time.Time
	command, unit string
	epoch         int64
}

func (w conferenceWatcher) event(ev berth.ConferenceEvent) {
	at := clock(time.UnixMilli(ev.TS))
	switch ev.Type {
	case berth.EventGap:
		fmt.Fprintln(w.out, "· part of the history is no longer stored")
	case berth.EventDone:
		fmt.Fprintf(w.out, "%s  %s: %s\n", at, ev.Status, ev.End)
	default:
		var owner berth.ConferenceOwner
		if ev.Owner != nil {
			owner = *ev.Owner
		}
		fmt.Fprintf(w.out, "%s  %s\n", at, formatStatus(ev.Status, ev.Ending, owner, ev.Waiting))
	}
}

// orders prints commands that were sent until then and are new or have a new outcome. A zero time means no limit.
func (w conferenceWatcher) orders(all []berth.ConferenceOrder, until time.Time) {
	for _, o := range all {
		if !until.IsZero() && o.At.After(until) {
			continue
		}
		key := orderKey{at: o.At.UTC(), command: o.Command, unit: o.NodeID, epoch: o.Epoch}
		before, known := w.shown[key]
		if known && before == o.Outcome {
			continue
		}
		w.shown[key] = o.Outcome
		fmt.Fprintf(w.out, "%s    %s to %s (epoch %d): %s\n",
			clock(o.At), o.Command, o.NodeID, o.Epoch, printable(cmp.Or(o.Outcome, "…")))
	}
}

// record prints the units that ran the conference.
func (w conferenceWatcher) record(c berth.Conference) {
	for _, s := range c.Segments {
		reason := ""
		if s.Reason != "" {
			reason = " (" + string(s.Reason) + ")"
		}
		fmt.Fprintf(w.out, "· on %s from %s to %s, epoch %d%s\n", s.NodeID, clock(s.StartedAt), clock(s.EndedAt), s.Epoch, reason)
	}
}

// formatStatus returns a status with the unit that runs the conference, or the reason why none does.
func formatStatus(status berth.ConferenceStatus, ending berth.ConferenceEnd, owner berth.ConferenceOwner, waiting string) string {
	s := string(status)
	if owner.NodeID != "" {
		s += fmt.Sprintf(" on %s (epoch %d)", owner.NodeID, owner.Epoch)
	}
	if waiting != "" {
		s += ": " + printable(waiting)
	}
	if ending != "" {
		s += ", ending: " + string(ending)
	}
	return s
}

// clock formats a time in the local time zone, without the date if that is today.
func clock(t time.Time) string {
	if t.IsZero() {
		return "-"
	}
	t = t.Local()
	if t.Format(time.DateOnly) == time.Now().Format(time.DateOnly) {
		return t.Format(time.TimeOnly)
	}
	return t.Format(time.DateTime)
}
