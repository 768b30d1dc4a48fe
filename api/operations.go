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
	get := func(path string, handler echo.HandlerFunc, id, summary, mediaType, description string) {
		s.route("GET "+path, rule{public: true}, handler, withResponses(
			map[string]*huma.Response{"200": response(description, mediaType, &huma.Schema{})}, op(id, "operations", summary)))
	}
	get("/healthz", s.alive, "healthz", "Check that the process is alive", echo.MIMEApplicationJSON, "ok")
	get("/readyz", s.ready, "readyz", "Check that Redis, the database and Temporal respond; 503 names those that do not",
		echo.MIMEApplicationJSON, "Everything responds")
	if s.Metrics != nil {
		get("/metrics", echo.WrapHandler(s.Metrics), "metrics", "Get Prometheus metrics", echo.MIMETextPlain, "Metrics")
	}
	var yaml, doc []byte
	serve := func(mediaType string, body *[]byte) echo.HandlerFunc {
		return func(c echo.Context) error { return c.Blob(http.StatusOK, mediaType, *body) }
	}
	get("/openapi.yaml", serve("application/yaml", &yaml), "openapi-yaml", "Get this description as YAML", "application/yaml", "OpenAPI 3.1")
	get("/openapi.json", serve("application/json", &doc), "openapi-json", "Get this description as JSON", "application/json", "OpenAPI 3.1")
	var err error
	if yaml, err = s.doc.OpenAPI().YAML(); err != nil {
		return fmt.Errorf("describe api: %w", err)
	}
	if doc, err = json.Marshal(s.doc.OpenAPI()); err != nil {
		return fmt.Errorf("describe api: %w", err)
	}
	return nil
}

func (s *server) alive(c echo.Context) error {
	return c.JSON(http.StatusOK, map[string]string{"status": "ok", "version": s.Config.Version})
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
		return s.alive(c)
	}
	slices.Sort(missing)
	return &Problem{
		Status: http.StatusServiceUnavailable, Code: berth.CodeUnavailable, Missing: missing,
		Detail: "unavailable: " + strings.Join(missing, ", "),
	}
}
