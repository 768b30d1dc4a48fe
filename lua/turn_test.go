package lua_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"berth"
	"berth/lua"
)

// sessionCase is one session's stream in its own cell.
type sessionCase struct {
	streamCase
	ttl  time.Duration
	trim int64
}

func newSessionCase(t *testing.T, rdb *redis.Client) sessionCase {
	t.Helper()
	c := newStreamCase(t, rdb)
	c.ch = lua.SessionChannel("alice", "s1")
	c.meta = c.s.Keys().StreamMeta(c.ch.UserID, c.ch.ServiceID, c.ch.TaskID)
	c.stream = c.s.Keys().Stream(c.ch.UserID, c.ch.ServiceID, c.ch.TaskID)
	return sessionCase{streamCase: c, ttl: time.Hour}
}

func (c sessionCase) append(turn string, first int, events ...string) lua.AppendResult {
	c.t.Helper()
	res, err := c.s.AppendEvents(c.t.Context(), c.ch, lua.Append{
		Producer: turn, First: first, Confirmed: first - 1, TTL: c.ttl, Trim: c.trim, Events: lua.StreamEntries(events...),
	})
	require.NoError(c.t, err)
	return res
}

// stored returns the stream's events, oldest first.
func (c sessionCase) stored() (out []string) {
	c.t.Helper()
	_, entries, err := c.s.ReadStream(c.t.Context(), c.ch, "", 10_000)
	require.NoError(c.t, err)
	for _, e := range entries {
		out = append(out, e.Data)
	}
	return out
}

// A10: with repeated calls, each event of a turn is in the stream once, and turns of one session do not affect each other.
func TestAppendEvents_TurnRepeated_StoresEachEventOnce(t *testing.T) {
	t.Parallel()
	streamOnBoth(t, func(t *testing.T, rdb *redis.Client) {
		c := newSessionCase(t, rdb)
		steps := []struct {
			turn   string
			first  int
			events []string
			stored string
		}{
			{"t1", 1, []string{"a1"}, "a1"}, // opens the stream
			{"t1", 1, []string{"a1"}, "a1"}, // repeated
			{"t1", 1, []string{"a1", "a2"}, "a1 a2"},
			{"t2", 1, []string{"b1", "b2"}, "a1 a2 b1 b2"},
			{"t1", 2, []string{"a2", "a3"}, "a1 a2 b1 b2 a3"},
			{"t2", 1, []string{"b1", "b2"}, "a1 a2 b1 b2 a3"},
			{"t2", 3, []string{"b3"}, "a1 a2 b1 b2 a3 b3"},
			{"t1", 4, nil, "a1 a2 b1 b2 a3 b3"},
		}
		for _, step := range steps {
			res := c.append(step.turn, step.first, step.events...)
			require.Equal(t, lua.StreamOK, res.Code)
			require.Equal(t, step.stored, strings.Join(c.stored(), " "))
			require.True(t, strings.HasSuffix(res.LastID, fmt.Sprintf("-%d", len(strings.Fields(step.stored)))), res.LastID)
		}
		state, err := c.s.StreamState(t.Context(), c.ch)
		require.NoError(t, err)
		require.True(t, state.Exists)
		require.False(t, state.Ended)
	})
}

// A reader may open the stream before the first turn. The ids of the turn then continue from that opening.
func TestAppendEvents_TurnOfOpenStream_ContinuesItsIDs(t *testing.T) {
	t.Parallel()
	streamOnBoth(t, func(t *testing.T, rdb *redis.Client) {
		c := newSessionCase(t, rdb)
		_, err := c.s.OpenStream(t.Context(), c.ch, 0, time.Minute, "")
		require.NoError(t, err)
		before, err := c.s.StreamState(t.Context(), c.ch)
		require.NoError(t, err)
		sub := rdb.Subscribe(t.Context(), c.s.Keys().Channel("alice", "session", "s1"))
		defer func() { require.NoError(t, sub.Close()) }()
		_, err = sub.Receive(t.Context())
		require.NoError(t, err)
		gen := strings.TrimSuffix(before.LastID, "-0")
		require.Equal(t, gen+"-2", c.append("t1", 1, "x y", "z").LastID)
		for _, want := range []string{"-1 x y", "-2 z"} {
			m, err := sub.ReceiveMessage(t.Context())
			require.NoError(t, err)
			require.Equal(t, gen+want, m.Payload)
		}
		for _, key := range []string{c.meta, c.stream} {
			left, err := rdb.PTTL(t.Context(), key).Result()
			require.NoError(t, err)
			require.InDelta(t, time.Hour, left, float64(time.Minute), key)
		}
		c.ttl = 2 * time.Hour
		c.append("t1", 3, "later")
		for _, key := range []string{c.meta, c.stream} {
			left, err := rdb.PTTL(t.Context(), key).Result()
			require.NoError(t, err)
			require.InDelta(t, c.ttl, left, float64(time.Minute), "the expiry counts from the last event: %s", key)
		}
	})
}

