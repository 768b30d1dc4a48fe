package client

import (
	"context"
	"encoding/json"
	"iter"
	"net/http"
	"net/url"
	"time"

	"berth"
)

// Labels are a text for users by its language.
type Labels map[berth.Locale]string

// Template is a template as users see it: everything that a form and a result need, without prompts and models.
type Template struct {
	Name        berth.Template `json:"name"`
	Version     string         `json:"version" doc:"The version that new tasks use"`
	Title       Labels         `json:"title" doc:"By language, as all texts for users"`
	Description Labels         `json:"description,omitempty"`
	Mode        berth.Mode     `json:"mode" enum:"stream,batch,vision" doc:"Of the last step. stream: tokens as they are generated; batch and vision: one result"`
	Credits     berth.Credits  `json:"credits" doc:"Price in the paid tier, 0 for a metered template. The free tier costs nothing."`
	Metered     bool           `json:"metered,omitempty" doc:"A task costs what its model calls use, by the prices of the models; until it has ended, the most that it may cost is reserved"`
	Locales     []berth.Locale `json:"locales" doc:"Languages of the prompts and answers, the preferred one first; empty if none changes anything"`

	Variables []TemplateVariable `json:"variables" doc:"What a task is given, in the order of a form"`
	Steps     []TemplateStep     `json:"steps" doc:"The model calls in their order; the last one's output is the result"`
	Stages    []TemplateStage    `json:"stages" doc:"The parts of the last step's stream, in their order"`
	Items     []TemplateItem     `json:"items" doc:"The kinds of objects within the last step's stream"`

	Source   string       `json:"source" enum:"builtin,directory,api" doc:"Where the version comes from"`
	Replaces []string     `json:"replaces,omitempty" enum:"builtin,directory" doc:"Other sources of this process that have a template of this name, which is not used"`
	Unserved []berth.Tier `json:"unserved,omitempty" doc:"Tiers in which the routing file of this process names no model for a step: their tasks are refused"`

	DeletedAt time.Time `json:"deletedAt,omitzero" doc:"Only of deleted templates: since when new tasks are refused"`
	DeletedBy string    `json:"deletedBy,omitempty" doc:"The operator; absent where the files were removed from a directory"`
}

// TemplateQuery selects templates. The zero value selects all that new tasks can use.
type TemplateQuery struct {
	Source  string // builtin, directory or api; empty for all
	Deleted bool   // those that were deleted, for operators
}

// TemplateVariable is one input of a template.
type TemplateVariable struct {
	Name     string               `json:"name"`
	Kind     string               `json:"kind" enum:"text,document,image" doc:"document: a text that users usually have in a file"`
	Kinds    []berth.VariableKind `json:"kinds" doc:"text: in the request; text_asset, image_asset: the id of an upload"`
	Required bool                 `json:"required"`
	Group    string               `json:"group,omitempty" doc:"Exactly one variable of a group must be given"`
	Label    Labels               `json:"label"`
	Help     Labels               `json:"help,omitempty"`
	Default  string               `json:"default,omitempty" doc:"The text if it is not given"`
	Evidence bool                 `json:"evidence,omitempty" doc:"Later tasks of the user search its texts"`
}

// TemplateStep is one model call of a template.
type TemplateStep struct {
	ID     berth.StepName   `json:"id"`
	Label  Labels           `json:"label"`
	Mode   berth.Mode       `json:"mode" enum:"stream,batch,vision"`
	When   []string         `json:"when,omitempty" doc:"The step is left out unless one of these variables is given"`
	Into   string           `json:"into,omitempty" doc:"The variable that its output becomes for later steps"`
	Status berth.TaskStatus `json:"status" doc:"Status of the task while the step waits and runs"`
	Schema json.RawMessage  `json:"schema" doc:"JSON Schema of its output, null for a text"`
}

// TemplateStage is a part of a stream.
type TemplateStage struct {
	ID    berth.Stage `json:"id"`
	Label Labels      `json:"label"`
}

// TemplateItem is a kind of object within a stream.
type TemplateItem struct {
	ID     string          `json:"id" doc:"The kind in events and results"`
	Label  Labels          `json:"label"`
	Schema json.RawMessage `json:"schema" doc:"JSON Schema of the object"`
}

// TemplateState is which version of a template new tasks use.
type TemplateState struct {
	Name    berth.Template `json:"name"`
	Version string         `json:"version" doc:"The active version"`
	State   string         `json:"state" enum:"active,deleted,unreadable" doc:"deleted: new tasks are refused, accepted ones keep their version. unreadable: the version was stored by another release of berth"`
	Source  string         `json:"source" enum:"builtin,directory,api" doc:"Where the active version comes from"`

	Replaces []string `json:"replaces,omitempty" enum:"builtin,directory" doc:"Other sources of this process that have a template of this name, which is not used"`

	ChangedAt time.Time `json:"changedAt" doc:"When the version became active, or the template was deleted"`
	ChangedBy string    `json:"changedBy,omitempty" doc:"The operator; absent for a process that found the version in its binary or directory, or found its files removed"`
	Template  *Template `json:"template,omitempty" doc:"What users see of the active version; absent unless it is readable"`
	Warnings  []string  `json:"warnings,omitempty" doc:"What the routing file of this process lacks for it, or why it is unreadable"`
}

