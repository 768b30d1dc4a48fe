package workflows_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/temporal"

	"berth"
	"berth/workflows"
)

// busyUntil is the failure of a node that is busy and says when to retry, if after is not 0.
func busyUntil(after time.Duration) error {
	return temporal.NewApplicationErrorWithOptions("status 429", berth.ErrorBusy, temporal.ApplicationErrorOptions{NextRetryDelay: after})
}

// FR6: work that a busy node returns is neither counted as an attempt nor lost: another node gets it immediately, and the node itself after
// the time that it has asked for. A node that stays busy ends it with a plain reason.
func TestTurn_NodeBusy_JobWaitsWithoutBeingCounted(t *testing.T) { // A4, A11
	t.Parallel()
	type call struct {
		node string
		at   time.Duration
	}
	for name, c := range map[string]struct {
		nodes  []string
		busy   func(node string, n int) error // of the n-th call, from 1
		stream string
		calls  int
		last   time.Duration // when the last call was made, at most
		min    time.Duration // the shortest pause between calls of one node
	}{
		"another node is free": {
			[]string{"n1", "n2"}, func(node string, _ int) error {
				if node == "n1" {
					return busyUntil(time.Hour)
				}
				return nil
			}, "turn, 0:text 0 by n2, done(manual 0/1)", 2, time.Second, 0,
		},
		"a moment": {
			[]string{"n1"}, func(_ string, n int) error {
				if n <= 2 {
					return busyUntil(0)
				}
				return nil
			}, "turn, 0:text 0 by n1, done(manual 0/1)", 3, 5 * time.Second, time.Second,
		},
		"more often than attempts are counted": {
			[]string{"n1"}, func(_ string, n int) error {
				if n <= 6 {
					return busyUntil(0)
				}
				return nil
			}, "turn, 0:text 0 by n1, done(manual 0/1)", 7, 90 * time.Second, time.Second,
		},
		"as long as it asks": {
			[]string{"n1"}, func(_ string, n int) error {
				if n == 1 {
					return busyUntil(40 * time.Second)
				}
				return nil
			}, "turn, 0:text 0 by n1, done(manual 0/1)", 2, 46 * time.Second, 40 * time.Second,
		},
		"always": {
			[]string{"n1"}, func(string, int) error { return busyUntil(0) }, "turn, 0:node_full, done(manual 1/1)", 8, 2 * time.Minute, time.Second,
		},
		"for a year": {
			[]string{"n1"}, func(string, int) error { return busyUntil(365 * 24 * time.Hour) }, "turn, 0:node_full, done(manual 1/1)", 1, time.Second, 0,
		},
		"all of many": {
			many(100), func(string, int) error { return busyUntil(0) }, "turn, 0:node_full, done(manual 1/1)", 31, 3 * time.Minute, 0,
		},
		"and then broken": {
			[]string{"n1"}, func(_ string, n int) error {
				if n <= 2 {
					return busyUntil(0)
				}
				return temporal.NewApplicationError("broken", string(berth.CodeNodeFailed))
			}, "turn, 0:node_failed, done(manual 1/1)", 6, time.Minute, time.Second,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			u := newTurnTest(t)
			u.decide = firstOf(c.nodes...)
			fine, began := u.translate, time.Time{}
			var calls []call
			u.translate = func(node string, in berth.JobInput) (berth.JobOutput, error) {
				if began.IsZero() {
					began = u.env.Now()
				}
				at := u.env.Now().Sub(began)
				for _, earlier := range calls {
					if earlier.node == node {
						require.GreaterOrEqual(t, at-earlier.at, c.min, "%v", calls)
					}
				}
				calls = append(calls, call{node, at})
				if err := c.busy(node, len(calls)); err != nil {
					return berth.JobOutput{}, err
				}
				return fine(node, in)
			}
			u.submit(0, 0, cut(berth.FinalizeManual))
			r := u.run()
			require.NoError(t, r.err)
			require.Equal(t, c.stream, r.stream())
			require.Len(t, calls, c.calls, "%v", calls)
			require.LessOrEqual(t, calls[len(calls)-1].at, c.last)
			if strings.Contains(c.stream, "node_full") {
				require.Contains(t, r.turn.Jobs[0].Message, fmt.Sprintf("every node for this segment was busy; after %d requests", c.calls))
				require.Contains(t, r.turn.Jobs[0].Message, "status 429")
			}
		})
	}
}

