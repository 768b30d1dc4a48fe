package tests

import (
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"berth"
	"berth/internal/unit"
	"berth/lua"
)

// C2: waiting conferences are recovered as soon as a unit has capacity, for each cause of that except the end of a conference
// and a registration, without waiting for a retry.
func TestConference_CapacityAppears_WaitingOnesRecover(t *testing.T) {
	t.Parallel()
	s := newStack(t, with("BERTH_CONFERENCE_RETRY=1h"))
	m, operator, scripts := s.conferences(), s.token("op", "operator"), lua.New(s.redis(), lua.Keys{})
	order := func(id, what string) {
		status, out := s.send(http.MethodPost, "/v1/nodes/"+id+"/"+what, operator, map[string]any{})
		require.Equal(t, http.StatusOK, status, "%v", out)
	}
	status, out := s.send(http.MethodPut, "/v1/config/strategy", operator, map[string]any{"times": map[string]any{
		"media": map[string]any{"heartbeatIntervalMs": 500, "suspectAfterMs": 1500, "failureDetectionTimeoutMs": 600_000},
	}})
	require.Equal(t, http.StatusOK, status, "%v", out)
	look := func(id string) berth.Node {
		nodes, err := scripts.ReadNodes(t.Context(), id)
		require.NoError(t, err)
		return nodes[id]
	}
	seize := func(id string, ttl time.Duration) {
		code, err := scripts.RestoreNodeSlot(t.Context(), berth.Assignment{
			LeaseID: "of another", NodeRef: berth.NodeRef{NodeID: id, Generation: look(id).Generation}, PoolID: berth.CapabilityConference,
		}, ttl)
		require.NoError(t, err)
		require.Equal(t, lua.NodeSlotHeld, code)
	}
	var silent *media
	ways := []struct {
		name, id   string
		lose, gain func(id string)
	}{
		{"uncordoned", "a", func(id string) { order(id, "cordon") }, func(id string) { order(id, "uncordon") }},
		{"drain undone", "b", func(id string) { order(id, "drain") }, func(id string) { order(id, "undrain") }},
		{"more slots", "c", func(id string) { seize(id, time.Hour) }, func(id string) {
			n := look(id)
			r, err := scripts.RegisterNode(t.Context(), berth.NodeSpec{
				ID: id, Kind: n.Kind, Incarnation: n.Incarnation, Hostname: n.Hostname, Zone: n.Zone, Capabilities: n.Capabilities, MaxConcurrentJobs: 2,
			}, lua.Registration{Announce: true})
			require.NoError(t, err)
			require.Equal(t, lua.NodeExists, r.Code)
		}},
		{"lease expired", "d", func(id string) { seize(id, time.Hour) }, func(id string) { seize(id, time.Millisecond) }},
		{"no longer suspect", "e", func(string) { silent.fail(unit.FaultUnresponsive) }, func(string) { silent.fail(unit.FaultNone) }},
	}
	lost := s.media("lost", len(ways), "--leave")
	var waiting []string
	for i := range ways {
		waiting = append(waiting, m.open(fmt.Sprintf("866000000%d", i)).E164)
	}
	for _, w := range ways {
		u := s.media(w.id, 1)
		if w.id == "e" {
			silent = u
		}
		w.lose(w.id)
		s.eventually(w.id+" to be without room", func() bool { return look(w.id).Excluded != "" })
	}
	require.True(t, lost.stop(maxWait))
	for _, e164 := range waiting {
		m.await(e164, "without room", func(c berth.Conference) bool {
			return c.Status == berth.ConferenceAwaitingRecovery && len(c.Waiting) > len("the unit was lost: withdrawn")
		})
	}
	for _, w := range ways {
		w.gain(w.id)
		s.eventually("one of them to be recovered: "+w.name, func() bool {
			for c, err := range m.Conferences(t.Context(), berth.ConferenceOpen, w.id) {
				return err == nil && c.Owner.NodeID == w.id
			}
			return false
		})
	}
	for _, e164 := range waiting {
		_, err := m.EndConference(t.Context(), e164)
		require.NoError(t, err)
	}
}
