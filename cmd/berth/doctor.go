package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"text/tabwriter"
	"time"

	"berth/internal/doctor"
	"berth/internal/redisconn"
	"berth/workflows"
)

type doctorCommand struct{ settings }

// Validate accepts all settings, because invalid ones are findings. kong would print the usage instead.
func (c *doctorCommand) Validate() error { return nil }

// Run prints the findings, and returns an error if berth would not work.
func (c *doctorCommand) Run(ctx context.Context) error {
	redisconn.LogTo(slog.New(slog.DiscardHandler)) // the findings state what matters
	findings := doctor.Run(ctx, c.Config, workflows.SearchAttributes(), time.Now)
	w := tabwriter.NewWriter(os.Stdout, 0, 4, 2, ' ', 0)
	for _, f := range findings {
		fmt.Fprintf(w, "%s\t%s\t%s\n", f.Level, f.Subject, f.Text)
		if f.Advice != "" {
			fmt.Fprintf(w, "\t\t-> %s\n", f.Advice)
		}
	}
	if err := w.Flush(); err != nil {
		return err
	}
	if doctor.Failed(findings) {
		return errors.New("berth does not work with these settings and servers; see the errors above")
	}
	return nil
}