func many(n int) (nodes []string) {
	for i := range n {
		nodes = append(nodes, fmt.Sprintf("m%d", i))
	}
	return nodes
}

// FR6: the same for executions, which wait until their deadline.
func TestExecution_NodeBusy_WaitsWithoutBeingCounted(t *testing.T) { // S6, S8
	t.Parallel()
	for name, c := range map[string]struct {
		after  time.Duration
		times  int
		code   berth.Code
		within time.Duration
	}{
		"a moment":        {0, 8, "", 3 * time.Minute},
		"as it asks":      {40 * time.Second, 3, "", 3 * time.Minute},
		"at most so long": {365 * 24 * time.Hour, 1, "", 11 * time.Minute},
		"always":          {0, 1000, berth.CodeNodeFull, time.Hour},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRun(t)
			assign := r.assign
			r.assign = func(n int, in workflows.AssignInput) (workflows.AssignReply, error) {
				if len(in.Failed) > 0 { // the only node
					return workflows.AssignReply{}, refusedWith(berth.CodeNoNode)
				}
				a, err := assign(n, in)
				a.NodeID, a.Generation = "n1", 7
				return a, err
			}
			fine, began, last := r.execute, time.Time{}, time.Time{}
			r.execute = func(ctx context.Context, n int, in berth.ExecuteInput) (berth.ExecuteOutput, error) {
				now := r.env.Now()
				if n == 1 {
					began = now
				} else {
					require.GreaterOrEqual(t, now.Sub(last), max(time.Second, min(c.after, 10*time.Minute)))
				}
				last = now
				if n <= c.times {
					return berth.ExecuteOutput{}, busyUntil(c.after)
				}
				return fine(ctx, n, in)
			}
			in := executionInput()
			in.Deadline = 24 * time.Hour
			is, err := r.start(in)
			require.Equal(t, c.code, is.Code, "%v", err)
			require.LessOrEqual(t, last.Sub(began), c.within)
			require.Zero(t, is.Failures())
			for _, a := range is.Attempts[:min(c.times, len(is.Attempts))] {
				require.True(t, a.Busy)
				require.Equal(t, "status 429", a.Error)
			}
			if c.code == "" {
				require.Len(t, is.Attempts, c.times+1)
			} else {
				require.Contains(t, is.Message, "every node was busy; after 31 requests the last one was returned on n1: status 429")
			}
			require.Len(t, r.released, len(is.Attempts))
		})
	}
}

// FR9: a translation may be longer than its segment; one beyond its limit ends the job immediately, with its own reason, as no node would do
// better. A response without a text is a failure.
func TestTurn_Output_LimitAndForm(t *testing.T) {
	t.Parallel()
	tooLarge := temporal.NewNonRetryableApplicationError("the output of 300000 bytes exceeds the limit of 262144 bytes", string(berth.CodeTooLarge), nil)
	for name, c := range map[string]struct {
		out        berth.JobOutput
		err        error
		stream     string
		dispatches int
		message    string
	}{
		"four times as long": {berth.JobOutput{Text: strings.Repeat("x", berth.MaxTranslationBytes)}, nil, "", 1, ""},
		"longer": {
			berth.JobOutput{Text: strings.Repeat("x", berth.MaxTranslationBytes+1)},
			nil, "turn, 0:too_large, done(manual 1/1)", 1,
			"the translation of this segment is too long, on n1: the output of 262145 bytes exceeds the limit of 262144 bytes",
		},
		"longer, as the node reports": {
			berth.JobOutput{},
			tooLarge, "turn, 0:too_large, done(manual 1/1)", 1,
			"the translation of this segment is too long, on n1: the output of 300000 bytes exceeds the limit of 262144 bytes",
		},
		"an empty text": {berth.JobOutput{}, nil, "turn, 0:, done(manual 0/1)", 1, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			u := newTurnTest(t)
			u.translate = func(string, berth.JobInput) (berth.JobOutput, error) { return c.out, c.err }
			u.submit(0, 0, cut(berth.FinalizeManual))
			r := u.run()
			require.NoError(t, r.err)
			if c.stream != "" {
				require.Equal(t, c.stream, r.stream())
			}
			require.Equal(t, c.dispatches, r.turn.Jobs[0].Dispatches)
			require.Equal(t, c.message, r.turn.Jobs[0].Message)
			if c.message == "" {
				require.Equal(t, c.out.Text, r.turn.Jobs[0].Text)
			}
		})
	}
}
