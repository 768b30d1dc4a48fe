package tests

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"berth"
	"berth/client"
)

// C22: the number of active conferences is limited by the licences. A waiting conference keeps its licence, or releases it
// and is recovered when a licence is free again. A loss of Redis's data neither loses nor adds licences.
func TestConference_LicencesExhausted_LimitHolds(t *testing.T) {
	t.Parallel()
	for _, keeps := range []bool{true, false} {
		t.Run(fmt.Sprint(keeps), func(t *testing.T) {
			t.Parallel()
			licencesAreKept(t, keeps)
		})
	}
}

func licencesAreKept(t *testing.T, keeps bool) {
	s := newStack(t, with("BERTH_CONFERENCE_LICENCES=2", fmt.Sprintf("BERTH_CONFERENCE_WAITING_KEEPS_LICENCE=%t", keeps),
		"BERTH_CONFERENCE_RETRY=1h"))
	m := s.conferences()
	here := func(c *client.ConferenceSpec) { c.Zone = "here" }
	lost := []string{"8690000001", "8690000002"}
	refused := func(e164 string) {
		var p *client.Problem
		s.eventually("the creation to be decided", func() bool { // Temporal may abort an update; clients retry a 503
			_, err := m.CreateConference(t.Context(), client.ConferenceSpec{E164: e164, DurationMs: time.Hour.Milliseconds()})
			p = problem(t, err)
			return p.Code != berth.CodeUnavailable
		})
		require.Equal(t, http.StatusServiceUnavailable, p.Status)
		require.Equal(t, berth.CodeNoLicence, p.Code)
		require.Contains(t, p.Detail, "all 2 are in use")
	}
	licences := func(want int) {
		t.Helper()
		s.eventually(fmt.Sprintf("%d licences to be in use", want), func() bool {
			status, stats := s.send(http.MethodGet, "/v1/stats/conferences", s.token("op", "operator"), nil)
			return status == http.StatusOK && stats["licences"] == float64(want)
		})
	}
	u1, u2 := s.media("u1", 3, "--zone", "here"), s.media("u2", 3, "--zone", "there")
	for _, e164 := range lost {
		require.Equal(t, "u1", m.open(e164, here).Owner.NodeID)
	}
	refused("8690000003")
	m.awaitEnd("8690000003", "conference-no-licence")
	licences(2)

	u1.kill()
	for _, e164 := range lost {
		m.await(e164, "without room", func(c berth.Conference) bool {
			return c.Status == berth.ConferenceAwaitingRecovery && !strings.HasPrefix(c.Waiting, "the unit")
		})
	}
	var instead []string
	if keeps {
		licences(2)
		refused("8690000004")
	} else {
		licences(0)
		for i := range lost { // others use the released licences
			instead = append(instead, m.open(fmt.Sprint(8690000005+i)).E164)
		}
		refused("8690000004")
	}
	u3 := s.media("u3", 3, "--zone", "here")
	for _, e164 := range instead {
		for _, waits := range lost {
			m.await(waits, "without a licence, or there", func(c berth.Conference) bool {
				return on("u3")(c) || c.Status == berth.ConferenceAwaitingRecovery && strings.Contains(c.Waiting, "licence")
			})
		}
		before := len(u3.runs())
		_, err := m.EndConference(t.Context(), e164)
		require.NoError(t, err)
		s.eventually("one of them to be recovered with its licence", func() bool { return len(u3.runs()) == before+1 })
	}
	for _, e164 := range lost {
		m.await(e164, "recovered", on("u3"))
	}
	licences(2)

	require.NoError(t, s.redis().FlushAll(t.Context()).Err())
	licences(2)
	for _, e164 := range lost {
		m.await(e164, "open again", on("u3"))
	}
	refused("8690000004")

	m.end(lost[0], fmt.Sprintf("conference-licence-kept-%t", keeps))
	licences(1)
	m.open("8690000004")
	refused("8690000003")
	for _, e164 := range []string{lost[1], "8690000004"} {
		_, err := m.EndConference(t.Context(), e164)
		require.NoError(t, err)
	}
	licences(0)
	s.noSlots("u2", "u3")
	require.Empty(t, u2.runs())
}
