package lua_test

import (
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"berth"
	"berth/internal/testredis"
	"berth/lua"
)

// failback is a master that another server replaced for a time, in which it granted a lease that the first does not have.
// Both processes run throughout, so that the first has every script in its cache and its old run id.
type failback struct {
	first, second *testredis.Server
	s, other      *lua.Scripts // of the first and of the second server
}

func newFailback(t *testing.T) *failback {
	t.Helper()
	f := &failback{first: testredis.Start(t), second: testredis.Start(t, "--repl-diskless-sync-delay", "0")}
	f.replicate(t, f.second, f.first)
	keys := lua.Keys{Cell: testredis.Cell(t)}
	f.s, f.other = lua.New(f.first.Client(), keys), lua.New(f.second.Client(), keys)
	_, err := f.s.MarkNew(t.Context())
	require.NoError(t, err)
	return f
}

// replicate makes a server a replica and waits until it is connected.
func (f *failback) replicate(t *testing.T, replica, master *testredis.Server) {
	t.Helper()
	host, port := "127.0.0.1", master.Addr()[len("127.0.0.1:"):]
	replica.Do("REPLICAOF", host, port)
	awaitSynced(t, master)
}

// awaitSynced waits until the replica of a master has everything.
func awaitSynced(t *testing.T, master *testredis.Server) {
	t.Helper()
	require.Eventually(t, func() bool {
		return master.Client().Do(t.Context(), "WAIT", 1, 100).Val() == int64(1)
	}, 10*time.Second, 5*time.Millisecond)
}

// L12: a master that returns after a failover lacks the leases that were granted meanwhile, and grants nothing until their
// holders have had time to restore them. That its process and its script cache are the same does not matter.
func TestGuard_FailbackToSameProcess_DelaysGrants(t *testing.T) {
	t.Parallel()
	grants := map[string]struct {
		prepare func(t *testing.T, s *lua.Scripts)
		take    func(t *testing.T, s *lua.Scripts, lease string) (granted bool)
	}{
		"model slot": {func(*testing.T, *lua.Scripts) {}, func(t *testing.T, s *lua.Scripts, lease string) bool {
			return acquire(t, s, "p/"+lease, 1, 0).Code == lua.SlotGranted
		}},
		"node slot": {
			func(t *testing.T, s *lua.Scripts) { register(t, s, spec("n1", slots(1))) },
			func(t *testing.T, s *lua.Scripts, lease string) bool {
				return assign(t, s, lease, lua.Choice{}).Code == lua.AssignOK
			},
		},
		"job": {
			func(t *testing.T, s *lua.Scripts) { register(t, s, spec("n1", slots(1))) },
			func(t *testing.T, s *lua.Scripts, lease string) bool {
				return dispatch(t, s, job(lease, 0)).Code == lua.AssignOK
			},
		},
	}
	loses := map[string]func(t *testing.T, f *failback){
		"everything": losesEverything,
		// It was frozen or cut off, and does not know that there was another master.
		"everything, without noticing": func(_ *testing.T, f *failback) { f.second.Do("REPLICAOF", "NO", "ONE") },
		// It received the guard of the second server, and not what that granted later.
		"the last writes": func(t *testing.T, f *failback) {
			f.second.Do("REPLICAOF", "NO", "ONE")
			f.replicate(t, f.first, f.second)
			_, err := f.other.CheckGuard(t.Context())
			require.NoError(t, err)
			awaitSynced(t, f.second)
			f.first.Do("REPLICAOF", "127.0.0.1", "1")
		},
	}
	for name, grant := range grants {
		for lost, fail := range loses {
			t.Run(name+", first master lost "+lost, func(t *testing.T) {
				t.Parallel()
				f := newFailback(t)
				grant.prepare(t, f.s)
				require.False(t, f.grantsTwice(t, fail, grant.take), "the holder of the second server's lease may still work")
			})
		}
	}
}

// grantsTwice lets the first master fail and return, and reports whether it grants a slot that the second one has granted.
func (f *failback) grantsTwice(
	t *testing.T, fail func(*testing.T, *failback), take func(t *testing.T, s *lua.Scripts, lease string) bool,
) bool {
	t.Helper()
	require.True(t, take(t, f.s, "before")) // its scripts are in the cache of the first server
	freeAll(t, f.s)
	awaitSynced(t, f.first)
	run := runID(t, f.first)

	fail(t, f)
	require.False(t, take(t, f.other, "meanwhile"), "the second server may lack leases, too")
	endGrace(t, f.other)
	require.True(t, take(t, f.other, "meanwhile"))
	_, err := f.other.CheckGuard(t.Context()) // every process calls it once a second
	require.NoError(t, err)
	f.second.Kill()
	f.first.Do("REPLICAOF", "NO", "ONE")
	f.s.Learn(f.other)
	require.Equal(t, run, runID(t, f.first), "the process did not restart")
	return take(t, f.s, "after")
}

