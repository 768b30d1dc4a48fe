package api

import (
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/labstack/echo/v4"

	"berth"
	"berth/internal/openai"
)

// describedQueries returns the names of the query parameters of each route under /v1, in the order of the description. Load balancers
// and browsers may add parameters to the other routes, and Temporal decides which ones its UI sends to the codec.
func describedQueries(doc *huma.OpenAPI, rules map[string]rule) map[string][]string {
	queries := map[string][]string{}
	eachOperation(doc, func(path, key string, op *huma.Operation) {
		if !strings.HasPrefix(path, "/v1/") || path == codecPath {
			return
		}
		names := []string{}
		for _, p := range op.Parameters {
			if p.In == "query" {
				names = append(names, p.Name)
			}
		}
		if rules[key].ticket != noTicket {
			names = append(names, "ticket")
		}
		queries[key] = names
	})
	return queries
}

// eachOperation calls f for each operation of the description, with its path and the key of its route.
func eachOperation(doc *huma.OpenAPI, f func(path, key string, op *huma.Operation)) {
	for path, item := range doc.Paths {
		for method, op := range map[string]*huma.Operation{
			http.MethodGet: item.Get, http.MethodPost: item.Post, http.MethodPut: item.Put, http.MethodPatch: item.Patch, http.MethodDelete: item.Delete,
		} {
			if op != nil {
				f(path, routeKey(method, echoPath(path)), op)
			}
		}
	}
}

// checkQuery rejects query parameters that the route does not have or that are given twice: a filter without effect would return too much.
func (s *server) checkQuery(next echo.HandlerFunc) echo.HandlerFunc {
	return func(c echo.Context) error {
		if err := s.queryError(c); err != nil {
			return err
		}
		return next(c)
	}
}

func (s *server) queryError(c echo.Context) error {
	names, described := s.queries[routeKey(c.Request().Method, c.Path())]
	if !described || c.Request().URL.RawQuery == "" {
		return nil
	}
	values, err := url.ParseQuery(c.Request().URL.RawQuery)
	if err != nil {
		return berth.Invalid("query", invalidQuery).With(err)
	}
	var wrong []error
	for name, given := range values {
		switch {
		case !slices.Contains(names, name):
			wrong = append(wrong, &huma.ErrorDetail{Location: "query." + name, Message: unknownParameter(names)})
		case len(given) > 1:
			wrong = append(wrong, &huma.ErrorDetail{Location: "query." + name, Message: givenTwice})
		}
	}
	if len(wrong) == 0 {
		return nil
	}
	slices.SortFunc(wrong, func(a, b error) int { return strings.Compare(a.Error(), b.Error()) })
	return humaProblem(http.StatusUnprocessableEntity, "invalid query", wrong)
}

// queried returns a handler of OpenAI's protocol that rejects other query parameters than those with these names, and those that are given twice or are
// empty, except for include, which is a list.
func queried(handler func(echo.Context, modelCaller) error, names ...string) func(echo.Context, modelCaller) error {
	return func(c echo.Context, caller modelCaller) error {
		values, err := url.ParseQuery(c.Request().URL.RawQuery)
		if err != nil {
			return openai.Invalid("", "invalid_value", invalidQuery)
		}
		for _, name := range slices.Sorted(maps.Keys(values)) {
			switch {
			case strings.TrimSuffix(name, "[]") == include: // as clients write lists
			case !slices.Contains(names, name):
				return openai.Invalid(name, "unknown_parameter", "%s", unknownParameter(names))
			case len(values[name]) > 1:
				return openai.Invalid(name, "invalid_value", givenTwice)
			case values.Get(name) == "":
				return openai.Invalid(name, "invalid_value", "must not be empty: omit it")
			}
		}
		return handler(c, caller)
	}
}

// checkPeriod rejects a filter by time that matches nothing. Zero times are absent.
func checkPeriod(from, to time.Time) error {
	if !to.IsZero() && from.After(to) {
		return berth.Invalid("from", "must not be later than to")
	}
	return nil
}

// checkKey rejects an Idempotency-Key that is empty or given twice: retries with it would not be idempotent.
func checkKey(next echo.HandlerFunc) echo.HandlerFunc {
	return func(c echo.Context) error {
		const name = "Idempotency-Key"
		switch keys := c.Request().Header.Values(name); {
		case len(keys) > 1:
			return berth.Invalid(name, givenTwice)
		case len(keys) == 1 && keys[0] == "":
			return berth.Invalid(name, "must not be empty")
		}
		return next(c)
	}
}

const invalidQuery = "the query of the URL must be name=value pairs, percent-encoded"

func unknownParameter(names []string) string {
	if len(names) == 0 {
		return "unknown parameter; the route has none"
	}
	return "unknown parameter; the route has " + strings.Join(names, ", ")
}
