package fleet_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"berth"
	"berth/internal/fleet"
	"berth/internal/testredis"
	"berth/lua"
)

// sweepOnce starts a sweeper that sweeps once during the test, and returns after it has subscribed to the hints.
func sweepOnce(t *testing.T, f *fleet.Fleet, s *lua.Scripts, server *testredis.Server, opt fleet.SweeperOptions) {
	t.Helper()
	rdb := server.Client()
	listeners := func() int64 {
		n, err := rdb.PubSubNumSub(t.Context(), s.Keys().OutboxFilled()).Result()
		require.NoError(t, err)
		return n[s.Keys().OutboxFilled()]
	}
	before := listeners()
	opt.Every = time.Hour
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { _ = fleet.NewSweeper(f, opt).Run(ctx) })
	t.Cleanup(func() { cancel(); running.Wait() })
	require.Eventually(t, func() bool { return listeners() == before+1 }, waitLimit, time.Millisecond)
}

// await returns the next value of a channel.
func await[T any](t *testing.T, from <-chan T, what string) (v T) {
	t.Helper()
	select {
	case v = <-from:
	case <-time.After(waitLimit):
		require.FailNow(t, "waited too long", what)
	}
	return v
}

// A registration and a withdrawal are delivered immediately, not with the next sweep, and by one of the processes.
func TestSweeper_NodeRegistersOrWithdraws_NoticeDeliveredOnceImmediately(t *testing.T) {
	t.Parallel()
	f, s, server := follow(t)
	require.NoError(t, waitReady(t, f))
	notices := make(chan berth.NodeNotice, 100)
	for range 3 {
		sweepOnce(t, f, s, server, fleet.SweeperOptions{OnNotice: func(_ context.Context, n berth.NodeNotice) error {
			notices <- n
			return nil
		}})
	}
	for range 10 {
		r, err := s.RegisterNode(t.Context(), spec("n1", "c"), lua.Registration{Announce: true})
		require.NoError(t, err)
		require.Equal(t, berth.ArrivalRegistered, await(t, notices, "registration").Reason)
		_, err = s.WithdrawNode(t.Context(), "n1", r.Generation, berth.DepartureWithdrawn)
		require.NoError(t, err)
		n := await(t, notices, "withdrawal")
		require.Equal(t, berth.DepartureWithdrawn, n.Reason)
		require.Equal(t, r.Generation, n.Generation)
	}
	require.Empty(t, notices, "each notice is delivered by one process")
}

// C2: every event that gives a unit a free slot is delivered immediately. The link of a unit that has registered reports its
// capacity (C15).
func TestSweeper_UnitGetsFreeSlot_CapacityDelivered(t *testing.T) {
	t.Parallel()
	unit := func(slots int) berth.NodeSpec {
		u := spec("u1", berth.CapabilityConference)
		u.Kind, u.MaxConcurrentJobs = berth.NodeMedia, slots
		return u
	}
	hold := func(t *testing.T, s *lua.Scripts, h lua.Cordon) {
		t.Helper()
		require.NoError(t, s.CordonNode(t.Context(), "u1", h))
	}
	mark := func(t *testing.T, s *lua.Scripts, ttl time.Duration) {
		t.Helper()
		code, err := s.MarkUnavailable(t.Context(), "u1", berth.ServiceCommands, ttl)
		require.NoError(t, err)
		require.Equal(t, lua.NodeOK, code)
	}
	slot := func(g int64) berth.Assignment {
		return berth.Assignment{LeaseID: "a", NodeRef: berth.NodeRef{NodeID: "u1", Generation: g}, PoolID: berth.CapabilityConference}
	}
	seize := func(t *testing.T, s *lua.Scripts, g int64, ttl time.Duration) {
		t.Helper()
		code, err := s.RestoreNodeSlot(t.Context(), slot(g), ttl)
		require.NoError(t, err)
		require.Equal(t, lua.NodeSlotHeld, code)
	}
	for name, c := range map[string]struct {
		// lose takes the unit's only slot out of use, gain makes it free.
		lose, gain func(t *testing.T, s *lua.Scripts, generation int64)
		excluded   berth.ExcludeReason
	}{
		"uncordoned": {
			func(t *testing.T, s *lua.Scripts, _ int64) { t.Helper(); hold(t, s, lua.Cordon{Cordoned: true}) },
			func(t *testing.T, s *lua.Scripts, _ int64) { t.Helper(); hold(t, s, lua.Cordon{}) },
			berth.ExcludeCordoned,
		},
		"drain undone": {
			func(t *testing.T, s *lua.Scripts, _ int64) { t.Helper(); hold(t, s, lua.Cordon{Drain: time.Hour}) },
			func(t *testing.T, s *lua.Scripts, _ int64) { t.Helper(); hold(t, s, lua.Cordon{}) },
			berth.ExcludeDraining,
		},
		"more slots": {
			func(t *testing.T, s *lua.Scripts, g int64) { t.Helper(); seize(t, s, g, time.Hour) },
			func(t *testing.T, s *lua.Scripts, _ int64) {
				t.Helper()
				r, err := s.RegisterNode(t.Context(), unit(2), lua.Registration{Announce: true})
				require.NoError(t, err)
				require.Equal(t, lua.NodeExists, r.Code)
			},
			berth.ExcludeFull,
		},
		"slot released": {
			func(t *testing.T, s *lua.Scripts, g int64) { t.Helper(); seize(t, s, g, time.Hour) },
			func(t *testing.T, s *lua.Scripts, g int64) {
				t.Helper()
				held, err := s.ReleaseNodeSlot(t.Context(), "u1", slot(g).LeaseID)
				require.NoError(t, err)
				require.True(t, held)
			},
			berth.ExcludeFull,
		},
		"lease expired": {
			func(t *testing.T, s *lua.Scripts, g int64) { t.Helper(); seize(t, s, g, 2*time.Second) },
			func(t *testing.T, s *lua.Scripts, _ int64) { t.Helper(); sweepUntil(t, s, 1) },
			berth.ExcludeFull,
		},
		"service available again": {
			func(t *testing.T, s *lua.Scripts, _ int64) { t.Helper(); mark(t, s, time.Hour) },
			func(t *testing.T, s *lua.Scripts, _ int64) { t.Helper(); mark(t, s, 0) },
			"", // excluded only for work that needs the service
		},
		"no longer suspect": {
			func(t *testing.T, s *lua.Scripts, _ int64) { t.Helper(); sweepUntil(t, s, 0) },
			func(t *testing.T, s *lua.Scripts, g int64) {
				t.Helper()
				reply, err := s.HeartbeatNode(t.Context(), "u1", g, berth.NodeLoad{}, lua.Weights{Memory: 0.5})
				require.NoError(t, err)
				require.Equal(t, lua.NodeOK, reply.Code)
			},
			berth.ExcludeSuspect,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f, s, server := follow(t)
			require.NoError(t, waitReady(t, f))
			delivered := make(chan []string, 100)
			r, err := s.RegisterNode(t.Context(), unit(1), lua.Registration{})
			require.NoError(t, err)
			until(t, f, "registered", func(now *fleet.Snapshot) bool { return len(now.Nodes) == 1 })
			sweepOnce(t, f, s, server, fleet.SweeperOptions{OnCapacity: func(_ context.Context, ids []string) error { delivered <- ids; return nil }})
			require.Equal(t, []string{"u1"}, await(t, delivered, "the connection"))
			c.lose(t, s, r.Generation)
			now, err := s.ReadNodes(t.Context(), "u1")
			require.NoError(t, err)
			require.Equal(t, c.excluded, now["u1"].Excluded)
			require.Empty(t, delivered)
			c.gain(t, s, r.Generation)
			require.Equal(t, []string{"u1"}, await(t, delivered, name))
		})
	}
}

