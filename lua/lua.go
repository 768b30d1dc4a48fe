// Package lua has the atomic Redis scripts that decide everything that processes share, one file each, with the typed Go
// method that runs each of them, and typed methods for plain commands. One script is one decision: every check comes
// before the first write, the time is Redis's own, and randomness is passed in.
package lua

import (
	"context"
	"crypto/rand"
	"embed"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/redis/go-redis/v9"
)

//go:embed *.lua
var sources embed.FS

// Scripts runs the scripts of this package against one Redis.
type Scripts struct {
	rdb  redis.UniversalClient
	keys Keys
	byID map[string]script
	// epoch is the highest one of the guard that this process has seen.
	epoch atomic.Int64
	// onPromotion is called with the promotions of each reply that has any.
	onPromotion atomic.Pointer[func([]Promotion)]
	// onHandover is called with the waiters of each reply that has reserved a node for any.
	onHandover atomic.Pointer[func([]string)]
}

// script is a script with the labels of its measurements.
type script struct {
	*redis.Script
	observed
}

// New prepares every embedded script. It does not call Redis.
func New(rdb redis.UniversalClient, keys Keys) *Scripts {
	s := &Scripts{rdb: rdb, keys: keys, byID: map[string]script{}}
	for name, sc := range scripts() {
		s.byID[name] = script{sc, observe(name)}
	}
	return s
}

// scripts returns every script with its hash, which are computed once.
var scripts = sync.OnceValue(func() map[string]*redis.Script {
	all := map[string]*redis.Script{}
	for name, src := range Sources() {
		all[name] = redis.NewScript(src)
	}
	return all
})

// Sources returns the text of every script with its includes, by name without ".lua".
func Sources() map[string]string {
	entries, err := sources.ReadDir(".")
	if err != nil {
		panic(fmt.Sprintf("read embedded scripts: %v", err)) // the binary itself is broken
	}
	out := make(map[string]string, len(entries))
	for _, e := range entries {
		b, err := sources.ReadFile(e.Name())
		if err != nil {
			panic(fmt.Sprintf("read embedded script %s: %v", e.Name(), err))
		}
		out[strings.TrimSuffix(e.Name(), ".lua")] = withIncludes(string(b))
	}
	return out
}

// Keys returns the names of the keys in this Redis.
func (s *Scripts) Keys() Keys { return s.keys }

// Subscribe opens a Pub/Sub connection; see redisconn.Listener, which is how it is used.
func (s *Scripts) Subscribe(ctx context.Context, channels ...string) *redis.PubSub {
	return s.rdb.Subscribe(ctx, channels...)
}

// TickChannel returns a new channel for Tick.
func (s *Scripts) TickChannel() string { return s.keys.Tick(rand.Text()) }

// Tick publishes an empty message where scripts publish: in a Cluster, on the master of the cell's slot. It returns how many
// connections to this server subscribe to the channel.
func (s *Scripts) Tick(ctx context.Context, channel string) (receivers int64, err error) {
	return s.publish(ctx, channel, "")
}

// publish publishes on the server on which scripts publish.
func (s *Scripts) publish(ctx context.Context, channel, payload string) (receivers int64, err error) {
	cmd := redis.NewIntCmd(ctx, "publish", channel, payload)
	cmd.SetFirstKeyPos(1) // otherwise go-redis publishes on any server of a Cluster
	_ = s.rdb.Process(ctx, cmd)
	return cmd.Result()
}

// Load puts every script into Redis's cache, so that the first calls do not send the sources.
func (s *Scripts) Load(ctx context.Context) error {
	for name, sc := range s.byID {
		if err := sc.Load(ctx, s.rdb).Err(); err != nil {
			return fmt.Errorf("load script %s: %w", name, err)
		}
	}
	return nil
}

// run executes a script by its hash, sending the source when Redis does not have it.
func (s *Scripts) run(ctx context.Context, name string, keys []string, args ...any) ([]any, error) {
	sc, ok := s.byID[name]
	if !ok {
		return nil, fmt.Errorf("script %s is not embedded", name)
	}
	ctx, end := sc.begin(ctx)
	res, err := sc.Run(ctx, s.rdb, keys, args...).Slice()
	end(err)
	if err != nil {
		return nil, fmt.Errorf("script %s: %w", name, err)
	}
	if len(res) == 0 {
		return nil, fmt.Errorf("script %s: empty reply", name)
	}
	return res, nil
}

// transaction executes commands in one transaction. Where Redis refuses one of them, the error is the reply to it, not that to EXEC, which
// does not state the cause.
func (s *Scripts) transaction(ctx context.Context, queue func(redis.Pipeliner) error) error {
	cmds, err := s.rdb.TxPipelined(ctx, queue)
	if redis.IsExecAbortError(err) {
		for _, cmd := range cmds {
			if refused := cmd.Err(); refused != nil && !redis.IsExecAbortError(refused) {
				return refused
			}
		}
	}
	return err
}

// replyError returns the error for a reply that the method of the script does not know, such as one of another version.
func replyError(name string, res []any) error {
	return fmt.Errorf("script %s: unexpected reply %v", name, res)
}
