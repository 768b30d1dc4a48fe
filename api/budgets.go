package api

import (
	"context"

	"berth"
	"berth/client"
	"berth/internal/ledger"
)

// BudgetPath names the budget of a key or a team in a path.
type BudgetPath struct {
	Kind berth.BudgetKind `path:"kind" enum:"key,team"`
	ID   string           `path:"id" maxLength:"128" doc:"Id of the key or team"`
}

type putBudgetInput struct {
	BudgetPath
	Body client.Budget
}

type budgetsInput struct {
	Kind  berth.BudgetKind `query:"kind" enum:"key,team" doc:"Only budgets of keys, or of teams"`
	ID    string           `query:"id" maxLength:"128" doc:"Only the budget of the key or the team with this id"`
	Team  string           `query:"teamId" maxLength:"128" doc:"Only the budgets of this team and of its keys"`
	Limit int              `query:"limit" minimum:"1" maximum:"200" default:"50"`
	CursorParam
}

type budgetsOutputBody struct {
	Budgets    []client.Budget `json:"budgets"`
	NextCursor string          `json:"nextCursor,omitempty" doc:"Absent on the last page"`
}

func (s *server) budgetRoutes() {
	register(s, "GET /v1/budgets", forTeam, s.listBudgets, op("list-budgets", "keys", "List the budgets by kind and id, with their use",
		"With the scope `team`, those of the caller's team and its keys. Also the other calls of budgets are then about these; that of the team cannot be changed."))
	register(s, "GET /v1/budgets/{kind}/{id}", forTeam, s.getBudget, op("get-budget", "keys", "Get the budget of an API key or a team, with its use"))
	register(s, "PUT /v1/budgets/{kind}/{id}", forTeam, s.putBudget, op("put-budget", "keys", "Define the budget of an API key or a team, or replace it",
		"Other credits keep the use; another period begins with 0. Calls that run are not ended."))
	registerOutput(s, "DELETE /v1/budgets/{kind}/{id}", forTeam, s.deleteBudget, op("delete-budget", "keys", "Delete the budget of an API key or a team",
		"It no longer limits their calls."))
}

func (s *server) listBudgets(ctx context.Context, in *budgetsInput) (*budgetsOutputBody, error) {
	team, err := inTeam(ctx, in.Team)
	if err != nil {
		return nil, err
	}
	budgets, next, err := s.Ledger.Budgets(ctx, ledger.BudgetQuery{Kind: in.Kind, ID: in.ID, Team: team}, in.Cursor, in.Limit)
	if err != nil {
		return nil, err
	}
	views, err := s.viewBudgets(ctx, budgets)
	return &budgetsOutputBody{Budgets: views, NextCursor: next}, err
}

// managesBudget returns CodeNotFound unless the caller manages the key or team of a budget, and CodeForbidden for a change of a team's budget by its
// administrators, whom it limits.
func (s *server) managesBudget(ctx context.Context, in *BudgetPath, change bool) error {
	own := callOf(ctx).managed
	switch {
	case own == "":
		return nil
	case in.Kind == berth.BudgetKey:
		_, err := s.managedKey(ctx, in.ID)
		return err
	case in.ID != own:
		return berth.Errorf(berth.CodeNotFound, "%s %q has no budget", in.Kind, in.ID)
	case change:
		return &berth.Error{Code: berth.CodeForbidden, Field: "kind", Message: "only operators change the budget of a team; you set those of its keys"}
	}
	return nil
}

func (s *server) getBudget(ctx context.Context, in *BudgetPath) (*client.Budget, error) {
	if err := s.managesBudget(ctx, in, false); err != nil {
		return nil, err
	}
	b, err := s.Ledger.Budget(ctx, in.Kind, in.ID)
	if berth.CodeOf(err) == berth.CodeNotFound {
		return nil, berth.Errorf(berth.CodeNotFound, "%s %q has no budget", in.Kind, in.ID)
	}
	if err != nil {
		return nil, err
	}
	views, err := s.viewBudgets(ctx, []berth.Budget{b})
	if err != nil {
		return nil, err
	}
	return &views[0], nil
}

func (s *server) putBudget(ctx context.Context, in *putBudgetInput) (*client.Budget, error) {
	if in.Body.Kind != "" && in.Body.Kind != in.Kind {
		return nil, berth.Invalid("kind", "does not match the path")
	}
	if in.Body.ID != "" && in.Body.ID != in.ID {
		return nil, berth.Invalid("id", "does not match the path")
	}
	if err := s.managesBudget(ctx, &in.BudgetPath, true); err != nil {
		return nil, err
	}
	by := callOf(ctx).user.UserID
	b := berth.Budget{Kind: in.Kind, ID: in.ID, Credits: in.Body.Credits, Period: in.Body.Period}
	if err := s.Ledger.PutBudget(ctx, b, by); err != nil {
		return nil, err
	}
	s.log.InfoContext(ctx, "budget changed", "kind", b.Kind, "id", b.ID, "credits", b.Credits.String(), "period", b.Period, "by", by)
	return s.getBudget(ctx, &in.BudgetPath)
}

func (s *server) deleteBudget(ctx context.Context, in *BudgetPath) (*struct{}, error) {
	if err := s.managesBudget(ctx, in, true); err != nil {
		return nil, err
	}
	if err := s.Ledger.DeleteBudget(ctx, in.Kind, in.ID); err != nil {
		return nil, err
	}
	s.log.InfoContext(ctx, "budget deleted", "kind", in.Kind, "id", in.ID, "by", callOf(ctx).user.UserID)
	return nil, nil
}

// viewBudgets returns budgets with the titles of their keys.
func (s *server) viewBudgets(ctx context.Context, budgets []berth.Budget) ([]client.Budget, error) {
	var keys []string
	for _, b := range budgets {
		if b.Kind == berth.BudgetKey {
			keys = append(keys, b.ID)
		}
	}
	titles, err := s.Ledger.KeyTitles(ctx, keys)
	if err != nil {
		return nil, err
	}
	now := s.Clock()
	return convert(budgets, func(b berth.Budget) client.Budget {
		v := client.Budget{
			Kind: b.Kind, ID: b.ID, Credits: b.Credits, Period: b.Period, Used: b.Used,
			BeganAt: b.Period.Began(now), EndsAt: b.Period.Ends(now), UpdatedAt: b.UpdatedAt, UpdatedBy: b.UpdatedBy,
		}
		if b.Kind == berth.BudgetKey {
			v.Title = titles[b.ID]
		}
		return v
	}), nil
}