// L12: if Redis has lost the stream, a turn with earlier events continues with ids higher than all before.
func TestAppendEvents_TurnStreamLost_StartsNewGeneration(t *testing.T) {
	t.Parallel()
	streamOnBoth(t, func(t *testing.T, rdb *redis.Client) {
		c := newSessionCase(t, rdb)
		before := c.append("t1", 1, "a1", "a2")
		gen, _, _ := strings.Cut(before.LastID, "-")
		until := mustInt(t, gen) + 1
		require.Eventually(t, func() bool { return redisMs(t, c.s) > until }, 20*time.Second, time.Millisecond)
		require.NoError(t, rdb.Del(t.Context(), c.meta, c.stream).Err())

		after := c.append("t1", 3, "a3")
		require.Equal(t, []string{"a3"}, c.stored())
		next, seq, _ := strings.Cut(after.LastID, "-")
		require.Equal(t, "1", seq)
		require.Greater(t, mustInt(t, next), mustInt(t, gen))
		c.append("t1", 3, "a3", "a4")
		require.Equal(t, []string{"a3", "a4"}, c.stored(), "each event is stored once")
	})
}

// L12: a master that lacks confirmed events of a turn continues with a new generation, by which readers notice the loss. Otherwise the
// next event would get the id of a lost one, and a reader of that would ignore it.
func TestAppendEvents_OlderMaster_TurnContinuesInNewGeneration(t *testing.T) {
	t.Parallel()
	other := func(c sessionCase) { c.append("t2", 1, "b1", "b2", "b3") }
	tests := []struct {
		name     string
		kept     int // of the events a1, a2, a3, which were confirmed
		between  func(sessionCase)
		first    int
		events   []string
		began    bool // a new generation
		appended string
	}{
		{"everything is there", 3, nil, 4, []string{"a4"}, false, "a4"},
		{"the last event is lost", 2, nil, 4, []string{"a4"}, true, "a4"},
		{"several are lost", 1, nil, 4, []string{"a4", "a5"}, true, "a4 a5"},
		{"all are lost", 0, nil, 4, []string{"a4"}, true, "a4"},
		{"the lost event is appended again", 2, nil, 3, []string{"a3", "a4"}, false, "a3 a4"},
		{"only the reply was lost", 3, nil, 3, []string{"a3"}, false, ""},
		{"another turn has used the lost ids", 2, other, 4, []string{"a4"}, true, "a4"},
	}
	streamOnBoth(t, func(t *testing.T, rdb *redis.Client) {
		t.Run("only entries and their number are older", func(t *testing.T) {
			c := newSessionCase(t, rdb)
			c.append("t1", 1, "a1", "a2")
			confirmed := c.append("t1", 3, "a3")
			require.NoError(t, rdb.XDel(t.Context(), c.stream, confirmed.LastID).Err())
			require.NoError(t, rdb.HSet(t.Context(), c.meta, "seq", 2).Err())
			res := c.append("t1", 3, "a3", "a4")
			require.Equal(t, lua.StreamOK, res.Code)
			require.Greater(t, generation(t, res.LastID), generation(t, confirmed.LastID))
			require.Equal(t, []string{"a1", "a2", "a3", "a4"}, c.stored(), "its producer still has a3")
		})
		t.Run("the producer has skipped numbers", func(t *testing.T) {
			c := newSessionCase(t, rdb)
			before := c.append("t1", 1, "a1")
			last := lua.Append{Producer: "t1", First: 1 << 40, Confirmed: 1, TTL: time.Hour, Events: lua.StreamEntries("lost")}
			for range 2 {
				res, err := c.s.AppendEvents(t.Context(), c.ch, last)
				require.NoError(t, err)
				require.Equal(t, generation(t, before.LastID), generation(t, res.LastID), "nothing is lost")
			}
			require.Equal(t, []string{"a1", "lost"}, c.stored())
		})
		for _, tt := range tests {
			t.Run(tt.name, func(t *testing.T) {
				c := newSessionCase(t, rdb)
				_, err := c.s.OpenStream(t.Context(), c.ch, 0, time.Hour, "")
				require.NoError(t, err)
				restore := c.copy()
				var confirmed string
				for i := range 3 {
					if i == tt.kept {
						restore = c.copy()
					}
					confirmed = c.append("t1", i+1, fmt.Sprint("a", i+1)).LastID
				}
				if tt.kept < 3 {
					restore()
				}
				if tt.between != nil {
					tt.between(c)
				}
				before, gen := c.stored(), generation(t, confirmed)
				res := c.append("t1", tt.first, tt.events...)
				require.Equal(t, lua.StreamOK, res.Code)
				require.Equal(t, tt.began, generation(t, res.LastID) > gen, res.LastID)
				require.Equal(t, res, c.append("t1", tt.first, tt.events...), "a repeated call changes nothing")
				require.Equal(t, append(before, strings.Fields(tt.appended)...), c.stored())
			})
		}
	})
}

