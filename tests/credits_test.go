package tests

import (
	"errors"
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/api/workflowservice/v1"
	"golang.org/x/sync/errgroup"

	"berth"
	"berth/client"
	"berth/workflows"
)

// charges returns the kinds of the entries of alice's account that belong to tasks.
func charges(t *testing.T, c *client.Client) (kinds []string) {
	t.Helper()
	entries, next, err := c.CreditEntries(t.Context(), "", "", 200)
	require.NoError(t, err)
	require.Empty(t, next)
	var sum berth.Credits
	for _, e := range entries {
		sum += e.Amount
		if e.TaskID != "" {
			kinds = append(kinds, e.Kind)
		}
	}
	account, err := c.Account(t.Context(), "")
	require.NoError(t, err)
	require.Equal(t, account.Credits, sum)
	return kinds
}

func summary(text string) client.Submission {
	return client.Submission{
		ServiceID: "career", Template: "job_summary", Locale: berth.LocaleEN, Variables: map[string]any{"jobText": text},
	}
}

func TestSubmit_EqualRequestsWhileAPIDies_OneTaskOneCharge(t *testing.T) { // T7, T18, P7
	t.Parallel()
	s := newStack(t)
	c := s.user("alice")
	const equal = 100
	ids, sent := make(chan string, equal), make(chan struct{}, equal)
	var lost atomic.Int64
	var g errgroup.Group
	for range equal {
		g.Go(func() error {
			for first := true; ; first = false {
				if first {
					sent <- struct{}{}
				}
				acc, err := c.Submit(t.Context(), summary("We need a cook."), "key")
				if err == nil {
					ids <- acc.TaskID
					return nil
				}
				if p, ok := errors.AsType[*client.Problem](err); ok && p.Status < http.StatusInternalServerError {
					return err
				}
				lost.Add(1)
				<-time.After(50 * time.Millisecond)
			}
		})
	}
	for range equal {
		<-sent
	}
	s.api.kill()
	s.startAPI()
	require.NoError(t, g.Wait())
	t.Logf("%d replies were lost", lost.Load())
	require.Positive(t, lost.Load())
	id := <-ids
	for range equal - 1 {
		require.Equal(t, id, <-ids)
	}
	got := watch(t, c, id, nil)
	require.Equal(t, berth.EventDone, got.last.Type)
	require.Equal(t, 1, got.count(berth.EventDone))
	require.Equal(t, []string{"charge"}, charges(t, c))
	tasks, _, err := c.Tasks(t.Context(), client.TaskQuery{Limit: 100})
	require.NoError(t, err)
	require.Len(t, tasks, 1)
	require.Equal(t, 1, s.stats().Models["deepseek-chat"].Calls)
}

func TestSubmit_NoWorkerDuringAcceptance_NeverRunsLater(t *testing.T) { // T18, P6
	t.Parallel()
	s := newStack(t)
	c := s.user("alice")
	s.worker.kill()
	_, err := c.Submit(t.Context(), summary("We need a cook."), "key")
	require.Equal(t, http.StatusServiceUnavailable, problem(t, err).Status)
	s.worker = s.startWorker()
	tc := s.temporal()
	s.eventually("the refused run to end", func() bool {
		list, err := tc.ListWorkflow(t.Context(), &workflowservice.ListWorkflowExecutionsRequest{
			Query: `WorkflowType = "` + workflows.TaskWorkflow + `" AND ExecutionStatus = "Failed"`,
		})
		return err == nil && len(list.GetExecutions()) == 1
	})
	tasks, _, err := c.Tasks(t.Context(), client.TaskQuery{Limit: 100})
	require.NoError(t, err)
	require.Empty(t, tasks)
	require.Empty(t, charges(t, c))
	require.Zero(t, s.stats().Models["deepseek-chat"].Calls)

	acc, err := c.Submit(t.Context(), summary("We need a cook."), "key")
	require.NoError(t, err)
	require.Equal(t, berth.EventDone, watch(t, c, acc.TaskID, nil).last.Type)
	require.Equal(t, []string{"charge"}, charges(t, c))
}
