package ledger

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"berth"
)

func TestSaveLegs_JoinThenLeave_KeepsTheFirstEnd(t *testing.T) { // C22
	each(t, func(t *testing.T, l *Ledger) {
		owner := berth.ConferenceOwner{NodeID: "u1", Epoch: 5}
		joined := time.Now().UTC().Truncate(time.Millisecond)
		anna := berth.ConferenceLeg{ID: "PA_1", Identity: "anna", Name: "Anna", JoinedAt: joined}
		ben := berth.ConferenceLeg{ID: "PA_2", Identity: "ben", JoinedAt: joined.Add(time.Second)}
		require.NoError(t, l.SaveLegs(t.Context(), "c1", owner, []berth.ConferenceLeg{anna, ben}))
		anna.LeftAt, anna.Reason = joined.Add(time.Minute), berth.LegLeft
		require.NoError(t, l.SaveLegs(t.Context(), "c1", owner, []berth.ConferenceLeg{anna}))
		late := anna
		late.LeftAt = joined.Add(time.Hour)
		require.NoError(t, l.SaveLegs(t.Context(), "c1", owner, []berth.ConferenceLeg{late}))
		anna.NodeID, anna.Epoch, ben.NodeID, ben.Epoch = "u1", 5, "u1", 5
		first, next, err := l.Legs(t.Context(), "c1", "", 1)
		require.NoError(t, err)
		require.Equal(t, []berth.ConferenceLeg{anna}, first)
		rest, next, err := l.Legs(t.Context(), "c1", next, 1)
		require.NoError(t, err)
		require.Empty(t, next)
		require.Equal(t, []berth.ConferenceLeg{ben}, rest)
		none, _, err := l.Legs(t.Context(), "c2", "", 0)
		require.NoError(t, err)
		require.Empty(t, none)
	})
}

func TestSaveLegs_ParticipantRemoved_ReasonSaysSo(t *testing.T) { // C22
	each(t, func(t *testing.T, l *Ledger) {
		owner := berth.ConferenceOwner{NodeID: "u1", Epoch: 5}
		joined := time.Now().UTC().Truncate(time.Millisecond)
		var legs []berth.ConferenceLeg
		for _, name := range []string{"anna", "ben"} {
			_, err := l.AddParticipant(t.Context(), berth.Participant{ConferenceID: "c1", Identity: name, Role: berth.RoleListener, CreatedAt: joined})
			require.NoError(t, err)
			legs = append(legs, berth.ConferenceLeg{ID: "PA_" + name, Identity: name, JoinedAt: joined})
		}
		require.NoError(t, l.SaveLegs(t.Context(), "c1", owner, legs))
		_, err := l.RemoveParticipant(t.Context(), "c1", "ben", "host", joined.Add(time.Second), false)
		require.NoError(t, err)
		for i := range legs {
			legs[i].LeftAt, legs[i].Reason = joined.Add(2*time.Second), berth.LegLeft
		}
		require.NoError(t, l.SaveLegs(t.Context(), "c1", owner, legs))
		stored, _, err := l.Legs(t.Context(), "c1", "", 0)
		require.NoError(t, err)
		require.Len(t, stored, 2)
		require.Equal(t, []berth.ConferenceEnd{berth.LegLeft, berth.LegRemoved}, []berth.ConferenceEnd{stored[0].Reason, stored[1].Reason})
	})
}