func generation(t *testing.T, id string) int64 {
	t.Helper()
	gen, _, _ := strings.Cut(id, "-")
	return mustInt(t, gen)
}

// IDs increase even if the stream has entries of a time that this Redis's clock has not reached.
func TestAppendEvents_ClockBehindStream_IDsIncrease(t *testing.T) {
	t.Parallel()
	streamOnBoth(t, func(t *testing.T, rdb *redis.Client) {
		c := newSessionCase(t, rdb)
		require.NoError(t, rdb.XAdd(t.Context(), &redis.XAddArgs{Stream: c.stream, ID: "99999999999999-4", Values: []string{"e", "old"}}).Err())
		require.Equal(t, "100000000000000-1", c.append("t1", 5, "new").LastID)
	})
}

// Only the last 64 turns are remembered.
func TestAppendEvents_ManyTurns_RemembersLast64(t *testing.T) {
	t.Parallel()
	streamOnBoth(t, func(t *testing.T, rdb *redis.Client) {
		c := newSessionCase(t, rdb)
		for i := range 100 {
			c.append(fmt.Sprintf("t%d", i), 1, "x", "y")
		}
		fields, err := rdb.HKeys(t.Context(), c.meta).Result()
		require.NoError(t, err)
		turns := 0
		for _, f := range fields {
			if strings.HasPrefix(f, "producer:") {
				turns++
			}
		}
		require.Equal(t, 64, turns)
		require.Len(t, c.stored(), 200)
		c.append("t36", 1, "x", "y")
		require.Len(t, c.stored(), 200, "the oldest remembered turn is not appended twice")
	})
}

func TestAppendEvents_LengthLimit_TrimsStream(t *testing.T) {
	t.Parallel()
	streamOnBoth(t, func(t *testing.T, rdb *redis.Client) {
		c := newSessionCase(t, rdb)
		c.trim = 200
		for i := range 10 {
			c.append("t1", 100*i+1, strings.Split(strings.Repeat("x", 100), "")...)
		}
		n, err := rdb.XLen(t.Context(), c.stream).Result()
		require.NoError(t, err)
		require.GreaterOrEqual(t, n, int64(200))
		require.Less(t, n, int64(400)) // Redis trims whole nodes of 100
	})
}

func TestAppendEvents_TurnOfEndedStream_ChangesNothing(t *testing.T) {
	t.Parallel()
	streamOnBoth(t, func(t *testing.T, rdb *redis.Client) {
		c := newSessionCase(t, rdb)
		c.set("ended")
		before := c.text()
		require.Equal(t, lua.AppendResult{Code: lua.StreamEnded, LastID: "100-2"}, c.append("t1", 1, "a"))
		require.Equal(t, before, c.text())
	})
}