// sweepUntil sweeps until the expired leases of that many nodes were removed, or for 0 until u1 is suspect.
func sweepUntil(t *testing.T, s *lua.Scripts, purged int) {
	t.Helper()
	times := berth.NodeTimes{Suspect: 100 * time.Millisecond, Death: time.Hour}
	if purged > 0 {
		times.Suspect = time.Hour
	}
	require.Eventually(t, func() bool {
		got, err := s.SweepNodes(t.Context(), lua.SweepLimits{}, lua.SweepRule{Kind: berth.NodeMedia, Times: times})
		return err == nil && (purged > 0 && got.Purged >= purged || purged == 0 && slices.Contains(got.Suspects, "u1"))
	}, waitLimit, time.Millisecond)
}

// C2, C15: after a connection the capacity of all units is delivered, because messages may have been missed; failures are
// retried. Nodes that are not media units, and units that have just registered, are omitted.
func TestSweeper_ListenerConnects_CapacityOfAllUnitsDelivered(t *testing.T) {
	t.Parallel()
	f, s, _ := follow(t)
	require.NoError(t, waitReady(t, f))
	for _, id := range []string{"u1", "u2", "u3"} {
		u := spec(id, berth.CapabilityConference)
		u.Kind = berth.NodeMedia
		_, err := s.RegisterNode(t.Context(), u, lua.Registration{})
		require.NoError(t, err)
	}
	register(t, s, "n1", "c")
	until(t, f, "registered", func(now *fleet.Snapshot) bool { return len(now.Nodes) == 4 })
	delivered, tries := make(chan []string, 100), 0
	sweeping(t, f, fleet.SweeperOptions{OnCapacity: func(_ context.Context, ids []string) error {
		if tries++; tries < 3 {
			return errors.New("not now")
		}
		delivered <- ids
		return nil
	}})
	require.Equal(t, []string{"u1", "u2", "u3"}, await(t, delivered, "the connection"))

	_, err := s.WithdrawNode(t.Context(), "u2", 0, berth.DepartureWithdrawn)
	require.NoError(t, err)
	until(t, f, "gone", func(now *fleet.Snapshot) bool { return now.Nodes["u2"].State == berth.NodeDead })
	u := spec("u2", berth.CapabilityConference)
	u.Kind = berth.NodeMedia
	_, err = s.RegisterNode(t.Context(), u, lua.Registration{})
	require.NoError(t, err)
	for _, hold := range []lua.Cordon{{Cordoned: true}, {}} {
		for _, id := range []string{"n1", "u3"} {
			require.NoError(t, s.CordonNode(t.Context(), id, hold))
		}
	}
	require.Equal(t, []string{"u3"}, await(t, delivered, "the uncordoned unit"))
}
