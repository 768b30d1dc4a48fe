package ledger

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"berth"
)

func TestSearchConferences_EachFilter_MatchesNewestFirst(t *testing.T) {
	each(t, func(t *testing.T, l *Ledger) {
		ctx := t.Context()
		now := time.Now().UTC().Truncate(time.Millisecond)
		at := func(i int) func(*berth.Conference) {
			return func(c *berth.Conference) { c.CreatedAt = now.Add(time.Duration(i) * time.Second) }
		}
		bobs := func(c *berth.Conference) { c.UserID = "bob" }
		ended := func(c *berth.Conference) { c.Status, c.Owner = berth.ConferenceEnded, berth.ConferenceOwner{} }
		var all []berth.Conference
		for i := range 6 { // oldest first: alice's on u1 and u2, bob's on u1
			number := fmt.Sprintf("861380000000%d", i)
			set := []func(*berth.Conference){owned([]string{"u1", "u2"}[i%2]), at(i)}
			if i >= 4 {
				set = append(set, bobs, owned("u1"))
			}
			all = append(all, save(t, l, conference(number, set...)))
		}
		all = append(all, save(t, l, conference("8613800000000", at(9), ended, bobs)))

		for name, c := range map[string]struct {
			q    ConferenceQuery
			want []int
		}{
			"all":            {ConferenceQuery{}, []int{6, 5, 4, 3, 2, 1, 0}},
			"one user's":     {ConferenceQuery{UserID: "alice"}, []int{3, 2, 1, 0}},
			"of a status":    {ConferenceQuery{Status: berth.ConferenceEnded}, []int{6}},
			"of a unit":      {ConferenceQuery{NodeID: "u1"}, []int{5, 4, 2, 0}},
			"of a number":    {ConferenceQuery{E164: "8613800000000"}, []int{6, 0}},
			"all together":   {ConferenceQuery{UserID: "alice", NodeID: "u2", Status: berth.ConferenceOpen}, []int{3, 1}},
			"by id":          {ConferenceQuery{ConferenceID: all[2].ID}, []int{2}},
			"another's":      {ConferenceQuery{ConferenceID: all[2].ID, UserID: "bob"}, nil},
			"another number": {ConferenceQuery{ConferenceID: all[2].ID, E164: "8613800000000"}, nil},
			"nothing":        {ConferenceQuery{UserID: "\x00"}, nil},
		} {
			var got []berth.Conference
			for cursor := ""; ; {
				page, next, err := l.SearchConferences(ctx, c.q, cursor, 2)
				require.NoError(t, err, name)
				require.LessOrEqual(t, len(page), 2, name)
				got = append(got, page...)
				if cursor = next; cursor == "" {
					break
				}
			}
			require.Len(t, got, len(c.want), name)
			for i, n := range c.want {
				require.Equal(t, all[n], got[i], name)
			}
		}
		_, _, err := l.SearchConferences(ctx, ConferenceQuery{}, "x", 2)
		requireCode(t, berth.CodeInvalid, err)
		owners, err := l.CountOwners(ctx)
		require.NoError(t, err)
		require.Equal(t, map[string]int{"u1": 4, "u2": 2}, owners)
	})
}
