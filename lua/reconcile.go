package lua

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
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

// servers is implemented by clients that know which server of a Cluster has a key.
type servers interface {
	MasterForKey(ctx context.Context, key string) (*redis.Client, error)
}

// Turns passes the ids of the turns that have an affinity page by page, without order. An id may be passed twice. It scans all keys of
// the server.
func (s *Scripts) Turns(ctx context.Context, each func(ids []string) error) error {
	var server redis.Cmdable = s.rdb
	if all, ok := s.rdb.(servers); ok {
		one, err := all.MasterForKey(ctx, s.keys.Guard())
		if err != nil {
			return fmt.Errorf("find the server of the turns: %w", err)
		}
		server = one
	}
	prefix := s.keys.Turn("")
	for cursor := uint64(0); ; {
		keys, next, err := server.ScanType(ctx, cursor, escapePattern(prefix)+"*", scanPage, "hash").Result()
		if err != nil {
			return fmt.Errorf("scan turns: %w", err)
		}
		for i, key := range keys {
			keys[i] = strings.TrimPrefix(key, prefix)
		}
		if err := each(keys); err != nil {
			return err
		}
		if cursor = next; cursor == 0 {
			return nil
		}
	}
}

// escapePattern returns a pattern of SCAN that matches a text only.
func escapePattern(text string) string {
	return strings.NewReplacer(`\`, `\\`, `*`, `\*`, `?`, `\?`, `[`, `\[`, `]`, `\]`).Replace(text)
}

// HasTurn reports whether a turn has an affinity.
func (s *Scripts) HasTurn(ctx context.Context, turnID string) (bool, error) {
	n, err := s.rdb.Exists(ctx, s.keys.Turn(turnID)).Result()
	if err != nil {
		return false, fmt.Errorf("read turn: %w", err)
	}
	return n > 0, nil
}

// DropTurn deletes the affinity of a turn whose session is not known.
func (s *Scripts) DropTurn(ctx context.Context, turnID string) error {
	if err := s.rdb.Del(ctx, s.keys.Turn(turnID)).Err(); err != nil {
		return fmt.Errorf("delete turn: %w", err)
	}
	return nil
}

// LicensedNumbers passes the numbers of the conferences that have a licence page by page, without order. A number may be passed twice.
func (s *Scripts) LicensedNumbers(ctx context.Context, each func(numbers []string) error) error {
	for cursor := uint64(0); ; {
		numbers, next, err := s.rdb.SScan(ctx, s.keys.Licences(), cursor, "", scanPage).Result()
		if err != nil {
			return fmt.Errorf("read licences: %w", err)
		}
		if err := each(numbers); err != nil {
			return err
		}
		if cursor = next; cursor == 0 {
			return nil
		}
	}
}

// Leases passes the leases of Assign and SeizeNodeSlot page by page, without order. One may be passed twice, and may have expired.
func (s *Scripts) Leases(ctx context.Context, each func(leaseIDs []string) error) error {
	for cursor := uint64(0); ; {
		fields, next, err := s.rdb.HScan(ctx, s.keys.NodeLeases(), cursor, "", scanPage).Result()
		if err != nil {
			return fmt.Errorf("read leases: %w", err)
		}
		ids := make([]string, 0, len(fields)/2)
		for i := 0; i < len(fields); i += 2 { // fields and values, alternating
			ids = append(ids, fields[i])
		}
		if err := each(ids); err != nil {
			return err
		}
		if cursor = next; cursor == 0 {
			return nil
		}
	}
}

// HeldUntil returns until when a lease holds a slot of a node; zero when it does not.
func (s *Scripts) HeldUntil(ctx context.Context, nodeID, leaseID string) (time.Time, error) {
	score, err := s.rdb.ZScore(ctx, s.keys.NodeSlots(nodeID), leaseID).Result()
	if errors.Is(err, redis.Nil) {
		return time.Time{}, nil
	}
	if err != nil {
		return time.Time{}, fmt.Errorf("read slot: %w", err)
	}
	return time.UnixMilli(int64(score)), nil
}
