package unit

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"berth"
)

func TestLegs_ParticipantsChange_AreReportedOnce(t *testing.T) { // C22
	t.Parallel()
	var l legs
	now := time.Now().UTC().Truncate(time.Millisecond)
	joined := now.Add(-time.Minute)
	list := func(ids ...string) json.RawMessage {
		all := []map[string]any{}
		for _, id := range ids {
			all = append(all, map[string]any{"sid": id, "identity": "of " + id, "joinedAt": joined})
		}
		b, err := json.Marshal(all)
		require.NoError(t, err)
		return b
	}
	first := berth.ConferenceLeg{ID: "a", Identity: "of a", JoinedAt: joined}
	second := berth.ConferenceLeg{ID: "b", Identity: "of b", JoinedAt: joined}
	l.update(list("a"), now)
	require.Equal(t, []berth.ConferenceLeg{first}, l.due())
	l.update(list("a", "b"), now) // the data proxy was unavailable
	require.Equal(t, []berth.ConferenceLeg{first, second}, l.due())
	l.accepted(l.due())
	l.update(list("a", "b"), now)
	require.Empty(t, l.due())
	l.update(list("b"), now)
	first.LeftAt, first.Reason = now, berth.LegLeft
	require.Equal(t, []berth.ConferenceLeg{first}, l.due())
	l.accepted(l.due())
	l.update(nil, now)
	second.LeftAt, second.Reason = now, berth.LegLeft
	require.Equal(t, []berth.ConferenceLeg{second}, l.due(), "the copy has ended")
}
