package unit

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"time"

	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/temporal"

	"berth"
	"berth/internal/node"
)

// MaxCommands is how many commands a unit does at a time, so that it is not stormed when another unit is lost (C3).
const MaxCommands = 8

// errLinkDown is why a command ends whose media server was lost meanwhile: nobody knows what became of it.
var errLinkDown = errors.New("the media server was lost while it was asked")

// commands is what a unit does while its link is up.
type commands struct {
	driver      Driver
	incarnation berth.Incarnation
	link        context.Context // ends with the link
	report      *reporter
	// turns has one token per group of numbers: what is asked of one number is done one after the other.
	turns [64]chan struct{}
}

func newCommands(link context.Context, d Driver, inc berth.Incarnation, r *reporter) *commands {
	c := &commands{driver: d, incarnation: inc, link: link, report: r}
	for i := range c.turns {
		c.turns[i] = make(chan struct{}, 1)
	}
	return c
}

// Register registers the six commands for one generation.
func (c *commands) Register(w node.Registry, g *node.Gate, generation int64) {
	c.report.generation.Store(generation)
	name := func(n string) activity.RegisterOptions { return activity.RegisterOptions{Name: n} }
	w.RegisterActivityWithOptions(func(ctx context.Context, in berth.UnitConference) error {
		return c.do(ctx, g, in.E164, func(ctx context.Context) error { return c.create(ctx, in) })
	}, name(berth.ActivityCreateConference))
	// Creation and recovery are commands of their own (C6); a room that stays until its end time is made by both.
	w.RegisterActivityWithOptions(func(ctx context.Context, in berth.UnitConference) error {
		return c.do(ctx, g, in.E164, func(ctx context.Context) error { return c.create(ctx, in) })
	}, name(berth.ActivityRecoverConference))
	w.RegisterActivityWithOptions(func(ctx context.Context, in berth.UnitConference) error {
		return c.do(ctx, g, in.E164, func(ctx context.Context) error { return c.adopt(ctx, in) })
	}, name(berth.ActivityAdoptConference))
	w.RegisterActivityWithOptions(func(ctx context.Context, in berth.UnitRelease) error {
		return c.do(ctx, g, in.E164, func(ctx context.Context) error { return c.release(ctx, in) })
	}, name(berth.ActivityReleaseConference))
	w.RegisterActivityWithOptions(func(ctx context.Context) (berth.UnitList, error) {
		return node.Do(ctx, g, "list", func(ctx context.Context) (berth.UnitList, error) { return c.list(ctx) })
	}, name(berth.ActivityListConferences))
	w.RegisterActivityWithOptions(func(_ context.Context, in berth.UnitReport) error {
		c.report.again(in.E164)
		return nil
	}, name(berth.ActivityReportConferences))
}

// Load is how many conferences run here.
func (c *commands) Load() (running, executing int) { return int(c.report.running.Load()), 0 }

// do runs a command when it is the number's turn, until the link is lost.
func (c *commands) do(ctx context.Context, g *node.Gate, e164 string, command func(context.Context) error) error {
	_, err := node.Do(ctx, g, e164, func(ctx context.Context) (struct{}, error) {
		if err := berth.ValidE164("e164", e164); err != nil {
			return struct{}{}, worded(&Refusal{err.Error()})
		}
		ctx, end := c.whileLinked(ctx)
		defer end()
		turn := c.turns[stripe(e164, len(c.turns))]
		select {
		case turn <- struct{}{}:
			defer func() { <-turn }()
		case <-ctx.Done():
			return struct{}{}, c.worded(ctx, ctx.Err())
		}
		return struct{}{}, c.worded(ctx, command(ctx))
	})
	return err
}

func stripe(e164 string, n int) int {
	h := fnv.New32a()
	_, _ = h.Write([]byte(e164)) // a hash takes everything
	return int(h.Sum32()) % n
}

// whileLinked ends with the link, too.
func (c *commands) whileLinked(ctx context.Context) (context.Context, func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	stop := context.AfterFunc(c.link, func() { cancel(errLinkDown) })
	return ctx, func() { stop(); cancel(nil) }
}

// worded is a command's failure for the workflow. Only a refusal says that nothing was begun; after any other failure a
// copy may exist.
func (c *commands) worded(ctx context.Context, err error) error {
	if err != nil && errors.Is(context.Cause(ctx), errLinkDown) {
		return temporal.NewNonRetryableApplicationError(errLinkDown.Error(), string(berth.CodeNodeFailed), nil)
	}
	return worded(err)
}

func worded(err error) error {
	var no *Refusal
	switch {
	case errors.As(err, &no):
		return temporal.NewNonRetryableApplicationError(no.Reason, berth.ErrorRefused, nil)
	case errors.Is(err, ErrForeign):
		return temporal.NewNonRetryableApplicationError(ErrForeign.Error(), berth.ErrorRefused, nil)
	}
	return err
}

