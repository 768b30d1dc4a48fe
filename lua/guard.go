package lua

import (
	"context"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"
)

// Codes of check_guard, which the scripts that take slots also return instead of a slot.
const (
	GuardGrace   = "GRACE" // Redis may have lost leases: nothing is granted for a time
	GuardUnknown = "GUARD" // there is no guard: CheckGuard has to write it
)

// Grace is a time for which a Redis that may have lost leases grants nothing.
type Grace struct {
	// Until is its end by Redis's clock, which identifies it; zero when there never was one.
	Until time.Time
	// Left is how long it still lasts; negative: the time since its end.
	Left time.Duration
}

// CheckGuard determines whether this Redis is the one that has every lease, and opens a grace of NodeGrace when it may not
// be. It returns the last grace, whether or not it has ended.
func (s *Scripts) CheckGuard(ctx context.Context) (Grace, error) {
	const name = "check_guard"
	res, err := s.run(ctx, name, []string{s.keys.Guard()}, millis(NodeGrace))
	if err != nil {
		return Grace{}, err
	}
	if len(res) == 3 {
		left, ok := res[1].(int64)
		until, okUntil := res[2].(string)
		if ok && okUntil {
			return Grace{Until: msTime(until), Left: time.Duration(left) * time.Millisecond}, nil
		}
	}
	return Grace{}, replyError(name, res)
}

// guarded reports whether a script may grant only where the guard was checked.
func guarded(name string) bool { return name == "assign" || name == "dispatch_job" }

// runGuarded runs a script that may grant only where the guard was checked. Reading the server's run id each time would
// cost a tenth of a decision. Instead, the server's script cache shows whether it was checked: the cache is empty in a new
// process and is not replicated, and these scripts enter it only here, after the check.
func (s *Scripts) runGuarded(ctx context.Context, name string, keys []string, args ...any) (res []any, err error) {
	sc := s.byID[name]
	ctx, end := sc.begin(ctx)
	defer func() { end(err) }()
	for checked := false; ; checked = true {
		res, err = sc.EvalSha(ctx, s.rdb, keys, args...).Slice()
		if redis.HasErrorPrefix(err, "NOSCRIPT") {
			if _, err := s.CheckGuard(ctx); err != nil {
				return nil, err
			}
			res, err = sc.Eval(ctx, s.rdb, keys, args...).Slice()
		}
		if err != nil {
			return nil, fmt.Errorf("script %s: %w", name, err)
		}
		if len(res) == 0 {
			return nil, replyError(name, res)
		}
		if res[0] != GuardUnknown || checked {
			return res, nil
		}
		if _, err := s.CheckGuard(ctx); err != nil {
			return nil, err
		}
	}
}
