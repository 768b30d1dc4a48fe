package api

import (
	"net/http"
	"time"

	"github.com/labstack/echo/v4"
	"github.com/labstack/echo/v4/middleware"
)

// preflightTTL is how long a browser may keep the permission to call a route.
const preflightTTL = time.Hour

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
		AllowHeaders: []string{
			echo.HeaderAuthorization, echo.HeaderContentType, "Last-Event-ID", "Idempotency-Key", echo.HeaderXRequestID, "traceparent",
		},
		ExposeHeaders: []string{
			echo.HeaderLocation, echo.HeaderRetryAfter, echo.HeaderWWWAuthenticate, echo.HeaderXRequestID, "Berth-Stale",
			headerRate, headerRatePolicy,
		},
		MaxAge: int(preflightTTL.Seconds()),
	})
}
