package ledger

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"berth"
)

// UsageSum is the sum of the calls that are equal in what a query sums by; the others of these fields are empty.
type UsageSum struct {
	TeamID, AppID, UserID, ServiceID string
	KeyID                            string // of the API key that has made the calls
	Template, Model, Upstream        string
	Day                              string // in UTC, such as 2026-01-31
	Outcome                          string // OutcomeSuccess, or the code of a failure
	Cause                            string // of a failure of the provider
	Calls, Failed                    int64
	Tokens                           UsageTokens
	CostMicros                       int64
	Credits                          berth.Credits
}

// UsageTokens are the tokens of several calls.
type UsageTokens struct{ Input, Cached, Output, Reasoning int64 }

// MaxUsageSums is how many sums a query returns at most, those with the highest cost.
const MaxUsageSums = 1000

// UsageDimensions are what calls are summed by.
func UsageDimensions() []string {
	return []string{"team", "app", "key", "user", "service", "template", "model", "upstream", "day", "outcome", "cause"}
}

// dayMs is the length of a day in UTC.
const dayMs = int64(24 * time.Hour / time.Millisecond)

// usageDimensions are the expressions of UsageDimensions.
var usageDimensions = map[string]string{
	"team": "u.team_id", "app": "u.app_id", "user": "u.user_id",
	"key":     fmt.Sprintf("CASE WHEN substr(u.user_id, 1, %d) = '%s' THEN u.user_id ELSE '' END", len(berth.KeyIDPrefix), berth.KeyIDPrefix),
	"service": "u.service_id", "model": "u.model", "upstream": "u.upstream",
	"template": "COALESCE(t.template, '')", "day": fmt.Sprintf("u.created_at / %d", dayMs),
	"outcome": "CASE WHEN u.success THEN '" + OutcomeSuccess + "' ELSE u.error_code END", "cause": "u.cause",
}

// UsageSums returns the sums of the calls that match, by some dimensions, those with the highest cost first, and whether there are more than
// MaxUsageSums. A task whose row was removed has no template any more.
func (l *Ledger) UsageSums(ctx context.Context, q UsageQuery, by []string) (sums []UsageSum, more bool, err error) {
	p := &page{}
	p.text("u.user_id", q.UserID)
	p.text("u.team_id", q.TeamID)
	p.text("u.app_id", q.AppID)
	p.text("u.model", q.Model)
	p.text("u.upstream", q.Upstream)
	p.period("u.created_at", q.From, q.To)
	var groups []string
	column := func(name, none string) string {
		if !slices.Contains(by, name) {
			return none
		}
		groups = append(groups, usageDimensions[name])
		return usageDimensions[name]
	}
	columns := []string{
		column("team", "''"), column("app", "''"), column("key", "''"), column("user", "''"), column("service", "''"), column("template", "''"), column("model", "''"),
		column("upstream", "''"), column("day", "-1"), column("outcome", "''"), column("cause", "''"),
		"COUNT(*)", "COALESCE(SUM(CASE WHEN u.success THEN 0 ELSE 1 END), 0)", "COALESCE(SUM(u.input_tokens), 0)", "COALESCE(SUM(u.cached_tokens), 0)",
		"COALESCE(SUM(u.output_tokens), 0)", "COALESCE(SUM(u.reasoning_tokens), 0)", "COALESCE(SUM(u.cost_micros), 0)", "COALESCE(SUM(u.credits), 0)",
	}
	query := `SELECT ` + strings.Join(columns, ", ") + ` FROM usage_log u`
	if slices.Contains(by, "template") {
		query += ` LEFT JOIN tasks t ON t.user_id = u.user_id AND t.id = u.task_id`
	}
	query += ` WHERE ` + p.where.String() + `u.finished_at > 0`
	if len(groups) > 0 {
		query += ` GROUP BY ` + strings.Join(groups, ", ") + ` ORDER BY 18 DESC, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11`
	}
	query += fmt.Sprintf(` LIMIT %d`, MaxUsageSums+1)
	type row struct {
		UsageSum

		day int64
	}
	rows, err := list(ctx, l, "sum usage", func(r *row) []any {
		return []any{
			&r.TeamID, &r.AppID, &r.KeyID, &r.UserID, &r.ServiceID, &r.Template, &r.Model, &r.Upstream, &r.day, &r.Outcome, &r.Cause,
			&r.Calls, &r.Failed, &r.Tokens.Input, &r.Tokens.Cached, &r.Tokens.Output, &r.Tokens.Reasoning, &r.CostMicros, &r.Credits,
		}
	}, query, p.args...)
	for _, r := range rows {
		if r.day >= 0 {
			r.Day = time.UnixMilli(r.day * dayMs).UTC().Format(time.DateOnly)
		}
		sums = append(sums, r.UsageSum)
	}
	if more = len(sums) > MaxUsageSums; more {
		sums = sums[:MaxUsageSums]
	}
	return sums, more, err
}
