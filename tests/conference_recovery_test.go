package tests

import (
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"berth"
	"berth/client"
	"berth/internal/unit"
)

// C11: after a refusal, the next unit is tried immediately. C9, C22: if all units keep refusing, the conference is given up.
// Its record ends at the failure and contains the planned end.
func TestConference_UnitsRefuseRecovery_NextUnitThenGivenUp(t *testing.T) {
	t.Parallel()
	s := newStack(t, with("BERTH_CONFERENCE_RETRY=500ms", "BERTH_CONFERENCE_GIVE_UP=4s"))
	m := s.conferences()
	u1 := s.media("u1", 5)
	first, second := m.open("8685000001").Conference, m.open("8685000002").Conference
	u2, u3 := s.media("u2", 5), s.media("u3", 1)
	u2.fail(unit.FaultRefuse)
	u1.fail(unit.FaultUnresponsive)
	// u3 has a free slot for one of them. u2 refuses every attempt to recover the other one.
	kept, lost := first, second
	s.eventually("one of them to be on u3", func() bool {
		c, err := m.Conference(t.Context(), second.E164, "")
		if err == nil && on("u3")(c.Conference.Conference) {
			kept, lost = second, first
			return true
		}
		c, err = m.Conference(t.Context(), first.E164, "")
		return err == nil && on("u3")(c.Conference.Conference)
	})
	require.Contains(t, u3.runs(), kept.E164)

	current := m.await(lost.E164, "given up", ofStatus(berth.ConferenceEnded))
	require.Equal(t, berth.EndNotRecovered, current.End)
	require.Equal(t, lost.EndAt, current.EndAt, "C22: the planned end is kept")
	require.Len(t, current.Segments, 1)
	require.Equal(t, current.Segments[0].EndedAt, current.EndedAt, "C22: the end is the time of the failure")
	var refusals []berth.ConferenceOrder
	for _, o := range current.Orders {
		if o.Command == berth.ActivityRecoverConference {
			require.Equal(t, "u2", o.NodeID)
			require.Contains(t, o.Outcome, "refused: refused by a simulated fault")
			refusals = append(refusals, o)
		}
	}
	require.Greater(t, len(refusals), 2, "C9: the recovery was retried")
	// Both times are the workflow's: it retries until 4 s after the first refusal.
	require.GreaterOrEqual(t, refusals[len(refusals)-1].At.Sub(refusals[0].At), 2*time.Second)
	require.Less(t, refusals[len(refusals)-1].At.Sub(refusals[0].At), maxWait)
	require.Empty(t, u2.runs())
	status, record := s.send(http.MethodGet, "/v1/conferences/"+lost.E164+"/record", s.token("alice"), nil)
	require.Equal(t, http.StatusOK, status)
	require.EqualValues(t, berth.EndNotRecovered, record["end"])
	m.awaitEnd(lost.E164, "conference-refused-recovery")
	m.end(kept.E164, "conference-recovered")
	u1.kill()
	s.noSlots("u2", "u3")
}

// C10: the owner or an operator can end a conference in any state: while it is created, open, waiting, or recovered by a
// unit that hangs. All copies on units are released.
func TestConference_EndedInAnyState_CopiesAreReleased(t *testing.T) {
	t.Parallel()
	s := newStack(t, with("BERTH_CONFERENCE_COMMAND=5s"))
	m := s.conferences()
	operator := s.user("op", "operator")
	end := func(e164 string, meanwhile func()) {
		_, err := operator.EndConference(t.Context(), e164)
		require.NoError(t, err)
		meanwhile()
		current := m.await(e164, "ended", ofStatus(berth.ConferenceEnded))
		require.Equal(t, berth.EndReleased, current.End)
		s.awaitEnd("conference:" + e164)
	}
	u1 := s.media("u1", 5)
	waits, hangs := m.open("8686000001").Conference, m.open("8686000002").Conference
	u1.fail(unit.FaultSlow)
	created := make(chan error, 1)
	go func() {
		_, err := m.CreateConference(t.Context(), client.ConferenceSpec{E164: "8686000003", DurationMs: 60_000})
		created <- err
	}()
	m.await("8686000003", "being created", ofStatus(berth.ConferenceCreating))
	end("8686000003", func() {})
	var p *client.Problem
	require.ErrorAs(t, <-created, &p)
	require.Equal(t, berth.CodeEnded, p.Code, "its caller gets the reason")
	s.eventually("its copy to be released", func() bool { return len(u1.runs()) == 2 })
	u1.fail(unit.FaultNone)

	u2 := s.media("u2", 1)
	u2.fail(unit.FaultHalfDead)
	u1.kill()
	one := func(matches func(berth.Conference) bool) (e164 string) {
		s.eventually("one of them to match", func() bool {
			for _, e164 = range []string{waits.E164, hangs.E164} {
				if c, err := m.Conference(t.Context(), e164, ""); err == nil && matches(c.Conference.Conference) {
					return true
				}
			}
			return false
		})
		return e164
	}
	end(one(func(c berth.Conference) bool { return c.Status == berth.ConferenceAwaitingRecovery && c.Waiting != "" }), func() {})
	end(one(func(c berth.Conference) bool { return c.Status == berth.ConferenceCreating && c.Owner.NodeID == "u2" }), func() {
		u2.fail(unit.FaultNone) // C17: it has to acknowledge the release first
	})
	s.eventually("nothing to be left", func() bool { return len(u2.runs()) == 0 })
	s.noSlots("u2")
}
