package ledger

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"berth"
)

func team(id string, users ...string) berth.Team {
	return berth.Team{ID: id, LevelSettings: berth.DefaultLevel(), Users: users}
}

// G11: to which team and application a request belongs. Team a has the user ann, the service crawl and the application chat with the service
// talk; b has bob and bot; solo has no team, and the service alone.
func TestFindGroup_Request_BelongsToOneTeam(t *testing.T) {
	each(t, func(t *testing.T, l *Ledger) {
		ctx := t.Context()
		a := team("a", "ann")
		a.Services, a.MaxTasks = []string{"crawl"}, 7
		require.NoError(t, l.PutTeam(ctx, a, "olga"))
		require.NoError(t, l.PutTeam(ctx, team("b", "bob"), "olga"))
		require.NoError(t, l.PutApp(ctx, berth.App{ID: "chat", TeamID: "a", LevelSettings: berth.LevelSettings{MaxTasks: 3}, Services: []string{"talk"}}, "olga"))
		require.NoError(t, l.PutApp(ctx, berth.App{ID: "bot", TeamID: "b"}, "olga"))
		require.NoError(t, l.PutApp(ctx, berth.App{ID: "solo", Services: []string{"alone"}}, "olga"))
		for name, tc := range map[string]struct {
			query GroupQuery
			want  berth.Group
		}{
			"nothing known": {GroupQuery{UserID: "u", ServiceID: "s"}, berth.Group{}},
			"team of the token before that of the user":   {GroupQuery{Team: "b", UserID: "ann", ServiceID: "crawl"}, berth.Group{Team: "b"}},
			"unknown team of the token":                   {GroupQuery{Team: "new", UserID: "ann"}, berth.Group{Team: "new"}},
			"user before service":                         {GroupQuery{UserID: "bob", ServiceID: "crawl"}, berth.Group{Team: "b"}},
			"service":                                     {GroupQuery{UserID: "u", ServiceID: "crawl"}, berth.Group{Team: "a"}},
			"service of an application":                   {GroupQuery{UserID: "u", ServiceID: "talk"}, berth.Group{Team: "a", App: "chat"}},
			"service of an application of the own team":   {GroupQuery{UserID: "ann", ServiceID: "talk"}, berth.Group{Team: "a", App: "chat"}},
			"service of an application of another team":   {GroupQuery{UserID: "bob", ServiceID: "talk"}, berth.Group{Team: "b"}},
			"application of the token before the service": {GroupQuery{App: "bot", UserID: "u", ServiceID: "talk"}, berth.Group{Team: "b", App: "bot"}},
			"application of the token before the user":    {GroupQuery{App: "bot", UserID: "ann"}, berth.Group{Team: "b", App: "bot"}},
			"application of another team than the token":  {GroupQuery{Team: "a", App: "bot", UserID: "u"}, berth.Group{Team: "a"}},
			"application that is not defined":             {GroupQuery{App: "none", UserID: "ann"}, berth.Group{Team: "a"}},
			"application without a team":                  {GroupQuery{App: "solo", UserID: "ann"}, berth.Group{App: "solo"}},
			"service of an application without a team":    {GroupQuery{UserID: "u", ServiceID: "alone"}, berth.Group{App: "solo"}},
			"that of a user with a team":                  {GroupQuery{UserID: "ann", ServiceID: "alone"}, berth.Group{Team: "a"}},
			"a user is not a service":                     {GroupQuery{UserID: "crawl", ServiceID: "ann"}, berth.Group{}},
			"a team is not an application":                {GroupQuery{Team: "chat", App: "a", UserID: "u"}, berth.Group{Team: "chat"}},
		} {
			m, err := l.FindGroup(ctx, tc.query)
			require.NoError(t, err, name)
			require.Equal(t, tc.want, m.Group, name)
			require.Equal(t, tc.want.Team == "new" || tc.want.Team == "chat", m.NewTeam, name)
			require.Equal(t, map[string]int{"a": 7}[m.Team], m.TeamSettings.MaxTasks, name)
			require.Equal(t, map[string]int{"chat": 3}[m.App], m.AppSettings.MaxTasks, name)
		}
	})
}

// G11: a user or service belongs to one team or application, also after concurrent changes.
func TestPutTeam_MemberOfAnother_Refused(t *testing.T) {
	each(t, func(t *testing.T, l *Ledger) {
		ctx := t.Context()
		require.NoError(t, l.PutTeam(ctx, team("a", "ann", "kim"), "olga"))
		err := l.PutTeam(ctx, team("b", "bob", "kim"), "olga")
		requireCode(t, berth.CodeConflict, err)
		require.ErrorContains(t, err, `user "kim" belongs to team a; remove it there first`)
		_, err = l.Team(ctx, "b")
		requireCode(t, berth.CodeNotFound, err)
		require.NoError(t, l.PutApp(ctx, berth.App{ID: "x", Services: []string{"s"}}, "olga"))
		taken := team("b")
		taken.Services = []string{"s"}
		err = l.PutTeam(ctx, taken, "olga")
		require.ErrorContains(t, err, `service "s" belongs to application x`)

		require.NoError(t, l.PutTeam(ctx, team("a", "ann"), "olga"), "the list is replaced")
		require.NoError(t, l.PutTeam(ctx, team("b", "bob", "kim"), "olga"))
		got, err := l.Team(ctx, "b")
		require.NoError(t, err)
		require.Equal(t, team("b", "bob", "kim"), got)

		var g errgroup.Group
		for i := range 8 {
			id := "race" + string(rune('0'+i))
			g.Go(func() error {
				if err := l.PutTeam(ctx, team(id, "wanted", "only-"+id), "olga"); berth.CodeOf(err) != berth.CodeConflict {
					return err
				}
				return nil
			})
		}
		require.NoError(t, g.Wait())
		all, _, err := l.Teams(ctx, LevelQuery{}, "", 0)
		require.NoError(t, err)
		races := 0
		for _, x := range all {
			if strings.HasPrefix(x.ID, "race") {
				races++
			}
		}
		require.Equal(t, 1, races)
	})
}

