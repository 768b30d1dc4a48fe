package ledger

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"berth"
)

// withApps defines the teams a and b, the applications chat and bot of a, and the application solo of none.
func withApps(t *testing.T, l *Ledger) {
	t.Helper()
	for _, id := range []string{"a", "b"} {
		require.NoError(t, l.PutTeam(t.Context(), team(id), "olga"))
	}
	for id, of := range map[string]string{"chat": "a", "bot": "a", "solo": ""} {
		require.NoError(t, l.PutApp(t.Context(), berth.App{ID: id, TeamID: of}, "olga"))
	}
}

func apiKey(id, team, app string) berth.APIKey {
	return berth.APIKey{ID: id, TeamID: team, AppID: app, KeySettings: berth.KeySettings{Title: "Nightly", Hint: "wxyz"}, CreatedBy: "olga"}
}

// O3: a key belongs to a team and to an application of that team.
func TestCreateKey_TeamAndApplication_BelongTogether(t *testing.T) {
	each(t, func(t *testing.T, l *Ledger) {
		ctx := t.Context()
		withApps(t, l)
		for name, tc := range map[string]struct{ team, app, want, field string }{
			"team":                        {"a", "", "a", ""},
			"application":                 {"", "chat", "a", ""},
			"both":                        {"a", "bot", "a", ""},
			"none":                        {"", "", "", "teamId"},
			"unknown team":                {"c", "", "", "teamId"},
			"unknown application":         {"a", "none", "", "appId"},
			"application of another team": {"b", "chat", "", "appId"},
			"application without a team":  {"", "solo", "", "appId"},
			"invalid team":                {"a/b", "", "", "teamId"},
		} {
			k, err := l.CreateKey(ctx, apiKey("key_"+tc.team+tc.app, tc.team, tc.app), name)
			if tc.field != "" {
				var e *berth.Error
				require.ErrorAs(t, err, &e, name)
				require.Equal(t, tc.field, e.Field, name)
				continue
			}
			require.NoError(t, err, name)
			require.Equal(t, tc.want, k.TeamID, name)
			stored, err := l.GetKey(ctx, k.ID)
			require.NoError(t, err, name)
			require.Equal(t, k, stored, name)
		}
		_, err := l.CreateKey(ctx, apiKey("key_again", "a", ""), "team")
		require.Error(t, err, "a secret is that of one key")
		_, err = l.GetKey(ctx, "key_again")
		requireCode(t, berth.CodeNotFound, err)
	})
}

// O3: a key is found by the hash of its secret, with the settings of its levels.
func TestKeyBySecret_Levels_SettingsOrDefaults(t *testing.T) {
	each(t, func(t *testing.T, l *Ledger) {
		ctx := t.Context()
		withApps(t, l)
		a := team("a")
		a.Weight, a.MaxTasks = 3, 7
		require.NoError(t, l.PutTeam(ctx, a, "olga"))
		require.NoError(t, l.PutApp(ctx, berth.App{ID: "chat", TeamID: "a", LevelSettings: berth.LevelSettings{MaxTasks: 2}}, "olga"))
		require.NoError(t, l.AddTeam(ctx, "named"))
		for _, tc := range []struct {
			team, app string
			want      [2]berth.LevelSettings
		}{
			{"a", "chat", [2]berth.LevelSettings{a.LevelSettings, {Weight: 1, MaxTasks: 2}}},
			{"a", "", [2]berth.LevelSettings{a.LevelSettings, berth.DefaultLevel()}},
			{"named", "", [2]berth.LevelSettings{berth.DefaultLevel(), berth.DefaultLevel()}},
		} {
			hash := "hash of " + tc.team + tc.app
			k := apiKey("key_"+tc.team+tc.app, tc.team, tc.app)
			k.KeySettings = berth.KeySettings{
				Title: "x", Hint: "abcd", Models: []string{"m", "n"}, RPM: 1, TPM: 2, MaxCalls: 3, ServiceTiers: []string{"flex"}, EndUsers: true,
				ReplaceResponses: true,
			}
			k.ExpiresAt = time.UnixMilli(1_900_000_000_000).UTC()
			k, err := l.CreateKey(ctx, k, hash)
			require.NoError(t, err)
			got, err := l.KeyBySecret(ctx, hash)
			require.NoError(t, err)
			require.Equal(t, KeyAccess{Key: k, Team: tc.want[0], App: tc.want[1]}, got)
		}
		_, err := l.KeyBySecret(ctx, "unknown")
		requireCode(t, berth.CodeNotFound, err)
	})
}

