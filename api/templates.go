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

// Catalog plans the model calls of a task; *llm.Catalog is one.
type Catalog interface {
	Plan(t berth.Template, tier berth.Tier, hasImage bool) []berth.Step
}

type templatesOutput struct {
	Body struct {
		Templates []templateView `json:"templates"`
	}
}

// templateView is what a form needs to know of a template.
type templateView struct {
	Template  berth.Template `json:"template"`
	Mode      berth.Mode     `json:"mode" enum:"stream,batch" doc:"stream: tokens as they come; batch: one JSON answer"`
	Locales   []berth.Locale `json:"locales"`
	Variables []variableView `json:"variables"`
}

type variableView struct {
	Name     string               `json:"name"`
	Required bool                 `json:"required"`
	Group    string               `json:"group,omitempty" doc:"Of the variables of a group exactly one is given"`
	Kinds    []berth.VariableKind `json:"kinds" doc:"text: in the request; text_asset, image_asset: the id of an upload"`
}

type meOutput struct {
	Body struct {
		UserID    string    `json:"userId"`
		Scopes    []string  `json:"scopes"`
		ExpiresAt time.Time `json:"expiresAt,omitzero" doc:"When the token stops working"`
	}
}

func (s *server) templateRoutes() {
	register(s, huma.Operation{
		OperationID: "list-templates", Method: http.MethodGet, Path: "/v1/templates", Tags: []string{"tasks"},
		Summary: "What can be submitted, and what each template takes",
	}, forUser, s.listTemplates)
	register(s, huma.Operation{
		OperationID: "get-me", Method: http.MethodGet, Path: "/v1/me", Tags: []string{"account"},
		Summary: "Who the token says one is",
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
