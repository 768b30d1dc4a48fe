package api

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"time"

	"berth"
	"berth/client"
	"berth/internal/ledger"
	"berth/internal/template"
)

// TemplatePath is the name of a template in a path. Its form is that of template.Load.
type TemplatePath struct {
	Name berth.Template `path:"name" maxLength:"64" pattern:"^[a-z][a-z0-9]*([_-][a-z0-9]+)*$" doc:"Name of the template"`
}

type putTemplateInput struct {
	TemplatePath

	Body client.TemplateFiles
}

type activateTemplateInput struct {
	TemplatePath

	Body activateTemplateBody
}

type activateTemplateBody struct {
	Version string `json:"version" maxLength:"64" doc:"A stored version, see GET /v1/templates/{name}/versions"`
}

type templateVersionsInput struct {
	TemplatePath

	Limit int `query:"limit" minimum:"1" maximum:"100" default:"20"`
	CursorParam
}

type templateVersionInput struct {
	TemplatePath

	Version string `path:"version" maxLength:"64"`
}

type templateVersionsBody struct {
	Versions   []client.TemplateVersion `json:"versions"`
	NextCursor string                   `json:"nextCursor,omitempty" doc:"Absent on the last page"`
}

// templateChangeRoutes registers the routes with which operators change templates.
func (s *server) templateChangeRoutes() {
	reads := forOperator
	reads.compress = true
	register(s, "GET /v1/templates/{name}", reads, s.getTemplate, op("get-template", "templates", "Get the active version of a template"))
	changes := forOperator
	changes.private = []string{"files"} // the versions have them
	register(s, "PUT /v1/templates/{name}", changes, s.putTemplate, op("put-template", "templates", "Store a version of a template",
		"Each content is one version, which never changes. New tasks use it within a second in every process; tasks that were accepted "+
			"before keep theirs. `errors` of a refused request has all mistakes, with file, line and column."))
	register(s, "GET /v1/templates/{name}/versions", reads, s.listTemplateVersions, op("list-template-versions", "templates",
		"List the versions of a template, newest first", "A version is kept while it is active, or a task or an idempotency key refers to it."))
	register(s, "GET /v1/templates/{name}/versions/{version}", reads, s.getTemplateVersion, op("get-template-version", "templates",
		"Get a version of a template with its files"))
	register(s, "POST /v1/templates/{name}/activate", forOperator, s.activateTemplate, op("activate-template", "templates",
		"Make a stored version that of new tasks", "Also of a deleted template."))
	s.renderTemplateRoute()
	registerOutput(s, "DELETE /v1/templates/{name}", forOperator, s.deleteTemplate, op("delete-template", "templates", "Refuse new tasks of a template",
		"Accepted tasks keep their version. A template of a binary or directory stays deleted, too, until a version is stored or activated here. "+
			"409: it is already deleted; GET /v1/templates?deleted=true lists those."))
}

func (s *server) getTemplate(ctx context.Context, in *TemplatePath) (*client.TemplateState, error) {
	if err := s.Templates.Refresh(ctx); err != nil {
		return nil, err
	}
	state, err := s.Templates.State(in.Name)
	if err != nil {
		return nil, err
	}
	out := &client.TemplateState{
		Name: state.Template, Version: state.Version, State: "active", Source: string(state.Source), Replaces: s.replaces(state), ChangedAt: state.ChangedAt, ChangedBy: state.ChangedBy,
	}
	out.Template, out.Warnings, err = s.viewOf(ctx, state)
	if out.Template == nil {
		out.State = "unreadable"
	}
	if state.Deleted {
		out.State = "deleted"
	}
	return out, err
}

