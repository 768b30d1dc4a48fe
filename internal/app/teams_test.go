package app

import (
	"log/slog"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"berth"
	"berth/internal/ledger"
	"berth/internal/sampler"
	"berth/internal/testledger"
	"berth/internal/testredis"
	"berth/lua"
)

// G11: teams that operators have defined have metrics, of all models together; those that tokens name do not, because there may be any
// number of them.
func TestTeamUses_TeamsOfOperatorsAndTokens_OnlyDefinedOnes(t *testing.T) {
	t.Parallel()
	l, err := ledger.Open(t.Context(), testledger.Migrated.SQLite(t), slog.New(slog.DiscardHandler))
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, l.Close()) })
	scripts := lua.New(testredis.Start(t).Client(), lua.Keys{})
	_, err = scripts.MarkNew(t.Context())
	require.NoError(t, err)
	limits := func(string) lua.ModelLimits { return lua.OneUpstream(1) }
	uses := func() map[string]sampler.TeamUse {
		t.Helper()
		found, err := teamUses(t.Context(), l, scripts, []string{"m", "n"}, limits)
		require.NoError(t, err)
		return found
	}
	require.Empty(t, uses())
	for _, id := range []string{"ads", "idle"} {
		require.NoError(t, l.PutTeam(t.Context(), berth.Team{ID: id, LevelSettings: berth.DefaultLevel()}, "olga"))
	}
	require.NoError(t, l.AddTeam(t.Context(), "token"))
	for i, of := range []struct{ model, team string }{{"m", "ads"}, {"m", "ads"}, {"n", "ads"}, {"n", "token"}} {
		_, err := scripts.AcquireSlot(t.Context(), lua.SlotCall{
			Model: of.model, Limits: limits(of.model), Times: lua.SlotTimes{TTL: time.Hour, Grant: time.Hour},
			Lease: lua.Lease{Process: "p", Path: lua.Path{Queue: "q", Group: lua.Group{Team: of.team}, UserID: "u"}, Rest: string(rune('1' + i))}.ID(),
		})
		require.NoError(t, err)
	}
	require.Equal(t, map[string]sampler.TeamUse{"ads": {InUse: 2, Waiting: 1}, "idle": {}}, uses())
}
