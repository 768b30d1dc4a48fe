package tests

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"berth"
	"berth/client"
	"berth/lua"
	"berth/workflows"
)

// L11: no API accepts heartbeats for longer than the detection time. No unit is declared dead: conferences stay where they
// are, also those that cannot be recovered.
func TestUnit_APIKilled_ConferencesStay(t *testing.T) {
	t.Parallel()
	s := newStack(t)
	m := s.conferences()
	u1 := s.media("u1", 5)
	c := m.open("8670000001").Conference
	frail := m.open("8670000002", func(b *client.ConferenceSpec) { b.Recoverable = new(bool) }).Conference
	s.api.kill()
	keys := lua.Keys{}
	s.eventually("the unit to have been silent for long", func() bool {
		now, err := s.redis().Time(t.Context()).Result()
		require.NoError(t, err)
		for _, key := range []string{keys.NodeBeats(string(berth.NodeMedia)), keys.NodeSuspects(string(berth.NodeMedia))} {
			if last, err := s.redis().ZScore(t.Context(), key, "u1").Result(); err == nil {
				return now.Sub(time.UnixMilli(int64(last))) > 2*berth.DefaultNodeTimes(berth.NodeMedia).Death
			}
		}
		t.Fatal("the unit was declared dead")
		return false
	})
	s.startAPI()
	for _, previous := range []berth.Conference{c, frail} {
		current := m.await(previous.E164, "open", ofStatus(berth.ConferenceOpen))
		require.Equal(t, previous.Owner, current.Owner)
		require.Len(t, current.Segments, 1)
	}
	require.Equal(t, map[string]int64{c.E164: c.Owner.Epoch, frail.E164: frail.Owner.Epoch}, u1.runs())
}

// A1, L11: no node could send heartbeats while no API was running. The turn continues with the next segment.
func TestTurn_APIKilled_JobsComplete(t *testing.T) {
	t.Parallel()
	const timeout = 5 * time.Second
	s := newStack(t, with("TURN_TIMEOUT_MS=5000"))
	s.testNode("a", 1)
	c := s.session("alice", "s1")
	began := c.submit("", 0, "")
	s.api.kill()
	from, err := s.redis().Time(t.Context()).Result()
	require.NoError(t, err)
	s.eventually("the turn's timeout to pass", func() bool {
		now, err := s.redis().Time(t.Context()).Result()
		return err == nil && now.Sub(from) > 2*timeout
	})
	s.startAPI()
	next := c.submit(began.TurnID, 1, berth.FinalizeManual)
	require.Equal(t, began.TurnID, next.TurnID)
	s.awaitEnd(workflows.TurnWorkflowID(began.TurnID))
	turn, err := c.Turn(t.Context(), began.TurnID)
	require.NoError(t, err)
	require.Equal(t, berth.FinalizeManual, turn.Reason)
	require.Len(t, turn.Jobs, 2)
	s.noSlots("a")
}
