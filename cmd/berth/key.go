package main

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/alecthomas/kong"

	"berth"
	"berth/client"
	"berth/internal/agent"
)

type keyCommands struct {
	Create keyCreate `cmd:"" help:"Create an API key of a team or an application, and print it with its secret, which no other command prints."`
	List   keyList   `cmd:"" help:"List the API keys, the oldest first."`
	Show   keyShow   `cmd:"" help:"Print an API key as JSON."`
	Set    keySet    `cmd:"" help:"Change the settings of an API key. The others are kept; an empty list removes one, and 0 a limit."`
	Revoke keyRevoke `cmd:"" help:"Revoke an API key for all time."`
}

// keyFlags are the settings of an API key.
type keyFlags struct {
	Title            string     `help:"Title."`
	Models           []string   `help:"Models that it may call, by name or alias. Default: all."`
	RPM              int        `help:"Maximum number of requests per minute; 0 for no limit." default:"0" name:"rpm"`
	TPM              int        `help:"Maximum number of tokens per minute; 0 for no limit." default:"0" name:"tpm"`
	MaxCalls         int        `help:"Maximum number of unfinished calls; 0 for no limit." default:"0"`
	ServiceTiers     []string   `help:"Values of service_tier that choose another queue: flex, priority, scale."`
	Durability       string     `help:"How chats are made: durable, by a workflow that survives the death of any process; or direct, which ends with the client's connection. Default: durable." enum:"durable,direct," default:""`
	Retention        string     `help:"How long requests and answers are kept: all, errors, metadata, none (direct calls only) or a duration such as 24h. Default: all."`
	ReplaceResponses bool       `negatable:"" help:"Make a stored response again that breaks off after a part of it may have been read, as a new response that names the old one."`
	EndUsers         bool       `negatable:"" help:"Let the users that requests name share the slots, rather than be one with the key."`
	Expires          expiryFlag `help:"When it expires: a time such as 2027-01-02T15:04:05Z, a number of days such as 30d, or never. Default: never." placeholder:"TIME"`
}

func (f keyFlags) spec() client.KeySpec {
	return client.KeySpec{
		Title: f.Title, Models: f.Models, RPM: f.RPM, TPM: f.TPM, MaxCalls: f.MaxCalls, ServiceTiers: f.ServiceTiers, EndUsers: f.EndUsers,
		Durability: f.Durability, Retention: f.Retention, ReplaceResponses: f.ReplaceResponses,
		ExpiresAt: f.Expires.Time,
	}
}

type keyCreate struct {
	agent.Server `embed:""`
	Team         string `help:"Team whose share its calls have. Default: that of --app."`
	App          string `help:"Application whose share its calls have. Default: the key is an application of its own."`
	Quiet        bool   `help:"Print the secret only." short:"q"`
	keyFlags
}

// Run creates the key and prints it.
func (c *keyCreate) Run(ctx context.Context, api *client.Client) error {
	k, err := api.CreateKey(ctx, client.Key{TeamID: c.Team, AppID: c.App, KeySpec: c.spec()})
	if err == nil && c.Quiet {
		fmt.Println(k.Secret)
		return nil
	}
	return printJSON(k, err)
}

type keyList struct {
	agent.Server `embed:""`
	Team         string `help:"List only keys of this team."`
	App          string `help:"List only keys of this application."`
	Revoked      bool   `help:"List also keys that were revoked."`
}

// Run prints the keys as a table.
func (c *keyList) Run(ctx context.Context, api *client.Client) error {
	w := newTable(os.Stdout)
	fmt.Fprintln(w, "KEY\tHINT\tTEAM\tAPPLICATION\tMODELS\tRPM\tTPM\tCALLS\tSTATE\tTITLE")
	now := time.Now()
	for k, err := range api.Keys(ctx, client.KeyQuery{TeamID: c.Team, AppID: c.App, Revoked: c.Revoked}) {
		if err != nil {
			return w.fail(err)
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\n", k.KeyID, k.Hint, k.TeamID, cmp.Or(k.AppID, "-"), cmp.Or(strings.Join(k.Models, ", "), "all"),
			limitCell(k.RPM), limitCell(k.TPM), limitCell(k.MaxCalls), keyState(k, now), named(k.Title))
	}
	return w.Flush()
}

// limitCell returns a limit in a table.
func limitCell(n int) string {
	if n == 0 {
		return "-"
	}
	return strconv.Itoa(n)
}

// keyState states until when a key is valid, or since when it is not.
func keyState(k client.Key, now time.Time) string {
	switch {
	case !k.RevokedAt.IsZero():
		return "revoked " + k.RevokedAt.Format(time.DateTime)
	case k.ExpiresAt.IsZero():
		return "valid"
	case !now.Before(k.ExpiresAt):
		return "expired " + k.ExpiresAt.Format(time.DateTime)
	default:
		return "valid until " + k.ExpiresAt.Format(time.DateTime)
	}
}

// keyName is the argument of the commands about one key.
type keyName struct {
	agent.Server `embed:""`
	ID           idArg `arg:"" help:"Its id."`
}

type keyShow struct{ keyName }

// Run prints the key.
func (c *keyShow) Run(ctx context.Context, api *client.Client) error {
	return printJSON(api.Key(ctx, string(c.ID)))
}

type keySet struct {
	keyName
	keyFlags
}

// Run changes the settings and prints the key.
func (c *keySet) Run(ctx context.Context, api *client.Client, command *kong.Context) error {
	k, err := api.Key(ctx, string(c.ID))
	if err != nil {
		return err
	}
	g, spec := givenTo(command), k.KeySpec
	change(g, "title", &spec.Title, c.Title)
	changeList(g, "models", &spec.Models, c.Models)
	change(g, "rpm", &spec.RPM, c.RPM)
	change(g, "tpm", &spec.TPM, c.TPM)
	change(g, "max-calls", &spec.MaxCalls, c.MaxCalls)
	changeList(g, "service-tiers", &spec.ServiceTiers, c.ServiceTiers)
	change(g, "end-users", &spec.EndUsers, c.EndUsers)
	change(g, "expires", &spec.ExpiresAt, c.Expires.Time)
	change(g, "durability", &spec.Durability, c.Durability)
	if g["durability"] {
		spec.Retention = "" // each durability has its own
		spec.ReplaceResponses = spec.ReplaceResponses && spec.Durability != string(berth.DurabilityDirect)
	}
	change(g, "retention", &spec.Retention, c.Retention)
	change(g, "replace-responses", &spec.ReplaceResponses, c.ReplaceResponses)
	return printJSON(api.PutKey(ctx, string(c.ID), spec))
}

type keyRevoke struct{ keyName }

// Run revokes the key.
func (c *keyRevoke) Run(ctx context.Context, api *client.Client) error {
	return api.RevokeKey(ctx, string(c.ID))
}
