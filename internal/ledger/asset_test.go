package ledger

import (
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"berth"
)

func TestPutAsset_SameContent_SameAsset(t *testing.T) {
	each(t, func(t *testing.T, l *Ledger) {
		ctx := t.Context()
		png := berth.Asset{
			UserID: "alice", Kind: berth.AssetImage, MediaType: "image/png", Name: "job.png",
			Content: []byte{0x89, 'P', 'N', 'G', 0, 0xff},
		}
		first, err := l.PutAsset(ctx, png)
		require.NoError(t, err)
		require.Regexp(t, `^a_[a-z2-7]{52}$`, first.ID)
		require.EqualValues(t, 6, first.Size)
		require.Len(t, first.SHA256, 64)

		renamed := png
		renamed.Name = "again.png"
		again, err := l.PutAsset(ctx, renamed)
		require.NoError(t, err)
		require.Equal(t, first, again, "the same content is the same asset")

		got, err := l.GetAsset(ctx, "alice", first.ID)
		require.NoError(t, err)
		require.Equal(t, first, got)

		other := png
		other.UserID = "bob"
		bobs, err := l.PutAsset(ctx, other)
		require.NoError(t, err)
		require.NotEqual(t, first.ID, bobs.ID, "the id does not reveal that another user has the same content")
		text := png
		text.Kind = berth.AssetResult
		kind, err := l.PutAsset(ctx, text)
		require.NoError(t, err)
		require.NotEqual(t, first.ID, kind.ID)
	})
}

func TestGetAsset_ForeignOrAbsent_NotFound(t *testing.T) {
	each(t, func(t *testing.T, l *Ledger) {
		a, err := l.PutAsset(t.Context(), berth.Asset{UserID: "alice", Kind: berth.AssetText, Content: []byte("x")})
		require.NoError(t, err)
		for _, ask := range [][2]string{{"bob", a.ID}, {"alice", "a_none"}, {"alice", "a\x00"}, {"alice", "\xff"}, {"", a.ID}} {
			_, err := l.GetAsset(t.Context(), ask[0], ask[1])
			requireCode(t, berth.CodeNotFound, err)
		}
	})
}

func TestGetAssets_SomeForeignOrAbsent_OwnReturned(t *testing.T) {
	each(t, func(t *testing.T, l *Ledger) {
		put := func(user, text string) berth.Asset {
			a, err := l.PutAsset(t.Context(), berth.Asset{UserID: user, Kind: berth.AssetText, Content: []byte(text)})
			require.NoError(t, err)
			return a
		}
		x, y, bobs := put("alice", "x"), put("alice", "y"), put("bob", "x")
		got, err := l.GetAssets(t.Context(), "alice", []string{x.ID, bobs.ID, "a_none", "a\x00", y.ID, x.ID})
		require.NoError(t, err)
		require.Equal(t, map[string]berth.Asset{x.ID: x, y.ID: y}, got)
		for _, ask := range [][]string{nil, {"\xff"}} {
			got, err := l.GetAssets(t.Context(), "alice", ask)
			require.NoError(t, err)
			require.Empty(t, got)
		}
	})
}

func TestPutAsset_UnusualInput_InvalidOrStored(t *testing.T) {
	each(t, func(t *testing.T, l *Ledger) {
		_, err := l.PutAsset(t.Context(), berth.Asset{Kind: berth.AssetText})
		requireCode(t, berth.CodeInvalid, err)
		_, err = l.PutAsset(t.Context(), berth.Asset{UserID: "alice", Kind: "film"})
		requireCode(t, berth.CodeInvalid, err)
		for _, content := range [][]byte{nil, {}, []byte("a\x00b\xff")} { // stored although not useful
			a, err := l.PutAsset(t.Context(), berth.Asset{
				UserID: "alice", Kind: berth.AssetText, Content: content, Name: "n\x00", MediaType: "\xff",
			})
			require.NoError(t, err)
			got, err := l.GetAsset(t.Context(), "alice", a.ID)
			require.NoError(t, err)
			require.Len(t, got.Content, len(content))
		}
	})
}

func TestPutAsset_ConcurrentSameContent_IndexedOnce(t *testing.T) {
	each(t, func(t *testing.T, l *Ledger) {
		a := berth.Asset{UserID: "alice", Kind: berth.AssetText, Content: []byte("Go and Redis, five years.")}
		var g errgroup.Group
		for range 20 {
			g.Go(func() error {
				_, err := l.PutAsset(t.Context(), a)
				return err
			})
		}
		require.NoError(t, g.Wait())
		found, err := l.SearchPassages(t.Context(), "alice", "redis", 10)
		require.NoError(t, err)
		require.Len(t, found, 1)
	})
}

func TestLatestResults_SeveralTasks_OwnCompletedNewestFirst(t *testing.T) {
	each(t, func(t *testing.T, l *Ledger) {
		ctx := t.Context()
		finish := func(user, text string, status berth.TaskStatus) {
			task := chain()
			task.UserID, task.Template = user, berth.TemplateResumeSummary
			task = create(t, l, task)
			a := begin(t, l, task, 0)
			id, err := l.FinishStep(ctx, result(task, 0, a.Fence, text))
			require.NoError(t, err)
			_, won, err := l.FinishTask(ctx, End{TaskRef: task.Ref(), Status: status, ResultAssetID: id})
			require.NoError(t, err)
			require.True(t, won)
			// Results are ordered by milliseconds: move the existing ones back.
			_, err = l.write.ExecContext(ctx, `UPDATE tasks SET ended_at = ended_at - 1000 WHERE ended_at > 0`)
			require.NoError(t, err)
		}
		finish("alice", "old", berth.TaskCompleted)
		finish("alice", "new", berth.TaskCompleted)
		finish("alice", "broken", berth.TaskFailed)
		finish("bob", "foreign", berth.TaskCompleted)

		got, err := l.LatestResults(ctx, "alice", berth.TemplateResumeSummary, 10)
		require.NoError(t, err)
		require.Len(t, got, 2)
		require.Equal(t, "new", string(got[0].Content))
		require.Equal(t, "old", string(got[1].Content))
		got, err = l.LatestResults(ctx, "alice", berth.TemplateResumeSummary, 1)
		require.NoError(t, err)
		require.Len(t, got, 1)
		got, err = l.LatestResults(ctx, "alice", berth.TemplateJobSummary, 10)
		require.NoError(t, err)
		require.Empty(t, got)
	})
}
