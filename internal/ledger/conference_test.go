package ledger

import (
	"crypto/rand"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"berth"
)

// conference returns a conference of alice that is not stored yet.
func conference(e164 string, set ...func(*berth.Conference)) berth.Conference {
	now := time.Now().UTC().Truncate(time.Millisecond)
	c := berth.Conference{
		ConferenceSpec: berth.ConferenceSpec{E164: e164, Title: "stand-up", EndAt: now.Add(time.Hour), Recoverable: true},
		ID:             "c-" + rand.Text(), UserID: "alice", Status: berth.ConferenceCreating, CreatedAt: now,
		Segments: []berth.ConferenceSegment{}, Orders: []berth.ConferenceOrder{}, Epoch: 1, Revision: 1,
	}
	for _, f := range set {
		f(&c)
	}
	return c
}

func owned(node string) func(*berth.Conference) {
	return func(c *berth.Conference) {
		c.Status, c.Owner = berth.ConferenceOpen, berth.ConferenceOwner{NodeID: node, Generation: 1, Epoch: c.Epoch}
	}
}

func save(t *testing.T, l *Ledger, c berth.Conference) berth.Conference {
	t.Helper()
	require.NoError(t, l.SaveConference(t.Context(), c))
	return c
}

func numbers(t *testing.T, list []berth.Conference, err error) (out []string) {
	t.Helper()
	require.NoError(t, err)
	for _, c := range list {
		out = append(out, c.E164)
	}
	return out
}

// C20: epochs of a number rise without end, also for concurrent callers, and where the database's clock is behind the last one.
func TestNextEpoch_ConcurrentCalls_UniqueAndRising(t *testing.T) {
	each(t, func(t *testing.T, l *Ledger) {
		const callers = 20
		got := make(chan int64, callers)
		var g errgroup.Group
		for range callers {
			g.Go(func() error {
				n, err := l.NextEpoch(t.Context(), "8613800000001")
				got <- n
				return err
			})
		}
		require.NoError(t, g.Wait())
		close(got)
		var all []int64
		for n := range got {
			all = append(all, n)
		}
		slices.Sort(all)
		require.Len(t, slices.Compact(all), callers)
		ahead := all[callers-1] + time.Hour.Milliseconds()
		_, err := l.write.ExecContext(t.Context(), `UPDATE conference_epochs SET epoch = $1`, ahead)
		require.NoError(t, err)
		for i := range int64(3) {
			next, err := l.NextEpoch(t.Context(), "8613800000001")
			require.NoError(t, err)
			require.Equal(t, ahead+i+1, next)
		}
		_, err = l.NextEpoch(t.Context(), "+86")
		requireCode(t, berth.CodeInvalid, err)
	})
}

// C20: the database is restored from a copy that has none of the epochs that units were sent since.
func TestNextEpoch_OlderDatabaseRestored_EpochsStillRise(t *testing.T) {
	each(t, func(t *testing.T, l *Ledger) {
		before := make([]int64, 3)
		for i := range before {
			var err error
			before[i], err = l.NextEpoch(t.Context(), "8613800000001")
			require.NoError(t, err)
		}
		_, err := l.write.ExecContext(t.Context(), `DELETE FROM conference_epochs`)
		require.NoError(t, err)
		require.Eventually(t, func() bool { // within a few ms of each other, epochs run ahead of the clock
			after, err := l.NextEpoch(t.Context(), "8613800000001")
			require.NoError(t, err)
			return after > before[2]
		}, 20*time.Second, time.Millisecond)
	})
}

// C22: the last revision that the workflow sent is kept; a late, older one does not replace it.
func TestSaveConference_OlderRevision_LatestKept(t *testing.T) {
	each(t, func(t *testing.T, l *Ledger) {
		ctx := t.Context()
		_, err := l.FindConference(ctx, "8613800000001")
		requireCode(t, berth.CodeNotFound, err)
		first := save(t, l, conference("8613800000001", owned("u1"), func(c *berth.Conference) { c.Epoch, c.Revision = 3, 4 }))
		for _, late := range [][2]int64{{3, 3}, {9, 3}, {2, 4}} {
			old := first
			old.Title, old.Epoch, old.Revision = "late", late[0], late[1]
			save(t, l, old)
		}
		got, err := l.FindConference(ctx, "8613800000001")
		require.NoError(t, err)
		require.Equal(t, first, got)

		ended := first
		ended.Revision, ended.Status, ended.End, ended.Owner = 5, berth.ConferenceEnded, berth.EndTime, berth.ConferenceOwner{}
		save(t, l, ended)
		again := save(t, l, conference("8613800000001", func(c *berth.Conference) {
			c.Epoch, c.CreatedAt = 4, first.CreatedAt.Add(time.Second)
		}))
		got, err = l.FindConference(ctx, "8613800000001")
		require.NoError(t, err)
		require.Equal(t, again.ID, got.ID, "the number is used again")
		kept, _, err := l.SearchConferences(ctx, ConferenceQuery{ConferenceID: first.ID}, "", 2)
		require.NoError(t, err)
		require.Equal(t, []berth.Conference{ended}, kept, "the record of the first conference is kept")
		for _, bad := range []string{"", "1", "\x00"} {
			_, err = l.FindConference(ctx, bad)
			requireCode(t, berth.CodeNotFound, err)
		}
		requireCode(t, berth.CodeInvalid, l.SaveConference(ctx, berth.Conference{ID: "x"}))
		requireCode(t, berth.CodeInvalid, l.SaveConference(ctx, conference("8613800000001", func(c *berth.Conference) { c.ID = "" })))
	})
}

