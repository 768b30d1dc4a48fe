package api

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"berth"
	"berth/client"
	"berth/internal/ledger"
	"berth/internal/llm"
)

type putRoutingInput struct {
	Body client.RoutingContent
}

type activateRoutingInput struct {
	Body activateRoutingBody
}

type activateRoutingBody struct {
	Revision int64 `json:"revision" minimum:"1" doc:"A revision, see GET /v1/routing/revisions"`
}

type routingRevisionsInput struct {
	Limit int `query:"limit" minimum:"1" maximum:"100" default:"20"`
	CursorParam
}

type routingRevisionInput struct {
	Revision int64 `path:"revision" minimum:"1"`
}

type routingRevisionsBody struct {
	Revisions  []client.Routing `json:"revisions"`
	NextCursor string           `json:"nextCursor,omitempty" doc:"Absent on the last page"`
}

// routingRoutes registers the routes with which operators read and change the routing.
func (s *server) routingRoutes() {
	register(s, "GET /v1/routing", forOperator, s.getRouting, op("get-routing", "models", "Get the routing file that all processes use"))
	changes := forOperator
	changes.private = []string{"content"} // the revisions have it
	register(s, "PUT /v1/routing", changes, s.putRouting, op("put-routing", "models", "Let all processes use a routing file",
		"The content is checked as a file is. Unless it means the same as the newest revision it becomes a new one, which every process uses within "+
			"a second. Tasks that were accepted before keep their models: a model that the content does not have any more finishes them."))
	register(s, "GET /v1/routing/revisions", forOperator, s.listRouting, op("list-routing", "models", "List the revisions of the routing, newest first"))
	register(s, "GET /v1/routing/revisions/{revision}", forOperator, s.getRoutingRevision, op("get-routing-revision", "models",
		"Get a revision of the routing with its content"))
	register(s, "POST /v1/routing/activate", forOperator, s.activateRouting, op("activate-routing", "models", "Return to the content of a revision",
		"The content becomes a new revision. Files with a content that was published before do not replace it, until they change."))
}

func (s *server) getRouting(ctx context.Context, _ *struct{}) (*client.Routing, error) {
	newest, err := s.Ledger.NewestRouting(ctx)
	if err != nil {
		return nil, err
	}
	return s.getRoutingRevision(ctx, &routingRevisionInput{newest})
}

func (s *server) getRoutingRevision(ctx context.Context, in *routingRevisionInput) (*client.Routing, error) {
	newest, err := s.Ledger.NewestRouting(ctx)
	if err != nil {
		return nil, err
	}
	r, err := s.Ledger.Routing(ctx, in.Revision)
	return new(viewRouting(r, newest)), err
}

func (s *server) listRouting(ctx context.Context, in *routingRevisionsInput) (*routingRevisionsBody, error) {
	newest, err := s.Ledger.NewestRouting(ctx)
	if err != nil {
		return nil, err
	}
	found, next, err := s.Ledger.RoutingRevisions(ctx, in.Cursor, in.Limit)
	return &routingRevisionsBody{NextCursor: next, Revisions: convert(found, func(r ledger.RoutingRevision) client.Routing { return viewRouting(r, newest) })}, err
}

func viewRouting(r ledger.RoutingRevision, newest int64) client.Routing {
	return client.Routing{
		Revision: r.Revision, Newest: r.Revision == newest, Source: string(r.Source), Origin: r.Origin, CreatedAt: r.CreatedAt, CreatedBy: r.CreatedBy,
		Content: r.Content,
	}
}

func (s *server) putRouting(ctx context.Context, in *putRoutingInput) (*client.AppliedRouting, error) {
	return s.applyRouting(ctx, "routing.yaml", in.Body.Content, in.Body.DryRun)
}

func (s *server) activateRouting(ctx context.Context, in *activateRoutingInput) (*client.AppliedRouting, error) {
	r, err := s.Ledger.Routing(ctx, in.Body.Revision)
	if err != nil {
		return nil, err
	}
	return s.applyRouting(ctx, fmt.Sprintf("revision %d", r.Revision), r.Content, false)
}

