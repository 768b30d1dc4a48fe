package api

import (
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
	"berth/internal/template"
)

type templatesOutputBody struct {
	Templates []client.Template `json:"templates"`
}

type meOutputBody struct {
	AccountView
	TenantID  string    `json:"tenantId,omitempty" doc:"The token's tenant"`
	Scopes    []string  `json:"scopes"`
	Nodes     []string  `json:"nodes,omitempty" doc:"Ids of the nodes that the token is for; * matches any characters"`
	ExpiresAt time.Time `json:"expiresAt,omitzero" doc:"Expiry of the token"`
}

func (s *server) templateRoutes() {
	unchanged := map[string]*huma.Response{
		"304": {Description: "The list is that of the `ETag` in `If-None-Match`"}, "default": s.problemResponse(),
	}
	registerOutput(s, "GET /v1/templates", forUser, s.listTemplates, withResponses(unchanged, op("list-templates", "templates", "List the templates of new tasks",
		"By name. Each has what a form, the progress of a task and its result need.")))
	register(s, "GET /v1/me", rule{}, s.me, op("get-me", "account", "Get the user of the token, with tier and credits"))
	s.templateChangeRoutes()
}

type listTemplatesInput struct {
	IfNoneMatch string `header:"If-None-Match" doc:"The ETag of an earlier response: 304 without a body if nothing has changed"`
}

type listTemplatesOutput struct {
	Status       int
	ETag         string `header:"ETag" doc:"Changes with the list"`
	CacheControl string `header:"Cache-Control"`
	Body         templatesOutputBody
}

func (s *server) listTemplates(_ context.Context, in *listTemplatesInput) (*listTemplatesOutput, error) {
	list := s.Templates.List()
	tag, err := s.templatesTag(list)
	if err != nil {
		return nil, err
	}
	out := &listTemplatesOutput{Status: http.StatusOK, ETag: tag, CacheControl: "no-cache, private"}
	if sameTag(in.IfNoneMatch, tag) {
		out.Status = http.StatusNotModified
	} else {
		out.Body.Templates = convert(list, s.templateView)
	}
	return out, nil
}

// taggedTemplates is a list of templates with its tag. It is immutable.
type taggedTemplates struct {
	list []*template.Template
	tag  string
}

// templatesTag returns the entity tag of a list: the hash of the response, because releases and routing files differ, too.
func (s *server) templatesTag(list []*template.Template) (string, error) {
	if known := s.tagged.Load(); known != nil && slices.Equal(known.list, list) {
		return known.tag, nil
	}
	b, err := json.Marshal(convert(list, s.templateView))
	if err != nil {
		return "", fmt.Errorf("serialize templates: %w", err)
	}
	tag := `"` + hash(b)[:32] + `"`
	s.tagged.Store(&taggedTemplates{list, tag})
	return tag, nil
}

// sameTag reports whether a field If-None-Match has a tag, which contains no comma (RFC 9110, section 13.1.2).
func sameTag(field, tag string) bool {
	return slices.ContainsFunc(strings.Split(field, ","), func(one string) bool {
		one = strings.TrimSpace(one)
		return one == "*" || strings.TrimPrefix(one, "W/") == tag
	})
}

// templateView returns what users see of a template.
func (s *server) templateView(t *template.Template) client.Template {
	labels := func(text template.Text) client.Labels { return client.Labels(text) }
	return client.Template{
		Name: t.Name, Version: t.Version, Title: labels(t.Title), Description: labels(t.Description), Mode: t.Mode(), Locales: t.Locales,
		Credits: s.Catalog.Price(t, berth.TierPaid),
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

func (s *server) me(ctx context.Context, _ *struct{}) (*meOutputBody, error) {
	p := callOf(ctx).user
	account, err := s.account(ctx, p.UserID)
	if err != nil {
		return nil, err
	}
	return &meOutputBody{
		AccountView: *account, TenantID: p.TenantID, Scopes: append([]string{}, p.Scopes...), Nodes: p.Nodes, ExpiresAt: p.ExpiresAt,
	}, nil
}
