package api

import (
	"mime"
	"strconv"
	"strings"

	"github.com/labstack/echo/v4"
	"github.com/labstack/echo/v4/middleware"
)

// compressFrom is the length of the responses that are compressed: less would hardly save a packet.
const compressFrom = 4 << 10

// compressed compresses long responses of the routes whose rule permits it, which have no secrets: the length of a compressed secret beside a text
// that an attacker chooses would reveal it (BREACH, CVE-2013-3587). Streams have no such rule.
func (s *server) compressed() echo.MiddlewareFunc {
	return middleware.GzipWithConfig(middleware.GzipConfig{MinLength: compressFrom, Skipper: func(c echo.Context) bool {
		r := s.rules[routeKey(c.Request().Method, c.Path())]
		return !r.compress || refusesGzip(strings.Join(c.Request().Header.Values(echo.HeaderAcceptEncoding), ","))
	}})
}

// refusesGzip reports whether a field Accept-Encoding excludes gzip by a weight of 0 (RFC 9110, section 12.5.3), which the middleware ignores.
func refusesGzip(field string) bool {
	for one := range strings.SplitSeq(field, ",") {
		coding, params, err := mime.ParseMediaType(one)
		if err != nil || coding != "gzip" && coding != "x-gzip" {
			continue
		}
		if q, err := strconv.ParseFloat(params["q"], 64); err == nil && q == 0 {
			return true
		}
	}
	return false
}