// A guard that compared the run id would not notice.
func TestGuard_VariantWithRunID_GrantsTwice(t *testing.T) {
	t.Parallel()
	f := newFailback(t)
	for _, s := range []*lua.Scripts{f.s, f.other} {
		s.Replace("'INFO', 'replication'", "'INFO', 'server'", "master_replid", "run_id", "epoch >= known", "true")
	}
	require.NoError(t, f.s.Redis().Del(t.Context(), f.s.Keys().Guard()).Err())
	_, err := f.s.MarkNew(t.Context())
	require.NoError(t, err)
	require.True(t, f.grantsTwice(t, losesEverything, func(t *testing.T, s *lua.Scripts, lease string) bool {
		return acquire(t, s, "p/"+lease, 1, 0).Code == lua.SlotGranted
	}))
}

// losesEverything lets the second server replace the first, which stays as it was: it even has its own guard.
func losesEverything(_ *testing.T, f *failback) {
	f.first.Do("REPLICAOF", "127.0.0.1", "1")
	f.second.Do("REPLICAOF", "NO", "ONE")
}

// A holder restores its lease on the master that lost it, also when its call is the first there.
func TestConfirmNodeSlot_FirstCallAfterFailback_RestoresSlot(t *testing.T) {
	t.Parallel()
	f := newFailback(t)
	register(t, f.s, spec("n1", slots(1)))
	awaitSynced(t, f.first)
	f.first.Do("REPLICAOF", "127.0.0.1", "1")
	f.second.Do("REPLICAOF", "NO", "ONE")
	_, err := f.other.CheckGuard(t.Context())
	require.NoError(t, err)
	endGrace(t, f.other)
	held := assign(t, f.other, "meanwhile", lua.Choice{})
	require.Equal(t, lua.AssignOK, held.Code)
	f.second.Kill()
	f.first.Do("REPLICAOF", "NO", "ONE")
	code, _, err := f.s.ConfirmNodeSlot(t.Context(), held.Assignment, time.Hour)
	require.NoError(t, err)
	require.Equal(t, lua.NodeSlotHeld, code)
	endGrace(t, f.s)
	require.Equal(t, lua.AssignFull, assign(t, f.s, "after", lua.Choice{}).Code)
}

// freeAll releases what the tests took.
func freeAll(t *testing.T, s *lua.Scripts) {
	t.Helper()
	_, _, err := s.ReleaseSlot(t.Context(), "m", lua.OneUpstream(1), slotTimes, full("p/before"))
	require.NoError(t, err)
	release(t, s, berth.Assignment{NodeRef: berth.NodeRef{NodeID: "n1"}, LeaseID: "before"})
	release(t, s, berth.Assignment{NodeRef: berth.NodeRef{NodeID: "n1"}, LeaseID: "before-j0:1"})
}

func endGrace(t *testing.T, s *lua.Scripts) {
	t.Helper()
	require.NoError(t, s.Redis().HSet(t.Context(), s.Keys().Guard(), "grace", "0").Err())
}

func runID(t *testing.T, s *testredis.Server) string {
	t.Helper()
	return s.Client().InfoMap(t.Context(), "server").Item("Server", "run_id")
}

// A user who may not run INFO gets no slots, and an error that says why.
func TestGuard_InfoNotPermitted_NothingIsGranted(t *testing.T) {
	t.Parallel()
	server := testredis.Start(t)
	server.Do("ACL", "SETUSER", "limited", "on", ">secret", "~*", "&*", "+@all", "-info")
	rdb := redis.NewClient(&redis.Options{Addr: server.Addr(), Username: "limited", Password: "secret", MaxRetries: -1})
	t.Cleanup(func() { _ = rdb.Close() })
	s := lua.New(rdb, lua.Keys{})
	_, err := s.ReadServer(t.Context())
	require.ErrorContains(t, err, "INFO is not permitted")
	_, err = s.AcquireSlot(t.Context(), lua.SlotCall{
		Model: "m", Limits: lua.OneUpstream(1), Lease: full("p/a"), Times: slotTimes,
	})
	require.ErrorContains(t, err, "INFO is not permitted")
	_, err = s.Assign(t.Context(), "a", lua.Choice{PoolID: pair})
	require.ErrorContains(t, err, "INFO is not permitted")
}