// TemplateVersion is one content of a template, which never changes.
type TemplateVersion struct {
	Name      berth.Template    `json:"name"`
	Version   string            `json:"version" doc:"Hash of the files"`
	Active    bool              `json:"active" doc:"New tasks use it"`
	Source    string            `json:"source" enum:"builtin,directory,api" doc:"Where it was first seen"`
	CreatedAt time.Time         `json:"createdAt"`
	CreatedBy string            `json:"createdBy,omitempty" doc:"The operator; absent for a process"`
	Files     map[string]string `json:"files,omitempty" doc:"Texts by name; lists leave them out"`
	Template  *Template         `json:"template,omitempty" doc:"What users would see of it; lists leave it out, and it is absent if this release cannot read the version"`
	Warnings  []string          `json:"warnings,omitempty" doc:"What the routing file of this process lacks for it, or why it cannot be read; lists leave it out"`
}

// TemplateFiles is the body of PUT /v1/templates/{name}.
type TemplateFiles struct {
	Files    map[string]string `json:"files" minProperties:"1" maxProperties:"100" doc:"Texts by file name, without directories: template.yaml, its prompts, schemas and the shared files that it uses; or one prompt"`
	DryRun   bool              `json:"dryRun,omitempty" doc:"Check the files and store nothing"`
	Activate *bool             `json:"activate,omitempty" doc:"New tasks use the version, which is the default. False: it is stored only"`
}

// AppliedTemplate is the response to files of a template.
type AppliedTemplate struct {
	Name      berth.Template `json:"name"`
	Version   string         `json:"version" doc:"Hash of the files: equal files are the same version"`
	Created   bool           `json:"created" doc:"The version was not known before"`
	Activated bool           `json:"activated" doc:"New tasks use the version"`
	Template  Template       `json:"template" doc:"What users see of it"`
	Warnings  []string       `json:"warnings,omitempty" doc:"What the routing file of this process lacks for it, and which version of another source it replaces"`
}

// TemplateInput is the body of POST /v1/templates/{name}/render. A variable is a string or an AssetVariable.
type TemplateInput struct {
	Version    string              `json:"version,omitempty"`
	Locale     berth.Locale        `json:"locale,omitempty"`
	Variables  map[string]any      `json:"variables,omitempty"`
	Background map[string][]string `json:"background,omitempty"`
}

// RenderedTemplate is what the models of a task would get.
type RenderedTemplate struct {
	Name    berth.Template `json:"name"`
	Version string         `json:"version"`
	Locale  berth.Locale   `json:"locale" doc:"Language of the prompts"`
	Steps   []RenderedStep `json:"steps" doc:"The steps that a task with these variables has, in their order"`
}

// RenderedStep is the prompt of a step.
type RenderedStep struct {
	ID       berth.StepName    `json:"id"`
	Mode     berth.Mode        `json:"mode" enum:"stream,batch,vision"`
	Messages []RenderedMessage `json:"messages"`
}

// RenderedMessage is one message of a prompt.
type RenderedMessage struct {
	Role  string         `json:"role" enum:"system,user,model"`
	Parts []RenderedPart `json:"parts" doc:"In the order in which the model gets them"`
}

// RenderedPart is a text or an image.
type RenderedPart struct {
	Text  string `json:"text,omitempty"`
	Image string `json:"image,omitempty" doc:"The variable whose image the model gets here"`
}

// Templates returns templates by name.
func (c *Client) Templates(ctx context.Context, t TemplateQuery) ([]Template, error) {
	q := url.Values{}
	if t.Source != "" {
		q.Set("source", t.Source)
	}
	if t.Deleted {
		q.Set("deleted", "true")
	}
	path := "/v1/templates"
	if len(q) > 0 {
		path += "?" + q.Encode()
	}
	out, err := fetch[struct{ Templates []Template }](ctx, c, http.MethodGet, path, nil)
	return out.Templates, err
}

// Template returns which version of a template new tasks use.
func (c *Client) Template(ctx context.Context, name berth.Template) (TemplateState, error) {
	return fetch[TemplateState](ctx, c, http.MethodGet, templatePath(name), nil)
}

// TemplateVersions yields the versions of a template, the newest first.
func (c *Client) TemplateVersions(ctx context.Context, name berth.Template) iter.Seq2[TemplateVersion, error] {
	return pages[TemplateVersion](ctx, c, templatePath(name)+"/versions", url.Values{}, "versions")
}

// TemplateVersion returns a version of a template with its files.
func (c *Client) TemplateVersion(ctx context.Context, name berth.Template, version string) (TemplateVersion, error) {
	return fetch[TemplateVersion](ctx, c, http.MethodGet, templatePath(name)+"/versions/"+url.PathEscape(version), nil)
}

// PutTemplate stores a version of a template.
func (c *Client) PutTemplate(ctx context.Context, name berth.Template, files TemplateFiles) (AppliedTemplate, error) {
	return fetch[AppliedTemplate](ctx, c, http.MethodPut, templatePath(name), files)
}

// ActivateTemplate makes a stored version that of new tasks.
func (c *Client) ActivateTemplate(ctx context.Context, name berth.Template, version string) (TemplateState, error) {
	return fetch[TemplateState](ctx, c, http.MethodPost, templatePath(name)+"/activate", map[string]string{"version": version})
}

// RenderTemplate returns the prompts of a task with this input. Nothing is stored, and no model is asked.
func (c *Client) RenderTemplate(ctx context.Context, name berth.Template, in TemplateInput) (RenderedTemplate, error) {
	return fetch[RenderedTemplate](ctx, c, http.MethodPost, templatePath(name)+"/render", in)
}

// DeleteTemplate makes new tasks of a template refused. Accepted ones keep their version. For a template that is already deleted the error is a
// Problem with berth.CodeConflict.
func (c *Client) DeleteTemplate(ctx context.Context, name berth.Template) error {
	return c.call(ctx, http.MethodDelete, templatePath(name), nil, nil, nil)
}

func templatePath(name berth.Template) string { return "/v1/templates/" + url.PathEscape(string(name)) }
