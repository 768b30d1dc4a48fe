package api

import (
	"cmp"
	"context"
	"time"

	"berth"
	"berth/client"
	"berth/internal/ledger"
)

const (
	// sumsPeriod is the period of sums without a beginning.
	sumsPeriod = 30 * 24 * time.Hour
	// longestSums is the longest period of sums.
	longestSums = 366 * 24 * time.Hour
)

type usageSumsInput struct {
	By       []usageDimension `query:"by" maxItems:"11" doc:"What the sums are by, separated by commas; one sum of all calls without it"`
	UserID   string           `query:"userId" maxLength:"255" doc:"Only calls of this user, for operators"`
	TeamID   string           `query:"teamId" maxLength:"255" doc:"Only calls that count for this team"`
	AppID    string           `query:"appId" maxLength:"255" doc:"Only calls that count for this application"`
	Model    string           `query:"model" maxLength:"128" doc:"Only calls of this model"`
	Upstream string           `query:"upstream" maxLength:"128" doc:"Only calls of upstreams with this name"`
	From     time.Time        `query:"from" doc:"Only calls at or after this time; at most 366 days before to"`
	To       time.Time        `query:"to" doc:"Only calls before this time"`
}

// usageDimension is one of ledger.UsageDimensions.
type usageDimension string

func usageDimensions() (all []usageDimension) {
	for _, d := range ledger.UsageDimensions() {
		all = append(all, usageDimension(d))
	}
	return all
}

func (s *server) sumUsage(ctx context.Context, in *usageSumsInput) (*client.UsageSums, error) {
	caller := callOf(ctx).user
	if err := cmp.Or(checkUser(caller, in.UserID), checkPeriod(in.From, in.To)); err != nil {
		return nil, err
	}
	q := ledger.UsageQuery{UserID: in.UserID, TeamID: in.TeamID, AppID: in.AppID, Model: in.Model, Upstream: in.Upstream, From: in.From, To: in.To}
	if !caller.Operator() {
		q.UserID = caller.UserID
	}
	if q.To.IsZero() {
		q.To = s.Clock().Add(time.Minute) // clocks of processes differ
	}
	if q.From.IsZero() {
		q.From = q.To.Add(-sumsPeriod)
	}
	if q.To.Sub(q.From) > longestSums {
		return nil, berth.Invalid("from", "must be at most 366 days before to")
	}
	var by []string
	for _, d := range in.By {
		by = append(by, string(d))
	}
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	found, more, err := s.Ledger.UsageSums(ctx, q, by)
	if err != nil {
		return nil, err
	}
	var keys []string
	for _, u := range found {
		if u.KeyID != "" {
			keys = append(keys, u.KeyID)
		}
	}
	titles, err := s.Ledger.KeyTitles(ctx, berth.Distinct(keys))
	if err != nil {
		return nil, err
	}
	sums := convert(found, viewSum)
	for i := range sums {
		sums[i].KeyTitle = titles[sums[i].KeyID]
	}
	return &client.UsageSums{From: q.From.UTC(), To: q.To.UTC(), Sums: sums, More: more}, nil
}

func viewSum(u ledger.UsageSum) client.UsageSum {
	return client.UsageSum{
		TeamID: u.TeamID, AppID: u.AppID, KeyID: u.KeyID, UserID: u.UserID, ServiceID: u.ServiceID, Template: u.Template, Model: u.Model, Upstream: u.Upstream, Day: u.Day, Outcome: u.Outcome, Cause: u.Cause,
		Calls: u.Calls, Failed: u.Failed, InputTokens: u.Tokens.Input, CachedTokens: u.Tokens.Cached, OutputTokens: u.Tokens.Output,
		ReasoningTokens: u.Tokens.Reasoning, CostMicros: u.CostMicros, Credits: u.Credits,
	}
}
