package tests

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"berth"
	"berth/client"
	"berth/workflows"
)

// FR6, FR7: a busy node gets its work again when it is no longer busy, and the languages as it has declared them.
func TestNodes_Busy_WorkIsDoneLater(t *testing.T) { // A11, S8, L5
	s := shareStack(t)
	busyTwice := func(id, reply string, args ...string) {
		file := filepath.Join(s.dir, id)
		line := fmt.Sprintf(`echo x >>%[1]s; if [ "$(wc -l <%[1]s)" -le 2 ]; then echo "the GPU is in use" >&2; exit 75; fi; %[2]s`, file, reply)
		s.start("berth", append([]string{"node", "--id", id, "--driver", "exec", "--exec", line}, args...),
			append([]string{"BERTH_URL=http://" + s.httpAddr, "BERTH_TOKEN=" + s.token("nodes", "node")}, s.settings...))
		s.awaitNode(id)
	}
	busyTwice("busy-translator", `printf '%s>%s ' "$BERTH_SRC_LANG" "$BERTH_TGT_LANG"; cat`, "--capabilities", "translate:es-"+s.language)
	busyTwice("busy-engine", `cat`, "--kind", "engine", "--capabilities", "busy-executor")
	c := s.user("alice")
	var sn berth.Session
	s.eventually("a session", func() (ok bool) {
		var err error
		sn, err = c.PutSession(context.Background(), "busy", client.SessionSpec{SrcLang: "es_mx.UTF-8", TgtLang: strings.ToUpper(s.language)})
		return err == nil
	})
	require.Equal(t, []string{"es-MX", s.language, "translate:es-" + s.language}, []string{sn.SrcLang, sn.TgtLang, sn.PreferredPool})
	d, err := c.Dispatch(t.Context(), "busy", client.JobSpec{RequestID: "r1", SpeakerID: "田中\u3000太郎", Segment: client.Segment{Text: "buenas"}, Finalize: berth.FinalizeManual})
	require.NoError(t, err)
	var turn berth.Turn
	s.eventually("the translation", func() bool {
		turn, err = c.Turn(context.Background(), d.TurnID)
		return err == nil && turn.Jobs[0].Status != berth.JobRunning
	})
	require.Equal(t, "es>"+s.language+" buenas", turn.Jobs[0].Text, "%+v", turn)
	require.Equal(t, 3, turn.Jobs[0].Dispatches)
	require.Equal(t, "田中\u3000太郎", turn.Jobs[0].SpeakerID)

	_, err = c.Execute(t.Context(), client.ExecutionSpec{ExecutionID: "busy-e1", Executor: "busy-executor", Input: []byte(`{"a": 1}`)})
	require.NoError(t, err)
	var e berth.Execution
	s.eventually("the execution to end", func() bool {
		e, err = c.Execution(context.Background(), "busy-e1")
		return err == nil && e.Status.Final()
	})
	require.Equal(t, berth.ExecutionCompleted, e.Status, "%+v", e)
	require.Len(t, e.Attempts, 3)
	require.True(t, e.Attempts[0].Busy && e.Attempts[1].Busy)
	require.Equal(t, "the GPU is in use", e.Attempts[0].Error)
	s.awaitEnd(workflows.TurnWorkflowID(d.TurnID))
	s.awaitEnd(executionRun("busy-e1"))
	s.saveHistory("turn-busy-node", workflows.TurnWorkflowID(d.TurnID))
	s.saveHistory("execution-busy-node", executionRun("busy-e1"))
}
