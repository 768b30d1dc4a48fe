package activities

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"berth"
	"berth/internal/placement"
	"berth/lua"
	"berth/workflows"
)

// lossyConn is a connection that, once armed, receives the server's next reply and closes without passing it on.
type lossyConn struct {
	net.Conn
	armed *atomic.Bool
}

func (c lossyConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if n > 0 && c.armed.CompareAndSwap(true, false) {
		_ = c.Close() // it may be closed
		return 0, errors.New("the answer is lost")
	}
	return n, err
}

// lossyScripts returns scripts on a Redis whose next reply is lost once armed.
func (h turnTest) lossyScripts() (s *lua.Scripts, armed *atomic.Bool) {
	h.t.Helper()
	armed = new(atomic.Bool)
	rdb := redis.NewClient(&redis.Options{
		Addr: h.server.Addr(), MaxRetries: -1, ContextTimeoutEnabled: true, PoolSize: 1,
		Dialer: func(ctx context.Context, network, addr string) (net.Conn, error) {
			conn, err := (&net.Dialer{}).DialContext(ctx, network, addr)
			return lossyConn{conn, armed}, err
		},
	})
	h.t.Cleanup(func() { _ = rdb.Close() })
	require.NoError(h.t, rdb.Ping(h.t.Context()).Err())
	return lua.New(rdb, h.Scripts.Keys()), armed
}

// P6: Redis has executed the script and its reply is lost; a retry changes nothing.
func TestTurns_ReplyLost_AreIdempotent(t *testing.T) {
	t.Parallel()
	h := newTurnTest(t, "n1")
	scripts, armed := h.lossyScripts()
	cut := &Turns{
		NodeSlots: NodeSlots{scripts, h.Fleet, slog.New(slog.DiscardHandler)}, Placer: placement.New(scripts, h.Fleet), StreamTTL: time.Hour, StreamTrim: 1000,
	}
	// The scripts are cached by the server, so that the lost reply is that of the decision.
	warm, err := h.DispatchJob(t.Context(), jobOf("t0", 0))
	require.NoError(t, err)
	slots := func(a berth.Assignment) workflows.HeldSlots {
		return workflows.HeldSlots{Slots: []workflows.HeldSlot{{Assignment: a, Left: time.Hour}}}
	}
	_, err = h.ConfirmSlots(t.Context(), slots(warm))
	require.NoError(t, err)
	require.NoError(t, h.ReleaseSlots(t.Context(), slots(warm)))
	require.NoError(t, h.FinalizeTurn(t.Context(), workflows.TurnRef{SessionID: "s1", TurnID: "t0"}))
	said := workflows.TurnEvents{UserID: "alice", SessionID: "s1", TurnID: "t1", First: 1, Events: []berth.SessionEvent{{Type: berth.EventTurn}}}
	other := said
	other.SessionID = "s0"
	require.NoError(t, h.PublishTurn(t.Context(), other))

	twice := func(what string, do func() error) {
		armed.Store(true)
		require.Error(t, do(), what)
		require.False(t, armed.Load(), what)
		require.NoError(t, do(), what)
	}
	var first berth.Assignment
	twice("dispatch", func() (err error) { first, err = cut.DispatchJob(t.Context(), jobOf("t1", 0)); return err })
	require.Equal(t, 1, h.leases("n1"))
	require.Equal(t, berth.AffinityFirst, first.Affinity)
	twice("confirm", func() error {
		kept, err := cut.ConfirmSlots(t.Context(), slots(first))
		require.True(t, err != nil || kept.Slots[0].Held)
		return err
	})
	require.Equal(t, 1, h.leases("n1"))
	twice("release", func() error { return cut.ReleaseSlots(t.Context(), slots(first)) })
	require.Zero(t, h.leases("n1"))
	twice("publish", func() error { return cut.PublishTurn(t.Context(), said) })
	_, entries, err := h.Scripts.ReadStream(t.Context(), lua.SessionChannel("alice", "s1"), "", 10)
	require.NoError(t, err)
	require.Len(t, entries, 1)
	twice("finalize", func() error {
		return cut.FinalizeTurn(t.Context(), workflows.TurnRef{SessionID: "s1", TurnID: "t1"})
	})
	n, err := h.server.Client().Exists(t.Context(), h.Scripts.Keys().Turn("t1")).Result()
	require.NoError(t, err)
	require.Zero(t, n)
}

// P6 for executions.
func TestExecutions_ReplyLost_AreIdempotent(t *testing.T) {
	t.Parallel()
	h := newTurnTest(t, "n1")
	scripts, armed := h.lossyScripts()
	whole := &Executions{NodeSlots: h.NodeSlots, Placer: h.Placer}
	cut := &Executions{NodeSlots: NodeSlots{scripts, h.Fleet, h.Logger}, Placer: placement.New(scripts, h.Fleet)}
	in := func(execution string) workflows.AssignInput {
		return workflows.AssignInput{Wait: waitingFor(enES, execution, 1), Where: berth.Requirements{PoolID: enES}}
	}
	held := func(r workflows.AssignReply) workflows.HeldSlots {
		return workflows.HeldSlots{Slots: []workflows.HeldSlot{{Assignment: r.Assignment, Left: time.Hour}}}
	}
	warm, err := whole.AssignNode(t.Context(), in("warm"))
	require.NoError(t, err)
	_, err = whole.ConfirmSlots(t.Context(), held(warm))
	require.NoError(t, err)
	require.NoError(t, whole.ReleaseSlots(t.Context(), held(warm)))

	twice := func(what string, do func() error) {
		armed.Store(true)
		require.Error(t, do(), what)
		require.False(t, armed.Load(), what)
		require.NoError(t, do(), what)
	}
	var reply workflows.AssignReply
	twice("assign", func() (err error) { reply, err = cut.AssignNode(t.Context(), in("e")); return err })
	require.True(t, reply.Existed)
	require.Equal(t, 1, h.leases("n1"))
	twice("confirm", func() error {
		kept, err := cut.ConfirmSlots(t.Context(), held(reply))
		require.True(t, err != nil || kept.Slots[0].Held)
		return err
	})
	require.Equal(t, 1, h.leases("n1"))
	twice("release", func() error { return cut.ReleaseSlots(t.Context(), held(reply)) })
	require.Zero(t, h.leases("n1"))
	_, ok, err := h.Scripts.FindLease(t.Context(), "execution:e:1")
	require.NoError(t, err)
	require.False(t, ok, "nor is it remembered")
}
