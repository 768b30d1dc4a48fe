package workflows_test

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"berth"
)

// Operators learn why no unit was found, once however often it is tried again. The caller learns only that it may retry.
func TestConference_SearchForUnitFails_CauseIsLoggedOnce(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		happen func(*conferenceTest)
		logged string
	}{
		"creation": {func(h *conferenceTest) { h.replyLost = true }, "conference not placed"},
		"recovery": {func(h *conferenceTest) {
			h.at(time.Minute, func() { h.replyLost = true; h.dies("u1") })
			h.at(2*time.Minute, h.release)
		}, "conference not placed"},
		"move": {func(h *conferenceTest) {
			h.at(time.Minute, func() { h.replyLost = true; h.requestMove("") })
			h.at(2*time.Minute, func() { requireAppError(t, h.moved.err, berth.CodeUnavailable); h.release() })
		}, "conference not moved"},
		"drain": {func(h *conferenceTest) {
			h.at(time.Minute, func() { h.replyLost = true; h.drained("u1") })
			h.at(2*time.Minute, h.release)
		}, "conference not moved"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := newConferenceTest(t, "u1", "u2")
			c.happen(h)
			h.run()
			lines := strings.Split(strings.TrimSpace(h.warnings.String()), "\n")
			require.Len(t, lines, 1)
			for _, part := range []string{c.logged, "e164=" + number, "conference=c1", "the reply is lost"} {
				require.Contains(t, lines[0], part)
			}
		})
	}
}
