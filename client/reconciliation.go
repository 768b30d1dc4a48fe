package client

import (
	"context"
	"net/http"
	"time"

	"berth"
)

// ReconcileRule describes one rule of the reconciliation.
type ReconcileRule struct {
	Rule     berth.ReconcileRule `json:"rule"`
	Finds    string              `json:"finds" doc:"The difference that it finds"`
	Repairs  string              `json:"repairs" doc:"What is done about it"`
	FullOnly bool                `json:"fullOnly,omitempty" doc:"Only full passes apply the rule"`
}

// ReconcileProgress is when a pass that repairs has last completed.
type ReconcileProgress struct {
	CompletedAt time.Time `json:"completedAt,omitzero" doc:"When the last pass completed that repairs what it finds; absent before the first"`
	Late        bool      `json:"late" doc:"No such pass has completed for five intervals"`
}

// Reconciliation has the rules of the reconciliation and its last passes.
type Reconciliation struct {
	Rules  []ReconcileRule       `json:"rules"`
	Passes []berth.ReconcilePass `json:"passes" doc:"The last 20 passes that have ended and the last 20 that found something, newest first. Quick passes are kept for a day, full ones for 30 days"`
	ReconcileProgress
}

// Reconciliation returns the rules and the last passes.
func (c *Client) Reconciliation(ctx context.Context) (Reconciliation, error) {
	return fetch[Reconciliation](ctx, c, http.MethodGet, "/v1/reconciliation", nil)
}

// Reconcile starts a full pass and returns its id. With dryRun nothing is repaired.
func (c *Client) Reconcile(ctx context.Context, dryRun bool) (passID string, err error) {
	out, err := fetch[struct {
		PassID string `json:"passId"`
	}](ctx, c, http.MethodPost, "/v1/reconciliation", map[string]bool{"dryRun": dryRun})
	return out.PassID, err
}
