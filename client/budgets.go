package client

import (
	"context"
	"iter"
	"net/http"
	"net/url"
	"time"

	"berth"
)

// BudgetSpec is what PUT takes of a budget.
type BudgetSpec struct {
	Credits berth.Credits      `json:"credits"`
	Period  berth.BudgetPeriod `json:"period"`
}

// Budget is the budget of an API key or a team, with its use in the present period.
type Budget struct {
	Kind      berth.BudgetKind   `json:"kind,omitempty" readOnly:"true" enum:"key,team"`
	ID        string             `json:"id,omitempty" readOnly:"true" doc:"Of the key or team"`
	Title     string             `json:"title,omitempty" readOnly:"true" doc:"Of the key; absent for a team"`
	Credits   berth.Credits      `json:"credits" doc:"What the calls of one period may cost. Those that would cost more are refused"`
	Period    berth.BudgetPeriod `json:"period" enum:"day,week,month,total" doc:"After it, the use begins again with 0: at midnight UTC, of Mondays, or of the first day of a month. total: never"`
	Used      berth.Credits      `json:"used" readOnly:"true" doc:"What the calls of the period have cost, with what is reserved for those that run"`
	BeganAt   time.Time          `json:"beganAt,omitzero" readOnly:"true" doc:"When the period began; absent for total"`
	EndsAt    time.Time          `json:"endsAt,omitzero" readOnly:"true" doc:"When the period ends; absent for total"`
	UpdatedAt time.Time          `json:"updatedAt,omitzero" readOnly:"true"`
	UpdatedBy string             `json:"updatedBy,omitempty" readOnly:"true"`
}

// BudgetQuery selects budgets. An empty field matches all.
type BudgetQuery struct {
	Kind berth.BudgetKind
	// TeamID selects the budget of this team and those of its keys.
	TeamID string
}

// Budgets yields the budgets by kind and id.
func (c *Client) Budgets(ctx context.Context, q BudgetQuery) iter.Seq2[Budget, error] {
	return pages[Budget](ctx, c, "/v1/budgets", url.Values{"kind": {string(q.Kind)}, "teamId": {q.TeamID}, "limit": {"200"}}, "budgets")
}

// Budget returns the budget of a key or a team.
func (c *Client) Budget(ctx context.Context, kind berth.BudgetKind, id string) (Budget, error) {
	return fetch[Budget](ctx, c, http.MethodGet, budgetPath(kind, id), nil)
}

// PutBudget defines the budget of a key or a team, or replaces it. Other credits keep the use; another period begins with 0.
func (c *Client) PutBudget(ctx context.Context, kind berth.BudgetKind, id string, spec BudgetSpec) (Budget, error) {
	return fetch[Budget](ctx, c, http.MethodPut, budgetPath(kind, id), spec)
}

// DeleteBudget deletes the budget of a key or a team, whose calls are no longer limited by it.
func (c *Client) DeleteBudget(ctx context.Context, kind berth.BudgetKind, id string) error {
	return c.call(ctx, http.MethodDelete, budgetPath(kind, id), nil, nil, nil)
}

func budgetPath(kind berth.BudgetKind, id string) string {
	return "/v1/budgets/" + url.PathEscape(string(kind)) + "/" + url.PathEscape(id)
}
