package lua_test

import (
	"context"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"berth/internal/testredis"
	"berth/lua"
)

// testClock is the hash from which scripts of the tests of liveness read the time.
const testClock = "test:clock"

// testClockScripts returns the replacements that let a test set the time of the scripts. Keys do not expire then: each one has an expiry
// only in order to leave nothing behind.
var testClockScripts = []string{
	"redis.call('TIME')", "redis.call('HMGET', '" + testClock + "', 's', 'us')",
	"redis.call('PEXPIRE', ", "redis.call('EXISTS', ",
}

// ownTime is a Redis whose scripts follow a time that the test sets.
type ownTime struct {
	s   *lua.Scripts
	now time.Time
}

// newOwnTime also replaces texts in the scripts, old and new alternating.
func newOwnTime(tb testing.TB, replace ...string) *ownTime {
	o := &ownTime{s: lua.New(testredis.Start(tb).Client(), lua.Keys{})}
	replace = append(slices.Clone(testClockScripts), replace...)
	all := strings.Join(slices.Collect(maps.Values(lua.Sources())), "\n")
	for i := 0; i < len(replace); i += 2 {
		require.Contains(tb, all, replace[i], "no script has this text any more")
	}
	o.s.Replace(replace...)
	return o
}

// flush empties Redis, whose clock continues.
func (o *ownTime) flush(t tb) {
	_, err := o.s.Redis().Pipelined(context.Background(), func(p redis.Pipeliner) error {
		p.FlushAll(context.Background())
		p.HSet(context.Background(), testClock, "s", o.now.Unix(), "us", o.now.Nanosecond()/1000)
		return nil
	})
	require.NoError(t, err)
}

func (o *ownTime) pass(t tb, d time.Duration) {
	o.now = o.now.Add(d)
	require.NoError(t, o.s.Redis().HSet(context.Background(), testClock, "s", o.now.Unix(), "us", o.now.Nanosecond()/1000).Err())
}

// tb is the part of testing.TB that rapid's T has, too.
type tb interface {
	Helper()
	Errorf(format string, args ...any)
	FailNow()
}
