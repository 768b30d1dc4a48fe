package api

import (
	"context"
	"encoding/json"
	"time"

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
	register(s, "GET /v1/templates", forUser, s.listTemplates, op("list-templates", "templates", "List the templates of new tasks",
		"By name. Each has what a form, the progress of a task and its result need."))
	register(s, "GET /v1/me", rule{}, s.me, op("get-me", "account", "Get the user of the token, with tier and credits"))
	s.templateChangeRoutes()
}

func (s *server) listTemplates(context.Context, *struct{}) (*templatesOutputBody, error) {
	return &templatesOutputBody{Templates: convert(s.Templates.List(), s.templateView)}, nil
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
