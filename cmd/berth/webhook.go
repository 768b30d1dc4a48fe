package main

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/alecthomas/kong"

	"berth"
	"berth/client"
	"berth/internal/agent"
)

type webhookCommands struct {
	Create     webhookCreate     `cmd:"" help:"Create a webhook, and print it with its secret."`
	List       webhookList       `cmd:"" help:"List the webhooks, the oldest first."`
	Show       webhookShow       `cmd:"" help:"Print a webhook as JSON."`
	Set        webhookSet        `cmd:"" help:"Change the settings of a webhook. The others are kept; an empty list of events means all."`
	Delete     webhookDelete     `cmd:"" help:"Delete a webhook with its deliveries."`
	Rotate     webhookRotate     `cmd:"" help:"Give a webhook a new secret, and print it. The former one signs events beside it for a day."`
	Test       webhookTest       `cmd:"" help:"Send an event of the type webhook.test."`
	Deliveries webhookDeliveries `cmd:"" help:"List the events sent to a webhook, the newest first."`
	Resend     webhookResend     `cmd:"" help:"Send an event to its webhook again."`
}

type webhookFlags struct {
	Title    string                   `help:"Title."`
	Events   []berth.WebhookEventType `help:"Types of its events, such as response.completed. Default: all."`
	Disabled bool                     `negatable:"" help:"Send no events."`
}

type webhookCreate struct {
	agent.Server `embed:""`
	To           string `arg:"" help:"URL to which events are sent: https://host/path."`
	Team         string `help:"Team whose work it is about."`
	App          string `help:"Application of the team whose work it is about."`
	User         string `help:"User whose work it is about, instead of a team."`
	All          bool   `help:"Let it be about the work of all teams and users."`
	Quiet        bool   `help:"Print the secret only." short:"q"`
	webhookFlags
}

// Run creates the webhook and prints it.
func (c *webhookCreate) Run(ctx context.Context, api *client.Client) error {
	w, err := api.CreateWebhook(ctx, client.Webhook{TeamID: c.Team, AppID: c.App, UserID: c.User, All: c.All, WebhookSpec: client.WebhookSpec{
		URL: c.To, Title: c.Title, Events: c.Events, Disabled: c.Disabled,
	}})
	if err == nil && c.Quiet {
		fmt.Println(w.Secret)
		return nil
	}
	return printJSON(w, err)
}

type webhookList struct {
	agent.Server `embed:""`
	Team         string `help:"List only webhooks of this team."`
	App          string `help:"List only webhooks of this application."`
	User         string `help:"List only webhooks of this user."`
}

// Run prints the webhooks as a table.
func (c *webhookList) Run(ctx context.Context, api *client.Client) error {
	w := newTable(os.Stdout)
	fmt.Fprintln(w, "WEBHOOK\tTEAM\tAPPLICATION\tUSER\tEVENTS\tSTATE\tURL\tTITLE")
	for hook, err := range api.Webhooks(ctx, client.WebhookQuery{TeamID: c.Team, AppID: c.App, UserID: c.User}) {
		if err != nil {
			return w.fail(err)
		}
		events := make([]string, len(hook.Events))
		for i, e := range hook.Events {
			events[i] = string(e)
		}
		state := "enabled"
		if !hook.DisabledAt.IsZero() {
			state = "disabled " + hook.DisabledAt.Format(time.DateTime) + ": " + hook.DisabledWhy
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\n", hook.WebhookID, cmp.Or(hook.TeamID, "-"), cmp.Or(hook.AppID, "-"), named(cmp.Or(hook.UserID, "-")),
			cmp.Or(strings.Join(events, ", "), "all"), state, hook.URL, named(hook.Title))
	}
	return w.Flush()
}

// webhookName is the argument of the commands about one webhook.
type webhookName struct {
	agent.Server `embed:""`
	ID           idArg `arg:"" help:"Its id."`
}

type webhookShow struct{ webhookName }

// Run prints the webhook.
func (c *webhookShow) Run(ctx context.Context, api *client.Client) error {
	return printJSON(api.Webhook(ctx, string(c.ID)))
}

type webhookSet struct {
	webhookName
	To string `help:"URL to which events are sent."`
	webhookFlags
}

// Run changes the settings and prints the webhook.
func (c *webhookSet) Run(ctx context.Context, api *client.Client, command *kong.Context) error {
	hook, err := api.Webhook(ctx, string(c.ID))
	if err != nil {
		return err
	}
	g, spec := givenTo(command), hook.WebhookSpec
	change(g, "to", &spec.URL, c.To)
	change(g, "title", &spec.Title, c.Title)
	changeList(g, "events", &spec.Events, c.Events)
	change(g, "disabled", &spec.Disabled, c.Disabled)
	return printJSON(api.PutWebhook(ctx, string(c.ID), spec))
}

type webhookDelete struct{ webhookName }

// Run deletes the webhook.
func (c *webhookDelete) Run(ctx context.Context, api *client.Client) error {
	return api.DeleteWebhook(ctx, string(c.ID))
}

type webhookRotate struct{ webhookName }

// Run prints the webhook with its new secret.
func (c *webhookRotate) Run(ctx context.Context, api *client.Client) error {
	return printJSON(api.RotateWebhook(ctx, string(c.ID)))
}

type webhookTest struct{ webhookName }

// Run prints the delivery.
func (c *webhookTest) Run(ctx context.Context, api *client.Client) error {
	return printJSON(api.TestWebhook(ctx, string(c.ID)))
}

type webhookDeliveries struct {
	webhookName
	State berth.DeliveryState `help:"List only events in this state: pending, delivered or failed." enum:"pending,delivered,failed," default:""`
	Limit int                 `help:"Maximum number of events." default:"100"`
}

// Run prints the deliveries as a table.
func (c *webhookDeliveries) Run(ctx context.Context, api *client.Client) error {
	w := newTable(os.Stdout)
	fmt.Fprintln(w, "DELIVERY\tTYPE\tOF\tSTATE\tATTEMPTS\tLAST\tPROBLEM")
	n := 0
	for d, err := range api.Deliveries(ctx, string(c.ID), c.State) {
		if err != nil {
			return w.fail(err)
		}
		if n++; n > c.Limit {
			break
		}
		problem := ""
		if len(d.Log) > 0 {
			problem = d.Log[len(d.Log)-1].Error
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%d\t%s\t%s\n", d.DeliveryID, d.Type, d.SubjectID, d.State, d.Attempts, d.UpdatedAt.Format(time.DateTime), problem)
	}
	return w.Flush()
}

type webhookResend struct {
	webhookName
	Delivery idArg `arg:"" help:"Id of the delivery."`
}

// Run prints the delivery.
func (c *webhookResend) Run(ctx context.Context, api *client.Client) error {
	return printJSON(api.ResendDelivery(ctx, string(c.ID), string(c.Delivery)))
}
