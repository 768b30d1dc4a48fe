package bench

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"

	"berth"
	"berth/lua"
)

// waitingTimes let nothing expire while a benchmark runs.
var waitingTimes = lua.SlotTimes{TTL: time.Hour, Grant: time.Hour}

// waiters measures what acquiring and releasing a slot costs Redis while others wait for the model.
func (r *Run) waiters(ctx context.Context) (err error) {
	rdb := redisClient(r.Config)
	defer func() { err = errors.Join(err, rdb.Close()) }()
	few, many := r.times(1000), r.times(100_000)
	var baseline float64
	for _, n := range []int{few, many} {
		r.step("slots with %d waiters", n)
		us, err := waitersCost(ctx, rdb, n)
		if err != nil {
			return err
		}
		f := Figure{Name: fmt.Sprintf("acquire or release a slot while %d calls wait: time in Redis", n), Unit: "us", Value: us}
		if n == many {
			f = f.beside(fmt.Sprintf("the same while %d calls wait", few), baseline).within(maxRatio(1.5))
		}
		baseline = us
		r.add(f)
	}
	return nil
}

// waitersCost returns the median time, in microseconds, for which one script occupied Redis.
func waitersCost(ctx context.Context, rdb *redis.Client, waiters int) (float64, error) {
	const model, batch, chunks, pairs = "m", 500, 20, 200
	queues := []berth.Queue{"a", "b", "c", "d", "e", "f"}
	s := lua.New(rdb, lua.Keys{Cell: "waiters-" + berth.NewID("")})
	limits := lua.OneUpstream(slotCap)
	limits.UserCap, limits.Queues = slotCap, map[berth.Queue]int{"a": 8, "b": 4, "c": 4, "d": 2}
	if _, err := s.MarkNew(ctx); err != nil {
		return 0, err
	}
	lease := func(queue berth.Queue, user, n int) string {
		return lua.Lease{Process: "p", Path: lua.Path{Queue: queue, UserID: "user" + strconv.Itoa(user)}, Rest: strconv.Itoa(n)}.ID()
	}
	acquire := func(i int) error {
		_, err := s.AcquireSlot(ctx, lua.SlotCall{Model: model, Limits: limits, Lease: lease(queues[0], i, i), Times: waitingTimes})
		return err
	}
	for i := range slotCap {
		if err := acquire(i); err != nil {
			return 0, err
		}
	}
	for from := 0; from < waiters; from += batch {
		m := lua.ModelLeases{Model: model, Limits: limits}
		for i := from; i < min(waiters, from+batch); i++ {
			queue := queues[i%len(queues)]
			m.Waiters = append(m.Waiters, lua.WaitingLease{Lease: lease(queue, i%max(1, waiters/10), 1_000_000+i)})
		}
		if _, _, err := s.RenewSlots(ctx, waitingTimes, []lua.ModelLeases{m}); err != nil {
			return 0, err
		}
	}
	var us []float64
	for chunk := range chunks {
		before, err := scripts(ctx, rdb)
		if err != nil {
			return 0, err
		}
		for i := range pairs {
			if err := acquire(slotCap + chunk*pairs + i); err != nil {
				return 0, err
			}
			holders, err := rdb.ZRange(ctx, s.Keys().ModelHolders(model), 0, 0).Result()
			if err != nil {
				return 0, fmt.Errorf("read holders: %w", err)
			}
			if _, _, err := s.ReleaseSlot(ctx, model, limits, waitingTimes, holders[0]); err != nil {
				return 0, err
			}
		}
		after, err := scripts(ctx, rdb)
		if err != nil {
			return 0, err
		}
		us = append(us, float64(after.microseconds-before.microseconds)/float64(after.calls-before.calls))
	}
	slices.Sort(us)
	return us[len(us)/2], nil
}
