package ledger

import (
	"bytes"
	"log/slog"
	"os"
	"path/filepath"
	"testing"
	"time"

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
		require.False(t, again.CreatedAt.Before(first.CreatedAt), "the time is that of the last upload")
		first.CreatedAt = again.CreatedAt
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

func TestClaimAssets_Concurrent_IndexedOnce(t *testing.T) {
	each(t, func(t *testing.T, l *Ledger) {
		a := berth.Asset{UserID: "alice", Kind: berth.AssetText, Content: []byte("Go and Redis, five years.")}
		b := berth.Asset{UserID: "alice", Kind: berth.AssetText, Content: []byte("Redis in detail.")}
		var g errgroup.Group
		for i := range 20 {
			g.Go(func() error {
				one, err := l.PutAsset(t.Context(), a)
				if err != nil {
					return err
				}
				two, err := l.PutAsset(t.Context(), b)
				if err != nil {
					return err
				}
				variables := map[string]string{"resume": one.ID, "detailedResume": two.ID}
				if i%2 == 0 {
					variables = map[string]string{"resume": two.ID, "detailedResume": one.ID}
				}
				return l.ClaimAssets(t.Context(), "alice", variables, evidence)
			})
		}
		require.NoError(t, g.Wait())
		found, err := l.SearchPassages(t.Context(), "alice", "redis", 10)
		require.NoError(t, err)
		require.Len(t, found, 2)
	})
}

func TestClaimAssets_EachVariable_OnlyResumesAreFound(t *testing.T) { // T22, FT6
	each(t, func(t *testing.T, l *Ledger) {
		put := func(kind berth.AssetKind, name, text string) string {
			a, err := l.PutAsset(t.Context(), berth.Asset{UserID: "alice", Kind: kind, Name: name, Content: []byte(text)})
			require.NoError(t, err)
			return a.ID
		}
		resume, detailed := put(berth.AssetText, "cv.txt", "Redis at one."), put(berth.AssetText, "", "Redis at two.")
		posting, notes := put(berth.AssetText, "posting.txt", "We seek Redis."), put(berth.AssetText, "resume", "Redis, they say.")
		result := put(berth.AssetResult, "", "Redis, a model says.")
		require.Empty(t, search(t, l, "alice", "redis"), "an upload is not evidence")

		require.NoError(t, l.ClaimAssets(t.Context(), "alice", map[string]string{"jobText": posting, "notes": notes}, evidence))
		require.Empty(t, search(t, l, "alice", "redis"), "neither a posting nor notes are evidence, whatever their names")
		require.NoError(t, l.ClaimAssets(t.Context(), "alice", map[string]string{"resume": result}, evidence))
		require.Empty(t, search(t, l, "alice", "redis"), "answers of models are not evidence")

		variables := map[string]string{"resume": resume, "detailedResume": detailed, "jobText": posting}
		for range 2 { // an activity may run twice
			require.NoError(t, l.ClaimAssets(t.Context(), "alice", variables, evidence))
		}
		var found []string
		for _, p := range search(t, l, "alice", "redis") {
			found = append(found, p.AssetID)
		}
		require.ElementsMatch(t, []string{resume, detailed}, found)
		require.NoError(t, l.ClaimAssets(t.Context(), "alice", nil, evidence))
	})
}

func TestClaimAssets_AssetAbsentOrForeign_InvalidWithoutEffect(t *testing.T) { // FT6
	each(t, func(t *testing.T, l *Ledger) {
		own, err := l.PutAsset(t.Context(), berth.Asset{UserID: "alice", Kind: berth.AssetText, Content: []byte("Redis")})
		require.NoError(t, err)
		foreign, err := l.PutAsset(t.Context(), berth.Asset{UserID: "bob", Kind: berth.AssetText, Content: []byte("Go")})
		require.NoError(t, err)
		for _, id := range []string{foreign.ID, "a_none"} {
			err := l.ClaimAssets(t.Context(), "alice", map[string]string{"resume": own.ID, "notes": id}, evidence)
			requireCode(t, berth.CodeInvalid, err)
			require.ErrorContains(t, err, "variables.notes: the asset of variable notes no longer exists")
		}
		require.Empty(t, search(t, l, "alice", "redis"))
		deleted, err := l.DeleteUnusedAssets(t.Context(), time.Now().Add(time.Hour), 10)
		require.NoError(t, err)
		require.EqualValues(t, 2, deleted, "neither was claimed")
	})
}

func TestDeleteUnusedAssets_UsedAndRecentAssets_AreKept(t *testing.T) { // FT11
	each(t, func(t *testing.T, l *Ledger) {
		put := func(kind berth.AssetKind, text string) berth.Asset {
			a, err := l.PutAsset(t.Context(), berth.Asset{UserID: "alice", Kind: kind, Content: []byte(text)})
			require.NoError(t, err)
			return a
		}
		result, used, first, again, last := put(berth.AssetResult, "r"), put(berth.AssetText, "u"), put(berth.AssetText, "1"), put(berth.AssetText, "2"), put(berth.AssetText, "3")
		require.NoError(t, l.ClaimAssets(t.Context(), "alice", map[string]string{"notes": used.ID}, evidence))
		for i, a := range []berth.Asset{result, used, first, again, last} {
			_, err := l.write.ExecContext(t.Context(), `UPDATE assets SET created_at = $2 WHERE id = $1`, a.ID, int64(1000+i))
			require.NoError(t, err)
		}
		put(berth.AssetText, "2") // uploaded again
		put(berth.AssetText, "u")
		got, err := l.GetAsset(t.Context(), "alice", used.ID)
		require.NoError(t, err)
		require.EqualValues(t, 1001, got.CreatedAt.UnixMilli(), "a used asset keeps its time")

		cutoff := time.Now().Add(-time.Hour)
		deleted, err := l.DeleteUnusedAssets(t.Context(), cutoff, 1)
		require.NoError(t, err)
		require.EqualValues(t, 1, deleted, "limited")
		_, err = l.GetAsset(t.Context(), "alice", first.ID)
		requireCode(t, berth.CodeNotFound, err)
		deleted, err = l.DeleteUnusedAssets(t.Context(), cutoff, 10)
		require.NoError(t, err)
		require.EqualValues(t, 1, deleted)
		got2, err := l.GetAssets(t.Context(), "alice", []string{result.ID, used.ID, first.ID, again.ID, last.ID})
		require.NoError(t, err)
		require.Len(t, got2, 3)
		require.NotContains(t, got2, last.ID)
	})
}

func TestLatestResults_SeveralTasks_OwnCompletedNewestFirst(t *testing.T) {
	each(t, func(t *testing.T, l *Ledger) {
		ctx := t.Context()
		finish := func(user, text string, status berth.TaskStatus) {
			task := chain()
			task.UserID, task.Template = user, "resume_summary"
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

		got, err := l.LatestResults(ctx, "alice", "resume_summary", 10)
		require.NoError(t, err)
		require.Len(t, got, 2)
		require.Equal(t, "new", string(got[0].Content))
		require.Equal(t, "old", string(got[1].Content))
		got, err = l.LatestResults(ctx, "alice", "resume_summary", 1)
		require.NoError(t, err)
		require.Len(t, got, 1)
		got, err = l.LatestResults(ctx, "alice", "job_summary", 10)
		require.NoError(t, err)
		require.Empty(t, got)
	})
}

// SQLite keeps what was deleted in free pages until it needs them, unless it overwrites it.
func TestEraseAsset_SQLite_FileHasNoText(t *testing.T) { // B11
	t.Parallel()
	path := filepath.Join(t.TempDir(), "berth.db")
	l, err := Open(t.Context(), "sqlite:"+path, slog.New(slog.DiscardHandler))
	require.NoError(t, err)
	stored := func() bool {
		require.NoError(t, l.Close())
		file, err := os.ReadFile(path)
		require.NoError(t, err)
		l, err = Open(t.Context(), "sqlite:"+path, slog.New(slog.DiscardHandler))
		require.NoError(t, err)
		return bytes.Contains(file, []byte("unmistakable"))
	}
	a, err := l.PutAsset(t.Context(), berth.Asset{UserID: "alice", Kind: berth.AssetText, Content: bytes.Repeat([]byte("unmistakable "), 2000)})
	require.NoError(t, err)
	require.True(t, stored())
	_, err = l.EraseAsset(t.Context(), "alice", a.ID)
	require.NoError(t, err)
	require.False(t, stored())
	require.NoError(t, l.Close())
}
