package lua_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"berth"
	"berth/lua"
)

// The client of a call is the one that waits for it: a retry gets the call of a lost client that has made fewer attempts, and a call without one is
// abandoned after the grace.
func TestAttendCall_ClientsComeAndGo_CallHasOneOrIsAbandoned(t *testing.T) { // O6, O7
	t.Parallel()
	const grace = 300 * time.Millisecond
	type step struct {
		client   string
		attempts int
		event    lua.ClientEvent
		code     string
	}
	for name, c := range map[string]struct {
		steps     []step
		abandoned bool // after the grace
	}{
		"one that waits":            {[]step{{"a", 0, lua.ClientJoins, lua.CallAttended}}, true},
		"one that leaves":           {[]step{{"a", 0, lua.ClientJoins, lua.CallAttended}, {"a", 0, lua.ClientLeaves, lua.CallAttended}}, true},
		"one that has its answer":   {[]step{{"a", 0, lua.ClientJoins, lua.CallAttended}, {"a", 0, lua.ClientEnds, lua.CallAttended}}, false},
		"a retry beside the first":  {[]step{{"a", 0, lua.ClientJoins, lua.CallAttended}, {"b", 1, lua.ClientFollows, lua.CallConnected}}, true},
		"a retry after a loss":      {[]step{{"a", 0, lua.ClientJoins, lua.CallAttended}, {"a", 0, lua.ClientLeaves, lua.CallAttended}, {"b", 1, lua.ClientFollows, lua.CallAttended}, {"b", 1, lua.ClientEnds, lua.CallAttended}}, false},
		"a retry after the end":     {[]step{{"a", 0, lua.ClientJoins, lua.CallAttended}, {"a", 0, lua.ClientEnds, lua.CallAttended}, {"b", 1, lua.ClientFollows, lua.CallAttended}}, true},
		"the same retry again":      {[]step{{"a", 0, lua.ClientJoins, lua.CallAttended}, {"a", 0, lua.ClientLeaves, lua.CallAttended}, {"b", 1, lua.ClientFollows, lua.CallAttended}, {"b", 1, lua.ClientFollows, lua.CallAttended}}, true},
		"another equal retry":       {[]step{{"a", 0, lua.ClientJoins, lua.CallAttended}, {"a", 0, lua.ClientLeaves, lua.CallAttended}, {"b", 1, lua.ClientFollows, lua.CallAttended}, {"b", 1, lua.ClientLeaves, lua.CallAttended}, {"c", 1, lua.ClientFollows, lua.CallTaken}}, true},
		"the next retry":            {[]step{{"a", 0, lua.ClientJoins, lua.CallAttended}, {"a", 0, lua.ClientLeaves, lua.CallAttended}, {"b", 1, lua.ClientFollows, lua.CallAttended}, {"b", 1, lua.ClientLeaves, lua.CallAttended}, {"b2", 2, lua.ClientFollows, lua.CallAttended}}, true},
		"Redis has lost the first":  {[]step{{"b", 1, lua.ClientFollows, lua.CallAttended}}, true},
		"a late leave of the first": {[]step{{"a", 0, lua.ClientJoins, lua.CallAttended}, {"a", 0, lua.ClientLeaves, lua.CallAttended}, {"b", 1, lua.ClientFollows, lua.CallAttended}, {"a", 0, lua.ClientLeaves, lua.CallAttended}, {"c", 2, lua.ClientFollows, lua.CallConnected}}, true},
		"two by key":                {[]step{{"a", 0, lua.ClientJoins, lua.CallAttended}, {"b", 0, lua.ClientJoins, lua.CallAttended}, {"a", 0, lua.ClientLeaves, lua.CallAttended}, {"c", 1, lua.ClientFollows, lua.CallConnected}}, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			onAll(t, slotServers(t), func(t *testing.T, s *lua.Scripts) {
				require.NoError(t, s.MarkRunning(t.Context(), "p"))
				call := berth.TaskRef{UserID: "key:1", TaskID: berth.NewID("chatcmpl-")}
				for i, st := range c.steps {
					code, err := s.AttendCall(t.Context(), lua.CallClient{Call: call, Process: "p", ID: st.client, Attempts: st.attempts, Grace: grace, Keep: time.Minute}, st.event)
					require.NoError(t, err)
					require.Equal(t, st.code, code, "step %d", i)
				}
				taken := func() []berth.TaskRef {
					calls, err := s.TakeAbandonedCalls(t.Context(), 10, time.Minute)
					require.NoError(t, err)
					return calls
				}
				if !c.abandoned { // as soon as one that leaves then is
					other := lua.CallClient{Call: berth.TaskRef{UserID: "key:1", TaskID: "other"}, ID: "x", Grace: grace, Keep: time.Minute}
					_, err := s.AttendCall(t.Context(), other, lua.ClientJoins)
					require.NoError(t, err)
					call = other.Call
				}
				var calls []berth.TaskRef
				require.Eventually(t, func() bool { calls = taken(); return len(calls) > 0 }, 10*time.Second, grace/10)
				require.Equal(t, []berth.TaskRef{call}, calls)
				require.Empty(t, taken(), "it is another process'")
				for range 2 {
					_, err := s.TakeAbandonedCalls(t.Context(), 0, time.Millisecond, call)
					require.NoError(t, err)
					require.Empty(t, taken())
				}
			})
		})
	}
}

// With its process a client is lost: a retry need not wait for the end of the grace.
func TestAttendCall_ProcessDies_RetryFollowsSoon(t *testing.T) { // O6
	t.Parallel()
	onAll(t, slotServers(t), func(t *testing.T, s *lua.Scripts) {
		call := berth.TaskRef{UserID: "u", TaskID: "c"}
		follows := func() string {
			code, err := s.AttendCall(t.Context(), lua.CallClient{Call: call, Process: "q", ID: "b", Attempts: 1, Grace: time.Hour, Keep: time.Hour}, lua.ClientFollows)
			require.NoError(t, err)
			return code
		}
		require.NoError(t, s.MarkRunning(t.Context(), "p"))
		_, err := s.AttendCall(t.Context(), lua.CallClient{Call: call, Process: "p", ID: "a", Grace: time.Hour, Keep: time.Hour}, lua.ClientJoins)
		require.NoError(t, err)
		require.Equal(t, lua.CallConnected, follows())
		require.Eventually(t, func() bool { return follows() == lua.CallAttended }, 20*time.Second, 50*time.Millisecond)
	})
}

func TestTakeSubmission_Kept_TakenOnce(t *testing.T) { // O6
	t.Parallel()
	onAll(t, slotServers(t), func(t *testing.T, s *lua.Scripts) {
		require.NoError(t, s.KeepSubmission(t.Context(), berth.TaskRef{UserID: "u:1", TaskID: "c"}, "hash", time.Minute))
		_, ok, err := s.TakeSubmission(t.Context(), "u:1", "other")
		require.NoError(t, err)
		require.False(t, ok)
		for _, want := range []bool{true, false} {
			id, ok, err := s.TakeSubmission(t.Context(), "u:1", "hash")
			require.NoError(t, err)
			require.Equal(t, want, ok)
			require.Equal(t, want, id == "c")
		}
	})
}
