package lua

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"

	"berth"
)

// scanPage is about how many members one call of a scan returns.
const scanPage = 1000

// Place is a place of a task in a queue.
type Place struct {
	Task  string // text of its berth.TaskRef
	Until time.Time
}

// QueuePlaces passes the places in a queue page by page, without order. A place may be passed twice.
func (s *Scripts) QueuePlaces(ctx context.Context, queue berth.Queue, each func([]Place) error) error {
	for cursor := uint64(0); ; {
		members, next, err := s.rdb.ZScan(ctx, s.keys.QueuePlaces(queue), cursor, "", scanPage).Result()
		if err != nil {
			return fmt.Errorf("read the places of %s: %w", queue, err)
		}
		page := make([]Place, 0, len(members)/2)
		for i := 0; i+1 < len(members); i += 2 { // members and scores, alternating
			score, err := strconv.ParseFloat(members[i+1], 64)
			if err != nil {
				return fmt.Errorf("place in %s: %w", queue, err)
			}
			page = append(page, Place{Task: members[i], Until: time.UnixMilli(int64(score))})
		}
		if err := each(page); err != nil {
			return err
		}
		if cursor = next; cursor == 0 {
			return nil
		}
	}
}

// PlaceOf returns until when a task has a place in any of these queues; zero when it has none.
func (s *Scripts) PlaceOf(ctx context.Context, task berth.TaskRef, queues []berth.Queue) (until time.Time, err error) {
	scores := make([]*redis.FloatCmd, len(queues))
	_, err = s.rdb.Pipelined(ctx, func(p redis.Pipeliner) error {
		for i, q := range queues {
			scores[i] = p.ZScore(ctx, s.keys.QueuePlaces(q), task.String())
		}
		return nil
	})
	if err != nil && err != redis.Nil { //nolint:errorlint // a pipeline returns the first error as it is
		return until, fmt.Errorf("read the place of a task: %w", err)
	}
	for _, score := range scores {
		if at := time.UnixMilli(int64(score.Val())); score.Val() > 0 && at.After(until) {
			until = at
		}
	}
	return until, nil
}