func (s *server) putTemplate(ctx context.Context, in *putTemplateInput) (*client.AppliedTemplate, error) {
	t, err := template.Load(in.Name, in.Body.Files)
	if err != nil {
		return nil, err
	}
	before, err := s.stateBefore(ctx, in.Name)
	if err != nil {
		return nil, err
	}
	next := ledger.TemplateState{Template: t.Name, Version: t.Version, Source: ledger.TemplateAPI}
	out := &client.AppliedTemplate{Name: t.Name, Version: t.Version, Template: s.templateView(t, next), Warnings: s.catalog().Lacks(t)}
	out.Activated = in.Body.Activate == nil || *in.Body.Activate
	replaces := out.Activated && before.Version != "" && !before.Deleted && before.Version != t.Version && before.Source != ledger.TemplateAPI
	if replaces {
		out.Warnings = append(out.Warnings, fmt.Sprintf("template %s: the version replaces that of %s; 'berth template activate %s %.12s' returns to it",
			t.Name, sourceNames[before.Source], t.Name, before.Version))
	}
	if in.Body.DryRun {
		_, known, err := berth.Found(s.Ledger.TemplateVersion(ctx, t.Name, t.Version))
		out.Created, out.Activated = !known, false
		return out, err
	}
	if out.Created, err = s.Ledger.PutTemplate(ctx, ledger.TemplateVersion{
		Template: t.Name, Version: t.Version, Files: t.Files(), Source: ledger.TemplateAPI, CreatedBy: callOf(ctx).user.UserID,
	}, out.Activated); err != nil {
		return nil, err
	}
	if replaces {
		s.log.WarnContext(ctx, "template replaces that of another source", "template", t.Name, "version", t.Version, "source", ledger.TemplateAPI,
			"formerVersion", before.Version, "formerSource", before.Source)
	}
	next.ChangedBy = callOf(ctx).user.UserID
	s.templateChanged(ctx, changeOf(before, next, out.Created, out.Activated), t.Name, t.Version)
	return out, nil
}

// stateBefore returns the state of a template before a change, the zero value for a new one.
func (s *server) stateBefore(ctx context.Context, name berth.Template) (ledger.TemplateState, error) {
	if err := s.Templates.Refresh(ctx); err != nil {
		return ledger.TemplateState{}, err
	}
	state, _ := s.Templates.State(name) // unknown is new
	return state, nil
}

// changeOf returns what a request has changed: activated, also if only who decided it is another one; stored; or unchanged.
func changeOf(before, next ledger.TemplateState, created, activate bool) string {
	switch {
	case activate && (before.Version != next.Version || before.Deleted || before.ChangedBy != next.ChangedBy):
		return "activated"
	case created:
		return "stored"
	}
	return unchanged
}

// unchanged is the change of a request that repeats an earlier one. It is logged for debugging only.
const unchanged = "unchanged"

// sourceNames say where a version comes from.
var sourceNames = map[ledger.TemplateSource]string{
	ledger.TemplateBuiltIn: "the program", ledger.TemplateDirectory: "a directory", ledger.TemplateAPI: "an operator",
}

// mistaken returns the problem of files with mistakes.
func mistaken(mistakes template.Mistakes) *Problem {
	p := &Problem{Status: http.StatusBadRequest, Code: berth.CodeInvalid, Field: "files", Detail: mistakes[0].Error()}
	if n := len(mistakes); n > 1 {
		p.Detail = fmt.Sprintf("the template has %d mistakes, which errors lists", n)
	}
	for _, m := range mistakes {
		p.Errors = append(p.Errors, FieldError{Field: m.Field, Message: m.Message, File: m.File, Line: m.Line, Column: m.Column})
	}
	return p
}

// templateChanged makes a change known to this process. The others read it by themselves.
func (s *server) templateChanged(ctx context.Context, what string, name berth.Template, version string) {
	level := slog.LevelInfo
	if what == unchanged {
		level = slog.LevelDebug
	}
	s.log.Log(ctx, level, "template changed", "change", what, "template", name, "version", version, "by", callOf(ctx).user.UserID)
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), templateTimeout)
	defer cancel()
	if err := s.Templates.Refresh(ctx); err != nil {
		s.log.WarnContext(ctx, "changed template not read yet", "template", name, "error", err)
	}
}