// O3: settings are replaced, revocation is final and idempotent.
func TestPutKey_RevokedKey_Refused(t *testing.T) {
	each(t, func(t *testing.T, l *Ledger) {
		ctx := t.Context()
		withApps(t, l)
		k, err := l.CreateKey(ctx, apiKey("key_1", "a", ""), "hash")
		require.NoError(t, err)
		end := time.UnixMilli(1_900_000_000_000).UTC()
		k.KeySettings, k.ExpiresAt = berth.KeySettings{
			Hint: "wxyz", RPM: 5, Models: []string{"m"}, Durability: berth.DurabilityDurable, Retention: berth.RetentionAll,
		}, end
		put, err := l.PutKey(ctx, "key_1", berth.KeySettings{Hint: "other", RPM: 5, Models: []string{"m", "m"}}, end)
		require.NoError(t, err)
		require.Equal(t, k, put, "all but the hint")
		stored, err := l.GetKey(ctx, "key_1")
		require.NoError(t, err)
		require.Equal(t, k, stored)
		_, err = l.PutKey(ctx, "key_1", berth.KeySettings{RPM: -1}, end)
		requireCode(t, berth.CodeInvalid, err)

		require.NoError(t, l.RevokeKey(ctx, "key_1", "olga"))
		first, err := l.KeyBySecret(ctx, "hash")
		require.NoError(t, err)
		require.Equal(t, "olga", first.Key.RevokedBy)
		require.WithinDuration(t, time.Now(), first.Key.RevokedAt, time.Minute)
		require.NoError(t, l.RevokeKey(ctx, "key_1", "omar"))
		again, err := l.GetKey(ctx, "key_1")
		require.NoError(t, err)
		require.Equal(t, first.Key, again)
		_, err = l.PutKey(ctx, "key_1", k.KeySettings, time.Time{})
		requireCode(t, berth.CodeConflict, err)
		for _, id := range []string{"none", "", "a\x00"} {
			_, err = l.PutKey(ctx, id, k.KeySettings, time.Time{})
			requireCode(t, berth.CodeNotFound, err)
			requireCode(t, berth.CodeNotFound, l.RevokeKey(ctx, id, "olga"))
		}
	})
}

// O3: lists have pages; revoked keys are listed on request.
func TestKeys_ManyKeys_ListedInPages(t *testing.T) {
	each(t, func(t *testing.T, l *Ledger) {
		ctx := t.Context()
		withApps(t, l)
		for id, of := range map[string][2]string{"key_1": {"a", "chat"}, "key_2": {"b"}, "key_3": {"a"}, "key_4": {"a", "bot"}, "key_5": {"a", "chat"}} {
			_, err := l.CreateKey(ctx, apiKey(id, of[0], of[1]), "hash of "+id)
			require.NoError(t, err)
			_, err = l.exec(ctx, "age key", `UPDATE api_keys SET created_at = $1 WHERE id = $2`, map[bool]int{true: 1, false: 2}[id > "key_3"], id)
			require.NoError(t, err)
		}
		require.NoError(t, l.RevokeKey(ctx, "key_3", "olga"))
		for _, tc := range []struct {
			query KeyQuery
			want  []string
		}{
			{KeyQuery{}, []string{"key_4", "key_5", "key_1", "key_2"}},
			{KeyQuery{Revoked: true}, []string{"key_4", "key_5", "key_1", "key_2", "key_3"}},
			{KeyQuery{Team: "a"}, []string{"key_4", "key_5", "key_1"}},
			{KeyQuery{Team: "a", Revoked: true}, []string{"key_4", "key_5", "key_1", "key_3"}},
			{KeyQuery{App: "chat"}, []string{"key_5", "key_1"}},
			{KeyQuery{Team: "b", App: "chat"}, nil},
		} {
			var got []string
			for cursor := ""; ; {
				page, next, err := l.Keys(ctx, tc.query, cursor, 2)
				require.NoError(t, err)
				require.LessOrEqual(t, len(page), 2)
				for _, k := range page {
					got = append(got, k.ID)
				}
				if cursor = next; next == "" {
					break
				}
			}
			require.Equal(t, tc.want, got, "%+v", tc.query)
		}
		_, _, err := l.Keys(ctx, KeyQuery{}, "nonsense", 1)
		requireCode(t, berth.CodeInvalid, err)
	})
}

