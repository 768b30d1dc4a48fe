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

// scan passes what a scan of a key returns page by page.
func scan(
	ctx context.Context, what string, read func(_ context.Context, key string, cursor uint64, match string, count int64) *redis.ScanCmd,
	key string, each func([]string) error,
) error {
	for cursor := uint64(0); ; {
		page, next, err := read(ctx, key, cursor, "", scanPage).Result()
		if err != nil {
			return fmt.Errorf("read %s: %w", what, err)
		}
		if err := each(page); err != nil {
			return err
		}
		if cursor = next; cursor == 0 {
			return nil
		}
	}
}

// keysOf returns every second text: the fields of a hash without their values, or the members of a sorted set without their scores.
func keysOf(rows []string) []string {
	keys := make([]string, 0, len(rows)/2)
	for i := 0; i < len(rows); i += 2 {
		keys = append(keys, rows[i])
	}
	return keys
}

// Admitted is an admission of a task in a queue.
type Admitted struct {
	Task  string // text of its berth.TaskRef
	Until time.Time
}

// QueueAdmissions passes the admissions in a queue page by page, without order. An admission may be passed twice.
func (s *Scripts) QueueAdmissions(ctx context.Context, queue berth.Queue, each func([]Admitted) error) error {
	return scan(ctx, "admissions of "+string(queue), s.rdb.ZScan, s.keys.QueueAdmissions(queue), func(members []string) error {
		page := make([]Admitted, 0, len(members)/2)
		for i := 0; i+1 < len(members); i += 2 { // members and scores, alternating
			score, err := strconv.ParseFloat(members[i+1], 64)
			if err != nil {
				return fmt.Errorf("admission in %s: %w", queue, err)
			}
			page = append(page, Admitted{Task: members[i], Until: time.UnixMilli(int64(score))})
		}
		return each(page)
	})
}

// AdmittedUntil returns until when a task is admitted to any of these queues; zero when it is not.
func (s *Scripts) AdmittedUntil(ctx context.Context, task berth.TaskRef, queues []berth.Queue) (until time.Time, err error) {
	scores := make([]*redis.FloatCmd, len(queues))
	_, err = s.rdb.Pipelined(ctx, func(p redis.Pipeliner) error {
		for i, q := range queues {
			scores[i] = p.ZScore(ctx, s.keys.QueueAdmissions(q), task.String())
		}
		return nil
	})
	if err != nil && err != redis.Nil { //nolint:errorlint // a pipeline returns the first error as it is
		return until, fmt.Errorf("read the admissions of a task: %w", err)
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
	hashes := func(ctx context.Context, prefix string, cursor uint64, _ string, count int64) *redis.ScanCmd {
		return server.ScanType(ctx, cursor, escapePattern(prefix)+"*", count, "hash")
	}
	prefix := s.keys.Turn("")
	return scan(ctx, "turns", hashes, prefix, func(keys []string) error {
		for i, key := range keys {
			keys[i] = strings.TrimPrefix(key, prefix)
		}
		return each(keys)
	})
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
	return scan(ctx, "licences", s.rdb.SScan, s.keys.Licences(), each)
}

// Leases passes the leases of Assign and RestoreNodeSlot page by page, without order. One may be passed twice, and may have expired.
func (s *Scripts) Leases(ctx context.Context, each func(leaseIDs []string) error) error {
	return scan(ctx, "leases", s.rdb.HScan, s.keys.NodeLeases(), func(rows []string) error { return each(keysOf(rows)) })
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

// Member is the entry of a node in the indexes of a class; see include/fleet.lua.
type Member struct{ NodeID, Class string }

// MembersWithoutNode passes the members of classes in which their nodes are not registered, without order. One may be passed twice.
// Entries only in the index of locations are not read.
func (s *Scripts) MembersWithoutNode(ctx context.Context, each func(Member) error) error {
	return scan(ctx, "classes", s.rdb.HScan, s.keys.Classes(), func(rows []string) error {
		for _, class := range keysOf(rows) {
			considered := func(ids []string) error { return s.unregistered(ctx, class, ids, each) }
			if err := scan(ctx, "nodes of a class", s.rdb.SScan, s.keys.classNodes(class), considered); err != nil {
				return err
			}
			if err := scan(ctx, "free nodes of a class", s.rdb.ZScan, s.keys.ClassFree(class), func(rows []string) error {
				return considered(keysOf(rows))
			}); err != nil {
				return err
			}
		}
		return nil
	})
}

// unregistered passes those of the nodes that are not registered in the class.
func (s *Scripts) unregistered(ctx context.Context, class string, ids []string, each func(Member) error) error {
	if len(ids) == 0 { // a page of a scan may be empty
		return nil
	}
	rows, err := s.rdb.HMGet(ctx, s.keys.NodeBriefs(), ids...).Result()
	if err != nil {
		return fmt.Errorf("read nodes of a class: %w", err)
	}
	for i, id := range ids {
		row, _ := rows[i].(string)
		if _, registered := brief(row); registered == class {
			continue
		}
		if err := each(Member{id, class}); err != nil {
			return err
		}
	}
	return nil
}

// IsMemberWithoutNode reports whether a class has a node that is not registered in it.
func (s *Scripts) IsMemberWithoutNode(ctx context.Context, m Member) (bool, error) {
	var row *redis.StringCmd
	var member *redis.BoolCmd
	var free *redis.FloatCmd
	err := s.transaction(ctx, func(p redis.Pipeliner) error { // a node that moves to another class is in one of them
		row = p.HGet(ctx, s.keys.NodeBriefs(), m.NodeID)
		member = p.SIsMember(ctx, s.keys.classNodes(m.Class), m.NodeID)
		free = p.ZScore(ctx, s.keys.ClassFree(m.Class), m.NodeID)
		return nil
	})
	if err != nil && !errors.Is(err, redis.Nil) {
		return false, fmt.Errorf("read member of a class: %w", err)
	}
	_, registered := brief(row.Val())
	return registered != m.Class && (member.Val() || free.Err() == nil), nil
}

// DropMember removes a member without a node from the indexes of a class. It returns NodeOK, or NodeExists and nothing changed where the
// node is registered in the class.
func (s *Scripts) DropMember(ctx context.Context, m Member) (code string, err error) {
	return s.code(ctx, "drop_member", []string{s.keys.NodeBriefs()}, s.keys.stem(), m.NodeID, m.Class)
}
