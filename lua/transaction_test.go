package lua_test

import (
	"context"
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"

	"berth"
	"berth/internal/redisconn"
	"berth/internal/testredis"
	"berth/lua"
)

// FI3: the cause why Redis refuses a transaction is its reply to a command, and not the one to the transaction.
func TestTransaction_RedisRefusesCommand_CauseIsReturned(t *testing.T) {
	t.Parallel()
	server := testredis.Start(t)
	s := lua.New(server.Client(), lua.Keys{Cell: testredis.Cell(t)})
	calls := map[string]func(context.Context) error{
		"tenant":   func(ctx context.Context) error { return s.BindTenant(ctx, "acme", "fast") },
		"unbound":  func(ctx context.Context) error { return s.BindTenant(ctx, "acme", "") },
		"fleet":    func(ctx context.Context) error { return s.PutFleetConfig(ctx, berth.DefaultFleetConfig()) },
		"services": func(ctx context.Context) error { return s.PutServices(ctx, json.RawMessage(`{}`)) },
		"member": func(ctx context.Context) error {
			_, err := s.IsMemberWithoutNode(ctx, lua.Member{NodeID: "n", Class: "c"})
			return err
		},
	}
	for name, state := range map[string]struct {
		set, undo []any
		reply     string
		reads     bool // are refused as well
	}{
		"too few replicas":           {[]any{"CONFIG", "SET", "min-replicas-to-write", "1"}, []any{"CONFIG", "SET", "min-replicas-to-write", "0"}, "NOREPLICAS", false},
		"replica":                    {[]any{"REPLICAOF", "127.0.0.1", "1"}, []any{"REPLICAOF", "NO", "ONE"}, "READONLY", false},
		"no rights on configuration": {[]any{"ACL", "SETUSER", "default", "-hset", "-hdel", "-set", "-hget"}, []any{"ACL", "SETUSER", "default", "+@all"}, "NOPERM", true},
	} {
		server.Do(state.set...)
		for call, do := range calls {
			if call == "member" && !state.reads {
				continue
			}
			err := do(t.Context())
			require.ErrorContains(t, err, state.reply, "%s: %s", name, call)
			require.True(t, redisconn.Unavailable(err), "%s: %s", name, call)
		}
		server.Do(state.undo...)
		for call, do := range calls {
			require.NoError(t, do(t.Context()), "%s: %s", name, call)
		}
	}
}
