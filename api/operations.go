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
	"github.com/labstack/echo/v4"

	"berth"
)

// checkTimeout limits the checks of /readyz.
const checkTimeout = 2 * time.Second

// operationRoutes registers the routes of operators. It is called last because it serves the complete description.
func (s *server) operationRoutes() error {
	public := rule{public: true}
	s.route(huma.Operation{
		OperationID: "healthz", Method: http.MethodGet, Path: "/healthz", Tags: []string{"operations"},
		Summary: "Check that the process is alive", Responses: s.ok("application/json", "ok"),
	}, public, func(c echo.Context) error {
		return c.JSON(http.StatusOK, map[string]string{"status": "ok", "version": s.Config.Version})
	})
	s.route(huma.Operation{
		OperationID: "readyz", Method: http.MethodGet, Path: "/readyz", Tags: []string{"operations"},
		Summary:   "Check that Redis, the database and Temporal respond; 503 names those that do not",
		Responses: s.ok("application/json", "Everything responds"),
	}, public, s.ready)
	if s.Metrics != nil {
		s.route(huma.Operation{
			OperationID: "metrics", Method: http.MethodGet, Path: "/metrics", Tags: []string{"operations"},
			Summary: "Get Prometheus metrics", Responses: s.ok("text/plain", "Metrics"),
		}, public, echo.WrapHandler(s.Metrics))
	}
	var yaml, doc []byte
	serve := func(mediaType string, body *[]byte) echo.HandlerFunc {
		return func(c echo.Context) error { return c.Blob(http.StatusOK, mediaType, *body) }
	}
	s.route(huma.Operation{
		OperationID: "openapi-yaml", Method: http.MethodGet, Path: "/openapi.yaml", Tags: []string{"operations"},
		Summary: "Get this description as YAML", Responses: s.ok("application/yaml", "OpenAPI 3.1"),
	}, public, serve("application/yaml", &yaml))
	s.route(huma.Operation{
		OperationID: "openapi-json", Method: http.MethodGet, Path: "/openapi.json", Tags: []string{"operations"},
		Summary: "Get this description as JSON", Responses: s.ok("application/json", "OpenAPI 3.1"),
	}, public, serve("application/json", &doc))
	var err error
	if yaml, err = s.doc.OpenAPI().YAML(); err != nil {
		return fmt.Errorf("describe api: %w", err)
	}
	if doc, err = json.Marshal(s.doc.OpenAPI()); err != nil {
		return fmt.Errorf("describe api: %w", err)
	}
	return nil
}

func (s *server) ok(mediaType, description string) map[string]*huma.Response {
	return map[string]*huma.Response{"200": {
		Description: description, Content: map[string]*huma.MediaType{mediaType: {Schema: &huma.Schema{}}},
	}}
}

// ready checks all dependencies concurrently.
func (s *server) ready(c echo.Context) error {
	checks := map[string]Pinger{"redis": s.Redis, "database": s.Ledger, "temporal": s.Temporal}
	ctx, cancel := context.WithTimeout(c.Request().Context(), checkTimeout)
	defer cancel()
	type outcome struct {
		name string
		err  error
	}
	results := make(chan outcome, len(checks))
	for name, p := range checks {
		go func() { results <- outcome{name, p.Ping(ctx)} }()
	}
	var missing []string
	for range checks {
		r := <-results
		if r.err != nil {
			missing = append(missing, r.name)
			s.log.WarnContext(ctx, "not ready", "missing", r.name, "error", r.err)
		}
	}
	if len(missing) == 0 {
		return c.JSON(http.StatusOK, map[string]string{"status": "ok", "version": s.Config.Version})
	}
	slices.Sort(missing)
	return &Problem{
		Status: http.StatusServiceUnavailable, Code: berth.CodeUnavailable, Missing: missing,
		Detail: "unavailable: " + strings.Join(missing, ", "),
	}
}
