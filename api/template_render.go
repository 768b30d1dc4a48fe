package api

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"berth"
	"berth/client"
	"berth/internal/template"
)

// maxRendered bounds the texts of a response with prompts.
const maxRendered = 16 << 20

type renderTemplateInput struct {
	TemplatePath

	Body renderTemplateBody
}

type renderTemplateBody struct {
	Version    string              `json:"version,omitempty" maxLength:"64" doc:"A stored version; the active one by default"`
	Locale     string              `json:"locale,omitempty" doc:"As in POST /v1/tasks"`
	Variables  map[string]Variable `json:"variables,omitempty" maxProperties:"100" doc:"As in POST /v1/tasks, and outputs of steps by the variable that they become. Any text represents an image"`
	Background map[string][]string `json:"background,omitempty" maxProperties:"50" doc:"The texts of the lists that the template names as its background; empty by default"`
}

func (s *server) renderTemplateRoute() {
	reads := forOperator
	reads.reads = true
	register(s, "POST /v1/templates/{name}/render", reads, s.renderTemplate, op("render-template", "templates", "Get the messages that models would get",
		"Of each step that a task with these variables has. Nothing is stored, and no model is asked: an output that is not given is "+
			"represented by `[output of step …]`, an image by the name of its variable."))
}

func (s *server) renderTemplate(ctx context.Context, in *renderTemplateInput) (*client.RenderedTemplate, error) {
	t, err := s.storedTemplate(ctx, in.Name, in.Body.Version)
	if err != nil {
		return nil, err
	}
	locale, err := localeOf(t, in.Body.Locale)
	if err != nil {
		return nil, err
	}
	input, images, err := s.previewInput(ctx, t, in.Body)
	if err != nil {
		return nil, err
	}
	out := &client.RenderedTemplate{Name: t.Name, Version: t.Version, Locale: locale, Steps: []client.RenderedStep{}}
	plan, input := t.Assume(input)
	size := 0
	for _, step := range plan {
		messages, err := t.Messages(ctx, step.ID, locale, input)
		switch {
		case ctx.Err() != nil:
			return nil, context.Cause(ctx)
		case berth.CodeOf(err) == berth.CodeInvalid:
			return nil, err
		case err != nil: // a limit of prompts
			return nil, berth.Invalid("variables", "step %s: %s", step.ID, err)
		}
		rendered := client.RenderedStep{ID: berth.StepName(step.ID), Mode: step.Mode, Messages: []client.RenderedMessage{}}
		for _, m := range messages {
			size += len(m.Text())
			rendered.Messages = append(rendered.Messages, viewMessage(m, images))
		}
		if size > maxRendered {
			return nil, errorIn("variables", berth.CodeTooLarge, "the prompts exceed %s", sizeText(maxRendered))
		}
		out.Steps = append(out.Steps, rendered)
	}
	return out, nil
}

// viewMessage returns a message, in which images are represented by their variables.
func viewMessage(m template.Message, images map[string]string) client.RenderedMessage {
	out := client.RenderedMessage{Role: string(m.Role)}
	for _, p := range m.Parts {
		part := client.RenderedPart{Text: p.Text}
		if p.Media != nil {
			part.Image = images[p.Media.URL]
		}
		out.Parts = append(out.Parts, part)
	}
	return out
}

// storedTemplate returns a version of a template, the active one for an empty version.
func (s *server) storedTemplate(ctx context.Context, name berth.Template, version string) (*template.Template, error) {
	if version == "" {
		if err := s.Templates.Refresh(ctx); err != nil {
			return nil, err
		}
		state, err := s.Templates.State(name)
		if err != nil {
			return nil, err
		}
		version = state.Version
	}
	t, err := s.Templates.Version(ctx, name, version)
	if mistakes := template.Mistakes(nil); errors.As(err, &mistakes) {
		return nil, berth.Errorf(berth.CodeUnavailable, "version %s of template %s was written for another release of berth; retry after the upgrade", version, name)
	}
	return t, err
}

// previewInput returns what prompts are rendered with, and the variables of images by the address of what represents them.
func (s *server) previewInput(ctx context.Context, t *template.Template, b renderTemplateBody) (in template.Input, images map[string]string, err error) {
	represented := func(name string, v Variable) bool { // an image by a text
		return v.AssetID == "" && slices.ContainsFunc(t.Variables, func(v template.Variable) bool { return v.Name == name && v.Kind == template.KindImage })
	}
	read := maps.Clone(b.Variables)
	maps.DeleteFunc(read, represented)
	vals, err := s.readValues(ctx, callOf(ctx).user.UserID, read)
	if err != nil {
		return in, nil, err
	}
	kinds := vals.kinds
	for name, v := range b.Variables {
		if represented(name, v) {
			kinds[name] = berth.KindImageAsset
		}
	}
	in = template.Input{Texts: vals.all(), Images: map[string]template.Image{}, Lists: b.Background}
	images = map[string]string{}
	for name, kind := range kinds {
		if kind == berth.KindImageAsset {
			in.Images[name] = template.Image{MediaType: "image/png", Data: []byte(name)}
			images[in.Images[name].URL()] = name
		}
	}
	checked := maps.Clone(kinds)
	for _, step := range t.Plan(kinds) {
		if kinds[step.Into] == berth.KindText || kinds[step.Into] == berth.KindTextAsset {
			delete(checked, step.Into) // of a variable that is given, too, it is the output
		}
	}
	if err := t.CheckVariables(checked); err != nil {
		return in, nil, vals.blameAsset(t, err)
	}
	for name, texts := range b.Background {
		if !slices.ContainsFunc(t.Background, func(b template.Background) bool { return b.Name == name }) {
			return in, nil, berth.Invalid("background."+name, "%s has no background of this name", t.Name)
		}
		for i, text := range texts {
			if err := checkText(fmt.Sprintf("background.%s[%d]", name, i), text); err != nil {
				return in, nil, err
			}
		}
	}
	return in, images, nil
}
