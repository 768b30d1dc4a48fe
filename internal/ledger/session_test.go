package ledger

import (
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"berth"
)

func TestPutSession_OtherUsersID_NotFoundAndUnchanged(t *testing.T) {
	each(t, func(t *testing.T, l *Ledger) {
		ctx := t.Context()
		s := berth.Session{ID: "s1", UserID: "alice", TenantID: "acme", SrcLang: "en", TgtLang: "es", RoutingKey: "acme"}
		stored, err := l.PutSession(ctx, s)
		require.NoError(t, err)
		require.NotZero(t, stored.UpdatedAt)
		require.InDelta(t, stored.UpdatedAt.UnixMilli(), stored.Version, 1)
		s.UpdatedAt, s.Version = stored.UpdatedAt, stored.Version
		require.Equal(t, s, stored)
		got, err := l.GetSession(ctx, "alice", "s1")
		require.NoError(t, err)
		require.Equal(t, s, got)

		s.TenantID, s.TgtLang, s.RoutingKey = "", "fr", "s1"
		changed, err := l.PutSession(ctx, s)
		require.NoError(t, err)
		require.Equal(t, "fr", changed.TgtLang)
		require.Greater(t, changed.Version, stored.Version)

		theirs := s
		theirs.UserID, theirs.TgtLang = "bob", "de"
		_, err = l.PutSession(ctx, theirs)
		requireCode(t, berth.CodeNotFound, err)
		got, err = l.GetSession(ctx, "alice", "s1")
		require.NoError(t, err)
		require.Equal(t, changed, got, "an attempt by another user changes nothing")
	})
}

func TestGetSession_ForeignOrAbsent_NotFound(t *testing.T) {
	each(t, func(t *testing.T, l *Ledger) {
		_, err := l.PutSession(t.Context(), berth.Session{ID: "s1", UserID: "alice", SrcLang: "en", TgtLang: "es"})
		require.NoError(t, err)
		for _, ask := range [][2]string{{"bob", "s1"}, {"alice", "s2"}, {"alice", "s\x00"}, {"alice", "\xff"}, {"", "s1"}, {"alice", ""}} {
			_, err := l.GetSession(t.Context(), ask[0], ask[1])
			requireCode(t, berth.CodeNotFound, err)
		}
		for _, bad := range []berth.Session{{UserID: "alice"}, {ID: "s3"}, {ID: "\x00", UserID: "alice"}} {
			_, err := l.PutSession(t.Context(), bad)
			requireCode(t, berth.CodeInvalid, err)
		}
	})
}

// Of several users that claim one id concurrently, one gets it, and the others receive CodeNotFound.
func TestPutSession_ConcurrentUsers_OneOwner(t *testing.T) {
	each(t, func(t *testing.T, l *Ledger) {
		won := make(chan string, 20)
		var g errgroup.Group
		for i := range 20 {
			user := string(rune('a' + i%4))
			g.Go(func() error {
				_, err := l.PutSession(t.Context(), berth.Session{ID: "s1", UserID: user, SrcLang: "en", TgtLang: "es"})
				if berth.CodeOf(err) == berth.CodeNotFound {
					return nil
				}
				won <- user
				return err
			})
		}
		require.NoError(t, g.Wait())
		close(won)
		owners := map[string]bool{}
		for user := range won {
			owners[user] = true
		}
		require.Len(t, owners, 1)
	})
}
