package tests

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"berth"
	"berth/client"
	"berth/internal/identity"
)

// userOf is a client of a user with a token for a team and an application.
func (s *stack) userOf(team, app, name string) *client.Client {
	s.tb.Helper()
	s.user(name) // with credits
	token, err := identity.Issue(secret, identity.Grant{UserID: name, TeamID: team, AppID: app, Scopes: []string{"user"}, TTL: 24 * time.Hour})
	require.NoError(s.tb, err)
	return client.New("http://"+s.httpAddr, token)
}

// G11: calls share a model by the teams and applications of tokens and users, not by the number of users, calls or end users. A newcomer does
// not wait for those before it.
func TestTeams_ModelOverloaded_CallsShareByTeam(t *testing.T) {
	t.Parallel()
	s := oneSlot(t, with("BERTH_USER_CONCURRENCY=0")) // else users with many calls depend on how fast workflows make the next ones
	calls, operator := s.logCalls(), s.user("op", "operator")
	heavy := client.Team{TeamID: "heavy", LevelSpec: client.LevelSpec{Weight: 3}, Users: []string{"h0", "h1", "h2", "h3"}}
	_, err := operator.PutTeam(t.Context(), heavy)
	require.NoError(t, err)
	_, err = operator.PutTeam(t.Context(), client.Team{TeamID: "small", Users: []string{"s0", "s1"}})
	require.NoError(t, err)
	_, err = operator.PutApp(t.Context(), client.App{AppID: "chat"})
	require.NoError(t, err)

	// The calls of a party have the numbers of one thousand.
	parties := []struct {
		name        string
		team, app   string // of the tokens
		users, each int
		endUsers    bool
	}{
		{name: "b", team: "big", users: 50, each: 3},
		{name: "s", users: 2, each: 10},
		{name: "h", users: 4, each: 15},
		{name: "inventor", app: "chat", users: 1, each: 40, endUsers: true},
		{name: "plain", users: 1, each: 20},
		{name: "newcomer", team: "new", users: 1, each: 1},
	}
	for i, p := range parties {
		for user := range p.users {
			c := s.userOf(p.team, p.app, fmt.Sprint(p.name, user))
			endUser := func(n int) string {
				if p.endUsers {
					return fmt.Sprint("invented-", n)
				}
				return ""
			}
			submitFor(t, c, endUser, i*1000+user*p.each, p.each)
		}
	}
	s.eventually("the calls to be shown with their teams", func() bool { // those on their way from a workflow are not
		waiting := map[string]int{}
		for team, err := range operator.Teams(t.Context()) {
			require.NoError(t, err)
			waiting[team.TeamID] = team.Waiting + team.InUse
		}
		return waiting["big"] == 150 && waiting["small"] == 20 && waiting["heavy"] == 60 && waiting["new"] == 1
	})

	close(calls.release)
	s.eventually("all calls", func() bool { return len(calls.made()) == 291 })
	order := calls.made()
	require.Less(t, slices.Index(order, 5000), 12, "%v", order)
	order = slices.DeleteFunc(order, func(n int) bool { return n == 5000 })
	got := map[string]int{}
	for _, n := range order[:140] { // while all have calls
		got[parties[n/1000].name]++
	}
	for name, weight := range map[string]int{"b": 1, "s": 1, "h": 3, "inventor": 1, "plain": 1} {
		require.InDelta(t, 20*weight, got[name], 0.05*140, "%s of %v: %v", name, got, order)
	}
	for _, n := range order[140:] {
		got[parties[n/1000].name]++
	}
	require.Equal(t, map[string]int{"b": 150, "s": 20, "h": 60, "inventor": 40, "plain": 20}, got, "the rest uses what others leave")
	s.noSlotHeld()

	tasks, _, err := s.userOf("", "chat", "inventor0").Tasks(t.Context(), client.TaskQuery{Limit: 1})
	require.NoError(t, err)
	require.Equal(t, "chat", tasks[0].App)
	require.Contains(t, tasks[0].EndUser, "invented-")
	_, err = s.userOf("", "", "plain0").Submit(t.Context(), client.Submission{
		ServiceID: "career", Template: "job_summary", EndUser: "x", Variables: map[string]any{"jobText": "We look for a baker."},
	}, "")
	require.Equal(t, "endUser", problem(t, err).Field)
	require.Equal(t, berth.CodeInvalid, problem(t, err).Code)
}
