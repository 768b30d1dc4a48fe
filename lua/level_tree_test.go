package lua_test

import (
	"fmt"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"berth"
	"berth/lua"
)

// G11: what runs and waits on each level is that of all below it, in both waiting rooms; a level at its limit is not in the order, its
// neighbours are.
func TestReadTree_CallsOnAllLevels_CountedWithTheirPlaceInTheOrder(t *testing.T) {
	t.Parallel()
	onAll(t, slotServers(t), func(t *testing.T, s *lua.Scripts) {
		require.NoError(t, s.SetLevel(t.Context(), lua.Level{Team: "a b|c"}, 2.5, 1))
		h := &hall{t: t, s: s, limits: limitsOf(2, 0)}
		app := lua.Group{Team: "a b|c", App: "x", EndUser: "e"}
		for i, p := range []lua.Path{
			{Queue: paidStream, Group: app, UserID: "u"},                    // runs
			{Queue: paidStream, Group: app, UserID: "u"},                    // waits: its team is at its limit
			{Queue: paidStream, Group: lua.Group{Team: "b"}, UserID: "v"},   // runs
			{Queue: paidStream, UserID: "w"},                                // waits: next
			{Queue: paidStream, Group: lua.Group{Team: "b"}, UserID: "v"},   // waits
			{Queue: freeBatch, Group: lua.Group{Team: "b"}, UserID: "v"},    // waits
			{Queue: paidStream, Group: lua.Group{Team: "b"}, UserID: "v/2"}, // waits
		} {
			h.acquire("m", lua.Lease{Process: "p", Path: p, Rest: strconv.Itoa(i), Needs: lua.Needs{Tokens: 7, Excluded: []string{"y"}}}.ID())
		}
		_, err := s.EnterTask(t.Context(), lua.ModelWaiterCall{
			ModelWaiter: lua.ModelWaiter{Task: berth.TaskRef{UserID: "u", TaskID: "t"}, Queue: paidStream, Model: "m", Group: app},
			Limits:      limitsOf(0, 0), Times: longTimes,
		}, time.Hour, 0)
		require.NoError(t, err)

		tree, err := s.ReadTree(t.Context(), "m", h.limits, 10, lua.Level{})
		require.NoError(t, err)
		require.Zero(t, tree.Grace)
		require.Zero(t, tree.Starting)
		require.Empty(t, tree.Full)
		require.Equal(t, lua.Needs{Tokens: 7, Excluded: []string{"y"}}, tree.Nodes[len(tree.Nodes)-1].Needs)
		require.Equal(t, []string{
			"queue q_paid_stream weight 8, 2 run, 5 wait, 1 ahead",
			"  team a b|c weight 2.5, 1 run, 2 wait, 1/1 used",
			"    app x weight 1, 1 run, 2 wait, 0 ahead",
			"      user u weight 1, 1 run, 2 wait, 0 ahead",
			"        endUser e weight 1, 1 run, 2 wait, 0 ahead",
			"  team b weight 1, 1 run, 2 wait, 1 ahead",
			"    user v weight 1, 1 run, 1 wait, 0 ahead",
			"    user v/2 weight 1, 0 run, 1 wait, 1 ahead",
			"  user w weight 1, 0 run, 1 wait, 0 ahead",
			"queue q_free_batch weight 1, 0 run, 1 wait, 0 ahead",
			"  team b weight 1, 0 run, 1 wait, 0 ahead",
			"    user v weight 1, 0 run, 1 wait, 0 ahead",
		}, treeText(tree, -1, ""))
		tree, err = s.ReadTree(t.Context(), "m", h.limits, 10, lua.Level{Team: "b"})
		require.NoError(t, err)
		require.Equal(t, []string{
			"queue q_paid_stream weight 8, 2 run, 5 wait, 1 ahead",
			"  team b weight 1, 1 run, 2 wait, 1 ahead",
			"    user v weight 1, 1 run, 1 wait, 0 ahead",
			"    user v/2 weight 1, 0 run, 1 wait, 1 ahead",
			"queue q_free_batch weight 1, 0 run, 1 wait, 0 ahead",
			"  team b weight 1, 0 run, 1 wait, 0 ahead",
			"    user v weight 1, 0 run, 1 wait, 0 ahead",
		}, treeText(tree, -1, ""), "of one team")
	})
}

