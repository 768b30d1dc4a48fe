package api

import (
	"encoding/json"
	"fmt"
	"net/http"

	"github.com/danielgtaylor/huma/v2"
	"github.com/labstack/echo/v4"

	"berth/internal/health"
)

// operationRoutes registers the routes of operators. It is called last because it serves the complete description.
func (s *server) operationRoutes() error {
	get := func(path string, handler echo.HandlerFunc, id, summary, mediaType, description string) {
		s.route("GET "+path, rule{public: true}, handler, withResponses(
			map[string]*huma.Response{"200": response(description, mediaType, &huma.Schema{})}, op(id, "operations", summary)))
	}
	get("/healthz", s.alive, "healthz", "Check that the process is alive", echo.MIMEApplicationJSON, "ok")
	state := s.schemaOf(health.Report{})
	s.route("GET /readyz", rule{public: true}, s.ready, withResponses(map[string]*huma.Response{
		"200": response("The process should receive requests", echo.MIMEApplicationJSON, state),
		"503": response("The process is starting or stopping", echo.MIMEApplicationJSON, state),
	}, op("readyz", "operations", "Check whether the process should receive requests",
		"503 until each dependency has responded once, and while the process stops. A later outage is shown in the body only, because reads still work.")))
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

func (s *server) ready(c echo.Context) error {
	r := s.Health.Report()
	return c.JSON(r.StatusCode(), r)
}
