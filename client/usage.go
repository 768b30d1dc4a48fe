package client

import (
	"context"
	"net/http"
	"net/url"
	"time"

	"berth"
)

// UsageSums are sums of model calls in a period.
type UsageSums struct {
	From time.Time  `json:"from"`
	To   time.Time  `json:"to"`
	Sums []UsageSum `json:"sums" doc:"At most 1000"`
	More bool       `json:"more,omitempty" doc:"There are more than 1000: use a shorter period or a filter"`
}

// UsageSum is the sum of the calls that are equal in what the sums are by. The others of its first fields are absent, as are empty ones.
type UsageSum struct {
	TeamID    string `json:"teamId,omitempty"`
	AppID     string `json:"appId,omitempty"`
	KeyID     string `json:"keyId,omitempty" doc:"API key that has made the calls"`
	KeyTitle  string `json:"keyTitle,omitempty" doc:"Title of the key, beside keyId"`
	UserID    string `json:"userId,omitempty" doc:"Of calls with an API key, the id of the key"`
	ServiceID string `json:"serviceId,omitempty"`
	Template  string `json:"template,omitempty" doc:"Empty for tasks whose rows were removed"`
	Model     string `json:"model,omitempty"`
	Upstream  string `json:"upstream,omitempty"`
	Day       string `json:"day,omitempty" doc:"In UTC, such as 2026-01-31"`
	Outcome   string `json:"outcome,omitempty" doc:"success, or the code of a failure"`
	Cause     string `json:"cause,omitempty" doc:"Why the provider, or its answer, failed: a cause of docs/providers.md"`

	Calls           int64         `json:"calls" doc:"Calls that have ended"`
	Failed          int64         `json:"failed" doc:"Calls without a usable answer"`
	InputTokens     int64         `json:"inputTokens"`
	CachedTokens    int64         `json:"cachedTokens" doc:"Part of the input that the provider had cached"`
	OutputTokens    int64         `json:"outputTokens"`
	ReasoningTokens int64         `json:"reasoningTokens" doc:"Part of the output"`
	CostMicros      int64         `json:"costMicros" doc:"Price of the providers in millionths of a US dollar"`
	Credits         berth.Credits `json:"credits" doc:"What users were charged"`
}

// UsageSums returns sums of model calls. The query has the parameters of GET /v1/usage/sums.
func (c *Client) UsageSums(ctx context.Context, query url.Values) (UsageSums, error) {
	return fetch[UsageSums](ctx, c, http.MethodGet, "/v1/usage/sums?"+query.Encode(), nil)
}
