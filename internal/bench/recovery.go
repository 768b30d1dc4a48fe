package bench

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"strconv"
	"time"

	"berth"
	"berth/client"
	"berth/internal/pause"
)

const (
	// creators is the number of conferences that are opened concurrently.
	creators = 8
	// recoveredWithin bounds the wait until all conferences are open again.
	recoveredWithin = 2 * time.Minute
	// lostUnit is the id of the unit that is killed, otherUnit that of the one whose media server restarts.
	lostUnit, otherUnit = "bench-unit-1", "bench-unit-2"
)

// recovery kills a media unit with kill -9 and measures when its death is detected and when its conferences are open on
// another unit. Then it restarts the media server of another unit, whose agent survives. The units are processes of berth
// with simulated media servers.
func recovery(ctx context.Context, r *Run) (err error) {
	n := r.times(100)
	h, err := r.open(ctx, provider{tokens: 1})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, h.stop()) }()
	r.step("opening %d conferences", n)
	lost, err := h.unit(ctx, lostUnit, n)
	if err != nil {
		return err
	}
	defer lost.kill()
	numbers := h.numbers(n)
	if err := h.openConferences(ctx, numbers); err != nil {
		return err
	}
	other, err := h.unit(ctx, otherUnit, n)
	if err != nil {
		return err
	}
	defer other.kill()
	third, err := h.unit(ctx, "bench-unit-3", n)
	if err != nil {
		return err
	}
	defer third.kill()
	defer func() { err = errors.Join(err, h.endConferences(ctx, numbers)) }()
	r.step("kill -9 of the unit")
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
	after, err := h.recovered(ctx, numbers, 2, detected)
	if err != nil {
		return err
	}
	name := fmt.Sprintf("kill -9 of a unit with %d conferences: ", n)
	r.add(Figure{Name: name + "detection", Unit: "ms", Value: milliseconds(detected.Sub(killed))}.within(maximum(5000)))
	r.add(Figure{Name: name + "first open elsewhere, after detection", Unit: "ms", Value: milliseconds(after.at(0))})
	r.add(Figure{Name: name + "half open elsewhere, after detection", Unit: "ms", Value: milliseconds(after.at(0.5))})
	r.add(Figure{Name: name + "all open elsewhere, after detection", Unit: "ms", Value: milliseconds(after.at(1))}.within(maximum(1000)))

	moved := []string{}
	for c, err := range h.client.Conferences(ctx, berth.ConferenceOpen, otherUnit) {
		if err != nil {
			return err
		}
		moved = append(moved, c.E164)
	}
	r.step("restart of a media server with %d conferences", len(moved))
	restarted := time.Now()
	if err := other.restart(ctx); err != nil {
		return err
	}
	if after, err = h.recovered(ctx, moved, 3, restarted); err != nil {
		return err
	}
	name = "restart of a media server whose agent survives: "
	r.add(Figure{Name: name + "first open again, after the restart", Unit: "ms", Value: milliseconds(after.at(0))}.within(maximum(1000)))
	r.add(Figure{Name: name + "half open again, after the restart", Unit: "ms", Value: milliseconds(after.at(0.5))})
	r.add(Figure{Name: name + "all open again, after the restart", Unit: "ms", Value: milliseconds(after.at(1))})
	return nil
}

// unit is the process of a media unit with a simulated media server.
type unit struct {
	child
	control string // address of the simulated server's own API
}

// restart restarts the media server, which loses its conferences.
func (u unit) restart(ctx context.Context) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+u.control+"/restart", http.NoBody)
	if err != nil {
		return err
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return fmt.Errorf("restart the media server: %w", err)
	}
	return res.Body.Close()
}

// unit starts a media unit and returns when it is registered.
func (h *stack) unit(ctx context.Context, id string, slots int) (u unit, err error) {
	if u.control, err = freeAddr(); err != nil {
		return u, err
	}
	u.child, err = startChild(ctx, h.sim, h.env, "media", "--id", id, "--slots", strconv.Itoa(slots), "--control", u.control,
		"--api", h.url, "--token", h.token, "--log-level", "error")
	if err != nil {
		return u, err
	}
	err = pause.Until(ctx, opened, 100*time.Millisecond, func(ctx context.Context) error {
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

// numbers returns numbers of n conferences that are not those of another stack.
func (h *stack) numbers(n int) []string {
	first := 8_800_000_000 + 1000*rand.Int64N(99_999)
	numbers := make([]string, n)
	for i := range numbers {
		numbers[i] = strconv.FormatInt(first+int64(i), 10)
	}
	return numbers
}

// openConferences opens conferences.
func (h *stack) openConferences(ctx context.Context, numbers []string) error {
	_, err := concurrently(ctx, len(numbers), creators, func(ctx context.Context, i int) error { return h.openConference(ctx, numbers[i]) })
	return err
}

func (h *stack) openConference(ctx context.Context, number string) error {
	// The API may not know the unit yet.
	return pause.Until(ctx, opened, 100*time.Millisecond, func(ctx context.Context) error {
		_, err := h.client.CreateConference(ctx, client.ConferenceSpec{E164: number, DurationMs: time.Hour.Milliseconds()})
		return err
	})
}

// endConferences ends conferences, so that a later stack on the same servers has no work with them.
func (h *stack) endConferences(ctx context.Context, numbers []string) error {
	_, err := concurrently(ctx, len(numbers), creators, func(ctx context.Context, i int) error {
		_, err := h.client.EndConference(ctx, numbers[i])
		return err
	})
	return err
}

// recovered waits until all conferences are open in their segment of the given number, and returns the times from since to the
// start of these segments in the conferences' records.
func (h *stack) recovered(ctx context.Context, numbers []string, segment int, since time.Time) (after latencies, err error) {
	err = pause.Until(ctx, recoveredWithin, time.Second, func(ctx context.Context) error {
		after = nil
		for c, err := range h.client.Conferences(ctx, berth.ConferenceOpen, "") {
			if err != nil {
				return err
			}
			if len(c.Segments) >= segment && slices.Contains(numbers, c.E164) {
				after = append(after, c.Segments[segment-1].StartedAt.Sub(since))
			}
		}
		if len(after) < len(numbers) {
			return fmt.Errorf("only %d of %d conferences were recovered", len(after), len(numbers))
		}
		return nil
	})
	return after, err
}
