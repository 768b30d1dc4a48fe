package bench

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"time"

	"golang.org/x/sync/errgroup"

	"berth"
	"berth/internal/client"
	"berth/internal/config"
)

const (
	// creators open conferences side by side.
	creators = 8
	// recoveredWithin bounds the wait for all conferences to be open again.
	recoveredWithin = 2 * time.Minute
	// lostUnit is the unit that is killed.
	lostUnit = "bench-unit-1"
)

// Recovery prints what the kill -9 of a media unit costs its conferences: when its death was decided, and when the first, the
// median and the last of them were open on another unit (C1, C21). The units are processes of this program, with simulated
// media servers.
func Recovery(ctx context.Context, w io.Writer, cfg config.Config, conferences int) (err error) {
	h, err := open(ctx, cfg, provider{tokens: 1})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, h.stop()) }()
	lost, err := h.unit(ctx, lostUnit, conferences)
	if err != nil {
		return err
	}
	defer lost.end()
	ids, err := h.conferences(ctx, conferences)
	if err != nil {
		return err
	}
	for i := range 2 {
		u, err := h.unit(ctx, "bench-unit-"+strconv.Itoa(i+2), conferences)
		if err != nil {
			return err
		}
		defer u.end()
	}
	killed := time.Now()
	lost.end()
	var known time.Time // when its death was decided, by Redis's clock
	// Looking more often would cost what is measured.
	if err := until(ctx, time.Minute, time.Second, func() (bool, error) {
		n, err := h.client.Node(ctx, lostUnit)
		known = n.UpdatedAt
		return n.State == berth.NodeDead, err
	}); err != nil {
		return fmt.Errorf("the unit's loss is not known: %w", err)
	}
	open, err := h.recovered(ctx, ids)
	if err != nil {
		return err
	}
	var after figures
	for _, at := range open {
		after = append(after, at.Sub(known))
	}
	_, _ = fmt.Fprintf(w, "kill -9 of a unit with %d conferences, two others with room\n  detection  %s after the kill   goal < 5s\n"+
		"  first      %s after detection   goal <= 300ms\n  median     %s\n  last       %s after detection   goal <= 2s\n\n",
		conferences, round(known.Sub(killed)), round(after.at(0)), round(after.at(0.5)), round(after.at(1)))
	return nil
}

// unitProcess is a unit with a simulated media server.
type unitProcess struct{ cmd *exec.Cmd }

// end is kill -9; it does nothing to one that is gone.
func (u unitProcess) end() {
	_ = u.cmd.Process.Kill() // it may be gone
	_ = u.cmd.Wait()         // it was killed: there is nothing to learn
}

// unit starts a unit and returns once it is registered.
func (h *house) unit(ctx context.Context, id string, slots int) (u unitProcess, err error) {
	self, err := os.Executable()
	if err != nil {
		return u, fmt.Errorf("this program: %w", err)
	}
	//nolint:gosec // this program itself
	u.cmd = exec.CommandContext(ctx, self, "media", "--id", id, "--slots", strconv.Itoa(slots), "--driver", "sim", "--api", h.url, "--token", h.token,
		"--temporal-addr", h.cfg.Temporal.Addr, "--temporal-namespace", h.cfg.Temporal.Namespace, "--log-level", "error")
	u.cmd.Stderr = os.Stderr
	if err := u.cmd.Start(); err != nil {
		return u, fmt.Errorf("start unit %s: %w", id, err)
	}
	err = until(ctx, 30*time.Second, 100*time.Millisecond, func() (bool, error) {
		n, err := h.client.Node(ctx, id)
		return err == nil && n.State != berth.NodeDead, nil
	})
	if err != nil {
		u.end()
		return u, fmt.Errorf("unit %s does not come up: %w", id, err)
	}
	return u, nil
}

// conferences opens so many, and answers their numbers.
func (h *house) conferences(ctx context.Context, n int) ([]string, error) {
	numbers := make([]string, n)
	var g errgroup.Group
	g.SetLimit(creators)
	for i := range numbers {
		numbers[i] = strconv.Itoa(8_880_000_001 + i)
		g.Go(func() error {
			var refused error
			err := until(ctx, 30*time.Second, 100*time.Millisecond, func() (bool, error) { // the unit is new, too
				_, refused = h.client.CreateConference(ctx, client.ConferenceSpec{E164: numbers[i], DurationMs: time.Hour.Milliseconds()})
				return refused == nil, nil
			})
			return errors.Join(err, refused)
		})
	}
	return numbers, g.Wait()
}

// recovered waits until all are open on another unit than the lost one, and answers when each was, by its record.
func (h *house) recovered(ctx context.Context, numbers []string) (map[string]time.Time, error) {
	open := map[string]time.Time{}
	err := until(ctx, recoveredWithin, time.Second, func() (bool, error) {
		for c, err := range h.client.Conferences(ctx, berth.ConferenceOpen, "") {
			if err != nil {
				return false, err
			}
			if c.Owner.NodeID != lostUnit && len(c.Segments) > 1 {
				open[c.E164] = c.Segments[1].StartedAt
			}
		}
		return len(open) == len(numbers), nil
	})
	if err != nil {
		return nil, fmt.Errorf("%d of %d conferences are open again: %w", len(open), len(numbers), err)
	}
	return open, nil
}

// until asks again and again, and fails when that takes too long.
func until(ctx context.Context, within, every time.Duration, is func() (bool, error)) error {
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		ok, err := is()
		if err != nil || ok {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
		}
	}
}
