package main

import (
	"context"
	"fmt"
	"os"

	"berth/client"
	"berth/internal/agent"
)

type queueCommands struct {
	List queueList `cmd:"" default:"withargs" help:"List the queues with the slots and waiting calls of their models."`
	Tree queueTree `cmd:"" help:"Show what uses a model and what waits for it, by queue, team, application and user, and why it waits."`
}

type queueList struct {
	agent.Server `embed:""`
}

// Run prints the models of each queue as a table.
func (c *queueList) Run(ctx context.Context, api *client.Client) error {
	queues, err := api.Queues(ctx)
	if err != nil {
		return err
	}
	w := newTable(os.Stdout)
	fmt.Fprintln(w, "QUEUE\tWEIGHT\tMODEL\tIN USE\tCAP\tWAITING\tWAIT\tSTATE")
	for _, q := range queues {
		for _, m := range q.Models {
			fmt.Fprintf(w, "%s\t%d\t%s\t%d\t%d\t%d\t%s\t%s\n",
				q.Queue, q.Weight, m.Name, m.InUse, m.Cap, m.Waiting, eta(m.EtaSeconds), modelState(m.ModelPause, m.ModelService))
		}
	}
	return w.Flush()
}
