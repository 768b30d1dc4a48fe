package ledger

import (
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"berth"
)

func TestPutSession_SameIDOfTwoUsers_TwoSessions(t *testing.T) {
	each(t, func(t *testing.T, l *Ledger) {
		ctx := t.Context()
		s := berth.Session{ID: "s1", UserID: "alice", TenantID: "acme", SrcLang: "en", TgtLang: "es", RoutingKey: "acme"}
		stored, err := l.PutSession(ctx, s)
		require.NoError(t, err)
		require.NotZero(t, stored.UpdatedAt)
		require.InDelta(t, stored.UpdatedAt.UnixMilli(), stored.Version, 1)
		s.Key, s.UpdatedAt, s.Version = "alice:s1", stored.UpdatedAt, stored.Version
		require.Equal(t, s, stored)
		got, err := l.GetSession(ctx, "alice", "s1")
		require.NoError(t, err)
		require.Equal(t, s, got)

		s.TenantID, s.TgtLang, s.RoutingKey = "", "fr", "s1"
		changed, err := l.PutSession(ctx, s)
		require.NoError(t, err)
		require.Equal(t, "fr", changed.TgtLang)
		require.Greater(t, changed.Version, stored.Version)

		for _, user := range []string{"bob", "alice:s1", "a\u0301lice", "%61lice", "アリス"} {
			theirs := s
			theirs.UserID, theirs.TgtLang = user, "de"
			theirs, err = l.PutSession(ctx, theirs)
			require.NoError(t, err)
			require.Equal(t, "s1", theirs.ID)
			got, err = l.GetSession(ctx, user, "s1")
			require.NoError(t, err)
			require.Equal(t, theirs, got)
		}
		got, err = l.GetSession(ctx, "alice", "s1")
		require.NoError(t, err)
		require.Equal(t, changed, got, "the sessions of other users change nothing")
		all, _, err := l.ListSessions(ctx, "", "", 10)
		require.NoError(t, err)
		require.Len(t, all, 6)
		first, next, err := l.ListSessions(ctx, "", "", 4)
		require.NoError(t, err)
		rest, _, err := l.ListSessions(ctx, "", next, 4)
		require.NoError(t, err)
		require.Equal(t, all, append(first, rest...), "pages")
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

// Several users that claim one id concurrently have a session each.
func TestPutSession_ConcurrentUsers_OneEach(t *testing.T) {
	each(t, func(t *testing.T, l *Ledger) {
		var g errgroup.Group
		for i := range 20 {
			g.Go(func() error {
				_, err := l.PutSession(t.Context(), berth.Session{ID: "s1", UserID: string(rune('a' + i%4)), SrcLang: "en", TgtLang: "es"})
				return err
			})
		}
		require.NoError(t, g.Wait())
		all, _, err := l.ListSessions(t.Context(), "", "", 10)
		require.NoError(t, err)
		require.Len(t, all, 4)
	})
}
