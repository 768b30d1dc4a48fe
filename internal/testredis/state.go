package testredis

import (
	"context"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"berth/internal/pause"
)

// State is one in which a server cannot be worked with, and what has to be said about it.
type State struct {
	Name string
	// Set brings a server into the state, and Undo back.
	Set, Undo func(*Admin)
	// Code and Setting are those of the reason, Reply is the beginning of the server's own.
	Code, Setting, Reply string
	// Setup means that a process does not start with it.
	Setup bool
}

// Admin changes the state of a server. It has one connection, so that it can undo a state in which no further one is accepted.
type Admin struct {
	tb    testing.TB
	Redis *redis.Client
}

// Admin returns one whose connection is closed when the test ends.
func (s *Server) Admin() *Admin {
	c := redis.NewClient(&redis.Options{Addr: s.Addr(), MaxRetries: -1, PoolSize: 1, MinIdleConns: 1})
	s.tb.Cleanup(func() { _ = c.Close() })
	return &Admin{s.tb, c}
}

// Do runs a command, whose words are separated by spaces; an empty word is ”.
func (a *Admin) Do(commands ...string) {
	a.tb.Helper()
	for _, command := range commands {
		var args []any
		for word := range strings.FieldsSeq(command) {
			args = append(args, strings.ReplaceAll(strings.ReplaceAll(word, "''", ""), "_", " "))
		}
		if err := a.Redis.Do(context.Background(), args...).Err(); err != nil {
			a.tb.Fatalf("%s: %v", command, err)
		}
	}
}

// await waits until INFO contains a text.
func (a *Admin) await(text string) {
	a.tb.Helper()
	err := pause.Until(context.Background(), startTimeout, pauseTime, func(ctx context.Context) error {
		if info := a.Redis.Info(ctx).Val(); !strings.Contains(info, text) {
			return fmt.Errorf("INFO has no %s: %s", text, info)
		}
		return nil
	})
	if err != nil {
		a.tb.Fatal(err)
	}
}

func do(commands ...string) func(*Admin) { return func(a *Admin) { a.Do(commands...) } }

// newConnections ends the connections of others, so that they have to make new ones.
const newConnections = "CLIENT KILL TYPE normal SKIPME yes"

// permit gives the default user all permissions.
const permit = "ACL SETUSER default on nopass ~* &* +@all"

// States returns the states into which a running server can be brought.
func States() []State {
	const user, addr = "BERTH_REDIS_USER", "BERTH_REDIS_ADDR"
	master := do("REPLICAOF NO ONE", "CONFIG SET replica-serve-stale-data yes", "CONFIG SET replica-read-only yes")
	denied := func(name, reply string, rules ...string) State {
		return State{
			Name: name, Set: do("ACL SETUSER default " + strings.Join(rules, " ")), Undo: do(permit),
			Code: "permission", Setting: user, Reply: reply, Setup: true,
		}
	}
	return []State{
		{Name: "replica", Set: do("REPLICAOF 127.0.0.1 1"), Undo: master, Code: "read_only", Setting: addr, Reply: "READONLY You can't write"},
		{
			Name: "writable replica", Set: do("CONFIG SET replica-read-only no", "REPLICAOF 127.0.0.1 1"), Undo: master,
			Code: "read_only", Setting: addr, Reply: "READONLY the server is a replica",
		},
		{
			Name: "replica without its master", Set: do("CONFIG SET replica-serve-stale-data no", "REPLICAOF 127.0.0.1 1"), Undo: master,
			Code: "master_down", Setting: addr, Reply: "MASTERDOWN Link",
		},
		{
			Name: "full memory", Set: do("CONFIG SET maxmemory 1"), Undo: do("CONFIG SET maxmemory 0"),
			Code: "memory_full", Setting: "maxmemory", Reply: "OOM command not allowed",
		},
		{
			Name: "too few replicas", Set: do("CONFIG SET min-replicas-to-write 1"), Undo: do("CONFIG SET min-replicas-to-write 0"),
			Code: "no_replicas", Setting: "min-replicas-to-write", Reply: "NOREPLICAS Not enough",
		},
		{
			Name: "disk", Set: loseDirectory, Undo: do("CONFIG SET save ''"),
			Code: "disk", Setting: "dir", Reply: "MISCONF Redis is configured to save",
		},
		{
			Name: "too many clients", Set: do("CONFIG SET maxclients 1", newConnections), Undo: do("CONFIG SET maxclients 1000"),
			Code: "too_many_clients", Setting: "maxclients", Reply: "max number of clients",
		},
		{
			Name: "password", Set: do("ACL SETUSER default resetpass >other", newConnections), Undo: do(permit),
			Code: "credentials", Setting: "BERTH_REDIS_PASSWORD", Reply: "", Setup: true,
		},
		denied("no scripts", "NOPERM", "-eval", "-evalsha"),
		denied("no keys", "NOPERM", "resetkeys", "~lease:*"),
		denied("no channels", "The user executing the script can't publish", "resetchannels"),
		denied("no PUBLISH", "The user executing the script can't run", "-publish"),
		denied("no writes", "The user executing the script can't run", "-set"),
		denied("no INFO", "", "-info"),
	}
}

// loseDirectory removes the directory of the server, so that it cannot save.
func loseDirectory(a *Admin) {
	a.tb.Helper()
	if err := os.RemoveAll(a.Redis.ConfigGet(context.Background(), "dir").Val()["dir"]); err != nil {
		a.tb.Fatal(err)
	}
	a.Do("CONFIG SET save 3600_1", "BGSAVE")
	a.await("rdb_last_bgsave_status:err")
}
