package api

import (
	"context"
	"time"

	"berth"
	"berth/internal/llm"
)

// Catalog plans the model calls of a task. *llm.Catalog implements it.
type Catalog interface {
	Plan(t berth.Template, tier berth.Tier, hasImage bool) []berth.Step
	Price(t berth.Template, tier berth.Tier) int64
	// CheckContext returns CodeTooLarge, naming the variable, when the texts exceed the context of a step's model.
	CheckContext(steps []berth.Step, texts map[string]string) error
	// KeySetting returns the name of the setting with the API key that a model needs, empty for none.
	KeySetting(model string) string
	// Models returns the models by name, Model one of them, and TaskQueues the task queues of their calls.
	Models() []llm.Model
	Model(name string) (llm.Model, bool)
	TaskQueues() []string
}

type templatesOutputBody struct {
	Templates []templateView `json:"templates"`
}

// templateView describes a template for a form.
type templateView struct {
	Template  berth.Template `json:"template"`
	Mode      berth.Mode     `json:"mode" enum:"stream,batch" doc:"stream: tokens as they are generated; batch: one JSON answer"`
	Locales   []berth.Locale `json:"locales"`
	Credits   int64          `json:"credits" doc:"Price in the paid tier. The free tier costs nothing."`
	Variables []variableView `json:"variables"`
}

type variableView struct {
	Name     string               `json:"name"`
	Required bool                 `json:"required"`
	Group    string               `json:"group,omitempty" doc:"Exactly one variable of a group must be given"`
	Kinds    []berth.VariableKind `json:"kinds" doc:"text: in the request; text_asset, image_asset: the id of an upload"`
}

type meOutputBody struct {
	AccountView
	TenantID  string    `json:"tenantId,omitempty" doc:"The token's tenant"`
	Scopes    []string  `json:"scopes"`
	Nodes     []string  `json:"nodes,omitempty" doc:"Ids of the nodes that the token is for; * matches any characters"`
	ExpiresAt time.Time `json:"expiresAt,omitzero" doc:"Expiry of the token"`
}

func (s *server) templateRoutes() {
	register(s, "GET /v1/templates", forUser, s.listTemplates, op("list-templates", "tasks", "List the templates and their variables"))
	register(s, "GET /v1/me", rule{}, s.me, op("get-me", "account", "Get the user of the token, with tier and credits"))
}

func (s *server) listTemplates(context.Context, *struct{}) (*templatesOutputBody, error) {
	out := &templatesOutputBody{}
	for _, t := range berth.Templates() {
		spec := t.Spec()
		v := templateView{Template: t, Mode: spec.Mode, Locales: llm.Locales(), Credits: s.Catalog.Price(t, berth.TierPaid), Variables: []variableView{}}
		for _, in := range spec.Variables {
			v.Variables = append(v.Variables, variableView(in))
		}
		out.Templates = append(out.Templates, v)
	}
	return out, nil
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
