package activities

import (
	"context"
	"math"

	"berth"
	"berth/internal/ledger"
	"berth/internal/starter"
	"berth/lua"
	"berth/workflows"
)

// maxWaiting is how many waiting conferences are considered: there may be capacity only in a zone that few of them need.
const maxWaiting = 1000

// minWaitingPage is how many more conferences are read at a time than there is capacity for.
const minWaitingPage = 10

// WakeWaiting notifies as many waiting conferences as the unit has capacity for.
func (l *Links) WakeWaiting(ctx context.Context, in berth.NodeRef) error {
	if err := l.WakeFor(ctx, []string{in.NodeID}); err != nil {
		return unavailable("waiting conferences not notified", err)
	}
	return nil
}

// WakeFor notifies as many waiting conferences as the units have capacity for.
func (l *Links) WakeFor(ctx context.Context, unitIDs []string) error {
	free, err := freeCapacity(ctx, l.Scripts, unitIDs)
	if err != nil {
		return err
	}
	return wakeWaiting(ctx, l.Ledger, l.Starter, free, math.MaxInt)
}

// freeCapacity returns how many more conferences the units accept, by zone.
func freeCapacity(ctx context.Context, scripts *lua.Scripts, unitIDs []string) (map[string]int, error) {
	units, err := scripts.ReadNodes(ctx, unitIDs...)
	free := map[string]int{}
	for _, u := range units {
		if u.Kind == berth.NodeMedia && u.Excluded == "" {
			free[u.Zone] += u.MaxConcurrentJobs - u.Leases
		}
	}
	return free, err
}

// wakeWaiting notifies waiting conferences of the free capacity in each zone, limit of them at most. A conference without
// a zone can use the capacity of any zone.
func wakeWaiting(ctx context.Context, l *ledger.Ledger, s *starter.Starter, free map[string]int, limit int) error {
	left := 0
	for _, n := range free {
		left += n
	}
	if left = min(left, limit); left <= 0 {
		return nil
	}
	var wake []berth.Conference
	for skip := 0; left > 0 && skip < maxWaiting; {
		// Usually the first ones can use the capacity.
		page, err := l.WaitingConferences(ctx, skip, min(left+minWaitingPage, maxWaiting-skip))
		if err != nil {
			return err
		}
		for _, c := range page {
			if left == 0 || c.Zone != "" && !c.ZoneFallback && free[c.Zone] <= 0 {
				continue
			}
			left--
			if c.Zone != "" && free[c.Zone] > 0 {
				free[c.Zone]--
			}
			wake = append(wake, c)
		}
		if skip += len(page); len(page) == 0 {
			break
		}
	}
	if left > 0 { // those that wait for recovery come first
		moving, err := l.MovingConferences(ctx, left)
		if err != nil {
			return err
		}
		wake = append(wake, moving...)
	}
	return s.SignalConferences(ctx, numbersOf(wake), workflows.SignalCapacity, nil)
}

func numbersOf(rows []berth.Conference) []string {
	numbers := make([]string, len(rows))
	for i, c := range rows {
		numbers[i] = c.E164
	}
	return numbers
}