// create starts a conference, or takes over the copy that is there: a copy of this epoch is an earlier delivery of the
// same command, one of a later epoch belongs to a later owner, and one of an earlier epoch is left over.
func (c *commands) create(ctx context.Context, in berth.UnitConference) error {
	if err := valid(in); err != nil {
		return err
	}
	if !in.EndAt.After(time.Now()) {
		return refuse("its end time has passed") // C5
	}
	was, there, err := c.find(ctx, in.E164)
	switch {
	case err != nil:
		return err
	case there && was.Epoch > in.Epoch:
		return refuse("a copy of the later epoch %d is here", was.Epoch)
	case there && was.Epoch == in.Epoch:
		c.report.begun(in.E164, in.Epoch)
		return nil
	case there && was.ConferenceID == in.ConferenceID:
		err = c.driver.Mark(ctx, copyOf(in))
	case there: // another conference had the number; its people are not in this one
		if err = c.driver.Delete(ctx, in.E164); err == nil {
			err = c.driver.Create(ctx, in)
		}
	default:
		err = c.driver.Create(ctx, in)
	}
	if err != nil {
		return fmt.Errorf("create conference %s: %w", in.E164, err)
	}
	c.report.begun(in.E164, in.Epoch)
	return nil
}

// find looks for the copy before anything is begun: when that fails, another unit may be asked at once.
func (c *commands) find(ctx context.Context, e164 string) (Copy, bool, error) {
	was, there, err := c.driver.Find(ctx, e164)
	if err != nil && ctx.Err() == nil && !errors.Is(err, ErrForeign) {
		err = refuse("the media server could not be asked: %v", err)
	}
	return was, there, err
}

// adopt has a copy stay under a new epoch (C7). It began when it began.
func (c *commands) adopt(ctx context.Context, in berth.UnitConference) error {
	if err := valid(in); err != nil {
		return err
	}
	was, there, err := c.find(ctx, in.E164)
	switch {
	case err != nil:
		return err
	case !there || was.ConferenceID != in.ConferenceID:
		return refuse("there is no copy of it here")
	case was.Epoch > in.Epoch:
		return refuse("a copy of the later epoch %d is here", was.Epoch)
	case was.Epoch < in.Epoch:
		now := copyOf(in)
		if !was.StartedAt.IsZero() {
			now.StartedAt = was.StartedAt
		}
		if err := c.driver.Mark(ctx, now); err != nil {
			return fmt.Errorf("adopt conference %s: %w", in.E164, err)
		}
	}
	c.report.begun(in.E164, in.Epoch)
	return nil
}

// release ends a copy of the epoch asked for or an earlier one. A room that is not the unit's is left alone.
func (c *commands) release(ctx context.Context, in berth.UnitRelease) error {
	was, there, err := c.driver.Find(ctx, in.E164)
	switch {
	case errors.Is(err, ErrForeign):
		return nil
	case err != nil:
		return fmt.Errorf("look for conference %s: %w", in.E164, err)
	case !there || was.Epoch > in.Epoch:
		return nil
	}
	if err := c.driver.Delete(ctx, in.E164); err != nil {
		return fmt.Errorf("release conference %s: %w", in.E164, err)
	}
	c.report.over(in.E164)
	return nil
}

// list asks the media server itself, so that nothing depends on what the unit remembers (C15).
func (c *commands) list(ctx context.Context) (berth.UnitList, error) {
	ctx, end := c.whileLinked(ctx)
	defer end()
	now, copies, err := c.driver.List(ctx)
	if err != nil {
		return berth.UnitList{}, c.worded(ctx, fmt.Errorf("list conferences: %w", err))
	}
	if now != c.incarnation {
		return berth.UnitList{}, temporal.NewNonRetryableApplicationError(errLinkDown.Error(), string(berth.CodeNodeFailed), nil)
	}
	out := berth.UnitList{Incarnation: now, Conferences: make([]berth.UnitCopy, 0, len(copies))}
	for _, c := range copies {
		out.Conferences = append(out.Conferences, c.UnitCopy)
	}
	return out, nil
}

func valid(in berth.UnitConference) error {
	switch {
	case in.ConferenceID == "":
		return refuse("conferenceId: must name the conference")
	case in.Epoch <= 0:
		return refuse("epoch: must be above 0")
	case in.StartedAt.IsZero():
		return refuse("startedAt: must be a time")
	case in.MaxParticipants < 0 || in.MaxParticipants > berth.MaxParticipants:
		return refuse("maxParticipants: must be 0 to %d", berth.MaxParticipants)
	}
	return nil
}

func copyOf(in berth.UnitConference) berth.UnitCopy {
	return berth.UnitCopy{E164: in.E164, ConferenceID: in.ConferenceID, Epoch: in.Epoch, StartedAt: in.StartedAt}
}
