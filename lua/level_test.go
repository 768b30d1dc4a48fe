package lua_test

import (
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"berth"
	"berth/lua"
)

// G11: calls that waited because their team was at its limit are served after the limit was removed, with the next renewal.
func TestSetLevel_LimitRemoved_WaitingCallsAreServed(t *testing.T) {
	t.Parallel()
	onAll(t, slotServers(t), func(t *testing.T, s *lua.Scripts) {
		require.NoError(t, s.SetLevel(t.Context(), lua.Level{Team: "t"}, 1, 1))
		h := &hall{t: t, s: s, limits: limitsOf(3, 0)}
		of := func(user, rest string) string {
			return lua.Lease{Process: "p", Path: lua.Path{Queue: paidStream, Group: lua.Group{Team: "t"}, UserID: user}, Rest: rest}.ID()
		}
		require.Equal(t, lua.SlotGranted, h.acquire("m", of("a", "1")).Code)
		mine := lua.ModelLeases{Model: "m", Limits: h.limits}
		for _, l := range []string{of("a", "2"), of("b", "3")} {
			mine.Waiters = append(mine.Waiters, lua.WaitingLease{Lease: l, Ticket: h.acquire("m", l).Ticket})
		}
		require.Equal(t, 2, h.waiting("m"))
		require.NoError(t, s.SetLevel(t.Context(), lua.Level{Team: "t"}, 1, 0))
		_, _, err := s.RenewSlots(t.Context(), longTimes, []lua.ModelLeases{mine})
		require.NoError(t, err)
		require.Zero(t, h.waiting("m"))
	})
}

// G11: the use of teams and applications is that of all their users, in both waiting rooms and each queue.
func TestReadLevels_CallsOfTeams_CountedAtEachLevel(t *testing.T) {
	t.Parallel()
	onAll(t, slotServers(t), func(t *testing.T, s *lua.Scripts) {
		h := &hall{t: t, s: s, limits: limitsOf(2, 0)}
		group := lua.Group{Team: "a", App: "x", EndUser: "e"}
		for i, p := range []lua.Path{
			{Queue: paidStream, Group: group, UserID: "u"},
			{Queue: paidStream, Group: lua.Group{Team: "b"}, UserID: "u"},
			{Queue: paidStream, Group: lua.Group{Team: "a"}, UserID: "v"},
			{Queue: freeBatch, Group: group, UserID: "u"},
			{Queue: freeBatch, UserID: "a"},
		} {
			h.acquire("m", lua.Lease{Process: "p", Path: p, Rest: string(rune('1' + i))}.ID())
		}
		_, err := s.EnterTask(t.Context(), lua.ModelWaiterCall{
			ModelWaiter: lua.ModelWaiter{Task: berth.TaskRef{UserID: "w", TaskID: "t"}, Queue: paidStream, Model: "m", Group: group},
			Limits:      limitsOf(0, 0), Times: longTimes,
		}, time.Hour, 0)
		require.NoError(t, err)
		a, x, c := lua.Level{Team: "a"}, lua.Level{Team: "a", App: "x"}, lua.Level{Team: "c"}
		uses, err := s.ReadLevels(t.Context(), "m", h.limits, []lua.Level{c, a, x})
		require.NoError(t, err)
		require.ElementsMatch(t, []lua.LevelUse{
			{Level: a, Queue: paidStream, InUse: 1, Waiting: 2},
			{Level: a, Queue: freeBatch, Waiting: 1},
			{Level: x, Queue: paidStream, InUse: 1, Waiting: 1},
			{Level: x, Queue: freeBatch, Waiting: 1},
		}, uses)
		none, err := s.ReadLevels(t.Context(), "other", h.limits, []lua.Level{a})
		require.NoError(t, err)
		require.Empty(t, none)
	})
}

// G11: a team and an application have no more unfinished tasks than they may, of all users together; each task that ends admits another.
func TestAdmitTask_TeamOrApplicationFull_Refused(t *testing.T) {
	t.Parallel()
	full := map[string]struct {
		limits lua.AdmissionLimits
		other  lua.Group // is not full
	}{
		lua.TaskTeamFull: {lua.AdmissionLimits{Team: 2, App: 9}, lua.Group{Team: "b", App: "x"}},
		lua.TaskAppFull:  {lua.AdmissionLimits{App: 2}, lua.Group{Team: "a", App: "y"}},
	}
	for code, tc := range full {
		t.Run(code, func(t *testing.T) {
			t.Parallel()
			onAll(t, slotServers(t), func(t *testing.T, s *lua.Scripts) {
				group := lua.Group{Team: "a", App: "x"}
				submit := func(id string, g lua.Group) lua.AdmitReply {
					t.Helper()
					r, err := s.AdmitTask(t.Context(), lua.Submission{
						Task: berth.TaskRef{UserID: "u" + id, TaskID: id}, ServiceID: "jobs", Queue: paidBatch, Group: g, Limits: tc.limits,
					})
					require.NoError(t, err)
					return r
				}
				held := func(id string) lua.Admissions {
					return lua.Admissions{
						Task: berth.TaskRef{UserID: "u" + id, TaskID: id}, ServiceID: "jobs", Group: group, Queues: []berth.Queue{paidBatch, freeBatch},
					}
				}
				require.Equal(t, lua.TaskAdmitted, submit("1", group).Code)
				require.Equal(t, lua.TaskAdmitted, submit("2", group).Code)
				require.NoError(t, s.KeepAdmissions(t.Context(), held("1"), paidBatch, time.Hour))
				require.NoError(t, s.MoveAdmissions(t.Context(), held("1"), freeBatch, time.Hour))
				refused := submit("3", group)
				require.Equal(t, []any{code, 2}, []any{refused.Code, refused.Ahead})
				require.Equal(t, lua.TaskAdmitted, submit("2", group).Code, "a repeated submission keeps its admission")
				require.Equal(t, lua.TaskAdmitted, submit("4", tc.other).Code)
				require.NoError(t, s.RemoveAdmissions(t.Context(), held("1")))
				require.Equal(t, lua.TaskAdmitted, submit("3", group).Code)
			})
		})
	}
}

// G11: a user whose end users have one call each has a call ahead in each round, also when others have filled the window.
func TestEnterTask_ManyEndUsers_FollowEachOther(t *testing.T) {
	t.Parallel()
	onAll(t, slotServers(t), func(t *testing.T, s *lua.Scripts) {
		l := newLobby(t, s, limitsOf(1, 2))
		enter := func(user string, g lua.Group) {
			l.number++
			w := l.waiter(paidStream, user, l.number)
			if w.Group = g; l.enter(w) {
				l.begin(w)
			}
		}
		for i := range ahead + 50 {
			enter("u"+strconv.Itoa(i/4), lua.Group{Team: "big"})
		}
		for i := range 60 { // more than the window, each as a newcomer
			enter("v"+strconv.Itoa(i), lua.Group{Team: "many"})
		}
		const calls = 12
		for i := range calls {
			enter("svc", lua.Group{App: "chat", EndUser: strconv.Itoa(i)})
		}
		require.NoError(t, s.Redis().HSet(t.Context(), s.Keys().ModelState("m"), "interval", 1000).Err()) // calls are slow: the window is the least
		served := 0
		for range 3*calls + 6 {
			for _, granted := range l.next("m", l.holders("m")[0]) {
				if userOf(granted) == "svc" {
					served++
				}
			}
			signals := l.take()
			l.confirm(signals, nil)
			for _, w := range signals {
				l.begin(w)
			}
		}
		require.Equal(t, calls, served)
	})
}
