package tests

import (
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"berth"
	"berth/client"
	"berth/internal/unit"
	"berth/lua"
)

func TestConference_UnitReturns_EarlierCopyIsAdopted(t *testing.T) { // C1, C2, C7, C10, C15, C16, C17
	s := shareStack(t)
	m := s.conferences()
	u1 := s.media("returns-u1", 5)
	a := m.open("8610000001")
	require.Equal(t, berth.ConferenceOpen, a.Status)
	require.Equal(t, map[string]int64{"8610000001": a.Owner.Epoch}, u1.runs())
	m.end("8610000001", "conference-released")
	require.Empty(t, u1.runs())

	u1.fail(unit.FaultRefuse)
	_, err := m.CreateConference(t.Context(), client.ConferenceSpec{E164: "8610000002", DurationMs: time.Hour.Milliseconds(), Zone: s.zone})
	require.Error(t, err)
	m.awaitEnd("8610000002", "conference-refused")
	u1.fail(unit.FaultNone)

	first, second := m.open("8610000001"), m.open("8610000003")
	require.Greater(t, first.Owner.Epoch, a.Owner.Epoch, "C20: epochs continue when a number is used again")
	u2 := s.media("returns-u2", 1)
	u1.fail(unit.FaultUnresponsive)
	waits, moved := "", ""
	s.eventually("one to be recovered, and one to wait", func() bool {
		waits, moved = "", ""
		for _, n := range []string{"8610000001", "8610000003"} {
			c, err := m.Conference(t.Context(), n, "")
			if err == nil && ofStatus(berth.ConferenceAwaitingRecovery)(c.Conference.Conference) && c.Waiting != "" {
				waits = n
			}
			if err == nil && on("returns-u2")(c.Conference.Conference) {
				moved = n
			}
		}
		return waits != "" && moved != ""
	})
	require.Len(t, u2.runs(), 1)
	m.end(moved, "conference-recovered")
	m.await(waits, "on u2 as soon as there is room (C2)", on("returns-u2"))
	require.Len(t, u1.runs(), 2, "it still runs both")

	u1.fail(unit.FaultNone)
	back := m.await(waits, "the earlier copy again (C7)", on("returns-u1"))
	require.Equal(t, back.Epoch, back.Owner.Epoch)
	s.eventually("only the earlier copy to be left", func() bool {
		return len(u2.runs()) == 0 && len(u1.runs()) == 1 && u1.runs()[waits] == back.Epoch
	})
	s.link("link-lost", "returns-u1", second.Owner.Generation)
	s.link("link-returned", "returns-u1", back.Owner.Generation)
	row, ok, err := lua.New(s.redis(), lua.Keys{}).ConferenceRow(t.Context(), waits)
	require.NoError(t, err)
	require.True(t, ok)
	require.Equal(t, back.Epoch, row.Epoch)
	m.end(waits, "conference-adopted")
	s.noSlots("returns-u1", "returns-u2")
}

func TestConference_UnitEndsOrRestarts_ReasonIsRecorded(t *testing.T) { // C5, C8, C14, C15
	s := shareStack(t)
	m := s.conferences()
	u1 := s.media("ends-u1", 5)
	m.open("8611000001")
	u1.ask(http.MethodDelete, "/conferences/8611000001", nil)
	current := m.await("8611000001", "ended by its unit", ofStatus(berth.ConferenceEnded))
	require.Equal(t, berth.EndByUnit, current.End)
	m.awaitEnd("8611000001", "conference-ended-by-unit")

	m.open("8611000002", func(c *client.ConferenceSpec) { c.DurationMs = 3000 })
	current = m.await("8611000002", "ended", ofStatus(berth.ConferenceEnded))
	require.Equal(t, berth.EndTime, current.End)
	m.awaitEnd("8611000002", "conference-end-time")

	lost := m.open("8611000003")
	no := false
	m.open("8611000004", func(c *client.ConferenceSpec) { c.Recoverable = &no })
	u1.ask(http.MethodPost, "/restart", nil)
	current = m.await("8611000003", "on the next run of its media server", func(c berth.Conference) bool {
		return on("ends-u1")(c) && c.Owner.Generation > lost.Owner.Generation
	})
	require.NotEqual(t, lost.Owner.Incarnation, current.Owner.Incarnation)
	current = m.await("8611000004", "ended with its unit", ofStatus(berth.ConferenceEnded))
	require.Equal(t, berth.EndNotRecoverable, current.End)
	m.awaitEnd("8611000004", "conference-not-recoverable")
	m.end("8611000003", "conference-restarted")
	s.noSlots("ends-u1")
}

func TestConference_RedisWiped_OwnersAreRestored(t *testing.T) { // C4, L12
	t.Parallel()
	s := newStack(t)
	m := s.conferences()
	u1 := s.media("u1", 5)
	before := m.open("8610000001")
	orphan := s.media("u2", 5)
	u1.fail(unit.FaultRefuse)
	m.open("8610000002") // it ends up on u2, whether or not u1 refused it
	u1.fail(unit.FaultNone)
	m.await("8610000002", "on u2", on("u2"))
	require.NoError(t, s.redis().FlushAll(t.Context()).Err())
	orphan.kill()
	after := m.await("8610000001", "open again", func(c berth.Conference) bool {
		return on("u1")(c) && c.Owner.Generation != before.Owner.Generation
	})
	require.Equal(t, before.Owner.Epoch, after.Owner.Epoch, "the conference did not move")
	m.await("8610000002", "recovered", on("u1"))
	s.eventually("two slots of u1 to be held", func() bool {
		nodes, err := lua.New(s.redis(), lua.Keys{}).ReadNodes(t.Context(), "u1")
		return err == nil && nodes["u1"].Leases == 2
	})
	m.end("8610000001", "conference-restored")
	m.end("8610000002", "conference-orphaned")
	s.noSlots("u1")
}
