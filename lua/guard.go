package lua

import (
	"context"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"
)

// What check_guard answers, and what the scripts that take slots answer instead of a slot (L12).
const (
	GuardGrace   = "GRACE" // Redis may have forgotten leases: nothing is granted for a time
	GuardUnknown = "GUARD" // there is no guard: check_guard has to write it
)

// Grace is the last time for which a Redis that may have forgotten leases grants nothing.
type Grace struct {
	// Until is its end by Redis's clock, which names it; zero when there never was one.
	Until time.Time
	// Left is how long it still lasts; negative is how long it has been over.
	Left time.Duration
}

// CheckGuard sees whether this Redis is the one that knows every lease, and opens a grace of NodeGrace when it may
// not be. It answers the last grace, whether it is over or not.
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

// guarded are the scripts that may grant only where the guard was checked.
func guarded(name string) bool { return name == "assign" || name == "dispatch_job" }

// runGuarded runs a script that may grant only where the guard was checked. Asking the server for its run id each
// time would cost a tenth of a decision, so the server's script cache tells: it is empty in a new process and not
// replicated, and these scripts enter it here only, after the check.
func (s *Scripts) runGuarded(ctx context.Context, name string, keys []string, args ...any) ([]any, error) {
	sc := s.byID[name]
	for checked := false; ; checked = true {
		res, err := sc.EvalSha(ctx, s.rdb, keys, args...).Slice()
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
