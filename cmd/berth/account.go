package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"time"

	"berth"
	"berth/client"
	"berth/internal/agent"
)

type accountCommands struct {
	Show    accountShow    `cmd:"" help:"Print a user's tier and credits."`
	Credit  accountCredit  `cmd:"" help:"Add credits to a user's account, or remove some."`
	Entries accountEntries `cmd:"" help:"List the entries of an account, newest first."`
}

type accountShow struct {
	agent.Server `embed:""`
	User         string `arg:"" optional:"" help:"User id; operators may name any user. Default: the token's user."`
}

// Run prints the account.
func (c *accountShow) Run(ctx context.Context, api *client.Client) error {
	var a client.Account
	if err := ofUser(ctx, api, c.User, func(user string) (err error) {
		a, err = api.Account(ctx, user)
		return err
	}); err != nil {
		return err
	}
	printAccount(a)
	return nil
}

// ofUser reads an account. Only operators may name a user, so a refused id is omitted if it is that of the token.
func ofUser(ctx context.Context, api *client.Client, user string, read func(user string) error) error {
	err := read(user)
	if problemCode(err) != berth.CodeForbidden {
		return err
	}
	if me, unknown := api.Account(ctx, ""); unknown != nil || me.UserID != user {
		return err
	}
	return read("")
}

func printAccount(a client.Account) {
	fmt.Printf("%s: %s credits, tier %s\n", named(a.UserID), a.Credits, a.Tier)
}

type accountCredit struct {
	agent.Server `embed:""`
	User         idArg         `arg:"" help:"User id."`
	Amount       berth.Credits `arg:"" help:"Credits to add, with at most three decimals. To remove credits: -- -5."`
	Reason       string        `help:"State the reason, which the user sees." required:""`
	Key          string        `help:"Use this idempotency key: repeated commands with the same key add the credits once. Default: a new one." name:"key"`
}

// Run changes the balance and prints it.
func (c *accountCredit) Run(ctx context.Context, api *client.Client) error {
	key := c.Key
	if key == "" {
		key = berth.NewID("")
	}
	a, err := api.AddCredits(ctx, string(c.User), c.Amount, c.Reason, key)
	switch p, refused := errors.AsType[*client.Problem](err); {
	case refused && p.Status < http.StatusInternalServerError && p.Status != http.StatusTooManyRequests:
		return err
	case err != nil:
		return fmt.Errorf("%w; a retry with --key %s adds the credits once", err, key)
	}
	printAccount(a)
	return nil
}

type accountEntries struct {
	agent.Server `embed:""`
	User         string `arg:"" optional:"" help:"User id; operators may name any user. Default: the token's user."`
	Limit        int    `help:"Maximum number of entries." default:"50"`
	Cursor       string `help:"Continue a list after the page that printed this cursor."`
}

// Run prints the entries as a table.
func (c *accountEntries) Run(ctx context.Context, api *client.Client) error {
	var entries []client.CreditEntry
	var next string
	if err := ofUser(ctx, api, c.User, func(user string) (err error) {
		entries, next, err = api.CreditEntries(ctx, user, c.Cursor, c.Limit)
		return err
	}); err != nil {
		return err
	}
	w := newTable(os.Stdout)
	fmt.Fprintln(w, "TIME\tKIND\tAMOUNT\tTASK\tREASON")
	for _, e := range entries {
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\n", e.At.Format(time.DateTime), e.Kind, signed(e.Amount), e.TaskID, named(e.Reason))
	}
	if err := w.Flush(); err != nil {
		return err
	}
	if next != "" {
		fmt.Fprintf(os.Stderr, "more entries: --cursor %s\n", next)
	}
	return nil
}

// signed returns an amount with its sign.
func signed(c berth.Credits) string {
	if c > 0 {
		return "+" + c.String()
	}
	return c.String()
}