// templateTimeout bounds how long a response waits until this process knows a change.
const templateTimeout = 2 * time.Second

func (s *server) listTemplateVersions(ctx context.Context, in *templateVersionsInput) (*templateVersionsBody, error) {
	found, next, err := s.Ledger.TemplateVersions(ctx, in.Name, in.Cursor, in.Limit)
	if err != nil {
		return nil, err
	}
	if len(found) == 0 && in.Cursor == "" {
		return nil, berth.Errorf(berth.CodeNotFound, "template %s not found", in.Name)
	}
	active, err := s.activeVersion(ctx, in.Name)
	return &templateVersionsBody{NextCursor: next, Versions: convert(found, func(v ledger.TemplateVersion) client.TemplateVersion {
		return viewVersion(v, active)
	})}, err
}

// activeVersion returns the version of new tasks, empty for a template that has none.
func (s *server) activeVersion(ctx context.Context, name berth.Template) (string, error) {
	if err := s.Templates.Refresh(ctx); err != nil {
		return "", err
	}
	state, err := s.Templates.State(name)
	if err != nil || state.Deleted {
		return "", nil //nolint:nilerr // no version was activated
	}
	return state.Version, nil
}

func viewVersion(v ledger.TemplateVersion, active string) client.TemplateVersion {
	return client.TemplateVersion{
		Name: v.Template, Version: v.Version, Active: v.Version == active, Source: string(v.Source), CreatedAt: v.CreatedAt, CreatedBy: v.CreatedBy, Files: v.Files,
	}
}

func (s *server) getTemplateVersion(ctx context.Context, in *templateVersionInput) (*client.TemplateVersion, error) {
	v, err := s.Ledger.TemplateVersion(ctx, in.Name, in.Version)
	if err != nil {
		return nil, err
	}
	active, err := s.activeVersion(ctx, in.Name)
	if err != nil {
		return nil, err
	}
	out := viewVersion(v, active)
	out.Template, out.Warnings, err = s.viewOf(ctx, ledger.TemplateState{Template: v.Template, Version: v.Version, Source: v.Source})
	return &out, err
}

// viewOf returns what users see of the version of a state, and what is missing for it; nil and why for a version that this release cannot read.
func (s *server) viewOf(ctx context.Context, state ledger.TemplateState) (view *client.Template, warnings []string, err error) {
	t, err := s.Templates.Version(ctx, state.Template, state.Version)
	if mistakes := template.Mistakes(nil); errors.As(err, &mistakes) {
		return nil, convert(mistakes, template.Mistake.Error), nil
	} else if err != nil {
		return nil, nil, err
	}
	return new(s.templateView(t, state)), s.catalog().Lacks(t), nil
}

func (s *server) activateTemplate(ctx context.Context, in *activateTemplateInput) (*client.TemplateState, error) {
	before, err := s.stateBefore(ctx, in.Name)
	if err != nil {
		return nil, err
	}
	next := ledger.TemplateState{Version: in.Body.Version, ChangedBy: callOf(ctx).user.UserID}
	if err := s.Ledger.ActivateTemplate(ctx, in.Name, next.Version, next.ChangedBy); err != nil {
		return nil, err
	}
	s.templateChanged(ctx, changeOf(before, next, false, true), in.Name, next.Version)
	return s.getTemplate(ctx, &in.TemplatePath)
}

func (s *server) deleteTemplate(ctx context.Context, in *TemplatePath) (*struct{}, error) {
	before, err := s.stateBefore(ctx, in.Name)
	if err != nil {
		return nil, err
	}
	if err := s.Ledger.DeleteTemplate(ctx, in.Name, callOf(ctx).user.UserID); err != nil {
		return nil, err
	}
	s.templateChanged(ctx, "deleted", in.Name, before.Version)
	return nil, nil //nolint:nilnil // the response has no body
}