// G11: a team with applications is not deleted; a deleted one leaves no members behind.
func TestDeleteTeam_WithApplications_RefusedUntilTheyAreGone(t *testing.T) {
	each(t, func(t *testing.T, l *Ledger) {
		ctx := t.Context()
		requireCode(t, berth.CodeNotFound, l.DeleteTeam(ctx, "a", "olga"))
		requireCode(t, berth.CodeInvalid, l.PutApp(ctx, berth.App{ID: "x", TeamID: "a"}, "olga"))
		require.NoError(t, l.PutTeam(ctx, team("a", "ann"), "olga"))
		require.NoError(t, l.PutApp(ctx, berth.App{ID: "x", TeamID: "a", Services: []string{"s"}}, "olga"))
		err := l.DeleteTeam(ctx, "a", "olga")
		requireCode(t, berth.CodeConflict, err)
		require.ErrorContains(t, err, "has applications, such as x")
		require.NoError(t, l.PutTeam(ctx, team("a", "ann"), "olga"))
		app, err := l.App(ctx, "x")
		require.NoError(t, err)
		require.Equal(t, "a", app.TeamID, "a change of the team keeps its applications")

		require.NoError(t, l.DeleteApp(ctx, "x", "olga"))
		require.NoError(t, l.DeleteTeam(ctx, "a", "olga"))
		m, err := l.FindGroup(ctx, GroupQuery{App: "x", UserID: "ann", ServiceID: "s"})
		require.NoError(t, err)
		require.Empty(t, m.Group)
		settings, err := l.Settings(ctx)
		require.NoError(t, err)
		require.Len(t, settings, 2, "to be deleted from Redis")
		for _, s := range settings {
			require.Empty(t, s.Body)
			require.False(t, s.Applied)
		}
		requireCode(t, berth.CodeNotFound, l.DeleteApp(ctx, "x", "olga"))
	})
}

// G11: lists have pages, of which deleted ones are no part. A team that a token names has default settings, and changes none.
func TestTeams_ManyTeams_ListedInPages(t *testing.T) {
	each(t, func(t *testing.T, l *Ledger) {
		ctx := t.Context()
		heavy := team("c")
		heavy.Weight, heavy.Title = 3, "Research"
		require.NoError(t, l.PutTeam(ctx, heavy, "olga"))
		for _, id := range []string{"b", "a", "c"} {
			require.NoError(t, l.AddTeam(ctx, id))
		}
		require.NoError(t, l.DeleteTeam(ctx, "b", "olga"))
		for id, of := range map[string]string{"z": "a", "y": "c", "x": "a"} {
			require.NoError(t, l.PutApp(ctx, berth.App{ID: id, TeamID: of}, "olga"))
		}
		first, next, err := l.Teams(ctx, LevelQuery{}, "", 1)
		require.NoError(t, err)
		require.Equal(t, []berth.Team{{ID: "a", LevelSettings: berth.DefaultLevel()}}, first)
		rest, next, err := l.Teams(ctx, LevelQuery{}, next, 5)
		require.NoError(t, err)
		require.Equal(t, []berth.Team{heavy}, rest)
		require.Empty(t, next)
		apps, next, err := l.Apps(ctx, LevelQuery{Team: "a"}, "", 1)
		require.NoError(t, err)
		require.Equal(t, "x", apps[0].ID)
		apps, _, err = l.Apps(ctx, LevelQuery{Team: "a"}, next, 1)
		require.NoError(t, err)
		require.Equal(t, "z", apps[0].ID)
		for prefix, want := range map[string]int{"a": 1, "c": 1, "A": 0, "%": 0, "": 2} {
			found, _, err := l.Teams(ctx, LevelQuery{Prefix: prefix}, "", 5)
			require.NoError(t, err)
			require.Len(t, found, want, prefix)
		}
		defined, _, err := l.Teams(ctx, LevelQuery{Defined: true}, "", 5)
		require.NoError(t, err)
		require.Equal(t, []berth.Team{heavy}, defined, "not those that tokens have named")
		_, _, err = l.Teams(ctx, LevelQuery{}, "nonsense", 1)
		requireCode(t, berth.CodeInvalid, err)
	})
}
