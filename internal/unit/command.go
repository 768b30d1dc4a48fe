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

// MaxCommands is the maximum number of concurrent commands of a unit, which limits its load when another unit is lost.
const MaxCommands = berth.MaxUnitCommands

// errLinkDown is the failure of a command whose media server was lost while it ran: its outcome is unknown.
var errLinkDown = errors.New("the media server was lost while the command ran")

// commands implements a unit's activities while its link is up.
type commands struct {
	driver      Driver
	incarnation berth.Incarnation
	link        context.Context // ends with the link
	report      *reporter
	// locks holds one lock per group of numbers: the commands of a number run one after the other.
	locks [64]chan struct{}
}

func newCommands(link context.Context, d Driver, inc berth.Incarnation, r *reporter) *commands {
	c := &commands{driver: d, incarnation: inc, link: link, report: r}
	for i := range c.locks {
		c.locks[i] = make(chan struct{}, 1)
	}
	return c
}

// Register registers the commands for one generation.
func (c *commands) Register(w node.Registry, g *node.Gate, generation int64) {
	c.report.generation.Store(generation)
	conference := func(command func(context.Context, berth.UnitConference) error) any {
		return func(ctx context.Context, in berth.UnitConference) error {
			return c.do(ctx, g, in.E164, func(ctx context.Context) error { return command(ctx, in) })
		}
	}
	for name, command := range map[string]any{
		berth.ActivityCreateConference:  conference(c.create),
		berth.ActivityRecoverConference: conference(c.recover),
		berth.ActivityAdoptConference:   conference(c.adopt),
		berth.ActivityReleaseConference: func(ctx context.Context, in berth.UnitRelease) error {
			return c.do(ctx, g, in.E164, func(ctx context.Context) error { return c.release(ctx, in) })
		},
		berth.ActivityListConferences: func(ctx context.Context) (berth.UnitList, error) { return node.Do(ctx, g, "list", c.list) },
		berth.ActivityReportConferences: func(_ context.Context, in berth.UnitReport) error {
			c.report.repeat(in)
			return nil
		},
	} {
		w.RegisterActivityWithOptions(command, activity.RegisterOptions{Name: name})
	}
}

// Load returns the number of conferences on the unit.
func (c *commands) Load() (running, executing int) { return int(c.report.running.Load()), 0 }

// do runs a command under the number's lock, until the link is lost.
func (c *commands) do(ctx context.Context, g *node.Gate, e164 string, command func(context.Context) error) error {
	_, err := node.Do(ctx, g, e164, func(ctx context.Context) (struct{}, error) {
		if err := berth.ValidE164("e164", e164); err != nil {
			return struct{}{}, converted(&Refusal{err.Error()})
		}
		ctx, end := c.whileLinked(ctx)
		defer end()
		return struct{}{}, c.converted(ctx, c.alone(ctx, e164, func() error { return command(ctx) }))
	})
	return err
}

func stripe(e164 string, n int) int {
	h := fnv.New32a()
	_, _ = h.Write([]byte(e164)) // a hash never fails
	return int(h.Sum32()) % n
}

// whileLinked returns a context that also ends with the link.
func (c *commands) whileLinked(ctx context.Context) (context.Context, func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	stop := context.AfterFunc(c.link, func() { cancel(errLinkDown) })
	return ctx, func() { stop(); cancel(nil) }
}

// converted returns a command's failure for the workflow. Only a refusal means that nothing was started; after any other
// failure a copy may exist.
func (c *commands) converted(ctx context.Context, err error) error {
	if err != nil && errors.Is(context.Cause(ctx), errLinkDown) {
		return temporal.NewNonRetryableApplicationError(errLinkDown.Error(), string(berth.CodeNodeFailed), nil)
	}
	return converted(err)
}

func converted(err error) error {
	var no *Refusal
	switch {
	case errors.As(err, &no):
		return temporal.NewNonRetryableApplicationError(no.Reason, berth.ErrorRefused, nil)
	case errors.Is(err, ErrForeign):
		return temporal.NewNonRetryableApplicationError(ErrForeign.Error(), berth.ErrorRefused, nil)
	}
	return err
}

// create starts a conference or takes over an existing copy: a copy of this epoch is from an earlier delivery of the same
// command, one of a later epoch belongs to a later owner, and one of an earlier epoch is stale.
func (c *commands) create(ctx context.Context, in berth.UnitConference) error {
	return c.start(ctx, in, false)
}

