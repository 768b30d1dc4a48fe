package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"time"

	"berth"
	"berth/client"
	"berth/internal/agent"
	"berth/internal/pause"
)

type reconcileCommand struct {
	agent.Server `embed:""`
	DryRun       bool `help:"Only report what would be repaired."`
	Last         bool `help:"Print the rules and the last passes without starting one."`
}

const (
	// passTimeout is longer than a pass may take.
	passTimeout = 11 * time.Minute
	passPoll    = time.Second
)

// Run starts a full pass, waits for its end and prints its findings.
func (c *reconcileCommand) Run(ctx context.Context, api *client.Client) error {
	if c.Last {
		if c.DryRun {
			return errors.New("state either --dry-run or --last")
		}
		state, err := api.Reconciliation(ctx)
		if err != nil {
			return err
		}
		return printReconciliation(state)
	}
	id, err := api.Reconcile(ctx, c.DryRun)
	if err != nil {
		return err
	}
	fmt.Fprintln(os.Stderr, "the pass has started; what it finds is checked a second time after a pause")
	p, err := awaitPass(ctx, api, id)
	if err != nil {
		return err
	}
	printPass(p)
	switch {
	case p.Status == berth.ReconcileSkipped:
		return errors.New("the pass is skipped; run it again in a minute")
	case p.Status != berth.ReconcileCompleted:
		return fmt.Errorf("the pass is %s", p.Status)
	case p.Left > 0 && !p.DryRun:
		return fmt.Errorf("%d differences are left", p.Left)
	}
	return nil
}

// awaitPass waits until a pass has ended.
func awaitPass(ctx context.Context, api *client.Client, id string) (berth.ReconcilePass, error) {
	ctx, cancel := context.WithTimeout(ctx, passTimeout)
	defer cancel()
	for {
		state, err := api.Reconciliation(ctx)
		if err != nil {
			return berth.ReconcilePass{}, err
		}
		if i := slices.IndexFunc(state.Passes, func(p berth.ReconcilePass) bool { return p.ID == id }); i >= 0 {
			return state.Passes[i], nil
		}
		if !pause.For(ctx, passPoll) {
			return berth.ReconcilePass{}, fmt.Errorf("pass %s has not ended: %w", id, ctx.Err())
		}
	}
}

func printPass(p berth.ReconcilePass) {
	fmt.Printf("%s pass %s in %s", p.Kind, p.Status, p.EndedAt.Sub(p.StartedAt).Round(time.Millisecond))
	if p.Reason != "" {
		fmt.Printf(": %s", p.Reason)
	}
	fmt.Printf("\n%d differences found, %d repaired, %d left\n", p.Found(), p.Repaired(), p.Left)
	for _, f := range p.Findings {
		fmt.Printf("%s %s: %s", f.Rule, printable(f.Subject), f.Outcome)
		if f.Message != "" {
			fmt.Printf(": %s", printable(f.Message))
		}
		fmt.Println()
	}
	if more := p.Found() - len(p.Findings); more > 0 {
		fmt.Printf("and %d more\n", more)
	}
}

func printReconciliation(state client.Reconciliation) error {
	w := newTable(os.Stdout)
	fmt.Fprintln(w, "RULE\tFINDS\tREPAIR")
	for _, r := range state.Rules {
		fmt.Fprintf(w, "%s\t%s\t%s\n", r.Rule, r.Finds, r.Repairs)
	}
	fmt.Fprintln(w, "\nSTARTED\tPASS\tSTATUS\tFOUND\tREPAIRED\tLEFT\tREASON")
	for _, p := range state.Passes {
		kind := string(p.Kind)
		if p.DryRun {
			kind += ", dry run"
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%d\t%d\t%d\t%s\n", p.StartedAt.Local().Format(time.DateTime), kind, p.Status, p.Found(), p.Repaired(), p.Left, p.Reason)
	}
	return w.Flush()
}
