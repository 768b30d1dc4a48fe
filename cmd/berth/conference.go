package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"text/tabwriter"
	"time"

	"golang.org/x/sync/errgroup"

	"berth"
	"berth/internal/client"
)

type conferenceCommands struct {
	Create conferenceCreate `cmd:"" help:"Open a conference."`
	List   conferenceList   `cmd:"" help:"List conferences, newest first."`
	Get    conferenceGet    `cmd:"" help:"Print a conference as JSON."`
	End    conferenceEnd    `cmd:"" help:"End a conference."`
	Watch  conferenceWatch  `cmd:"" help:"Follow a conference: where it runs, why it waits, who was told what."`
}

type conferenceCreate struct {
	server      `embed:""`
	Number      string          `arg:"" optional:"" help:"Its number in international form without the plus; a free one by default."`
	For         time.Duration   `help:"How long it lasts." default:"30m"`
	Until       time.Time       `help:"When it ends, instead of --for: 2006-01-02T15:04:05Z." placeholder:"TIME"`
	Title       string          `help:"What it is about."`
	Max         int             `help:"Most participants; 0 is no limit."`
	Zone        string          `help:"Only units of this zone."`
	Recoverable bool            `help:"Recover it when its unit is lost." default:"true" negatable:""`
	Metadata    json.RawMessage `help:"Any JSON, kept with it." placeholder:"JSON"`
	Watch       bool            `help:"Follow it afterwards."`
}

// Run opens the conference and prints its number.
func (c *conferenceCreate) Run(ctx context.Context) error {
	spec := client.ConferenceSpec{
		E164: c.Number, Title: c.Title, MaxParticipants: c.Max, EndAt: c.Until, Recoverable: &c.Recoverable, Zone: c.Zone,
		Metadata: c.Metadata,
	}
	if c.Until.IsZero() {
		spec.DurationMs = c.For.Milliseconds()
	}
	api := c.client()
	made, err := api.CreateConference(ctx, spec)
	if err != nil {
		return err
	}
	fmt.Println(made.E164)
	fmt.Fprintf(os.Stderr, "· %s; ends %s\n", standing(made.Status, made.Ending, made.Owner, made.Waiting), clock(made.EndAt))
	if !c.Watch {
		return nil
	}
	return watchConference(ctx, api, made.E164, os.Stdout)
}

type conferenceList struct {
	server `embed:""`
	Status berth.ConferenceStatus `help:"Only of this status: ${enum}." enum:",creating,open,awaiting-connection,awaiting-recovery,ended,deleted" default:""`
	Unit   string                 `help:"Only on this unit."`
	Limit  int                    `help:"At most so many." default:"50"`
}

// Run prints one's own conferences, with a token of the scope operator everybody's.
func (c *conferenceList) Run(ctx context.Context) error {
	out := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintln(out, "NUMBER\tSTATUS\tUNIT\tEPOCH\tENDS\tTITLE")
	n := 0
	for one, err := range c.client().Conferences(ctx, c.Status, c.Unit) {
		if err != nil {
			return errors.Join(out.Flush(), err)
		}
		if n++; n > c.Limit {
			break
		}
		unit, ends := one.Owner.NodeID, one.EndAt
		if unit == "" {
			unit = "-"
		}
		if one.Status.Final() {
			ends = one.EndedAt
		}
		status := string(one.Status)
		if one.Ending != "" && !one.Status.Final() {
			status += ", ending"
		}
		fmt.Fprintf(out, "%s\t%s\t%s\t%d\t%s\t%s\n", one.E164, status, unit, one.Epoch, clock(ends), printable(one.Title))
	}
	return out.Flush()
}

type conferenceGet struct {
	server `embed:""`
	Number string `arg:"" help:"Its number."`
	ID     string `help:"An earlier conference of the number." name:"id"`
}

// Run prints the conference as JSON.
func (c *conferenceGet) Run(ctx context.Context) error {
	one, err := c.client().Conference(ctx, c.Number, c.ID)
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
	server `embed:""`
	Number string `arg:"" help:"Its number."`
}

