package main

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"time"

	"berth"
	"berth/client"
	"berth/internal/agent"
	"berth/internal/pause"
)

type executionCommands struct {
	Submit executionSubmit `cmd:"" help:"Run an executor durably on a node."`
	List   executionList   `cmd:"" help:"List the executions of all users, newest first, as an operator."`
	Show   executionShow   `cmd:"" help:"Print an execution as JSON."`
	Watch  executionWatch  `cmd:"" help:"Follow an execution to its end, and print its output."`
	Cancel executionCancel `cmd:"" help:"Cancel an execution."`
}

type executionSubmit struct {
	agent.Server `embed:""`
	Executor     string        `arg:"" help:"Executor to run: a capability of the node."`
	Input        jsonFlag      `help:"Input of the executor." placeholder:"JSON"`
	ID           string        `help:"Use this id; a retry with it is idempotent. Default: a new one." name:"id"`
	Pool         string        `help:"Run on a node of this pool. Default: every node with the executor."`
	Timeout      time.Duration `help:"Limit one attempt to this time." default:"5m"`
	Deadline     time.Duration `help:"Limit all attempts and the wait for a node to this time." default:"15m"`
	Watch        bool          `help:"Follow it to its end."`
}

// Run submits the execution and prints its id.
func (c *executionSubmit) Run(ctx context.Context, api *client.Client) error {
	accepted, err := api.Execute(ctx, client.ExecutionSpec{
		ExecutionID: c.ID, Executor: c.Executor, Input: json.RawMessage(c.Input), PoolID: c.Pool,
		TimeoutMs: c.Timeout.Milliseconds(), DeadlineMs: c.Deadline.Milliseconds(),
	})
	if err != nil {
		return err
	}
	fmt.Println(accepted.ExecutionID)
	if !c.Watch {
		return nil
	}
	return watchExecution(ctx, api, accepted.ExecutionID)
}

type executionList struct {
	agent.Server `embed:""`
	User         string                `help:"List only executions of this user."`
	Status       berth.ExecutionStatus `help:"List only executions of this status: ${enum}." enum:",waiting,running,completed,failed,cancelled" default:""`
	Limit        int                   `help:"Maximum number of results." default:"50"`
}

// Run prints the executions as a table.
func (c *executionList) Run(ctx context.Context, api *client.Client) error {
	w := newTable(os.Stdout)
	fmt.Fprintln(w, "EXECUTION\tUSER\tEXECUTOR\tSTATUS\tNODE\tSTARTED")
	n := 0
	for e, err := range api.Executions(ctx, c.User, c.Status) {
		if err != nil {
			return w.fail(err)
		}
		if n++; n > c.Limit {
			break
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\n", e.ID, named(e.UserID), e.Executor, e.Status, cmp.Or(e.NodeID, "-"), e.StartedAt.Local().Format(time.DateTime))
	}
	return w.Flush()
}

// executionName is the argument of the commands about one execution.
type executionName struct {
	agent.Server `embed:""`
	ID           idArg `arg:"" help:"Id of the execution."`
}

type executionShow struct{ executionName }

// Run prints the execution.
func (c *executionShow) Run(ctx context.Context, api *client.Client) error {
	e, err := api.Execution(ctx, string(c.ID))
	return printJSON(e, err)
}

type executionWatch struct{ executionName }

// Run follows the execution.
func (c *executionWatch) Run(ctx context.Context, api *client.Client) error {
	return watchExecution(ctx, api, string(c.ID))
}

type executionCancel struct{ executionName }

// Run cancels the execution.
func (c *executionCancel) Run(ctx context.Context, api *client.Client) error {
	return api.CancelExecution(ctx, string(c.ID))
}

// executionPoll is the time between two reads of an execution that is watched.
const executionPoll = 500 * time.Millisecond

// watchExecution prints each change, and the output at the end. The error of a failed execution is returned.
func watchExecution(ctx context.Context, api *client.Client, id string) error {
	for last := ""; ; {
		e, err := api.Execution(ctx, id)
		if err != nil {
			return err
		}
		if now := fmt.Sprintf("%s, node %s, attempt %d", e.Status, cmp.Or(e.NodeID, "-"), len(e.Attempts)); now != last {
			last = now
			fmt.Fprintf(os.Stderr, "· %s\n", now)
		}
		switch {
		case e.Status == berth.ExecutionCompleted:
			fmt.Println(string(e.Output))
			return nil
		case e.Status.Final():
			return fmt.Errorf("the execution ended as %s: %s (%s)", e.Status, printable(e.Message), e.Code)
		}
		if !pause.For(ctx, executionPoll) {
			return ctx.Err()
		}
	}
}
