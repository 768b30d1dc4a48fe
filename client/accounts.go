package client

import (
	"context"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"berth"
)

// Account is a user's balance, with the tier of the user's next task.
type Account struct {
	UserID  string        `json:"userId"`
	Tier    berth.Tier    `json:"tier" doc:"paid if the credits suffice for at least one template"`
	Credits berth.Credits `json:"credits"`
}

// CreditEntry is one change of an account.
type CreditEntry struct {
	EntryID int64         `json:"entryId"`
	Kind    string        `json:"kind" doc:"grant and correction by operators; charge and refund of a task, of a metered one what is reserved and what of that it did not use; carried: the sum of entries that are no longer stored"`
	Amount  berth.Credits `json:"amount" doc:"Negative for charges"`
	TaskID  string        `json:"taskId,omitempty"`
	Reason  string        `json:"reason,omitempty"`
	At      time.Time     `json:"at"`
}

// Account returns the account of a user, that of the token's user for an empty id.
func (c *Client) Account(ctx context.Context, userID string) (Account, error) {
	path := "/v1/me"
	if userID != "" {
		path = accountPath(userID)
	}
	return fetch[Account](ctx, c, http.MethodGet, path, nil)
}

// AddCredits changes the balance of a user. Calls with the same key change it once.
func (c *Client) AddCredits(ctx context.Context, userID string, amount berth.Credits, reason, key string) (Account, error) {
	var out Account
	err := c.call(ctx, http.MethodPost, accountPath(userID)+"/credits", http.Header{"Idempotency-Key": {key}},
		map[string]any{"amount": amount, "reason": reason}, &out)
	return out, err
}

// CreditEntries returns a page of the entries of an account, newest first, and the cursor of the next page, empty after the last.
// The account is that of the token's user for an empty id.
func (c *Client) CreditEntries(ctx context.Context, userID, cursor string, limit int) (entries []CreditEntry, next string, err error) {
	path := "/v1/me"
	if userID != "" {
		path = accountPath(userID)
	}
	q := url.Values{"limit": {strconv.Itoa(limit)}}
	if cursor != "" {
		q.Set("cursor", cursor)
	}
	out, err := fetch[struct {
		Entries    []CreditEntry `json:"entries"`
		NextCursor string        `json:"nextCursor"`
	}](ctx, c, http.MethodGet, path+"/entries?"+q.Encode(), nil)
	return out.Entries, out.NextCursor, err
}

func accountPath(userID string) string { return "/v1/accounts/" + url.PathEscape(userID) }