// treeText returns the levels below one, each indented below the one above.
func treeText(t lua.Tree, parent int, indent string) (lines []string) {
	for i, n := range t.Nodes {
		if n.Parent != parent {
			continue
		}
		line := fmt.Sprintf("%s%s %s weight %v, %d run, %d wait", indent, n.Kind, n.ID, n.Weight, n.InUse, n.Waiting)
		if n.Limit > 0 {
			line += fmt.Sprintf(", %d/%d used", n.Used, n.Limit)
		}
		if n.Ahead >= 0 {
			line += fmt.Sprintf(", %d ahead", n.Ahead)
		}
		lines = append(append(lines, line), treeText(t, i, indent+"  ")...)
	}
	return lines
}

// G11: of many levels those with the most waiting calls are read, and a level that is asked for.
func TestReadTree_ManyTeams_ThoseWithTheMostWaitingCallsAndTheOneAskedFor(t *testing.T) {
	t.Parallel()
	onAll(t, slotServers(t), func(t *testing.T, s *lua.Scripts) {
		h := &hall{t: t, s: s, limits: limitsOf(1, 0)}
		number := 0
		call := func(team string) {
			number++
			p := lua.Path{Queue: paidStream, Group: lua.Group{Team: team}, UserID: "u" + strconv.Itoa(number)}
			h.acquire("m", lua.Lease{Process: "p", Path: p, Rest: strconv.Itoa(number)}.ID())
		}
		for i := range 220 {
			call("t" + strconv.Itoa(1000+i))
		}
		for range 3 {
			call("z")
		}
		call("y")
		teams := func(tree lua.Tree) (found []string) {
			for _, n := range tree.Nodes {
				if n.Kind == lua.KindTeam {
					found = append(found, fmt.Sprintf("%s %d", n.ID, n.Waiting))
				}
			}
			return found
		}
		tree, err := s.ReadTree(t.Context(), "m", h.limits, 3, lua.Level{})
		require.NoError(t, err)
		require.Equal(t, []string{"z 3", "t1001 1", "t1002 1"}, teams(tree))
		require.Equal(t, 223, tree.Nodes[0].Waiting, "of all teams")
		tree, err = s.ReadTree(t.Context(), "m", h.limits, lua.MaxTreeChildren, lua.Level{})
		require.NoError(t, err)
		require.Len(t, teams(tree), lua.MaxTreeChildren)
		require.LessOrEqual(t, len(tree.Nodes), 400)
		tree, err = s.ReadTree(t.Context(), "m", h.limits, 3, lua.Level{Team: "y"})
		require.NoError(t, err)
		require.Equal(t, []string{"y 1"}, teams(tree))
		tree, err = s.ReadTree(t.Context(), "m", h.limits, 3, lua.Level{Team: "none"})
		require.NoError(t, err)
		require.Empty(t, teams(tree))
	})
}

// G12: an upstream whose provider has no free slot takes no call, whatever it has itself.
func TestReadTree_ProviderWithoutFreeSlot_NamesItsUpstreams(t *testing.T) {
	t.Parallel()
	onAll(t, slotServers(t), func(t *testing.T, s *lua.Scripts) {
		limits := lua.ModelLimits{Upstreams: []lua.UpstreamLimits{
			{Name: "a", Rank: 1, Cap: 5, Provider: "x", ProviderCap: 1}, {Name: "b", Rank: 2, Cap: 5, Provider: "y"},
		}}
		h := &hall{t: t, s: s, limits: limits}
		full := func() []string {
			tree, err := s.ReadTree(t.Context(), "m", limits, 3, lua.Level{})
			require.NoError(t, err)
			return tree.Full
		}
		h.arrive("other", paidStream, "u", 1)
		require.Equal(t, []string{"a"}, full(), "by a call of another model")
		h.release("other", h.holders("other")...)
		require.Empty(t, full())
	})
}

// T4: while Redis may have lost leases, nothing is granted.
func TestReadTree_RedisLostItsData_StatesTheGracePeriod(t *testing.T) {
	t.Parallel()
	onAll(t, slotServers(t), func(t *testing.T, s *lua.Scripts) {
		h := &hall{t: t, s: s, limits: limitsOf(1, 0)}
		h.arrive("m", paidStream, "u", 2)
		require.NoError(t, s.Redis().Del(t.Context(), s.Keys().Guard()).Err())
		tree, err := s.ReadTree(t.Context(), "m", h.limits, 3, lua.Level{})
		require.NoError(t, err)
		require.Negative(t, tree.Grace, "no call has begun it")
		h.arrive("other", paidStream, "u", 1)
		tree, err = s.ReadTree(t.Context(), "m", h.limits, 3, lua.Level{})
		require.NoError(t, err)
		require.Positive(t, tree.Grace)
	})
}
