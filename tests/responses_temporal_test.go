package tests

import (
	"bytes"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/tidwall/gjson"

	"berth"
	"berth/workflows"
)

// O8, O9: an answer that a client reads outlasts an outage of Temporal that is longer than the timeout of heartbeats and the drain time: Temporal gives up
// the attempt that makes the call, and the next one waits for it, on the same worker or on another one.
func TestResponses_TemporalUnreachable_AnswerContinues(t *testing.T) {
	t.Parallel()
	for name, elsewhere := range map[string]bool{"same worker": false, "another worker": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := newDurable(t, "BERTH_DRAIN=1s")
			d.worker.kill()
			o := d.startFar(t, d.ready.TemporalAddr, func(link string) string { return "BERTH_TEMPORAL_ADDR=" + link })
			free := make(chan struct{})
			d.provider.Answer(gated(free))
			read := d.events(t.Context(), t, d.httpAddr, "POST", "", responseBody(`,"background":true,"stream":true`))
			seen := follows(t, read, "The beginning")
			run := workflows.TaskWorkflowID(berth.TaskRef{UserID: d.keyID, TaskID: gjson.Get(seen[0], "response.id").Str})
			frontend := d.temporal()
			attempt := func() (number int32, heartbeat string) {
				w, err := frontend.DescribeWorkflowExecution(t.Context(), run, "")
				if err != nil || len(w.GetPendingActivities()) != 1 {
					return 0, ""
				}
				a := w.GetPendingActivities()[0]
				return a.GetAttempt(), a.GetHeartbeatDetails().String()
			}
			d.eventually("a heartbeat with the lease", func() bool {
				_, heartbeat := attempt()
				return strings.Contains(heartbeat, gjson.Get(seen[0], "response.id").Str)
			})
			o.hang()
			waits := o.far
			if elsewhere {
				waits = d.startWorker()
			}
			d.eventually("the next attempt", func() bool { number, _ := attempt(); return number > 1 })
			d.eventually("the worker to continue without Temporal", func() bool {
				return o.logged("Temporal has given up an attempt whose call continues") == 1
			})
			if !elsewhere {
				o.heal()
			}
			d.eventually("the next attempt to wait", func() bool {
				return bytes.Contains(waits.output(), []byte("step waits for the call of an earlier attempt"))
			})
			close(free)
			numbered(t, append(seen, all(read)...), 0, "response.completed")
			d.eventually("the run to complete", func() bool {
				w, err := frontend.DescribeWorkflowExecution(t.Context(), run, "")
				return err == nil && w.GetWorkflowExecutionInfo().GetCloseTime() != nil
			})
			require.EqualValues(t, 1, d.provider.Calls.Load())
			d.settled(t)
		})
	}
}