// O3: no valid key is without its team or application, and it is of the team of its application.
func TestDeleteTeam_WithKeys_RefusedUntilTheyAreRevoked(t *testing.T) {
	each(t, func(t *testing.T, l *Ledger) {
		ctx := t.Context()
		withApps(t, l)
		for id, of := range map[string][2]string{"key_team": {"b"}, "key_app": {"a", "chat"}, "key_old": {"a", "chat"}} {
			_, err := l.CreateKey(ctx, apiKey(id, of[0], of[1]), "hash of "+id)
			require.NoError(t, err)
		}
		require.NoError(t, l.RevokeKey(ctx, "key_old", "olga"))
		err := l.DeleteTeam(ctx, "b", "olga")
		requireCode(t, berth.CodeConflict, err)
		require.ErrorContains(t, err, "the team has API keys, such as key_team; revoke each first")
		err = l.DeleteApp(ctx, "chat", "olga")
		requireCode(t, berth.CodeConflict, err)
		require.ErrorContains(t, err, "the application has API keys, such as key_app; revoke each first")
		requireCode(t, berth.CodeConflict, l.PutApp(ctx, berth.App{ID: "chat"}, "olga"))

		require.NoError(t, l.PutApp(ctx, berth.App{ID: "chat", TeamID: "b"}, "olga"))
		for id, want := range map[string]string{"key_app": "b", "key_old": "a", "key_team": "b"} {
			k, err := l.GetKey(ctx, id)
			require.NoError(t, err)
			require.Equal(t, want, k.TeamID, id)
		}
		for _, id := range []string{"key_app", "key_team"} {
			require.NoError(t, l.RevokeKey(ctx, id, "olga"))
		}
		require.NoError(t, l.PutApp(ctx, berth.App{ID: "chat"}, "olga"))
		require.NoError(t, l.DeleteApp(ctx, "chat", "olga"))
		require.NoError(t, l.DeleteTeam(ctx, "b", "olga"))
	})
}

// O3: keys that are created while their application moves are of its last team.
func TestCreateKey_ApplicationMovesMeanwhile_KeysFollow(t *testing.T) {
	each(t, func(t *testing.T, l *Ledger) {
		ctx := t.Context()
		withApps(t, l)
		const each = 8
		var g errgroup.Group
		for i := range each {
			g.Go(func() error {
				for {
					_, err := l.CreateKey(ctx, apiKey(fmt.Sprint("key_", i), "", "chat"), fmt.Sprint(i))
					if berth.CodeOf(err) != berth.CodeConflict {
						return err
					}
				}
			})
			g.Go(func() error { return l.PutApp(ctx, berth.App{ID: "chat", TeamID: []string{"a", "b"}[i%2]}, "olga") })
		}
		require.NoError(t, g.Wait())
		app, err := l.App(ctx, "chat")
		require.NoError(t, err)
		keys, _, err := l.Keys(ctx, KeyQuery{Team: app.TeamID, App: "chat"}, "", 0)
		require.NoError(t, err)
		require.Len(t, keys, each)
	})
}

// O3: of a team that is deleted while keys of it are created, either the team is there or no key.
func TestCreateKey_TeamDeletedMeanwhile_OneOfBoth(t *testing.T) {
	each(t, func(t *testing.T, l *Ledger) {
		ctx := t.Context()
		for round := range 10 {
			id := fmt.Sprint("team", round)
			require.NoError(t, l.PutTeam(ctx, team(id), "olga"))
			var g errgroup.Group
			var created, deleted error
			g.Go(func() error { _, created = l.CreateKey(ctx, apiKey("key_"+id, id, ""), id); return nil })
			g.Go(func() error { deleted = l.DeleteTeam(ctx, id, "olga"); return nil })
			require.NoError(t, g.Wait())
			if created == nil {
				requireCode(t, berth.CodeConflict, deleted)
				continue
			}
			requireCode(t, berth.CodeInvalid, created)
			require.NoError(t, deleted)
		}
	})
}
