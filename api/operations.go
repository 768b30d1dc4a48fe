package api

import (
	"encoding/json"
	"fmt"
	"net/http"
	"sync"

	"github.com/danielgtaylor/huma/v2"
	"github.com/labstack/echo/v4"

	"berth/internal/health"
)

// operationRoutes registers the routes of operators.
func (s *server) operationRoutes() {
	get := func(path string, handler echo.HandlerFunc, id, summary, mediaType, description string) {
		s.route("GET "+path, rule{public: true, compress: true}, handler, withResponses(
			map[string]*huma.Response{"200": response(description, mediaType, &huma.Schema{})}, op(id, "operations", summary)))
	}
	get("/healthz", s.alive, "healthz", "Check that the process is alive", echo.MIMEApplicationJSON, "ok")
	state := s.schemaOf(health.Report{})
	s.route("GET /readyz", rule{public: true}, s.ready, withResponses(map[string]*huma.Response{
		"200": response("The process should receive requests", echo.MIMEApplicationJSON, state),
		"503": response("The process is starting or stopping", echo.MIMEApplicationJSON, state),
	}, op("readyz", "operations", "Check whether the process should receive requests",
		"503 until each dependency has responded once, and while the process stops. A later outage is shown in the body only, because reads still work.")))
	// Encoded at the first request: most processes never serve the description, and all would start later.
	describe := func(mediaType string, encode func() ([]byte, error)) echo.HandlerFunc {
		body := sync.OnceValues(encode)
		return func(c echo.Context) error {
			b, err := body()
			if err != nil {
				return fmt.Errorf("describe api: %w", err)
			}
			return c.Blob(http.StatusOK, mediaType, b)
		}
	}
	get("/openapi.yaml", describe("application/yaml", s.doc.OpenAPI().YAML), "openapi-yaml", "Get this description as YAML", "application/yaml", "OpenAPI 3.1")
	get("/openapi.json", describe("application/json", func() ([]byte, error) { return json.Marshal(s.doc.OpenAPI()) }), "openapi-json", "Get this description as JSON", "application/json", "OpenAPI 3.1")
}

func (s *server) alive(c echo.Context) error {
	return c.JSON(http.StatusOK, map[string]string{"status": "ok", "version": s.Config.Version})
}

func (s *server) ready(c echo.Context) error {
	r := s.Health.Report()
	return c.JSON(r.StatusCode(), r)
}