// Run ends the conference, whatever it is doing.
func (c *conferenceEnd) Run(ctx context.Context) error {
	one, err := c.client().EndConference(ctx, c.Number)
	if err != nil {
		return err
	}
	if !one.Status.Final() {
		fmt.Fprintln(os.Stderr, "· it is ending; its unit takes its time")
	}
	return nil
}

type conferenceWatch struct {
	server `embed:""`
	Number string `arg:"" help:"Its number."`
}

// Run follows the conference to its end.
func (c *conferenceWatch) Run(ctx context.Context) error {
	return watchConference(ctx, c.client(), c.Number, os.Stdout)
}

// ordersEvery is how often it is looked what units were told and have answered: not each of that is an event.
const ordersEvery = 2 * time.Second

// watchConference prints what becomes of the number's last conference until it is over.
func watchConference(ctx context.Context, api *client.Client, e164 string, out io.Writer) error {
	now, err := api.Conference(ctx, e164, "")
	if err != nil {
		return err
	}
	w := conferenceWatcher{out: out, shown: map[orderKey]string{}}
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	events := make(chan berth.ConferenceEvent)
	var g errgroup.Group
	g.Go(func() error {
		defer close(events)
		for ev, err := range api.FollowConference(ctx, e164, now.ID) {
			if err != nil {
				return err
			}
			if ev.ConferenceID != now.ID && ev.Type != berth.EventGap {
				continue // an earlier one of the number
			}
			select {
			case events <- ev:
			case <-ctx.Done():
				return ctx.Err()
			}
		}
		return nil
	})
	look := time.NewTicker(ordersEvery)
	defer look.Stop()
	for {
		select {
		case ev, more := <-events:
			if !more {
				return g.Wait()
			}
			if now, err = lookAgain(ctx, api, now); err != nil {
				return err
			}
			w.event(ev)
			if ev.Type == berth.EventDone {
				w.orders(now.Orders, time.Time{})
				w.record(now.Conference)
				return nil
			}
			w.orders(now.Orders, time.UnixMilli(ev.TS))
		case <-look.C:
			if now, err = lookAgain(ctx, api, now); err != nil {
				return err
			}
			w.orders(now.Orders, time.Time{})
		}
	}
}

// lookAgain is the conference now; as it was, while the API is away.
func lookAgain(ctx context.Context, api *client.Client, was client.Conference) (client.Conference, error) {
	now, err := api.Conference(ctx, was.E164, was.ID)
	var p *client.Problem
	switch {
	case err == nil:
		return now, nil
	case ctx.Err() != nil, errors.As(err, &p) && p.Status < http.StatusInternalServerError:
		return was, err
	default:
		return was, nil
	}
}

// conferenceWatcher prints what has not been printed yet.
type conferenceWatcher struct {
	out io.Writer
	// shown is what was last printed of each order: the outcome, empty while there was none.
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
		fmt.Fprintln(w.out, "· part of the history is no longer kept")
	case berth.EventDone:
		fmt.Fprintf(w.out, "%s  %s: %s\n", at, ev.Status, ev.End)
	default:
		var owner berth.ConferenceOwner
		if ev.Owner != nil {
			owner = *ev.Owner
		}
		fmt.Fprintf(w.out, "%s  %s\n", at, standing(ev.Status, ev.Ending, owner, ev.Waiting))
	}
}

// orders prints what units were told until then and have answered since it was last printed.
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
		outcome := o.Outcome
		if outcome == "" {
			outcome = "…"
		}
		fmt.Fprintf(w.out, "%s    %s was told %s (epoch %d): %s\n", clock(o.At), o.NodeID, o.Command, o.Epoch, printable(outcome))
	}
}

// record prints where it was.
func (w conferenceWatcher) record(c berth.Conference) {
	for _, s := range c.Segments {
		reason := ""
		if s.Reason != "" {
			reason = " (" + string(s.Reason) + ")"
		}
		fmt.Fprintf(w.out, "· on %s from %s to %s, epoch %d%s\n", s.NodeID, clock(s.StartedAt), clock(s.EndedAt), s.Epoch, reason)
	}
}

// standing is a status in words, with who runs the conference or why nobody does.
func standing(status berth.ConferenceStatus, ending berth.ConferenceEnd, owner berth.ConferenceOwner, waiting string) string {
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

// clock is a time as people read it: of today without the day.
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
