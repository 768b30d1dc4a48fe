package tests

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.temporal.io/api/enums/v1"
	"go.temporal.io/sdk/temporal"

	"berth"
	"berth/workflows"
)

// FA10: Temporal is unavailable to workers and nodes while they work. In a short outage the work continues; work that Temporal gives up in
// a long one runs again on its node, without being counted. The user reads neither a failure of the node nor the error of a program.
func TestWork_TemporalUnavailable_NotCountedAsFailure(t *testing.T) { // A11, S8, B5
	t.Parallel()
	s := prepareStack(t, t.TempDir(), with("TURN_TIMEOUT_MS=60000"))
	o := startOutage(t, s, func() string { return s.ready.TemporalAddr }, func(link string) string { return "BERTH_TEMPORAL_ADDR=" + link })
	c := s.temporal()
	file := func(name string) string { return filepath.Join(s.dir, name) }
	node := func(kind, id, capability string) *process {
		command := fmt.Sprintf(`read line; echo x >>'%[1]s'; while [ ! -e '%[2]s' ]; do sleep 0.05; done; echo '"done"'`, file(id+".began"), file(id+".end"))
		p := s.start("berth", []string{
			"node", "--kind", kind, "--id", id, "--capabilities", capability, "--slots", "1", "--driver", "exec", "--exec", command,
		}, append([]string{"BERTH_URL=http://" + s.httpAddr, "BERTH_TOKEN=" + s.token("nodes", "node"), "BERTH_LOG_LEVEL=debug"},
			append(s.settings, "BERTH_TEMPORAL_ADDR="+o.link.Listen)...))
		s.awaitNode(id)
		return p
	}
	engine := node("engine", "e1", "job")
	node("translate", "t1", enES)
	began := func(id string, n int) func() bool {
		return func() bool {
			b, _ := os.ReadFile(file(id + ".began"))
			return strings.Count(string(b), "x") == n
		}
	}
	end := func(id string) { require.NoError(t, os.WriteFile(file(id+".end"), nil, 0o600)) }

	_, err := submit(t, c, "short", "job")
	require.NoError(t, err)
	s.eventually("the work to begin", began("e1", 1))
	o.link.Stop()
	s.eventually("heartbeats to fail", func() bool { return strings.Contains(string(engine.output()), "RecordActivityHeartbeat with error") })
	o.heal()
	end("e1")
	short := ended(t, c, "short")
	require.Equal(t, berth.ExecutionCompleted, short.Status, "%+v", short)
	require.Zero(t, short.Failures(), "%+v", short.Attempts)
	require.NoError(t, os.Remove(file("e1.end")))
	runs := len(short.Attempts)

	talk := s.session("bob", "s1")
	turn := talk.submit("", 0, berth.FinalizeManual)
	_, err = submit(t, c, "long", "job")
	require.NoError(t, err)
	s.eventually("the work to begin", func() bool { return began("e1", runs+1)() && began("t1", 1)() })
	o.link.Stop()
	for _, run := range []string{executionRun("long"), workflows.TurnWorkflowID(turn.TurnID)} {
		s.eventually("Temporal to give up the work", func() bool {
			for _, ev := range s.history(context.Background(), c, run, "").GetEvents() {
				if ev.GetEventType() == enums.EVENT_TYPE_ACTIVITY_TASK_TIMED_OUT {
					return true
				}
			}
			return false
		})
	}
	o.heal()
	s.eventually("the work to run again", func() bool { return began("e1", runs+2)() && began("t1", 2)() })
	end("e1")
	end("t1")
	long := ended(t, c, "long")
	require.Equal(t, berth.ExecutionCompleted, long.Status, "%+v", long)
	require.Len(t, long.Attempts, 2)
	require.True(t, long.Attempts[0].Lost)
	require.Equal(t, "Temporal was unavailable, so that the outcome on the node is unknown", long.Attempts[0].Error)
	require.Equal(t, `turn, 0:"done", done(manual 0/1)`, talk.await(turn.TurnID, berth.EventDone))
	s.saveHistory("execution-outage", executionRun("long"))
	s.saveHistory("turn-outage", workflows.TurnWorkflowID(turn.TurnID))

	// An execution that is refused, because Redis may have lost data, leaves the room that it may have entered.
	require.NoError(t, s.redis().FlushAll(t.Context()).Err())
	_, err = submit(t, c, "refused", "job")
	var app *temporal.ApplicationError
	require.ErrorAs(t, err, &app)
	require.Equal(t, string(berth.CodeUnavailable), app.Type())
	s.awaitEnd(executionRun("refused"))
	s.saveHistory("execution-left", executionRun("refused"))
}
