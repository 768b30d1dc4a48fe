package tests

import (
	"context"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"berth"
	"berth/internal/sim"
	"berth/internal/testredis"
	"berth/lua"
	"berth/workflows"
)

// cellOf returns a stack whose processes use a cell of a Cluster.
func cellOf(t *testing.T, cluster *testredis.Cluster, cell string, opts ...option) (*stack, *lua.Scripts) {
	t.Helper()
	s := newStack(t, append(opts, with("BERTH_REDIS_ADDR="+cluster.Addr(), "BERTH_CELL="+cell))...)
	return s, lua.New(cluster.Client(t), lua.Keys{Cell: cell})
}

// B7: on a Redis Cluster, two cells run a chain, a turn and a conference with the same ids, and know nothing of each other.
func TestCluster_TwoCells_AreIndependent(t *testing.T) {
	t.Parallel()
	cluster := testredis.StartCluster(t, false)
	for _, cell := range []string{"one", "two"} {
		s, scripts := cellOf(t, cluster, cell, withModel(sim.Options{TokensPerSecond: 400}))
		s.testNode("a", 2)
		if cell == "one" {
			s.testNode("only-in-one", 2)
		}
		unit := s.media("u1", 1)
		m := s.conferences()
		conference := m.open("8600000001")
		require.Equal(t, map[string]int64{"8600000001": conference.Owner.Epoch}, unit.runs(), "the number is free in this cell")

		c := s.session("alice", "s1")
		d := c.submit("", 0, berth.FinalizeManual)
		require.Equal(t, "turn, 0:text 0, done(manual 0/1)", c.await(d.TurnID, berth.EventDone))

		acc := submitMatch(t, c.Client, berth.LocaleEN, "task-1")
		got := watch(t, c.Client, acc.TaskID, nil)
		require.Equal(t, berth.EventDone, got.last.Type, got.last.Message)
		require.Equal(t, got.last.Text, strings.TrimSpace(got.text))

		_, err := s.user("op", "operator").Node(t.Context(), "only-in-one")
		if cell == "one" {
			require.NoError(t, err)
		} else {
			require.Equal(t, berth.CodeNotFound, problem(t, err).Code)
		}
		m.end("8600000001", "conference-in-cell")
		s.awaitEnd(workflows.TurnWorkflowID(d.TurnID))
		s.released(scripts, "a", "u1")
	}
	err := cluster.Client(t).ForEachMaster(t.Context(), func(ctx context.Context, master *redis.Client) error {
		keys, err := master.Keys(ctx, "*").Result()
		for _, k := range keys {
			require.Regexp(t, `^\{(one|two)\}:`, k)
		}
		return err
	})
	require.NoError(t, err)
}
