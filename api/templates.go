package api

import (
	"context"
	"net/http"
	"slices"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"berth"
	"berth/internal/llm"
)

// Catalog plans the model calls of a task. *llm.Catalog implements it.
type Catalog interface {
	Plan(t berth.Template, tier berth.Tier, hasImage bool) []berth.Step
}

type templatesOutput struct {
	Body struct {
		Templates []templateView `json:"templates"`
	}
}

// templateView describes a template for a form.
type templateView struct {
	Template  berth.Template `json:"template"`
	Mode      berth.Mode     `json:"mode" enum:"stream,batch" doc:"stream: tokens as they are generated; batch: one JSON answer"`
	Locales   []berth.Locale `json:"locales"`
	Variables []variableView `json:"variables"`
}

type variableView struct {
	Name     string               `json:"name"`
	Required bool                 `json:"required"`
	Group    string               `json:"group,omitempty" doc:"Exactly one variable of a group must be given"`
	Kinds    []berth.VariableKind `json:"kinds" doc:"text: in the request; text_asset, image_asset: the id of an upload"`
}

type meOutput struct {
	Body struct {
		UserID    string    `json:"userId"`
		Scopes    []string  `json:"scopes"`
		ExpiresAt time.Time `json:"expiresAt,omitzero" doc:"Expiry of the token"`
	}
}

func (s *server) templateRoutes() {
	register(s, huma.Operation{
		OperationID: "list-templates", Method: http.MethodGet, Path: "/v1/templates", Tags: []string{"tasks"},
		Summary: "List the templates and their variables",
	}, forUser, s.listTemplates)
	register(s, huma.Operation{
		OperationID: "get-me", Method: http.MethodGet, Path: "/v1/me", Tags: []string{"account"},
		Summary: "Get the user of the token",
	}, rule{}, s.me)
}

func (s *server) listTemplates(context.Context, *struct{}) (*templatesOutput, error) {
	out := &templatesOutput{}
	for _, t := range berth.Templates() {
		spec := t.Spec()
		v := templateView{Template: t, Mode: spec.Mode, Locales: llm.Locales(), Variables: []variableView{}}
		for _, in := range spec.Variables {
			v.Variables = append(v.Variables, variableView(in))
		}
		out.Body.Templates = append(out.Body.Templates, v)
	}
	return out, nil
}

func (s *server) me(ctx context.Context, _ *struct{}) (*meOutput, error) {
	p := callOf(ctx).user
	out := &meOutput{}
	out.Body.UserID, out.Body.ExpiresAt = p.UserID, p.ExpiresAt
	out.Body.Scopes = slices.Concat([]string{}, p.Scopes)
	return out, nil
}
