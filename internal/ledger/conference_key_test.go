package ledger

import (
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"berth"
)

// C16: the first of concurrent callers determines the conference of a key. A call that names that conference replaces it.
func TestConferenceKey_ConcurrentUse_FirstConferenceKept(t *testing.T) {
	each(t, func(t *testing.T, l *Ledger) {
		ctx := t.Context()
		_, err := l.FindConferenceKey(ctx, "k")
		requireCode(t, berth.CodeNotFound, err)
		const callers = 10
		got := make(chan ConferenceKey, callers)
		var g errgroup.Group
		for i := range callers {
			g.Go(func() error {
				kept, err := l.KeepConferenceKey(ctx, ConferenceKey{ID: "k", RequestHash: "h", ConferenceID: string(rune('a' + i)), E164: "1001"}, "")
				got <- kept
				return err
			})
		}
		require.NoError(t, g.Wait())
		close(got)
		first := <-got
		for kept := range got {
			require.Equal(t, first, kept)
		}
		found, err := l.FindConferenceKey(ctx, "k")
		require.NoError(t, err)
		require.Equal(t, first, found)

		next := ConferenceKey{ID: "k", RequestHash: "h", ConferenceID: "c2", E164: "1002"}
		kept, err := l.KeepConferenceKey(ctx, next, "another")
		require.NoError(t, err)
		require.Equal(t, first, kept, "the key refers to another conference than the one to replace")
		kept, err = l.KeepConferenceKey(ctx, next, first.ConferenceID)
		require.NoError(t, err)
		require.Equal(t, next, kept)
	})
}
