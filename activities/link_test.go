package activities

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"go.temporal.io/api/common/v1"
	"go.temporal.io/api/serviceerror"
	"go.temporal.io/api/workflow/v1"
	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/testsuite"

	"berth/internal/starter"
	"berth/workflows"
)

// pages is a Temporal whose visibility has three pages and rejects other tokens.
type pages struct {
	client.Client
	signal func(id string) error
}

func (p pages) ListWorkflow(
	_ context.Context, req *workflowservice.ListWorkflowExecutionsRequest,
) (*workflowservice.ListWorkflowExecutionsResponse, error) {
	page := 0
	if token := string(req.GetNextPageToken()); token != "" {
		if _, err := fmt.Sscan(token, &page); err != nil {
			return nil, serviceerror.NewInvalidArgument("unknown token")
		}
	}
	res := &workflowservice.ListWorkflowExecutionsResponse{}
	for i := range 3 {
		res.Executions = append(res.Executions, &workflow.WorkflowExecutionInfo{
			Execution: &common.WorkflowExecution{WorkflowId: fmt.Sprintf("turn:%d-%d", page, i)},
		})
	}
	if page < 2 {
		res.NextPageToken = []byte(strconv.Itoa(page + 1))
	}
	return res, nil
}

func (p pages) SignalWorkflow(_ context.Context, id, run, name string, arg any) error {
	if run != "" || name != workflows.SignalReassert || arg != nil {
		return fmt.Errorf("signal %s to run %q of %s", name, run, id)
	}
	return p.signal(id)
}

func TestSignalOpen_OpenWorkflows_AllAreSignalled(t *testing.T) { // L12
	t.Parallel()
	for name, c := range map[string]struct {
		from  any // heartbeat details
		pages []int
	}{
		"from the beginning":     {nil, []int{0, 1, 2}},
		"from where it had come": {signalled{Page: []byte("2"), Count: 6}, []int{2}},
		"a token that is gone":   {signalled{Page: []byte("old"), Count: 6}, []int{0, 1, 2}},
		"details of another age": {"what", []int{0, 1, 2}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var signalled sync.Map
			l := &Links{Logger: slog.New(slog.DiscardHandler), Starter: &starter.Starter{Client: pages{signal: func(id string) error {
				signalled.Store(id, true)
				if strings.HasSuffix(id, "-1") {
					return serviceerror.NewNotFound("it has ended")
				}
				return nil
			}}}}
			var suite testsuite.WorkflowTestSuite
			env := suite.NewTestActivityEnvironment()
			env.RegisterActivity(l)
			if c.from != nil {
				env.SetHeartbeatDetails(c.from)
			}
			_, err := env.ExecuteActivity(l.SignalOpen, workflows.ReassertInput{GraceUntil: 1})
			require.NoError(t, err)
			want := map[string]bool{}
			for _, page := range c.pages {
				for i := range 3 {
					want[fmt.Sprintf("turn:%d-%d", page, i)] = true
				}
			}
			got := map[string]bool{}
			signalled.Range(func(id, _ any) bool { got[id.(string)] = true; return true })
			require.Equal(t, want, got)
		})
	}
}

func TestSignalOpen_Retried_ContinuesAtItsPage(t *testing.T) {
	t.Parallel()
	l := &Links{Logger: slog.New(slog.DiscardHandler), Starter: &starter.Starter{Client: pages{signal: func(id string) error {
		if id == "turn:1-2" {
			return errors.New("busy")
		}
		return nil
	}}}}
	var suite testsuite.WorkflowTestSuite
	env := suite.NewTestActivityEnvironment()
	env.RegisterActivity(l)
	_, err := env.ExecuteActivity(l.SignalOpen, workflows.ReassertInput{GraceUntil: 1})
	require.ErrorContains(t, err, "open workflows not signalled")
}