func TestSearchConferences_ManyPages_EachConferenceOnce(t *testing.T) {
	each(t, func(t *testing.T, l *Ledger) {
		ctx := t.Context()
		now := time.Now().UTC()
		var want []string
		for i := range 25 {
			number := fmt.Sprintf("86138000000%02d", i)
			save(t, l, conference(number, func(c *berth.Conference) {
				c.CreatedAt = now.Add(time.Duration(i/2) * time.Second)
				if i%5 == 0 {
					c.UserID = "bob"
				}
			}))
			want = append(want, number)
		}
		page := func(user string) (all []string) {
			cursor := ""
			for {
				list, next, err := l.SearchConferences(ctx, ConferenceQuery{UserID: user}, cursor, 4)
				all = append(all, numbers(t, list, err)...)
				if cursor = next; cursor == "" {
					return all
				}
			}
		}
		require.ElementsMatch(t, want, page(""))
		require.Len(t, page("alice"), 20)
		require.ElementsMatch(t, []string{want[0], want[5], want[10], want[15], want[20]}, page("bob"))
		require.Empty(t, page("carol"))
		_, _, err := l.SearchConferences(ctx, ConferenceQuery{}, "x", 4)
		requireCode(t, berth.CodeInvalid, err)
	})
}

func TestConferencesOf_Unit_OwnedConferencesByNumber(t *testing.T) {
	each(t, func(t *testing.T, l *Ledger) {
		save(t, l, conference("1002", owned("u1")))
		save(t, l, conference("1001", owned("u1")))
		save(t, l, conference("1003", owned("u2")))
		save(t, l, conference("1004"))
		list, err := l.ConferencesOf(t.Context(), "u1")
		require.Equal(t, []string{"1001", "1002"}, numbers(t, list, err))
		for _, unused := range []string{"u3", "", "\x00"} {
			list, err = l.ConferencesOf(t.Context(), unused)
			require.Empty(t, numbers(t, list, err))
		}
	})
}

// C2: conferences that were not refused are tried before those that were, the oldest first.
func TestWaitingConferences_SomeRefused_UnrefusedAndOldestFirst(t *testing.T) {
	each(t, func(t *testing.T, l *Ledger) {
		now := time.Now()
		waits := func(lost, refused time.Duration) func(*berth.Conference) {
			return func(c *berth.Conference) {
				c.Status, c.LostAt = berth.ConferenceAwaitingRecovery, now.Add(lost)
				if refused > 0 {
					c.RefusedAt = now.Add(refused)
				}
			}
		}
		save(t, l, conference("1001", waits(3*time.Second, 0)))
		save(t, l, conference("1002", waits(time.Second, 5*time.Second)))
		save(t, l, conference("1003", waits(2*time.Second, 0)))
		save(t, l, conference("1004", owned("u1")))
		list, err := l.WaitingConferences(t.Context(), 0, 10)
		require.Equal(t, []string{"1003", "1001", "1002"}, numbers(t, list, err))
		list, err = l.WaitingConferences(t.Context(), 0, 1)
		require.Equal(t, []string{"1003"}, numbers(t, list, err))
		list, err = l.WaitingConferences(t.Context(), 1, 5)
		require.Equal(t, []string{"1001", "1002"}, numbers(t, list, err))
	})
}

// C16: numbers are assigned in order; numbers in use are skipped, and those of ended conferences are assigned again.
func TestNextE164_NumbersInUse_SkippedUntilFree(t *testing.T) {
	each(t, func(t *testing.T, l *Ledger) {
		next := func() string {
			n, err := l.NextE164(t.Context(), "9996")
			require.NoError(t, err)
			return n
		}
		require.Equal(t, "9996", next())
		taken := save(t, l, conference("9998"))
		require.Equal(t, "9997", next())
		require.Equal(t, "9999", next())
		require.Equal(t, "9996", next(), "the range starts again")
		taken.Status, taken.Revision = berth.ConferenceEnded, 2
		save(t, l, taken)
		require.Equal(t, []string{"9997", "9998", "9999"}, []string{next(), next(), next()})
		for _, n := range []string{"9996", "9997", "9998", "9999"} {
			save(t, l, conference(n, func(c *berth.Conference) { c.CreatedAt = c.CreatedAt.Add(time.Second) }))
		}
		_, err := l.NextE164(t.Context(), "9996")
		requireCode(t, berth.CodeUnavailable, err)
		_, err = l.NextE164(t.Context(), "0123")
		requireCode(t, berth.CodeInvalid, err)
		n, err := l.NextE164(t.Context(), "999999999999999")
		require.NoError(t, err)
		require.Equal(t, "999999999999999", n, "the longest number")
	})
}
