package activities

import (
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"berth"
	"berth/lua"
	"berth/workflows"
)

// G11: the workflow and the call of a task wait below its team and application, for which its calls are recorded.
func TestRunStep_TaskOfTeam_WaitsAndIsRecordedForIt(t *testing.T) {
	t.Parallel()
	h := newStepTest(t, "interview_prep", func(w http.ResponseWriter, _ *http.Request) { chunk(w, "an answer", "stop") })
	release := h.occupy()
	h.plan.ID, h.plan.Group = "t2", berth.Group{Team: "search", App: "chat", EndUser: "e"}
	team, app := lua.Level{Team: "search"}, lua.Level{Team: "search", App: "chat"}
	use := func() []lua.LevelUse {
		uses, err := h.Scripts.ReadLevels(t.Context(), stepModel, lua.OneUpstream(1), []lua.Level{team, app})
		require.NoError(t, err)
		return uses
	}
	pauseModel := func(paused bool) {
		_, err := h.Scripts.SetModelLimits(t.Context(), stepModel, "", lua.SlotTimes{TTL: time.Minute, Grant: time.Minute}, lua.OperatorLimits{Cap: map[bool]*int{true: new(0)}[paused]})
		require.NoError(t, err)
	}
	queue := h.plan.Steps[0].Queue
	waiting := []lua.LevelUse{{Level: team, Queue: queue, Waiting: 1}, {Level: app, Queue: queue, Waiting: 1}}
	pauseModel(true) // no workflow is promoted
	reply, err := h.AcceptTask(t.Context(), workflows.TaskInput{TaskPlan: h.plan, Deadline: time.Hour})
	require.NoError(t, err)
	require.Equal(t, workflows.EnteredWaiting, reply.Entered)
	require.ElementsMatch(t, waiting, use(), "in its workflow")
	pauseModel(false)

	done := make(chan error, 1)
	go func() {
		_, err := h.attempt(nil)
		done <- err
	}()
	h.waiting()
	require.ElementsMatch(t, waiting, use(), "for a slot")
	release()
	require.NoError(t, <-done)
	calls, err := h.Ledger.ModelCalls(t.Context(), h.plan.Ref())
	require.NoError(t, err)
	require.Len(t, calls, 1)
	require.Equal(t, []string{"search", "chat"}, []string{calls[0].TeamID, calls[0].AppID})
	require.Empty(t, use())
}
