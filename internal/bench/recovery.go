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
	"berth/internal/pause"
)

const (
	// creators is the number of conferences that are opened concurrently.
	creators = 8
	// recoveredWithin bounds the wait until all conferences are open again.
	recoveredWithin = 2 * time.Minute
	// lostUnit is the id of the unit that is killed.
	lostUnit = "bench-unit-1"
)

// Recovery kills a media unit with kill -9 and prints when its death was detected and when the first, the median and the
// last of its conferences were open on another unit. The units are processes of this program with simulated media
// servers.
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
	defer lost.kill()
	ids, err := h.conferences(ctx, conferences)
	if err != nil {
		return err
	}
	for i := range 2 {
		u, err := h.unit(ctx, "bench-unit-"+strconv.Itoa(i+2), conferences)
		if err != nil {
			return err
		}
		defer u.kill()
	}
	killed := time.Now()
	lost.kill()
	var detected time.Time // by Redis's clock
	// More frequent polling would slow down the recovery that is measured.
	if err := pause.Until(ctx, time.Minute, time.Second, func(ctx context.Context) error {
		n, err := h.client.Node(ctx, lostUnit)
		if err == nil && n.State != berth.NodeDead {
			err = fmt.Errorf("the unit is %s", n.State)
		}
		detected = n.UpdatedAt
		return err
	}); err != nil {
		return fmt.Errorf("the unit's death was not detected: %w", err)
	}
	open, err := h.recovered(ctx, ids)
	if err != nil {
		return err
	}
	var after latencies
	for _, at := range open {
		after = append(after, at.Sub(detected))
	}
	_, _ = fmt.Fprintf(w, "kill -9 of a unit with %d conferences, two others with free capacity\n  detection  %s after the kill   goal < 5s\n"+
		"  first      %s after detection   goal <= 300ms\n  median     %s\n  last       %s after detection   goal <= 2s\n\n",
		conferences, round(detected.Sub(killed)), round(after.at(0)), round(after.at(0.5)), round(after.at(1)))
	return nil
}

// unitProcess is the process of a media unit with a simulated media server.
type unitProcess struct{ cmd *exec.Cmd }

// kill sends SIGKILL. It has no effect on a process that has already ended.
func (u unitProcess) kill() {
	_ = u.cmd.Process.Kill() // the process may have ended
	_ = u.cmd.Wait()         // always an error after SIGKILL
}

// unit starts a media unit and returns when it is registered.
func (h *stack) unit(ctx context.Context, id string, slots int) (u unitProcess, err error) {
	self, err := os.Executable()
	if err != nil {
		return u, fmt.Errorf("find the path of this program: %w", err)
	}
	//nolint:gosec // this program itself
	u.cmd = exec.CommandContext(ctx, self, "media", "--id", id, "--slots", strconv.Itoa(slots), "--driver", "sim", "--api", h.url, "--token", h.token,
		"--log-level", "error")
	u.cmd.Env = append(u.cmd.Environ(), h.cfg.Temporal.Environ()...)
	u.cmd.Stderr = os.Stderr
	if err := u.cmd.Start(); err != nil {
		return u, fmt.Errorf("start unit %s: %w", id, err)
	}
	err = pause.Until(ctx, 30*time.Second, 100*time.Millisecond, func(ctx context.Context) error {
		n, err := h.client.Node(ctx, id)
		if err == nil && n.State == berth.NodeDead {
			err = errors.New("the unit is dead")
		}
		return err
	})
	if err != nil {
		u.kill()
		return u, fmt.Errorf("unit %s not registered: %w", id, err)
	}
	return u, nil
}

// conferences opens n conferences and returns their numbers.
func (h *stack) conferences(ctx context.Context, n int) ([]string, error) {
	numbers := make([]string, n)
	var g errgroup.Group
	g.SetLimit(creators)
	for i := range numbers {
		numbers[i] = strconv.Itoa(8_880_000_001 + i)
		g.Go(func() error {
			// The API may not know the unit yet.
			return pause.Until(ctx, 30*time.Second, 100*time.Millisecond, func(ctx context.Context) error {
				_, err := h.client.CreateConference(ctx, client.ConferenceSpec{E164: numbers[i], DurationMs: time.Hour.Milliseconds()})
				return err
			})
		})
	}
	return numbers, g.Wait()
}

// recovered waits until all conferences are open on a unit other than the lost one, and returns the time from each
// conference's record.
func (h *stack) recovered(ctx context.Context, numbers []string) (map[string]time.Time, error) {
	open := map[string]time.Time{}
	err := pause.Until(ctx, recoveredWithin, time.Second, func(ctx context.Context) error {
		for c, err := range h.client.Conferences(ctx, berth.ConferenceOpen, "") {
			if err != nil {
				return err
			}
			if c.Owner.NodeID != lostUnit && len(c.Segments) > 1 {
				open[c.E164] = c.Segments[1].StartedAt
			}
		}
		if len(open) < len(numbers) {
			return fmt.Errorf("only %d of %d conferences were recovered", len(open), len(numbers))
		}
		return nil
	})
	return open, err
}