// L12: if Redis has lost a turn's node, a job that names it restores it and uses it. A4: a stored node is not changed.
func TestDispatchJob_AffinityLost_RestoresIt(t *testing.T) {
	t.Parallel()
	servers := slotServers(t)
	affinityNode := func(node string) func(*jobCall) { return func(j *jobCall) { j.AffinityNodeID = node } }
	onAll(t, servers, func(t *testing.T, s *lua.Scripts) {
		for _, id := range []string{"a", "b", "c"} {
			register(t, s, spec(id, slots(4)))
		}
		loseData := func() {
			require.NoError(t, s.Redis().Del(t.Context(), s.Keys().Turn("t1"), s.Keys().Session("alice", "s1")).Err())
		}
		first := dispatch(t, s, job("t1", 1))
		require.Equal(t, "a", first.NodeID)

		loseData()
		second := dispatch(t, s, job("t1", 2, affinityNode("a")))
		require.Equal(t, berth.AffinityHit, second.Affinity)
		require.Equal(t, "a", second.NodeID)
		require.Equal(t, map[string]string{"affinity_node_id": "a"}, affinityOf(t, s, "t1"))
		current, err := s.Redis().HGet(t.Context(), s.Keys().Session("alice", "s1"), "current_turn_id").Result()
		require.NoError(t, err)
		require.Equal(t, "t1", current)

		// A node that cannot take the job is a miss, but is restored: the affinity was already written.
		err = s.CordonNode(t.Context(), "a", lua.Cordon{Cordoned: true})
		require.NoError(t, err)
		loseData()
		third := dispatch(t, s, job("t1", 3, affinityNode("a")))
		require.Equal(t, berth.AffinityMiss, third.Affinity)
		require.Equal(t, berth.ExcludeCordoned, third.Missed)
		require.Equal(t, map[string]string{"affinity_node_id": "a"}, affinityOf(t, s, "t1"))
		err = s.CordonNode(t.Context(), "a", lua.Cordon{})
		require.NoError(t, err)

		require.Equal(t, "a", dispatch(t, s, job("t1", 4, affinityNode("b"))).NodeID, "the node stored in Redis takes precedence")
		require.Equal(t, map[string]string{"affinity_node_id": "a"}, affinityOf(t, s, "t1"))

		// A7: the segment that ends the turn uses the lost node and does not restore it.
		loseData()
		last := dispatch(t, s, job("t1", 5, affinityNode("a"), ending))
		require.Equal(t, berth.AffinityHit, last.Affinity)
		require.Empty(t, affinityOf(t, s, "t1"))
	})
}

// A6, A11: a job that is dispatched again after its turn's end gets a node and stores no affinity.
func TestDispatchJob_TurnEnded_BindsNothing(t *testing.T) {
	t.Parallel()
	servers := slotServers(t)
	onAll(t, servers, func(t *testing.T, s *lua.Scripts) {
		register(t, s, spec("a", slots(4)))
		register(t, s, spec("b", slots(4)))
		first := dispatch(t, s, job("t1", 1))
		_, _, err := s.FinalizeTurn(t.Context(), "alice", "s1", "t1")
		require.NoError(t, err)
		retry := func(j *jobCall) { j.Dispatch, j.Excluded = 2, []string{first.NodeID} }
		require.Equal(t, lua.JobTurnEnded, dispatch(t, s, job("t1", 1, retry)).Code, "the job would bind the turn again")
		d := dispatch(t, s, job("t1", 1, retry, ending))
		require.Equal(t, lua.AssignOK, d.Code)
		require.NotEqual(t, first.NodeID, d.NodeID)
		require.Empty(t, affinityOf(t, s, "t1"))
	})
}

// A turn that never began leaves no data, and its id may be used again.
func TestWithdrawTurn_NeverBegan_AllowsSameIDAgain(t *testing.T) {
	t.Parallel()
	servers := slotServers(t)
	onAll(t, servers, func(t *testing.T, s *lua.Scripts) {
		register(t, s, spec("a", slots(4)))
		dispatch(t, s, job("t1", 1))
		code, bound, err := s.WithdrawTurn(t.Context(), "alice", "s1", "t1")
		require.NoError(t, err)
		require.Equal(t, lua.TurnFinalized, code)
		require.Equal(t, "a", bound)
		require.Empty(t, affinityOf(t, s, "t1"))
		left, err := s.Redis().HGetAll(t.Context(), s.Keys().Session("alice", "s1")).Result()
		require.NoError(t, err)
		require.Empty(t, left)
		require.Equal(t, berth.AffinityFirst, dispatch(t, s, job("t1", 2)).Affinity)
	})
}
