package tests

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"berth"
	"berth/client"
	"berth/internal/unit"
)

// C10, C17: while a unit hangs, readers see that the conference is ending, and a caller that waits for its creation gets
// the error.
func TestConference_EndedWhileUnitHangs_EndIsShownAndCompletes(t *testing.T) {
	s := shareStack(t)
	m := s.conferences()
	u1 := s.media("hangs-u1", 5)
	m.open("8612000001")
	u1.fail(unit.FaultHalfDead)

	refused := make(chan error, 1)
	go func() {
		_, err := m.CreateConference(t.Context(), client.ConferenceSpec{E164: "8612000002", DurationMs: time.Hour.Milliseconds(), Zone: s.zone})
		refused <- err
	}()
	m.await("8612000002", "being created", ofStatus(berth.ConferenceCreating))
	ended := make(chan error, 2)
	for _, number := range []string{"8612000001", "8612000002"} {
		go func() {
			_, err := m.EndConference(t.Context(), number)
			ended <- err
		}()
	}
	var p *client.Problem
	require.ErrorAs(t, <-refused, &p)
	require.Equal(t, berth.CodeEnded, p.Code)
	current := m.await("8612000001", "ending", func(c berth.Conference) bool { return c.Ending == berth.EndReleased })
	require.Equal(t, berth.ConferenceOpen, current.Status)
	require.Equal(t, "alice", current.EndedBy)
	require.Equal(t, berth.ActivityReleaseConference, current.Orders[1].Command)
	require.Empty(t, current.Orders[1].Outcome)

	u1.fail(unit.FaultNone)
	m.awaitEnd("8612000001", "conference-ending")
	m.awaitEnd("8612000002", "conference-ended-in-creation")
	for range 2 {
		require.NoError(t, <-ended)
	}
	require.Equal(t, berth.EndReleased, m.await("8612000001", "ended", ofStatus(berth.ConferenceEnded)).End)
	s.noSlots("hangs-u1")
}

// L10: a unit that sends heartbeats but does not acknowledge a command delays one conference, not every later one.
func TestUnit_DoesNotAcknowledge_NextConferenceSkipsIt(t *testing.T) {
	t.Parallel()
	s := newStack(t, with("BERTH_CONFERENCE_COMMAND=1s", "BERTH_CONFERENCE_RETRY=1s"))
	m := s.conferences()
	u1 := s.media("u1", 5)
	m.end(m.open("8613000001").E164, "conference-released")
	u1.fail(unit.FaultHalfDead)
	spec := client.ConferenceSpec{E164: "8613000002", DurationMs: time.Hour.Milliseconds()}
	made, err := m.CreateConference(t.Context(), spec)
	require.NoError(t, err)
	require.Equal(t, berth.ConferenceAwaitingRecovery, made.Status)
	m.await(made.E164, "waiting because of the mark", func(c berth.Conference) bool {
		return strings.Contains(c.Waiting, "service unavailable")
	})
	spec.E164 = "8613000003"
	_, err = m.CreateConference(t.Context(), spec)
	var p *client.Problem
	require.ErrorAs(t, err, &p)
	require.Equal(t, berth.CodeNoNode, p.Code, "refused immediately")
	s.media("u2", 5)
	m.await(made.E164, "on another unit", on("u2"))
	u1.fail(unit.FaultNone)
	m.end(made.E164, "conference-unresponsive-unit")
}
