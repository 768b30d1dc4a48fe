package api

import (
	"net/http"
	"time"

	"github.com/labstack/echo/v4"
	"github.com/labstack/echo/v4/middleware"
)

// preflightTTL is how long a browser may keep the permission to call a route.
const preflightTTL = time.Hour

// callHeaders are the request headers that pages may send: those of the API, those of tracing libraries for browsers, and every other
// one. The wildcard does not include Authorization, and browsers from before 2022 ignore it.
func callHeaders() []string {
	return []string{
		echo.HeaderAuthorization, echo.HeaderContentType, echo.HeaderAccept, echo.HeaderCacheControl, "Last-Event-ID", "Idempotency-Key",
		echo.HeaderXRequestID, "X-Correlation-ID", echo.HeaderXRequestedWith,
		"traceparent", "tracestate", "baggage", // W3C
		"b3", "X-B3-TraceId", "X-B3-SpanId", "X-B3-ParentSpanId", "X-B3-Sampled", "X-B3-Flags", // Zipkin
		"sentry-trace", "newrelic", "uber-trace-id", "elastic-apm-traceparent", "X-Amzn-Trace-Id", "X-Cloud-Trace-Context", "Request-Id", "Request-Context",
		"x-datadog-trace-id", "x-datadog-parent-id", "x-datadog-origin", "x-datadog-sampling-priority", "x-datadog-tags",
		"*",
	}
}

// crossOrigin lets the pages of the configured origins call the API. Cookies are never accepted, so that a page can only use a
// token that it was given.
func (s *server) crossOrigin() echo.MiddlewareFunc {
	if len(s.Config.CORSOrigins) == 0 {
		return func(next echo.HandlerFunc) echo.HandlerFunc { return next }
	}
	return middleware.CORSWithConfig(middleware.CORSConfig{
		Skipper:      isSignal,
		AllowOrigins: s.Config.CORSOrigins,
		AllowMethods: []string{http.MethodGet, http.MethodHead, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete},
		AllowHeaders: callHeaders(),
		ExposeHeaders: []string{
			echo.HeaderLocation, echo.HeaderRetryAfter, echo.HeaderWWWAuthenticate, echo.HeaderXRequestID, "Berth-Stale",
			headerRate, headerRatePolicy,
		},
		MaxAge: int(preflightTTL.Seconds()),
	})
}