// start is create; returning keeps a copy for its participants until one has joined, however long it is empty.
func (c *commands) start(ctx context.Context, in berth.UnitConference, returning bool) error {
	if err := valid(in); err != nil {
		return err
	}
	if !in.EndAt.After(time.Now()) {
		return refuse("the end time has passed")
	}
	prev, exists, err := c.find(ctx, in.E164)
	switch {
	case err != nil:
		return err
	case exists && prev.Epoch > in.Epoch:
		return refuse("the unit has a copy of the later epoch %d", prev.Epoch)
	case exists && prev.Epoch == in.Epoch && !prev.EndAt.Before(in.EndAt): // repeated, perhaps after an extension
		c.report.again(in.E164, in.Epoch)
		return nil
	case exists && prev.ConferenceID == in.ConferenceID:
		err = c.driver.Mark(ctx, copyOf(in))
	case exists: // another conference had the number; its participants are not in this one
		if err = c.driver.Delete(ctx, in.E164); err == nil {
			err = c.driver.Create(ctx, in, returning)
		}
	default:
		err = c.driver.Create(ctx, in, returning)
	}
	if err != nil {
		return fmt.Errorf("create conference %s: %w", in.E164, err)
	}
	c.report.begun(in.E164, in.Epoch)
	return nil
}

// recover is create for a conference that has begun: it is not ended for being empty before its participants return.
func (c *commands) recover(ctx context.Context, in berth.UnitConference) error {
	return c.start(ctx, in, true)
}

// find looks for the copy before anything is started: if that fails, another unit may run the command immediately.
func (c *commands) find(ctx context.Context, e164 string) (Copy, bool, error) {
	prev, exists, err := c.driver.Find(ctx, e164)
	if err != nil && ctx.Err() == nil && !errors.Is(err, ErrForeign) {
		err = refuse("the media server is unreachable: %v", err)
	}
	return prev, exists, err
}

// adopt moves a copy to a new epoch or to a new end time, and keeps its start.
func (c *commands) adopt(ctx context.Context, in berth.UnitConference) error {
	if err := valid(in); err != nil {
		return err
	}
	prev, exists, err := c.find(ctx, in.E164)
	switch {
	case err != nil:
		return err
	case !exists || prev.ConferenceID != in.ConferenceID:
		return refuse("the unit has no copy of it")
	case prev.Epoch > in.Epoch:
		return refuse("the unit has a copy of the later epoch %d", prev.Epoch)
	case prev.Epoch < in.Epoch || prev.EndAt.Before(in.EndAt): // commands of one epoch may arrive out of order; end times only rise
		now := copyOf(in)
		if !prev.StartedAt.IsZero() {
			now.StartedAt = prev.StartedAt
		}
		if err := c.driver.Mark(ctx, now); err != nil {
			return fmt.Errorf("adopt conference %s: %w", in.E164, err)
		}
	}
	if prev.Epoch < in.Epoch {
		c.report.begun(in.E164, in.Epoch)
	} else {
		c.report.again(in.E164, in.Epoch)
	}
	return nil
}

// release ends a copy of the given or an earlier epoch. It ignores rooms that are not the unit's.
func (c *commands) release(ctx context.Context, in berth.UnitRelease) error {
	prev, exists, err := c.driver.Find(ctx, in.E164)
	switch {
	case errors.Is(err, ErrForeign):
		return nil
	case err != nil:
		return fmt.Errorf("find conference %s: %w", in.E164, err)
	case !exists || prev.Epoch > in.Epoch:
		return nil
	}
	if err := c.driver.Delete(ctx, in.E164); err != nil {
		return fmt.Errorf("release conference %s: %w", in.E164, err)
	}
	c.report.released(in.E164)
	return nil
}

// endExpired ends a copy whose end time has passed. It is not reported as ended: berth ends the conference itself.
func (c *commands) endExpired(ctx context.Context, e164 string) error {
	return c.alone(ctx, e164, func() error {
		now, exists, err := c.driver.Find(ctx, e164)
		if err != nil || !exists || !expired(now) { // a command may have extended it since
			return err
		}
		if err := c.driver.Delete(ctx, e164); err != nil {
			return err
		}
		c.report.released(e164)
		return nil
	})
}

// forget removes what is left of a copy that has ended.
func (c *commands) forget(ctx context.Context, e164 string) error {
	return c.alone(ctx, e164, func() error {
		if _, exists, err := c.driver.Find(ctx, e164); err != nil || exists { // a command may have created it since
			return err
		}
		return c.driver.Delete(ctx, e164)
	})
}

// alone calls f under the number's lock.
func (c *commands) alone(ctx context.Context, e164 string, f func() error) error {
	lock := c.locks[stripe(e164, len(c.locks))]
	select {
	case lock <- struct{}{}:
		defer func() { <-lock }()
	case <-ctx.Done():
		return ctx.Err()
	}
	return f()
}

// list reads the conferences from the media server, so that the result does not depend on the unit's memory.
func (c *commands) list(ctx context.Context) (berth.UnitList, error) {
	ctx, end := c.whileLinked(ctx)
	defer end()
	now, copies, err := c.driver.List(ctx)
	if err != nil {
		return berth.UnitList{}, c.converted(ctx, fmt.Errorf("list conferences: %w", err))
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

func copyOf(in berth.UnitConference) Copy {
	return Copy{
		UnitCopy: berth.UnitCopy{E164: in.E164, ConferenceID: in.ConferenceID, Epoch: in.Epoch, StartedAt: in.StartedAt},
		EndAt:    in.EndAt,
	}
}