// applyRouting publishes a content, unless it is the newest.
func (s *server) applyRouting(ctx context.Context, name, text string, dryRun bool) (*client.AppliedRouting, error) {
	content, err := llm.ParseContent(name, text)
	if err != nil {
		return nil, berth.Invalid("content", "%s", err)
	}
	next, err := llm.NewCatalog(content.Config, llm.Settings{})
	if err != nil {
		return nil, berth.Invalid("content", "%s", err)
	}
	unused, err := s.unusedSettings(ctx, next)
	if err != nil {
		return nil, err
	}
	out := &client.AppliedRouting{Warnings: append(s.routingWarnings(next), unused...)}
	if dryRun {
		known, err := s.Ledger.KnownRouting(ctx, content.Hash)
		out.Revision = known
		return out, err
	}
	by := callOf(ctx).user.UserID
	applied, err := s.Ledger.PutRouting(ctx, ledger.RoutingRevision{
		Hash: content.Hash, Source: ledger.RoutingAPI, CreatedBy: by, Content: content.Text, Models: content.Models(),
	})
	if err != nil {
		return nil, err
	}
	out.Revision, out.Published = applied.Newest.Revision, applied.Published
	if out.Published {
		s.log.InfoContext(ctx, "routing published", "revision", out.Revision, "by", by)
	}
	known, cancel := context.WithTimeout(context.WithoutCancel(ctx), templateTimeout)
	defer cancel()
	if err := s.Routing.Refresh(known); err != nil {
		s.log.WarnContext(ctx, "changed routing not read yet", "revision", out.Revision, "error", err)
	}
	return out, nil
}

// routingWarnings returns what the templates of new tasks would lack, which models are removed, and which have credits and no bound.
func (s *server) routingWarnings(next *llm.Catalog) []string {
	warnings := []string{}
	for _, name := range s.catalog().ModelNames() {
		if !next.Has(name) {
			warnings = append(warnings, fmt.Sprintf("model %s is removed: accepted tasks finish with the last revision that had it", name))
		}
	}
	list := s.Templates.List()
	warnings = append(warnings, next.LacksOfAll(list, s.catalog())...)
	return append(warnings, slices.Concat(next.UnusedRoutes(list), next.AssumedBounds())...)
}

// unusedSettings returns a warning for each upstream for which operators have set something and which a routing does not have.
func (s *server) unusedSettings(ctx context.Context, next *llm.Catalog) (warnings []string, err error) {
	all, err := s.Ledger.Settings(ctx)
	if err != nil {
		return nil, err
	}
	for _, setting := range all {
		m, ok := next.Model(setting.ID)
		if setting.Kind != ledger.SettingModel || !ok || len(setting.Body) == 0 {
			continue
		}
		var of berth.ModelSettings
		if err := json.Unmarshal(setting.Body, &of); err != nil {
			return nil, fmt.Errorf("settings of model %s: %w", setting.ID, err)
		}
		for _, name := range slices.Sorted(maps.Keys(of.Upstreams)) {
			l := of.Upstreams[name]
			if _, has := m.Upstream(name); !has && (l.Paused || l.Cap != nil || l.RPM != nil || l.TPM != nil) {
				warnings = append(warnings, fmt.Sprintf("operators have set limits or a pause for upstream %s of model %s, which this routing does not have: set them for its new name", name, m.Name))
			}
		}
	}
	return warnings, nil
}

// neededModels returns the models of the routing, and those that it does not have, but accepted tasks need, by name.
func (s *server) neededModels() []llm.Model {
	now := s.Routing.Current()
	all := now.Models()
	for name := range now.Former() {
		m, _ := now.Of(name).Model(name)
		all = append(all, m)
	}
	for name := range now.Unknown() {
		all = append(all, llm.Model{Name: name})
	}
	slices.SortFunc(all, func(a, b llm.Model) int { return strings.Compare(a.Name, b.Name) })
	return all
}

// modelServices returns why calls of models are not made.
func (s *server) modelServices(ctx context.Context, models []llm.Model) (map[string]client.ModelService, error) {
	queues := convert(models, func(m llm.Model) string { return berth.ModelTaskQueue(m.Name) })
	unpolled, err := s.Scripts.CheckPollers(ctx, queues)
	if err != nil {
		return nil, fromRedis(err)
	}
	now := s.Routing.Current()
	used := slices.Concat(now.UsedModels(s.Templates.List()), now.Open())
	services := map[string]client.ModelService{}
	for i, m := range models {
		v := client.ModelService{Unpolled: slices.Contains(unpolled, queues[i]) && slices.Contains(used, m.Name)}
		if _, removed := now.Former()[m.Name]; removed {
			v.Missing = client.ModelRemoved
		} else if _, unknown := now.Unknown()[m.Name]; unknown {
			v.Missing = client.ModelUnknown
		}
		services[m.Name] = v
	}
	return services, nil
}
