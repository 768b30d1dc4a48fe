package api

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"berth"
	"berth/client"
)

// T9, FA12: the poll interval is 20, 10, 5 and 3 s as the end nears: the longer of what the steps that are left and the wait of the
// current one suggest. The estimate decides about the wait, otherwise the position.
func TestPollAfter_StepsAndWait_LongerOne(t *testing.T) {
	t.Parallel()
	at := func(position int) client.Waiting { return client.Waiting{Position: &position} }
	eta := func(seconds, position int) client.Waiting {
		return client.Waiting{Position: &position, EtaSeconds: &seconds}
	}
	for name, c := range map[string]struct {
		steps, index int
		fence        int64
		status       berth.TaskStatus
		waiting      client.Waiting
		want         int
	}{
		"three steps":                         {steps: 3, want: 20},
		"more steps":                          {steps: 9, want: 20},
		"two steps":                           {steps: 2, want: 10},
		"the last step":                       {steps: 3, index: 2, fence: 2, want: 5},
		"the last call runs":                  {steps: 3, index: 2, fence: 3, want: 3},
		"it streams":                          {steps: 3, index: 2, status: berth.TaskStreaming, want: 3},
		"ended":                               {steps: 1, status: berth.TaskCompleted, waiting: at(400), want: 0},
		"position 400 without an estimate":    {steps: 1, waiting: at(400), want: 20},
		"position 20":                         {steps: 1, waiting: at(20), want: 20},
		"position 6":                          {steps: 1, waiting: at(6), want: 10},
		"position 1":                          {steps: 1, waiting: at(1), want: 5},
		"the next one":                        {steps: 1, waiting: at(0), want: 5},
		"an hour":                             {steps: 1, waiting: eta(3600, 400), want: 20},
		"40 s":                                {steps: 1, waiting: eta(40, 3), want: 20},
		"30 s":                                {steps: 1, waiting: eta(30, 3), want: 10},
		"10 s, however many others":           {steps: 1, waiting: eta(10, 400), want: 5},
		"immediately":                         {steps: 1, waiting: eta(0, 0), want: 5},
		"a paused model":                      {steps: 1, waiting: client.Waiting{Paused: true, Position: new(0)}, want: 20},
		"steps left, although it starts soon": {steps: 3, waiting: eta(1, 0), want: 20},
		"a repeat of the last call waits":     {steps: 1, fence: 1, waiting: eta(120, 50), want: 20},
		"nothing known":                       {steps: 1, waiting: client.Waiting{}, want: 5},
	} {
		var task berth.Task
		task.Steps, task.StepIndex, task.Fence, task.Status = make([]berth.Step, c.steps), c.index, c.fence, c.status
		require.Equal(t, time.Duration(c.want)*time.Second, pollAfter(task, c.waiting), name)
	}
}
