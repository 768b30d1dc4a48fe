package berth_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"berth"
)

func TestEventTypes_Rules_MatchTheirNames(t *testing.T) { // T10, T14, T15
	t.Parallel()
	var terminal, appendable []berth.EventType
	for _, e := range berth.EventTypes() {
		if e.Terminal() {
			terminal = append(terminal, e)
		}
		if e.Appendable() {
			appendable = append(appendable, e)
		}
		require.Equal(t, e == berth.EventStart, e.Once(), e)
		require.Equal(t, e == berth.EventDebug, e.DevelopmentOnly(), e)
	}
	require.Equal(t, []berth.EventType{berth.EventDone, berth.EventError}, terminal)
	require.NotContains(t, appendable, berth.EventGap)
	require.Len(t, appendable, len(berth.EventTypes())-3)
	require.False(t, berth.EventTurn.Terminal(), "events of other streams have no rules of their own")
}
