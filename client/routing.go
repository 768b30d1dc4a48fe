package client

import (
	"context"
	"iter"
	"net/http"
	"net/url"
	"strconv"
	"time"
)

// Routing is a revision of the routing file.
type Routing struct {
	Revision  int64     `json:"revision"`
	Newest    bool      `json:"newest" doc:"All processes use it"`
	Source    string    `json:"source" enum:"builtin,file,api" doc:"builtin: the file of the program; file: that of a process; api: an operator"`
	Origin    string    `json:"origin,omitempty" doc:"Host and path of the file"`
	CreatedAt time.Time `json:"createdAt"`
	CreatedBy string    `json:"createdBy,omitempty" doc:"The operator; absent for a process"`
	Content   string    `json:"content,omitempty" doc:"The file; absent in lists"`
}

// RoutingContent is the body of PUT /v1/routing.
type RoutingContent struct {
	Content string `json:"content" minLength:"1" doc:"A routing file, YAML"`
	DryRun  bool   `json:"dryRun,omitempty" doc:"Check the content, and publish nothing"`
}

// AppliedRouting is the outcome of publishing a content.
type AppliedRouting struct {
	Revision  int64    `json:"revision" doc:"The revision of the content; of a dry run the one that it has, 0 for none"`
	Published bool     `json:"published" doc:"The revision is new; false for a content that means the same as the newest revision"`
	Warnings  []string `json:"warnings" doc:"What the active templates lack, the models that are removed, and those with credits and no maxOutputTokens"`
}

// Routing returns the routing file that all processes use.
func (c *Client) Routing(ctx context.Context) (Routing, error) {
	return fetch[Routing](ctx, c, http.MethodGet, "/v1/routing", nil)
}

// RoutingRevisions yields the revisions of the routing, the newest first.
func (c *Client) RoutingRevisions(ctx context.Context) iter.Seq2[Routing, error] {
	return pages[Routing](ctx, c, "/v1/routing/revisions", url.Values{}, "revisions")
}

// RoutingRevision returns a revision of the routing with its content.
func (c *Client) RoutingRevision(ctx context.Context, revision int64) (Routing, error) {
	return fetch[Routing](ctx, c, http.MethodGet, "/v1/routing/revisions/"+strconv.FormatInt(revision, 10), nil)
}

// PutRouting lets all processes use a routing file.
func (c *Client) PutRouting(ctx context.Context, content RoutingContent) (AppliedRouting, error) {
	return fetch[AppliedRouting](ctx, c, http.MethodPut, "/v1/routing", content)
}

// ActivateRouting returns to the content of a revision.
func (c *Client) ActivateRouting(ctx context.Context, revision int64) (AppliedRouting, error) {
	return fetch[AppliedRouting](ctx, c, http.MethodPost, "/v1/routing/activate", map[string]int64{"revision": revision})
}
