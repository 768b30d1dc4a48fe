package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strings"
	"time"

	"berth/internal/devserver"
	"berth/internal/doctor"
	"berth/internal/redisconn"
	"berth/internal/secret"
	"berth/workflows"
)

type doctorCommand struct {
	settings
	Call    bool   `help:"Make a call of each upstream of the models, whose answer has one token. The calls cost something."`
	DataDir string `help:"Check the development server that runs in this data directory, unless other servers are set." name:"data-dir" env:"BERTH_DATA_DIR" default:"./.berth"`
}

// Validate accepts all settings, because invalid ones are findings. kong would print the usage instead.
func (c *doctorCommand) Validate() error { return nil }

// Run prints the findings, and returns an error if berth would not work.
func (c *doctorCommand) Run(ctx context.Context) error {
	redisconn.LogTo(slog.New(slog.DiscardHandler)) // the findings state what matters
	findings := append([]doctor.Finding{c.development()}, doctor.Run(ctx, c.Config, workflows.SearchAttributes(), time.Now)...)
	if c.Call {
		findings = append(findings, doctor.Calls(ctx, c.Config, time.Now)...)
	}
	w := newTable(os.Stdout)
	for _, f := range findings {
		fmt.Fprintf(w, "%s\t%s\t%s\n", f.Level, f.Subject, f.Text)
		if f.Advice != "" {
			fmt.Fprintf(w, "\t\t-> %s\n", f.Advice)
		}
	}
	if err := w.Flush(); err != nil {
		return err
	}
	if err := ctx.Err(); err != nil {
		fmt.Fprintln(os.Stderr, "berth: interrupted; the remaining checks were not made")
		return err
	}
	if doctor.Failed(findings) {
		return errors.New("berth does not work with these settings and servers; see the errors above")
	}
	return nil
}

// development sets the addresses, the files and the secret of the development server that runs in DataDir, unless another server is set. The
// finding states whose settings are checked.
func (c *doctorCommand) development() doctor.Finding {
	found := doctor.Finding{Level: doctor.OK, Subject: "settings", Text: "those of this command are checked; processes that run have their own"}
	ready, err := devserver.Running(c.DataDir)
	if err != nil {
		return found
	}
	// The server prints its address of Temporal for other commands: set to that, it is the same server.
	own := (c.Redis.IsDefault() || string(c.Redis.Addr) == ready.RedisAddr) &&
		(c.Temporal.IsDefault() || c.Temporal.Addr == ready.TemporalAddr) &&
		(c.Database.IsDefault() || c.Database.URLFile == "" && string(c.Database.URL) == ready.Database)
	if !own {
		return found
	}
	var mixed []string // of this command, where the server has others
	for name, of := range map[string][2]string{
		"BERTH_ROUTING_FILE": {c.Model.RoutingFile, ready.RoutingFile}, "BERTH_TEMPLATES_DIR": {c.Model.TemplatesDir, ready.TemplatesDir},
	} {
		if of[0] != "" && of[0] != of[1] {
			mixed = append(mixed, name)
		}
	}
	slices.Sort(mixed)
	c.Redis.Addr = cmp.Or(secret.Address(ready.RedisAddr), c.Redis.Addr)
	c.Temporal.Addr = cmp.Or(ready.TemporalAddr, c.Temporal.Addr)
	c.Database.URL = cmp.Or(secret.Address(ready.Database), c.Database.URL)
	c.API.Addr = cmp.Or(ready.HTTPAddr, c.API.Addr)
	c.Model.TemplatesDir = cmp.Or(c.Model.TemplatesDir, ready.TemplatesDir)
	c.Model.RoutingFile = cmp.Or(c.Model.RoutingFile, ready.RoutingFile)
	if ready.ModelAddr != "" {
		c.Model.LocalURL = cmp.Or(c.Model.LocalURL, secret.Address("http://"+ready.ModelAddr+"/v1"))
	}
	found.Text = "addresses, files and secret are those of the development server in " + c.DataDir + ", and all others those of this command, such as keys of providers"
	if len(mixed) > 0 {
		found.Level = doctor.Warning
		found.Text += " and " + strings.Join(mixed, ", ") + ", of which the server has another value"
		found.Advice = "unset " + strings.Join(mixed, ", ") + " to check what the server uses"
	}
	if err := c.ReadSecretFile(devserver.SecretFile(c.DataDir)); err != nil {
		found = doctor.Finding{Level: doctor.Error, Subject: "settings", Text: err.Error()}
	}
	return found
}
