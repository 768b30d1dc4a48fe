package api

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"berth"
	"berth/client"
	"berth/internal/catalog"
	"berth/internal/ledger"
	"berth/internal/template"
)

type templatesOutputBody struct {
	Templates  []client.Template `json:"templates"`
	NextCursor string            `json:"nextCursor,omitempty" doc:"Absent on the last page"`
}

type meOutputBody struct {
	AccountView
	TenantID  string    `json:"tenantId,omitempty" doc:"The token's tenant"`
	TeamID    string    `json:"teamId,omitempty" doc:"The token's team"`
	AppID     string    `json:"appId,omitempty" doc:"The token's application"`
	Scopes    []string  `json:"scopes"`
	Nodes     []string  `json:"nodes,omitempty" doc:"Ids of the nodes that the token is for; * matches any characters"`
	ExpiresAt time.Time `json:"expiresAt,omitzero" doc:"Expiry of the token"`
}

func (s *server) templateRoutes() {
	unchanged := map[string]*huma.Response{
		"304": {Description: "The list is that of the `ETag` in `If-None-Match`"}, "default": s.problemResponse(),
	}
	list := forUser
	list.compress = true
	registerOutput(s, "GET /v1/templates", list, s.listTemplates, withResponses(unchanged, op("list-templates", "templates", "List the templates of new tasks",
		"By name. Each has what a form, the progress of a task and its result need.")))
	register(s, "GET /v1/me", rule{}, s.me, op("get-me", "account", "Get the user of the token, with tier and credits"))
	s.templateChangeRoutes()
}

type listTemplatesInput struct {
	Source  ledger.TemplateSource `query:"source" enum:"builtin,directory,api" doc:"Only templates whose version comes from there"`
	Deleted bool                  `query:"deleted" doc:"List the deleted templates, for operators. Activate a version to restore one."`
	Limit   int                   `query:"limit" minimum:"1" maximum:"1000" doc:"Default: all, because a form needs them"`
	CursorParam
	IfNoneMatch string `header:"If-None-Match" doc:"The ETag of an earlier response to the same query: 304 without a body if nothing has changed"`
}

type listTemplatesOutput struct {
	Status       int
	ETag         string `header:"ETag" doc:"Changes with the list"`
	CacheControl string `header:"Cache-Control"`
	Body         templatesOutputBody
}

func (s *server) listTemplates(ctx context.Context, in *listTemplatesInput) (*listTemplatesOutput, error) {
	if in.Deleted && !callOf(ctx).user.Operator() {
		return nil, &berth.Error{Code: berth.CodeForbidden, Field: "deleted", Message: "is for operators"}
	}
	whole := in.Source == "" && !in.Deleted && in.Limit == 0 && in.Cursor == ""
	out := &listTemplatesOutput{Status: http.StatusOK, CacheControl: "no-cache, private"}
	revision := s.Templates.Revision()
	if known := s.tagged.Load(); known != nil && whole && known.revision == revision {
		out.ETag = known.tag
	} else {
		out.Body = s.templatePage(in)
		b, err := json.Marshal(out.Body)
		if err != nil {
			return nil, fmt.Errorf("serialize templates: %w", err)
		}
		// The response's hash, because releases and routing files differ, too. It is weak: the compressed response has the same.
		out.ETag = `W/"` + hash(b)[:32] + `"`
		if whole {
			s.tagged.Store(&templatesTag{revision, out.ETag})
		}
	}
	switch {
	case sameTag(in.IfNoneMatch, out.ETag):
		out.Status, out.Body = http.StatusNotModified, templatesOutputBody{}
	case out.Body.Templates == nil:
		out.Body = s.templatePage(in)
	}
	return out, nil
}

// templatePage returns the templates that a query selects.
func (s *server) templatePage(in *listTemplatesInput) templatesOutputBody {
	found := map[string]catalog.Listed{}
	var names []string
	for _, one := range s.Templates.Listed(in.Deleted) {
		if in.Source == "" || in.Source == one.State.Source {
			found[string(one.State.Template)] = one
			names = append(names, string(one.State.Template))
		}
	}
	slices.Sort(names) // the database may order them by a language
	names, next := page(names, in.Cursor, cmp.Or(in.Limit, len(names)), func(string) bool { return true })
	return templatesOutputBody{NextCursor: next, Templates: convert(names, func(name string) client.Template {
		one := found[name]
		view := s.templateView(one.Template, one.State)
		if in.Deleted {
			view.DeletedAt, view.DeletedBy = one.State.ChangedAt, one.State.ChangedBy
		}
		return view
	})}
}

// templatesTag is the entity tag of the whole list. It is immutable.
type templatesTag struct {
	revision catalog.Revision
	tag      string
}

// sameTag reports whether a field If-None-Match has a tag, which contains no comma (RFC 9110, section 13.1.2).
func sameTag(field, tag string) bool {
	return slices.ContainsFunc(strings.Split(field, ","), func(one string) bool {
		one = strings.TrimSpace(one)
		return one == "*" || strings.TrimPrefix(one, "W/") == strings.TrimPrefix(tag, "W/")
	})
}

// templateView returns what users see of a template in a state.
func (s *server) templateView(t *template.Template, state ledger.TemplateState) client.Template {
	labels := func(text template.Text) client.Labels { return client.Labels(text) }
	price := s.catalog().Price(t, berth.TierPaid)
	return client.Template{
		Name: t.Name, Version: t.Version, Title: labels(t.Title), Description: labels(t.Description), Mode: t.Mode(), Locales: t.Locales,
		Credits: price.Credits, Metered: price.Metered,
		Source: string(state.Source), Replaces: s.replaces(state), Unserved: s.catalog().Unserved(t),
		Variables: convert(t.Variables, func(v template.Variable) client.TemplateVariable {
			return client.TemplateVariable{
				Name: v.Name, Kind: string(v.Kind), Kinds: v.Kinds(), Required: v.Required, Group: v.Group,
				Label: labels(v.Label), Help: labels(v.Help), Default: v.Default, Evidence: v.Evidence,
			}
		}),
		Steps: convert(t.Steps, func(st template.Step) client.TemplateStep {
			schema := st.Schema
			if schema == nil {
				schema = json.RawMessage("null")
			}
			return client.TemplateStep{
				ID: berth.StepName(st.ID), Label: labels(st.Label), Mode: st.Mode, When: st.When, Into: st.Into, Status: st.Status, Schema: schema,
			}
		}),
		Stages: convert(t.Stages, func(st template.Stage) client.TemplateStage {
			return client.TemplateStage{ID: st.ID, Label: labels(st.Label)}
		}),
		Items: convert(t.Items, func(i template.Item) client.TemplateItem {
			return client.TemplateItem{ID: i.ID, Label: labels(i.Label), Schema: i.Schema}
		}),
	}
}

func (s *server) replaces(state ledger.TemplateState) (replaced []string) {
	for _, source := range s.Templates.Replaces(state) {
		replaced = append(replaced, string(source))
	}
	return replaced
}

func (s *server) me(ctx context.Context, _ *struct{}) (*meOutputBody, error) {
	p := callOf(ctx).user
	account, err := s.account(ctx, p.UserID)
	if err != nil {
		return nil, err
	}
	return &meOutputBody{
		AccountView: *account, TenantID: p.TenantID, TeamID: p.TeamID, AppID: p.AppID, Scopes: append([]string{}, p.Scopes...), Nodes: p.Nodes, ExpiresAt: p.ExpiresAt,
	}, nil
}
