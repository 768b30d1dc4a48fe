package ledger

import (
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"berth"
)

// C16: of all who use a key the first decides what it stands for, until somebody says that nothing is left of that.
func TestC16ConferenceKeys(t *testing.T) {
	each(t, func(t *testing.T, l *Ledger) {
		ctx := t.Context()
		_, err := l.FindConferenceKey(ctx, "k")
		requireCode(t, berth.CodeNotFound, err)
		const askers = 10
		got := make(chan ConferenceKey, askers)
		var g errgroup.Group
		for i := range askers {
			g.Go(func() error {
				is, err := l.KeepConferenceKey(ctx, ConferenceKey{ID: "k", RequestHash: "h", ConferenceID: string(rune('a' + i)), E164: "1001"}, "")
				got <- is
				return err
			})
		}
		require.NoError(t, g.Wait())
		close(got)
		first := <-got
		for is := range got {
			require.Equal(t, first, is)
		}
		found, err := l.FindConferenceKey(ctx, "k")
		require.NoError(t, err)
		require.Equal(t, first, found)

		next := ConferenceKey{ID: "k", RequestHash: "h", ConferenceID: "c2", E164: "1002"}
		is, err := l.KeepConferenceKey(ctx, next, "another")
		require.NoError(t, err)
		require.Equal(t, first, is, "it stood for something else by then")
		is, err = l.KeepConferenceKey(ctx, next, first.ConferenceID)
		require.NoError(t, err)
		require.Equal(t, next, is)
	})
}
